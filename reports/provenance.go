package reports

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"rcgrpo/bfcl"
)

// dataTable lists the task sets by category. Sets of several seeds that have the same sizes share a row.
func (s *Study) dataTable() *Table {
	if len(s.Data) == 0 {
		return nil
	}
	found := map[string]bool{}
	for _, d := range s.Data {
		for _, task := range d.Tasks {
			found[task.Category] = true
		}
	}
	categories := sortedKeys(found)
	t := &Table{ID: "data", Title: "Tasks", Columns: []Column{{Name: "Set", Left: true}, {Name: "Tasks"}, {Name: "Families"}}}
	for _, c := range categories {
		t.Columns = append(t.Columns, Column{Name: c})
	}
	rowOf := map[string]int{} // label and sizes -> row
	for _, d := range s.Data {
		families, per := map[string]bool{}, map[string]int{}
		for _, task := range d.Tasks {
			families[task.Family] = true
			per[task.Category]++
		}
		from := func(rows, by string) Source { return Source{From: []string{d.Source}, Rows: rows, By: by} }
		row := Row{Arm: NoArm, Cells: []Cell{Words("%s", d.Label).From(from("", "task sets of these sizes")),
			whole(len(d.Tasks)).From(from("", "number of tasks")), whole(len(families)).From(from("", "number of families"))}}
		for _, c := range categories {
			row.Cells = append(row.Cells, whole(per[c]).From(from("category "+c, "number of tasks")))
		}
		same := fmt.Sprint(d.Label, len(d.Tasks), len(families), per) // maps print in the order of their keys
		at, known := rowOf[same]
		if !known {
			at = len(t.Rows)
			rowOf[same] = at
			t.Rows = append(t.Rows, row)
		} else {
			for i := range row.Cells {
				cell := &t.Rows[at].Cells[i]
				cell.Source = together(cell.Source.By, cell.Source.Rows, cell.Source, row.Cells[i].Source)
			}
		}
		if first := &t.Rows[at].Cells[0]; d.Seed != nil && first.Detail == "" {
			first.Detail = fmt.Sprintf("seed %d", *d.Seed)
		} else if d.Seed != nil {
			first.Detail += fmt.Sprintf(", %d", *d.Seed)
		}
	}
	return t
}

func whole(n int) Cell {
	v := float64(n)
	return Cell{Text: fmt.Sprint(n), Value: &v}
}

// certificateTable says what the test sets share with the training set of their stage and seed. A sound split shares
// no family; what else is shared is counted from the tasks themselves.
func (s *Study) certificateTable() *Table {
	t := &Table{
		ID: "certificate", Title: "Certificate of the split: what test sets share with training",
		Columns: []Column{{Name: "Sets", Left: true}, {Name: "Families"}, {Name: "Initial states"}, {Name: "Ground truths"}, {Name: "Test tasks touched"}},
		Notes:   []string{"Different values that occur on both sides, out of those in the test set. Touched: test tasks whose ground truth or family occurs in training."},
	}
	for _, test := range s.Data {
		for _, train := range s.Data {
			if !strings.HasSuffix(train.Label, " train") || strings.HasSuffix(test.Label, " train") || train.Stage != test.Stage || compareSeeds(train.Seed, test.Seed) != 0 {
				continue
			}
			c := bfcl.Certify(train.Tasks, test.Tasks)
			source := Source{From: []string{test.Source, train.Source}, By: "certificate of the split, from the tasks"}
			shared := func(o bfcl.Overlap) Cell {
				v := float64(o.Shared)
				return Cell{Text: fmt.Sprintf("%d of %d", o.Shared, o.InTest), Value: &v, Source: source}
			}
			name := Words("%s against %s", test.Label, train.Label)
			if test.Seed != nil {
				name = name.With("seed %d", *test.Seed)
			}
			t.Rows = append(t.Rows, Row{Arm: NoArm, Cells: []Cell{name, shared(c.Families), shared(c.InitialStates), shared(c.GroundTruths),
				whole(max(c.Families.TestTasks, c.GroundTruths.TestTasks)).From(source)}})
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}

// summaryWords say what the counts of a mixture's maker mean.
var summaryWords = map[string]string{
	"experts": "expert episodes", "real": "failures from rollouts", "spoilt": "failures spoilt from experts",
	"rollouts": "rollouts offered", "missing": "rollouts without a reward, whose environment failed", "failed": "rollouts with reward 0", "duplicates": "repeated failures left out",
	"no_failure": "tasks without a failure, quota passed on", "short_real": "real failures asked for and not to be had, replaced by spoilt ones",
	"unspoilable": "tasks that could not be spoilt, quota passed on",
}

// mixtureTable says what the fine-tuning data sets are made of.
func (s *Study) mixtureTable() *Table {
	t := &Table{
		ID: "mixtures", Title: "Fine-tuning data", Columns: []Column{{Name: "Set", Left: true}, {Name: "What", Left: true}, {Name: "Trajectories"}},
	}
	for _, m := range s.Mixtures {
		name := Words("%s", m.Label)
		counted := func(n int, what, by string) Cell {
			return whole(n).From(Source{From: []string{m.Source}, Rows: what, By: by})
		}
		if m.Seed != nil {
			name = name.With("seed %d", *m.Seed)
		}
		var kinds [][2]string
		for kind := range m.Counts {
			kinds = append(kinds, kind)
		}
		slices.SortFunc(kinds, func(a, b [2]string) int { return strings.Compare(a[0]+a[1], b[0]+b[1]) })
		for _, kind := range kinds {
			text := "origin " + kind[0]
			if kind[1] != "" {
				text += ", token " + kind[1]
			}
			t.Rows = append(t.Rows, Row{Arm: NoArm, Cells: []Cell{name, Words("%s", text), counted(m.Counts[kind], text, "number of trajectories")}})
		}
		for _, count := range sortedKeys(m.Summary) {
			words := summaryWords[count]
			if words == "" {
				words = count
			}
			t.Rows = append(t.Rows, Row{Arm: NoArm, Cells: []Cell{name, Words("%s", words), counted(m.Summary[count], count, "summary.json")}})
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}

// PaperSettings returns the values of the paper's profile by kind and setting: those of its settings tables, equations and
// text, and for what it leaves open the defaults of the kinds. A test compares them with the kinds.
var PaperSettings = sync.OnceValue(func() map[string]map[string]string {
	tokens := map[string]string{"tokens.position": `"first_user"`, "tokens.init": `"mean"`}
	tuning := map[string]string{"lr": "1e-05", "batch": "16", "schedule.shape": `"cosine"`, "schedule.warmup": "0.03", "optimizer.weight_decay": "0"}
	rl := map[string]string{
		"lr": "1e-06", "group": "5", "updates": "350", "zero_variance": `"keep"`, "entropy": "0",
		"kl.beta": "0.1", "kl.estimator": `"k3"`, "kl.gradient": `"own"`, "kl.place": `"loss"`, "kl.aggregate": `"loss"`,
		"kl.weighted": "false", "kl.log_clamp": "0", "kl.value_clamp": "0",
		"clip.low": "0.2", "clip.high": "0.2", "clip.dual": "0", "clip.cap": "0",
		"ratio.level": `"trajectory"`, "ratio.denominator": `"old"`, "ratio.log_clamp": "20", "ratio.only_above": "false",
		"minibatches": "0", "passes": "1", "loss.aggregate": `"trajectory_sum"`, "loss.rows": `"all"`, "loss.scale": "0", "loss.count_eps": "0",
		"advantage.baseline": `"group_mean"`, "advantage.scale": `"group_std"`, "advantage.ddof": "0", "advantage.eps": "1e-06",
		"advantage.floor": "0", "advantage.missing": `"leave_out"`, "advantage.lone": `"formula"`,
		"schedule.shape": `"constant"`, "schedule.warmup": "0", "optimizer.weight_decay": "0.01",
	}
	of := func(parts ...map[string]string) map[string]string {
		all := map[string]string{"schedule.final": "0", "optimizer.beta1": "0.9", "optimizer.beta2": "0.999",
			"optimizer.eps": "1e-08", "optimizer.clip_norm": "1"}
		for _, part := range parts {
			maps.Copy(all, part)
		}
		return all
	}
	return map[string]map[string]string{
		"sft":     of(tuning, map[string]string{"epochs": "2"}),
		"rctp-ft": of(tuning, tokens, map[string]string{"epochs": "5"}),
		"grpo":    of(rl, map[string]string{"batch": "64"}),
		"rc-grpo": of(rl, tokens, map[string]string{"batch": "256", "tokens.high": "0.5", "tokens.allocation": `"iid"`}),
	}
})

// departure returns the paper's value of a setting where a stage of that kind has another one.
func departure(kind, setting, value string) (paper string, departs bool) {
	paper, known := PaperSettings()[kind][setting]
	if !known || sameValue(paper, value) {
		return "", false
	}
	if setting == "tokens.position" && value == `"checkpoint"` { // as the stage that trained the tokens, which is marked itself
		return "", false
	}
	return paper, true
}

// settingsTables list what the training stages were set to: first the settings in which a stage departs from the paper,
// marked and with the paper's value below, then all of them. Either is nil when it would be empty.
func (s *Study) settingsTables() (departing, all *Table) {
	type column struct {
		head, kind, address string
		settings            map[string]string
		noEffect            []string
	}
	var columns []column
	names := map[string]bool{}
	instances := map[string][]string{} // of a stage, whose settings may differ
	for _, r := range s.Records {
		if PaperSettings()[r.Kind] == nil {
			continue
		}
		head := stageName(r.Address)
		instances[head] = append(instances[head], manifestOf(r.Address))
		same := func(c column) bool { return stageName(c.address) == head }
		if slices.ContainsFunc(columns, func(c column) bool { return same(c) && maps.Equal(c.settings, r.Settings) }) {
			continue
		}
		if slices.ContainsFunc(columns, same) {
			head = strings.TrimPrefix(r.Address, "stage.")
		}
		columns = append(columns, column{head, r.Kind, r.Address, r.Settings, r.NoEffect})
		for name := range r.Settings {
			names[name] = true
		}
	}
	if len(columns) == 0 {
		return nil, nil
	}
	all = &Table{ID: "settings", Title: "All settings of the training stages", Folded: true, Columns: []Column{{Name: "Setting", Left: true}}}
	for _, c := range columns {
		all.Columns = append(all.Columns, Column{Name: c.head})
	}
	departing = &Table{ID: "departures", Title: "Departures from the paper", Columns: all.Columns}
	departures := 0
	for _, name := range sortedKeys(names) {
		row := Row{Arm: NoArm, Cells: []Cell{Words("%s", name)}}
		for _, c := range columns {
			value, ok := c.settings[name]
			if !ok {
				row.Cells = append(row.Cells, Words(""))
				continue
			}
			cell := Words("%s", strings.Trim(value, `"`)).From(Source{From: instances[stageName(c.address)], Rows: "settings." + name, By: "setting, defaults included"})
			if paper, departs := departure(c.kind, name, value); departs {
				cell.Mark = MarkDiffers
				cell = cell.With("paper: %s", strings.Trim(paper, `"`))
				departures++
			}
			if slices.Contains(c.noEffect, name) {
				cell = cell.With("no effect here")
			}
			row.Cells = append(row.Cells, cell)
		}
		all.Rows = append(all.Rows, row)
		if slices.ContainsFunc(row.Cells, func(c Cell) bool { return c.Mark == MarkDiffers }) || s.Part {
			departing.Rows = append(departing.Rows, row)
		}
	}
	all.Notes = []string{"Defaults included. \"No effect here\": a default that changes nothing beside the stage's other settings."}
	departing.Notes = []string{fmt.Sprintf("Marked: %s from the paper's profile (its tables, equations and text; for what these leave open, the reading this program takes by default).", plural(departures, "departure"))}
	if len(departing.Rows) == 0 {
		return nil, all
	}
	return departing, all
}

// sameValue compares canonical JSON, numbers by value.
func sameValue(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return a == b
	}
	return x == y
}

// stageName is an address without "stage.", for_each key and seed: "rc-grpo.arm".
func stageName(address string) string {
	name := strings.TrimPrefix(address, "stage.")
	if i := strings.IndexAny(name, "[@"); i >= 0 {
		name = name[:i]
	}
	return name
}

// runsTable says what the artifacts shown here cost to make, from their manifests.
func (s *Study) runsTable() *Table {
	if len(s.Records) == 0 {
		return nil
	}
	phases := map[string]bool{}
	for _, r := range s.Records {
		for name := range r.Phases {
			phases[name] = true
		}
	}
	t := &Table{ID: "runs", Title: "What it cost", Columns: []Column{{Name: "Stage", Left: true}, {Name: "Took"}}}
	for _, name := range sortedKeys(phases) {
		t.Columns = append(t.Columns, Column{Name: name})
	}
	t.Columns = append(t.Columns, Column{Name: "Peak memory"}, Column{Name: "Device", Left: true})
	sum := 0.0
	for _, r := range s.Records {
		if !r.Made {
			continue
		}
		sum += r.Seconds
		seconds := r.Seconds
		recorded := func(what string) Source {
			return Source{From: []string{manifestOf(r.Address)}, Rows: what, By: "as recorded"}
		}
		row := Row{Arm: NoArm, Cells: []Cell{Words("%s", strings.TrimPrefix(r.Address, "stage.")), {Text: duration(seconds), Value: &seconds, Source: recorded("seconds")}}}
		for _, name := range sortedKeys(phases) {
			if v, ok := r.Phases[name]; ok {
				row.Cells = append(row.Cells, Cell{Text: duration(v), Value: &v, Source: Source{From: []string{manifestOf(r.Address)}, Rows: name + "_s of the times beside the metrics", By: "sum over the updates"}})
			} else {
				row.Cells = append(row.Cells, Words(""))
			}
		}
		row.Cells = append(row.Cells, Words("%s", bytesText(r.Peak)).From(recorded("peak_bytes")), Words("%s", r.Device).From(recorded("device")))
		t.Rows = append(t.Rows, row)
	}
	if len(t.Rows) == 0 {
		return nil
	}
	t.Notes = []string{fmt.Sprintf("From the manifests of the artifacts shown, whenever they were made: %s of stage time in all.", duration(sum))}
	return t
}

func duration(seconds float64) string {
	if seconds < 60 {
		return significant(seconds) + " s"
	}
	return (time.Duration(seconds) * time.Second).String()
}

func bytesText(n int64) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf("%d MB", (n+500_000)/1_000_000)
}

// evidenceTable names the artifacts that the numbers were computed from.
func (s *Study) evidenceTable() *Table {
	t := &Table{
		ID: "evidence", Title: "Artifacts behind this page", Folded: true,
		Columns: []Column{{Name: "Stage", Left: true}, {Name: "Port", Left: true}, {Name: "Digest", Left: true}, {Name: "Key", Left: true}, {Name: "Code", Left: true}},
		Notes:   []string{"A digest is over names and contents of an artifact's files, a key over everything that went into it; equal keys give equal digests."},
	}
	for _, r := range s.Records {
		for _, port := range sortedKeys(r.Digests) {
			recorded := Source{From: []string{manifestOf(r.Address)}, Rows: "port " + port, By: "as recorded"}
			t.Rows = append(t.Rows, Row{Arm: NoArm, Cells: []Cell{Words("%s", strings.TrimPrefix(r.Address, "stage.")), Words("%s", port),
				Words("%s", prefix(r.Digests[port], 16)).From(recorded), Words("%s", prefix(r.Key, 16)).From(recorded), Words("%s", prefix(r.Revision, 12)).From(recorded)}})
		}
	}
	if len(t.Rows) == 0 {
		return nil
	}
	return t
}

func prefix(text string, n int) string {
	if len(text) > n {
		return text[:n]
	}
	return text
}
