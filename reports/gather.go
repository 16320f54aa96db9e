package reports

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"rcgrpo/bfcl"
	"rcgrpo/engine/artifact"
	"rcgrpo/reports/page"
	"rcgrpo/stages/rl"
)

// gathering collects a study from artifacts, for the report stage and for Verify. It reads only the evidence, artifacts
// and manifests.
type gathering struct {
	study *Study
}

// gather reads the inputs and stages of the evidence. store may be nil if the evidence has no stages.
func gather(ev *Evidence, open func(*Input) (*artifact.Artifact, error), store *artifact.Store) (*Study, error) {
	g := &gathering{}
	g.study = &Study{Name: ev.Name, Question: ev.Question, Expect: ev.Expect, Notes: ev.notes(), Windows: ev.Windows,
		Compare: ev.Compare, Sections: ev.Sections, Failures: ev.Failures,
		References: ev.References, Maps: ev.Maps}
	readers := map[string]func(*Input, *artifact.Artifact) error{
		roleScores: g.scores, roleCurves: g.curve, roleData: g.data, roleTranscripts: g.transcripts,
		roleCalls: g.calls, roleReplay: func(*Input, *artifact.Artifact) error { return nil }}
	type use struct{ role, name, key, port, seed string }
	counted := map[use]bool{} // an artifact counts once for a name and seed, however often the page names it
	for i := range ev.Inputs {
		in := &ev.Inputs[i]
		a, err := open(in)
		if err != nil {
			return nil, err
		}
		a.Ref = in.Ref
		// A stage with a seed of its own has none on the page, and a result without randomness none in its record.
		named := strings.TrimPrefix((&SeedRun{Seed: in.Ref.Seed}).Name(), "seed ")
		one := use{in.Role, in.Label, in.Key, in.Ref.Port, cmp.Or(a.Manifest.Parts["seed"], named)}
		if named != "" && named != one.seed {
			return nil, fmt.Errorf("%s: the page says seed %s, its record %s", in.port(), named, one.seed)
		}
		switch in.Role {
		case roleCalls:
			one.seed = "" // paid once for all seeds
		case roleData, roleReplay: // without labels
			one.name = in.Address
		}
		if counted[one] {
			continue
		}
		counted[one] = true
		read := readers[in.Role]
		if read == nil {
			return nil, fmt.Errorf("the evidence gives %s the unknown role %q", in.Address, in.Role)
		}
		if err := read(in, a); err != nil {
			return nil, err
		}
	}
	for i := range g.study.Arms {
		slices.SortStableFunc(g.study.Arms[i].Runs, func(a, b SeedRun) int { return compareSeeds(a.Seed, b.Seed) })
	}
	g.study.sortArms(ev.Arms)
	results := once(func(key string) (Stage, error) { return readResult(key, store) })
	for _, stage := range ev.Stages {
		r, err := results(stage.Key)
		if err != nil {
			return nil, fmt.Errorf("%s, key %s: %w", stage.Address, stage.Key, err)
		}
		if r.Manifest.Kind != stage.Kind { // which decides on the paper's settings
			return nil, fmt.Errorf("%s: the page says %s, its record %s", stage.Address, stage.Kind, r.Manifest.Kind)
		}
		if r.Card = stage.Card; r.Card != "" && !checkCard(r.Manifest, r.Card) {
			return nil, fmt.Errorf("%s: the description of its model is not the file that its record names", stage.Address)
		}
		r.Address, r.Kind, r.NoEffect = stage.Address, stage.Kind, stage.NoEffect
		g.study.Stages = append(g.study.Stages, r)
	}
	return g.study, g.study.checkShown()
}

// maxNames limits the different names of categories, task sets, reward tokens and origins, in bytes. A page repeats
// each of them in cells and sources.
const maxNames = 256 << 10

// checkShown refuses an arm of which only some results have seeds, and a study with more text than a page may have. To
// encode that takes many times its memory at once, before the limit of memory is noticed.
func (s *Study) checkShown() error {
	size, names := 0, map[string]bool{}
	for i := range s.Arms {
		if err := s.Arms[i].checkSeeds(); err != nil {
			return err
		}
	}
	for _, t := range s.Transcripts {
		size += t.Bytes()
	}
	for row := range s.scores {
		names[row.Set], names[row.Category] = true, true
	}
	for _, d := range s.TaskSets {
		for _, task := range d.Tasks {
			names[task.Category] = true
		}
	}
	for _, d := range s.DataSets {
		size += d.Examples.Bytes()
		for _, one := range d.Members {
			names[one.Category], names[one.Token], names[one.Origin] = true, true, true
		}
	}
	if size > maxEvidenceBytes {
		return fmt.Errorf("the episodes that the page shows have %d bytes, and a page has room for %d", size,
			maxEvidenceBytes)
	}
	size = 0
	for name := range names {
		size += len(name)
	}
	if size > maxNames {
		return fmt.Errorf("the names of categories, task sets, tokens and origins have %d bytes, and a page has room for %d",
			size, maxNames)
	}
	return nil
}

// checkSeeds refuses an arm in which only some episodes of a kind, or some trainings, have a seed, because one without
// is compared with those of all seeds.
func (a *Arm) checkSeeds() error {
	type kind struct {
		of, set, token string
		greedy         bool
	}
	seeded := map[kind]bool{}
	for _, r := range a.Runs {
		kinds := map[kind]bool{}
		for _, row := range r.Rows {
			kinds[kind{"episodes", row.Set, row.Token, row.Greedy}] = true
		}
		if r.Curve != nil {
			kinds[kind{of: "trainings by RL"}] = true
		}
		if r.Tuning != nil {
			kinds[kind{of: "fine-tunings"}] = true
		}
		for k := range kinds {
			if other, known := seeded[k]; known && other != (r.Seed != nil) {
				return fmt.Errorf("results of %q have a seed in some stages and none in others: give these stages different "+
					"for_each keys, because a result without a seed is compared with those of all seeds", a.Label)
			}
			seeded[k] = r.Seed != nil
		}
	}
	return nil
}

func compareSeeds(a, b *int64) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return -1
	case b == nil:
		return 1
	}
	return cmp.Compare(*a, *b)
}

// run returns the run of an input's label and seed and adds it if it is new.
func (g *gathering) run(in *Input) *SeedRun {
	arm := findOrAdd(&g.study.Arms, Arm{Label: in.Label, Design: in.Design},
		func(a Arm) bool { return a.Label == in.Label })
	return findOrAdd(&arm.Runs, SeedRun{Seed: in.Ref.Seed},
		func(r SeedRun) bool { return compareSeeds(r.Seed, in.Ref.Seed) == 0 })
}

// findOrAdd returns the first element for which is returns true; without one, it appends wanted.
func findOrAdd[T any](all *[]T, wanted T, is func(T) bool) *T {
	at := slices.IndexFunc(*all, is)
	if at < 0 {
		at = len(*all)
		*all = append(*all, wanted)
	}
	return &(*all)[at]
}

func (g *gathering) scores(in *Input, a *artifact.Artifact) error {
	run := g.run(in)
	rows, err := artifact.AllRows[rl.Score](a, rl.ScoresFile)
	if err != nil {
		return err
	}
	for _, row := range rows {
		run.Rows = append(run.Rows, Row{row, in.port()})
	}
	policy := a.Manifest.Parts["input.policy"]
	if run.Policy != "" && run.Policy != policy {
		return fmt.Errorf("%s and an evaluation before it evaluate different policies under the name %q: give them "+
			"different for_each keys, because an arm has one policy per seed", in.port(), in.Label)
	}
	run.Policy = policy
	return nil
}

// curve adds a training to the arm of its policy, or to an arm of its own if the policy was not scored.
func (g *gathering) curve(in *Input, a *artifact.Artifact) error {
	run := g.run(in)
	rows, err := artifact.AllRows[rl.Metric](a, rl.MetricsFile)
	if err != nil {
		return err
	}
	run.CurveFrom = in.port()
	if _, _, ok := columnOf(rows, "reward"); ok {
		run.Curve = rows
	} else { // fine-tuning counts its own updates
		run.Tuning = rows
	}
	return nil
}

func instanceName(ref artifact.Ref) string {
	name := ref.Kind + "." + ref.Name
	if ref.Module != "" {
		name = ref.Module + "." + name
	}
	if ref.Key != "" {
		name += "[" + ref.Key + "]"
	}
	return name
}

func (g *gathering) data(in *Input, a *artifact.Artifact) error {
	name := instanceName(in.Ref) + " " + in.Ref.Port
	if in.Ref.Type == "dataset" || a.Type == "dataset" {
		return g.dataset(name, in, a)
	}
	tasks, err := artifact.AllRows[*bfcl.Task](a, bfcl.TasksFile)
	g.study.TaskSets = append(g.study.TaskSets, TaskSet{Label: name, Seed: in.Ref.Seed,
		Stage: strings.TrimSuffix(instanceName(in.Ref), "["+in.Ref.Key+"]"), Source: in.port(), Tasks: tasks})
	return err
}

func (g *gathering) dataset(name string, in *Input, a *artifact.Artifact) error {
	d := DataSet{Label: name, Seed: in.Ref.Seed, Source: in.port()}
	for row, err := range artifact.Rows[rl.Trajectory](a, rl.DatasetFile) {
		if err != nil {
			return err
		}
		d.Members = append(d.Members, Member{row.Origin, row.Token, row.Task, row.Category, row.Reward == 1})
		d.Examples.Add(transcript(&row, ""))
	}
	if err := a.ReadJSON("summary.json", &d.Summary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read %s: %w", a.Path("summary.json"), err)
	}
	g.study.DataSets = append(g.study.DataSets, d)
	return nil
}

func (g *gathering) transcripts(in *Input, a *artifact.Artifact) error {
	seed := (&SeedRun{Seed: in.Ref.Seed}).Name()
	shown := *findOrAdd(&g.study.Transcripts, &page.Transcripts{Label: in.Label},
		func(t *page.Transcripts) bool { return t.Label == in.Label })
	for row, err := range artifact.Rows[*rl.Trajectory](a, rl.TrajectoriesFile) {
		if err != nil {
			return err
		}
		if !row.Reward.Missing() { // the environment failed
			shown.Add(transcript(row, seed))
		}
	}
	return nil
}

// readResult returns what a page shows of a result.
func readResult(key string, store *artifact.Store) (r Stage, err error) {
	if r.Manifest, err = store.Manifest(key); err != nil {
		return r, err
	}
	r.Settings = map[string]string{}
	for part, value := range r.Manifest.Parts {
		if name, ok := strings.CutPrefix(part, "settings."); ok {
			r.Settings[name] = value
		}
	}
	r.Phases, err = phases(r.Manifest, store)
	return r, err
}

// phases sums the seconds of each phase from the times beside the metrics of a training ("rollout_s").
func phases(m *artifact.Manifest, store *artifact.Store) (map[string]float64, error) {
	if !timed(m) {
		return nil, nil
	}
	a, err := store.Open(m, "metrics")
	if err != nil {
		return nil, err
	}
	sums := map[string]float64{}
	for row, err := range artifact.Rows[rl.Metric](a, rl.TimesFile) {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil // it is not here
		}
		if err != nil {
			return nil, err
		}
		for name, v := range row.Values {
			if phase, ok := strings.CutSuffix(name, "_s"); ok && !strings.HasSuffix(name, "_per_s") {
				sums[phase] += v
			}
		}
	}
	return sums, nil
}
