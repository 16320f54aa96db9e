package reports

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/stages/rl"
)

// Files of the port page.
const (
	HTMLFile     = "page.html"
	MarkdownFile = "page.md"
	TextFile     = "page.txt"  // for a terminal of TextWidth columns
	LaTeXFile    = "page.tex"  // the tables
	JSONFile     = "page.json" // tables and figures
	CSVFolder    = "csv"       // a file for each table and figure, called by its id
)

// TextWidth is the width of TextFile.
const TextWidth = 120

// Kind returns the stage kind `report`, which makes a page of the scores, curves and data of all seeds. It runs also
// when stages above it failed, and says so on the page.
func Kind() *engine.Kind {
	return &engine.Kind{
		Name:    "report",
		Summary: "A page of scores and curves: tables, tests, figures, evidence; as HTML, Markdown, text, LaTeX, CSV and JSON.",
		Version: 2,
		New: func() engine.Stage {
			return &settings{Windows: &windows{Early: PaperWindows.Early, Late: PaperWindows.Late}}
		},
		Outputs: func(engine.Stage) map[string]string { return map[string]string{"page": "page"} },
		Gathers: true, Always: true, Light: true,
	}
}

type settings struct {
	Scores  []artifact.Ref `hcl:"scores,optional" port:"scores" doc:"evaluations; an arm is called by its for_each key, and evaluations of equal keys are one arm"`
	Curves  []artifact.Ref `hcl:"curves,optional" port:"metrics" doc:"trainings; a curve takes the label of the arm whose policy it trained"`
	Data    []artifact.Ref `hcl:"data,optional" port:"tasks|dataset" doc:"task sets for the table of the split and its certificate, and data sets for what went into them"`
	Show    []artifact.Ref `hcl:"transcripts,optional" port:"trajectories" doc:"episodes to show in full, at most 40 for each label, chosen by hash among failures and successes"`
	Compare []compare      `hcl:"compare,block" doc:"pairs to compare; the first block is the question. Without any, every arm is compared with the first"`
	Windows *windows       `hcl:"windows,block" doc:"updates summarised at the beginning and the end of a training"`
	Arms    []string       `hcl:"arms,optional" doc:"labels in the order of the page; arms not named here follow. Without it, arms that compare blocks name come first"`
	Notes   []string       `hcl:"notes,optional" doc:"sentences for the head of the page, such as what the experiment is and is not"`
	Path    string         `hcl:"path,optional" key:"-" doc:"where the HTML page is put, relative to the experiment; EXPERIMENT.html unless set"`

	ArmsRange hcl.Range `hcl:"arms,attr_range"`
	PathRange hcl.Range `hcl:"path,attr_range"`
}

type compare struct {
	Label string     `hcl:"name,label" doc:"what the second arm of each pair has and the first has not"`
	Pairs [][]string `hcl:"pairs" doc:"labels of two arms: without, with"`

	PairsRange hcl.Range `hcl:"pairs,attr_range"`
}

type windows struct {
	Early int `hcl:"early,optional" unit:"updates" doc:"length of the first window (paper: 70)"`
	Late  int `hcl:"late,optional" unit:"updates" doc:"length of the last window (paper: 70)"`

	EarlyRange hcl.Range `hcl:"early,attr_range"`
	LateRange  hcl.Range `hcl:"late,attr_range"`
}

func (s *settings) Check() hcl.Diagnostics {
	var diags hcl.Diagnostics
	bad := func(at hcl.Range, summary, format string, args ...any) {
		diags = append(diags, &hcl.Diagnostic{Severity: hcl.DiagError, Summary: summary, Detail: fmt.Sprintf(format, args...), Subject: at.Ptr()})
	}
	known := map[string]bool{}
	for _, ref := range s.Scores {
		known[label(ref)] = true
	}
	for _, c := range s.Compare {
		for _, pair := range c.Pairs {
			if len(pair) != 2 {
				bad(c.PairsRange, "Pair expected", "A pair names two arms, [without, with]; this one names %d.", len(pair))
				continue
			}
			for _, name := range pair {
				if len(s.Scores) > 0 && !known[name] {
					bad(c.PairsRange, "Unknown arm", "No evaluation in scores is called %q; there are %s.", name, strings.Join(sortedKeys(known), ", "))
				}
			}
		}
	}
	for _, name := range s.Arms {
		if len(s.Scores) > 0 && !known[name] {
			bad(s.ArmsRange, "Unknown arm", "No evaluation in scores is called %q; there are %s.", name, strings.Join(sortedKeys(known), ", "))
		}
	}
	if s.Windows.Early < 1 {
		bad(s.Windows.EarlyRange, "Empty window", "A window has at least one update; got early = %d.", s.Windows.Early)
	}
	if s.Windows.Late < 1 {
		bad(s.Windows.LateRange, "Empty window", "A window has at least one update; got late = %d.", s.Windows.Late)
	}
	if s.Path != "" && !filepath.IsLocal(s.Path) {
		bad(s.PathRange, "Path outside the experiment", "A page is put below the experiment's folder; got %q.", s.Path)
	}
	return diags
}

// label is how an instance is called on a page: its for_each key, or its name.
func label(ref artifact.Ref) string {
	if ref.Key != "" {
		return ref.Key
	}
	return ref.Name
}

// Run collects the study, computes its page and writes it in every form.
func (s *settings) Run(_ context.Context, job *engine.Job) error {
	study, err := s.study(job)
	if err != nil {
		return err
	}
	page := study.Page()
	page.Facts = append(slices.Clone(s.Notes), page.Facts...)
	dir, err := job.Create("page")
	if err != nil {
		return err
	}
	for name, write := range map[string]func(io.Writer) error{
		HTMLFile:     page.HTML,
		MarkdownFile: page.Markdown,
		TextFile:     func(w io.Writer) error { return page.Text(w, TextWidth) },
		LaTeXFile:    page.LaTeX,
		JSONFile:     page.JSON,
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	if err := page.writeCSV(filepath.Join(dir, CSVFolder)); err != nil {
		return err
	}
	path := s.Path
	if path == "" && job.Experiment.Name != "" {
		path = job.Experiment.Name + ".html"
	}
	if path == "" {
		return nil
	}
	return job.Publish("page", HTMLFile, path)
}

// writeCSV writes a file for each table and figure into a new folder.
func (p *Page) writeCSV(folder string) error {
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	write := func(id string, rows [][]string) error {
		text, err := csvText(rows)
		if err != nil {
			return fmt.Errorf("write %s as CSV: %w", id, err)
		}
		return os.WriteFile(filepath.Join(folder, id+".csv"), []byte(text), 0o644)
	}
	for _, t := range p.tables() {
		if err := write(t.ID, t.data()); err != nil {
			return err
		}
	}
	for _, f := range p.figures() {
		if err := write(f.ID, f.data()); err != nil {
			return err
		}
	}
	return nil
}

// gathering is the state of collecting a study.
type gathering struct {
	job    *engine.Job
	study  *Study
	lineal map[string]string // digest of a scored checkpoint -> label
	seen   map[string]bool   // addresses that have a record
}

func (s *settings) study(job *engine.Job) (*Study, error) {
	g := &gathering{job: job, lineal: map[string]string{}, seen: map[string]bool{}}
	g.study = &Study{
		Name: job.Experiment.Name, Question: job.Experiment.Question, Expect: job.Experiment.Expect,
		Windows: Windows{Early: s.Windows.Early, Late: s.Windows.Late},
	}
	for _, m := range job.Missing() {
		g.study.Failures = append(g.study.Failures, Failure{Address: m.Address, Cause: m.Why, Log: m.Lines})
	}
	for _, c := range s.Compare {
		comparison := Comparison{Label: c.Label}
		for _, pair := range c.Pairs {
			comparison.Pairs = append(comparison.Pairs, [2]string{pair[0], pair[1]})
		}
		g.study.Compare = append(g.study.Compare, comparison)
	}
	for _, list := range []struct {
		refs []artifact.Ref
		take func(*artifact.Artifact) error
	}{{s.Scores, g.scores}, {s.Curves, g.curve}, {s.Data, g.data}, {s.Show, g.transcripts}} {
		for _, ref := range list.refs {
			a, err := job.Open(ref)
			if missing := (*engine.MissingError)(nil); errors.As(err, &missing) {
				continue // told with the failures
			}
			if err != nil {
				return nil, err
			}
			if err := list.take(a); err != nil {
				return nil, err
			}
		}
	}
	for i := range g.study.Arms {
		slices.SortStableFunc(g.study.Arms[i].Runs, func(a, b Run) int { return compareSeeds(a.Seed, b.Seed) })
	}
	g.study.sortArms(s.Arms)
	return g.study, g.records(s)
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
	return int(min(1, max(-1, *a-*b)))
}

// run returns the run of a label and a seed, made when it is new.
func (g *gathering) run(label string, seed *int64) *Run {
	arm := g.study.arm(label)
	if arm == nil {
		g.study.Arms = append(g.study.Arms, Arm{Label: label})
		arm = &g.study.Arms[len(g.study.Arms)-1]
	}
	for i := range arm.Runs {
		if compareSeeds(arm.Runs[i].Seed, seed) == 0 {
			return &arm.Runs[i]
		}
	}
	arm.Runs = append(arm.Runs, Run{Seed: seed})
	return &arm.Runs[len(arm.Runs)-1]
}

func (g *gathering) scores(a *artifact.Artifact) error {
	run := g.run(label(a.Ref), a.Ref.Seed)
	if run.ScoresFrom == "" {
		run.ScoresFrom = source(a)
	}
	for row, err := range artifact.Rows[rl.Score](a, rl.ScoresFile) {
		if err != nil {
			return err
		}
		run.Scores = append(run.Scores, row)
	}
	if a.Manifest != nil {
		g.lineal[a.Manifest.Parts["input.policy"]] = label(a.Ref)
	}
	return nil
}

// curve files a training under the label of the arm whose policy it made, or under its own where none was scored.
func (g *gathering) curve(a *artifact.Artifact) error {
	name := label(a.Ref)
	if a.Ref.Key != "" {
		name = fmt.Sprintf("%s.%s[%s]", a.Ref.Kind, a.Ref.Name, a.Ref.Key)
	}
	if a.Manifest != nil {
		if text, err := json.Marshal(a.Manifest.Outputs["checkpoint"].Digest); err == nil && g.lineal[string(text)] != "" {
			name = g.lineal[string(text)]
		}
	}
	run := g.run(name, a.Ref.Seed)
	var rows []rl.Metric
	reward := false
	for row, err := range artifact.Rows[rl.Metric](a, rl.MetricsFile) {
		if err != nil {
			return err
		}
		_, ok := row.Values["reward"]
		reward = reward || ok
		rows = append(rows, row)
	}
	run.CurveFrom = source(a)
	if !reward { // fine-tuning: its updates are not those of RL
		run.Tuning = rows
		return nil
	}
	run.Curve = rows
	return nil
}

func (g *gathering) data(a *artifact.Artifact) error {
	name := fmt.Sprintf("%s.%s %s", a.Ref.Kind, a.Ref.Name, a.Ref.Port)
	if a.Ref.Key != "" {
		name = fmt.Sprintf("%s.%s[%s] %s", a.Ref.Kind, a.Ref.Name, a.Ref.Key, a.Ref.Port)
	}
	if a.Ref.Type == "dataset" || a.Type == "dataset" {
		return g.dataset(name, a)
	}
	d := DataSet{Label: name, Seed: a.Ref.Seed, Stage: a.Ref.Kind + "." + a.Ref.Name, Source: source(a)}
	for task, err := range artifact.Rows[*bfcl.Task](a, bfcl.TasksFile) {
		if err != nil {
			return err
		}
		d.Tasks = append(d.Tasks, task)
	}
	g.study.Data = append(g.study.Data, d)
	return nil
}

// dataset counts a fine-tuning data set by origin and token.
func (g *gathering) dataset(name string, a *artifact.Artifact) error {
	m := Mixture{Label: name, Seed: a.Ref.Seed, Source: source(a), Counts: map[[2]string]int{}}
	for row, err := range artifact.Rows[rl.Trajectory](a, rl.DatasetFile) {
		if err != nil {
			return err
		}
		m.Counts[[2]string{row.Origin, row.Token}]++
	}
	text, err := os.ReadFile(a.Path("summary.json"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		if err := json.Unmarshal(text, &m.Summary); err != nil {
			return fmt.Errorf("%s: %w", a.Path("summary.json"), err)
		}
	}
	g.study.Mixtures = append(g.study.Mixtures, m)
	return nil
}

// source is the address a number is traced to.
func source(a *artifact.Artifact) string {
	if a.Manifest != nil {
		return a.Manifest.Address + "." + a.Ref.Port
	}
	return fmt.Sprintf("stage.%s.%s.%s", a.Ref.Kind, a.Ref.Name, a.Ref.Port)
}

// records lists the manifests behind the page: those of the artifacts it read, and of what these were made from, as
// far as the store still knows them.
func (g *gathering) records(s *settings) error {
	node := g.job.Experiment.Node(g.job.Address)
	if node == nil { // a job outside a plan
		return nil
	}
	var store *artifact.Store
	if path := g.job.Site.StorePath; path != "" {
		var err error
		if store, err = artifact.Open(path); err != nil {
			return err
		}
	}
	made := map[string]*artifact.Manifest{}
	for _, ref := range slices.Concat(s.Scores, s.Curves, s.Data, s.Show) {
		a, err := g.job.Open(ref)
		if err != nil || a.Manifest == nil {
			continue // told before
		}
		if in, ok := node.Input(ref); ok {
			made[in.From.Address] = a.Manifest
		}
	}
	var walk func(n *engine.Node) error
	walk = func(n *engine.Node) error {
		for _, in := range n.Inputs {
			if g.seen[in.From.Address] {
				continue
			}
			g.seen[in.From.Address] = true
			if made[in.From.Address] == nil && store != nil && made[n.Address] != nil {
				made[in.From.Address] = ancestor(store, g.job.Experiment.Name, made[n.Address], in)
			}
			if err := walk(in.From); err != nil {
				return err
			}
			if err := g.record(in.From, made[in.From.Address], store); err != nil {
				return err
			}
		}
		return nil
	}
	return walk(node)
}

// ancestor is the manifest of an input of a node, if what its address made last is what the node really read.
func ancestor(store *artifact.Store, experiment string, reader *artifact.Manifest, in engine.Input) *artifact.Manifest {
	m, err := store.Last(experiment, in.From.Address)
	if err != nil {
		return nil
	}
	text, err := json.Marshal(m.Outputs[in.Ref.Port].Digest)
	if err != nil || reader.Parts["input."+in.Setting] != string(text) {
		return nil
	}
	return m
}

// record adds what is known about a node: its settings from the plan, the rest from its manifest.
func (g *gathering) record(n *engine.Node, m *artifact.Manifest, store *artifact.Store) error {
	r := Record{Address: n.Address, Kind: n.Kind.Name, Settings: map[string]string{}}
	for _, setting := range n.Settings {
		if setting.InKey {
			r.Settings[setting.Name] = setting.Value
		}
	}
	if m != nil {
		r.Made, r.Started, r.Seconds, r.Device, r.Peak, r.Revision, r.Key = true, m.Started, m.Seconds, m.Device, m.PeakBytes, m.Revision, m.Key
		r.Digests = map[string]string{}
		for port, o := range m.Outputs {
			r.Digests[port] = o.Digest
		}
		phases, err := phases(m, store)
		if err != nil {
			return err
		}
		r.Phases = phases
	}
	g.study.Records = append(g.study.Records, r)
	return nil
}

// phases sums the seconds of each phase from the times beside the metrics of a training: rows name them "rollout_s".
func phases(m *artifact.Manifest, store *artifact.Store) (map[string]float64, error) {
	if store == nil || m.Outputs["metrics"].Aside == nil {
		return nil, nil
	}
	a, err := store.Open(m, "metrics")
	if err != nil {
		return nil, err
	}
	sums := map[string]float64{}
	for row, err := range artifact.Rows[rl.Metric](a, rl.TimesFile) {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil // collected; the rest of the record still stands
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
