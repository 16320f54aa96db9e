package reports

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"rcgrpo/engine/lang"
)

// PaperSettings returns the values of the paper's profile by kind and setting: the values in its settings tables,
// equations and text, and for open settings the defaults of the kinds. A test compares them with the kinds.
var PaperSettings = sync.OnceValue(func() map[string]map[string]string {
	tokens := map[string]string{"tokens.position": `"first_user"`, "tokens.init": `"mean"`}
	tuning := map[string]string{"lr": "1e-05", "batch": "16", "schedule.shape": `"cosine"`, "schedule.warmup": "0.03",
		"optimizer.weight_decay": "0"}
	rl := map[string]string{
		"lr": "1e-06", "group": "5", "updates": "350", "zero_variance": `"keep"`, "entropy": "0",
		"kl.beta": "0.1", "kl.estimator": `"k3"`, "kl.gradient": `"own"`, "kl.place": `"loss"`, "kl.aggregate": `"loss"`,
		"kl.weighted": "false", "kl.log_clamp": "0", "kl.value_clamp": "0",
		"clip.low": "0.2", "clip.high": "0.2", "clip.dual": "0", "clip.cap": "0",
		"ratio.level": `"trajectory"`, "ratio.denominator": `"old"`, "ratio.log_clamp": "20", "ratio.only_above": "false",
		"minibatches": "0", "passes": "1",
		"loss.aggregate": `"trajectory_sum"`, "loss.rows": `"all"`, "loss.scale": "0", "loss.count_eps": "0",
		"advantage.baseline": `"group_mean"`, "advantage.scale": `"group_std"`, "advantage.ddof": "0",
		"advantage.eps": "1e-06", "advantage.floor": "0", "advantage.missing": `"leave_out"`, "advantage.lone": `"formula"`,
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
		"rc-grpo": of(rl, tokens, map[string]string{"batch": "256", "tokens.high": "0.5", "tokens.allocation": `"iid"`,
			"tokens.learn": `"all"`}),
	}
})

// departure returns the paper's value of a setting if a stage of that kind has another value. The position "checkpoint"
// is that of the stage that trained the tokens, whose cell is marked.
func departure(kind, setting, value string) (paper string, departs bool) {
	paper, known := PaperSettings()[kind][setting]
	inherited := setting == "tokens.position" && value == `"checkpoint"`
	return paper, known && !inherited && !sameValue(paper, value)
}

// settingsColumn holds the settings of a training stage.
type settingsColumn struct {
	Record
	head      string
	instances []string // manifests of the stage's instances, whose settings may differ
}

// settingsColumns returns a column for each training stage, and one for each instance with other settings.
func (s *Study) settingsColumns() []*settingsColumn {
	var all []*settingsColumn
	instances, columns := map[string][]string{}, map[string][]*settingsColumn{} // by stage
	for _, r := range s.Records {
		if PaperSettings()[r.Kind] == nil {
			continue
		}
		stage := lang.StageName(r.Address)
		instances[stage] = append(instances[stage], manifestOf(r.Address))
		same := func(c *settingsColumn) bool { return maps.Equal(c.Settings, r.Settings) }
		if slices.ContainsFunc(columns[stage], same) {
			continue
		}
		column := &settingsColumn{Record: r, head: stage}
		if len(columns[stage]) > 0 {
			column.head = lang.TrimStage(r.Address)
		}
		all, columns[stage] = append(all, column), append(columns[stage], column)
	}
	for _, c := range all {
		c.instances = instances[lang.StageName(c.Address)]
	}
	return all
}

// cell shows a setting. A departure from the paper is marked.
func (c *settingsColumn) cell(name string) Cell {
	value, ok := c.Settings[name]
	if !ok {
		return Text("")
	}
	cell := Text("%s", strings.Trim(value, `"`)).
		From(Source{From: c.instances, Rows: "settings." + name, By: "setting, defaults included"})
	if paper, departs := departure(c.Kind, name, value); departs {
		cell.Mark = MarkDiffers
		cell = cell.With("paper: %s", strings.Trim(paper, `"`))
	}
	if slices.Contains(c.NoEffect, name) {
		cell = cell.With("no effect here")
	}
	return cell
}

func (s *Study) settingsTable() *Table {
	all := s.settingsColumns()
	t := &Table{ID: "settings", Title: "All settings of the training stages", Folded: true, Columns: columns("<Setting"),
		Notes: []string{"Defaults included. \"No effect here\": a default without effect in combination with the stage's " +
			"other settings."}}
	names := map[string]bool{}
	for _, c := range all {
		t.Columns = append(t.Columns, Column{Name: c.head})
		for name := range c.Settings {
			names[name] = true
		}
	}
	for _, name := range sortedKeys(names) {
		cells := []Cell{Text("%s", name)}
		for _, c := range all {
			cells = append(cells, c.cell(name))
		}
		t.add(NoArm, cells...)
	}
	return t.orNil()
}

// departuresTable lists the settings in which a stage departs from the paper.
func (s *Study) departuresTable() *Table {
	t := s.settingsTable()
	if t == nil {
		return nil
	}
	departures := 0
	for i := range t.Rows {
		marked := 0
		for _, c := range t.Rows[i].Cells {
			if c.Mark == MarkDiffers {
				marked++
			}
		}
		t.Rows[i].spare = marked == 0
		departures += marked
	}
	t.ID, t.Title, t.Folded = "departures", "Departures from the paper", false
	t.Notes = []string{fmt.Sprintf("Marked: %s from the paper's profile (its tables, equations and text; for open "+
		"settings, the defaults of this program).", plural(departures, "departure"))}
	return t
}

// sameValue compares canonical JSON, numbers by value.
func sameValue(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return a == b
	}
	return x == y
}
