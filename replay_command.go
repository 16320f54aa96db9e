package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/reports"
	"rcgrpo/stages/rl"
)

// replaying is one call of replay: stored rollouts, and the settings they are looked at under.
type replaying struct {
	*view
	trained  rl.Objective // of the run, where it is known
	known    bool
	rollouts *rl.Rollouts
}

// replayCommand runs "rcgrpo replay TRAJECTORIES [EXP]": advantages, losses and diagnostics of stored rollouts under
// other settings than those they were sampled for.
func replayCommand(args []string, _ io.Reader, stdout, stderr io.Writer) int {
	c := newCall("replay", "TRAJECTORIES [EXP]", stdout, stderr)
	var profiles, set []string
	list := func(into *[]string) func(string) error {
		return func(s string) error { *into = append(*into, s); return nil }
	}
	c.Func("profile", "another trainer's convention `NAME`, or all; may be repeated", list(&profiles))
	c.Func("set", "`SETTING=VALUE` of the objective, such as advantage.ddof=1; may be repeated", list(&set))
	asJSON := c.Bool("json", false, "print the numbers for programs")
	group := c.Int("group", 0, "take groups of `N` members from the stored ones")
	if code, done := c.parse(args); done {
		return code
	}
	if len(c.args) < 1 || len(c.args) > 2 {
		return c.misuse("want a file or folder of trajectories, or the address of a stage with its port, such as rc-grpo.arm[sft]@1.trajectories, and perhaps an experiment")
	}
	r := &replaying{view: &view{out: stdout, width: 100}, trained: rl.PaperObjective()}
	if code := r.read(c); code != exitDone {
		return code
	}
	columns, err := r.columns(profiles, set, flagGiven(c.FlagSet, "group"), *group)
	if err != nil {
		return c.fail(err)
	}
	if *asJSON {
		err = printJSON(stdout, struct {
			Columns    []column         `json:"columns"`
			BatchSizes []rl.BatchEffect `json:"batch_sizes"`
			GroupSizes []rl.GroupEffect `json:"group_sizes"`
		}{columns, r.rollouts.BatchSizes(), r.rollouts.GroupSizes()})
	} else {
		err = r.print(columns)
	}
	if err != nil {
		return c.fail(err)
	}
	return exitDone
}

func flagGiven(flags *flag.FlagSet, name string) (given bool) {
	flags.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	return given
}

// read finds the trajectories: in a file, a folder, or the store.
func (r *replaying) read(c *call) (code int) {
	path := c.args[0]
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		path = filepath.Join(path, rl.TrajectoriesFile)
	case errors.Is(err, os.ErrNotExist) && strings.ContainsRune(path, filepath.Separator) && !strings.ContainsRune(path, '['):
		return c.fail(fmt.Errorf("there is no file or folder %s", path))
	case errors.Is(err, os.ErrNotExist):
		var x *engine.Experiment
		if x, code = c.load(strings.Join(c.args[1:], "")); x == nil {
			return code
		}
		store, err := c.store(x)
		if err != nil {
			return c.fail(err)
		}
		if err := r.open(x, store, c.args[0]); err != nil {
			return c.fail(err)
		}
		if r.Type != "trajectories" {
			return c.fail(fmt.Errorf("%s is of type %s, not trajectories", c.args[0], r.Type))
		}
		r.learnSettings(x)
		path = r.Path(rl.TrajectoriesFile)
	case err != nil:
		return c.fail(err)
	}
	var all []*rl.Trajectory
	for t, err := range artifact.ReadRows[*rl.Trajectory](path) {
		if err != nil {
			return c.fail(err)
		}
		all = append(all, t)
	}
	if r.rollouts, err = rl.RolloutsOf(all); err != nil {
		return c.fail(err)
	}
	return exitDone
}

// learnSettings takes the objective from the stage that sampled the trajectories; one that trains nothing has none.
func (r *replaying) learnSettings(x *engine.Experiment) {
	for _, n := range x.Nodes {
		if n.Address != r.Manifest.Address {
			continue
		}
		for _, s := range n.Settings {
			if block, _, _ := strings.Cut(s.Name, "."); slices.Contains(rl.ProfileSettings, block) && r.trained.Set(s.Name, s.Value) == nil {
				r.known = true
			}
		}
	}
}

// column is what stored rollouts give under one choice of settings.
type column struct {
	Name   string             `json:"name"`
	Values map[string]float64 `json:"values"`
}

// columns computes the run's own settings (the paper's, where they are not known), then each profile, then, where
// settings or a size of groups are given, the first with those.
func (r *replaying) columns(profiles, set []string, regroup bool, group int) ([]column, error) {
	rollouts := r.rollouts
	var out []column
	add := func(name string, rollouts *rl.Rollouts, o rl.Objective) error {
		v, err := rollouts.Replay(o)
		out = append(out, column{name, v})
		return err
	}
	name := "paper"
	if r.known {
		name = "as trained"
	}
	if err := add(name, rollouts, r.trained); err != nil {
		return nil, err
	}
	if regroup {
		var err error
		if rollouts, err = rollouts.Regroup(group); err != nil {
			return nil, err
		}
	}
	other := r.trained
	for _, s := range set {
		setting, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, fmt.Errorf("-set %s: want SETTING=VALUE", s)
		}
		if err := other.Set(setting, value); err != nil {
			return nil, fmt.Errorf("-set %s: %w", s, err)
		}
	}
	changes := slices.Clone(set)
	if regroup {
		changes = append(changes, fmt.Sprintf("group=%d", group))
	}
	for _, p := range rl.Profiles() {
		if !slices.Contains(profiles, p.Name) && !slices.Contains(profiles, "all") || p.Name == "paper" && !r.known && len(changes) == 0 {
			continue
		}
		if err := add(p.Name, rollouts, p.Objective); err != nil {
			return nil, err
		}
	}
	for _, p := range profiles {
		if _, err := rl.ProfileNamed(p); err != nil && p != "all" {
			return nil, err
		}
	}
	if len(changes) > 0 && (len(profiles) == 0 || len(set) > 0) {
		return out, add(strings.Join(changes, " "), rollouts, other)
	}
	return out, nil
}

func (r *replaying) print(columns []column) error {
	trajectories := 0
	for _, u := range r.rollouts.Updates {
		trajectories += len(u)
	}
	fmt.Fprintf(r.out, "%d trajectories in %d updates, groups of %d\n", trajectories, len(r.rollouts.Updates), r.rollouts.Size)
	t := &reports.Table{ID: "replay", Title: "means over updates; * differs from the first column", Columns: []reports.Column{{Name: "statistic", Left: true}}}
	for _, c := range columns {
		t.Columns = append(t.Columns, reports.Column{Name: c.Name})
	}
	for _, m := range rl.Replayed {
		cells := []reports.Cell{reports.Text("%s", m.Name)}
		for _, c := range columns {
			mark := ""
			if c.Values[m.Name] != columns[0].Values[m.Name] {
				mark = " *"
			}
			cells = append(cells, reports.Text("%.4g%s", c.Values[m.Name], mark))
		}
		t.Rows = append(t.Rows, reports.Row{Arm: reports.NoArm, Cells: cells})
	}
	if err := r.section("advantages and loss", reports.Part{Table: t}); err != nil {
		return err
	}
	b := &reports.Table{ID: "batch", Title: "the same groups in batches of other sizes: the spread over a batch grows, the rest does not", Columns: []reports.Column{
		{Name: "groups per batch"}, {Name: "batches"}, {Name: "spread, ddof 0"}, {Name: "spread, ddof 1"}, {Name: "zero-variance"}, {Name: "sigma²"}, {Name: "spread within"}}}
	for _, e := range r.rollouts.BatchSizes() {
		b.Rows = append(b.Rows, reports.Row{Arm: reports.NoArm, Cells: []reports.Cell{reports.Text("%d", e.Groups), reports.Text("%d", e.Batches),
			reports.Text("%.3f", e.SpreadBatch[0]), reports.Text("%.3f", e.SpreadBatch[1]), reports.Text("%.3f", e.ZeroVariance),
			reports.Text("%.4f", e.Sigma2), reports.Text("%.3f", e.SpreadWithin)}})
	}
	if err := r.section("batch size", reports.Part{Table: b}); err != nil {
		return err
	}
	g := &reports.Table{ID: "group", Title: "groups of other sizes, expected without bias from the stored ones", Columns: []reports.Column{
		{Name: "members"}, {Name: "zero-variance"}, {Name: "all right"}, {Name: "all wrong"}, {Name: "sigma²"}}}
	for _, e := range r.rollouts.GroupSizes() {
		g.Rows = append(g.Rows, reports.Row{Arm: reports.NoArm, Cells: []reports.Cell{reports.Text("%d", e.Size), reports.Text("%.3f", e.ZeroVariance),
			reports.Text("%.3f", e.AllRight), reports.Text("%.3f", e.AllWrong), reports.Text("%.4f", e.Sigma2)}})
	}
	if err := r.section("group size", reports.Part{Table: g}); err != nil {
		return err
	}
	_, err := fmt.Fprintln(r.out, "\nStored rollouts know the log-probabilities of the policy that sampled them alone: ratios are 1, so clipping does nothing,\nand divergence and entropy are left out. Groups that zero_variance = \"resample\" would have replaced are kept.")
	return err
}
