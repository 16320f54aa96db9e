package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"rcgrpo/cmd/rcgrpo/internal/output"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/objective"
)

// replaying computes the statistics of stored rollouts under chosen settings.
type replaying struct {
	trained  objective.Objective // the paper's objective unless known
	known    bool                // the objective of the run is known
	rollouts *objective.Rollouts
}

func replayCommand() *cobra.Command {
	c := newExperimentCommand("replay TRAJECTORIES [EXP]", "Recompute advantages of stored rollouts under other settings",
		wantArgs(1, 2, "want a file or folder of trajectories, or the address of a stage with its port, such as "+
			"rc-grpo.arm[sft]@1.trajectories, and optionally an experiment"))
	var profiles, set []string
	c.Flags().StringArrayVar(&profiles, "profile", nil, "add the conventions of trainer `NAME`, or of all; repeatable")
	c.Flags().StringArrayVar(&set, "set", nil, "change the objective: `SETTING=VALUE`, as in advantage.ddof=1; repeatable")
	group := c.Flags().Int("group", 0, "split the stored groups into groups of `N` trajectories")
	asJSON := c.Flags().Bool("json", false, "print JSON")
	return c.does(func(args []string) error {
		r := &replaying{trained: objective.PaperObjective()}
		if err := r.read(c, args); err != nil {
			return err
		}
		columns, err := r.columns(profiles, set, *group)
		if err != nil {
			return err
		}
		if *asJSON {
			return output.JSON(c.stdout(), struct {
				Columns    []column                `json:"columns"`
				BatchSizes []objective.BatchEffect `json:"batch_sizes"`
				GroupSizes []objective.GroupEffect `json:"group_sizes"`
			}{columns, r.rollouts.BatchSizes(), r.rollouts.GroupSizes()})
		}
		return r.print(c.stdout(), columns)
	})
}

// read reads the trajectories of a file, a folder, or a stage in the store.
func (r *replaying) read(c *command, args []string) error {
	path := args[0]
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		path = filepath.Join(path, rl.TrajectoriesFile)
	case errors.Is(err, os.ErrNotExist) && strings.ContainsRune(path, filepath.Separator) &&
		!strings.ContainsRune(path, '['):
		return fmt.Errorf("there is no file or folder %s", path)
	case errors.Is(err, os.ErrNotExist):
		x, store, err := c.open(strings.Join(args[1:], ""))
		if err != nil {
			return err
		}
		a, err := openArtifact(x, store, args[0])
		if err != nil {
			return err
		}
		if a.Type != "trajectories" {
			return fmt.Errorf("%s is of type %s, not trajectories", args[0], a.Type)
		}
		r.readSettings(x, a.Manifest.Address)
		path = a.Path(rl.TrajectoriesFile)
	case err != nil:
		return err
	}
	var all []*rl.Trajectory
	for t, err := range artifact.ReadRows[*rl.Trajectory](path) {
		if err != nil {
			return err
		}
		all = append(all, t)
	}
	r.rollouts, err = objective.RolloutsOf(all)
	return err
}

// readSettings reads the objective of the stage that sampled the trajectories, if that stage trains.
func (r *replaying) readSettings(x *lang.Experiment, address string) {
	nodes, _ := x.Find(address) // the stage may no longer be in the experiment
	for _, n := range nodes {
		for _, s := range n.Settings {
			block, setting, _ := strings.Cut(s.Name, ".")
			terms := r.trained.RewardTerms // the settings of one follow its name
			switch inTerm := strings.HasPrefix(block, "reward_term["); {
			case inTerm && setting == "name":
				r.trained.RewardTerms = append(terms, objective.RewardTerm{Name: strings.Trim(s.Value, `"`)})
			case inTerm:
				terms[len(terms)-1].Weight, _ = strconv.ParseFloat(s.Value, 64)
			case s.Name == "tokens.baseline": // of rc-grpo, which has the tokens
				r.trained.Advantage.Baseline, _ = strconv.Unquote(s.Value)
			case slices.Contains(objective.ProfileSettings, block) && r.trained.Set(s.Name, s.Value) == nil:
				r.known = true
			}
		}
	}
}

type column struct {
	Name   string             `json:"name"`
	Values map[string]float64 `json:"values"`
}

// columns returns the column of the run's settings (the paper's, if unknown), one per profile, and one for --set and
// --group.
func (r *replaying) columns(profiles, set []string, group int) (all []column, err error) {
	add := func(name string, rollouts *objective.Rollouts, o objective.Objective) error {
		values, err := rollouts.Replay(o)
		all = append(all, column{name, values})
		return err
	}
	first := "paper"
	if r.known {
		first = "as trained"
	}
	if err := add(first, r.rollouts, r.trained); err != nil {
		return nil, err
	}
	rollouts, changed, changes := r.rollouts, r.trained, slices.Clone(set)
	for _, s := range set {
		setting, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, fmt.Errorf("--set %s: want SETTING=VALUE", s)
		}
		if err := changed.Set(setting, value); err != nil {
			return nil, fmt.Errorf("--set %s: %w", s, err)
		}
	}
	if group != 0 {
		if rollouts, err = rollouts.Regroup(group); err != nil {
			return nil, err
		}
		changes = append(changes, fmt.Sprintf("group=%d", group))
	}
	if slices.Contains(profiles, "all") {
		profiles = profileNames()[1:]
	}
	for _, name := range profiles {
		o, err := objective.ProfileNamed(name)
		o.RewardTerms = r.trained.RewardTerms                  // a profile has none of its own
		if err == nil && (name != first || len(changes) > 0) { // the first column may be the paper's already
			err = add(name, rollouts, o)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(changes) > 0 && (len(profiles) == 0 || len(set) > 0) {
		err = add(strings.Join(changes, " "), rollouts, changed)
	}
	return all, err
}

func (r *replaying) print(w io.Writer, columns []column) error {
	trajectories, further := 0, 0
	for _, u := range r.rollouts.Updates {
		trajectories += len(u)
		for _, t := range u {
			further += len(t.Segments)
		}
	}
	agents := ""
	if further > 0 {
		agents = fmt.Sprintf(", with %s of agents", english.Plural(further, "further sequence", ""))
	}
	fmt.Fprintf(w, "%s in %s, groups of %d%s\n", english.Plural(trajectories, "trajectory", ""),
		english.Plural(len(r.rollouts.Updates), "update", ""), r.rollouts.Size, agents)
	header := []string{"<statistic"}
	for _, c := range columns {
		header = append(header, c.Name)
	}
	values := output.NewTable("means over updates; * differs from the first column", header...)
	for _, m := range objective.Replayed {
		cells := []any{m.Name}
		for _, c := range columns {
			mark := ""
			if c.Values[m.Name] != columns[0].Values[m.Name] {
				mark = " *"
			}
			cells = append(cells, fmt.Sprintf("%.4g%s", c.Values[m.Name], mark))
		}
		values.Row(cells...)
	}
	digits := func(n int, x float64) string { return fmt.Sprintf("%.*f", n, x) }
	batches := output.NewTable("the same groups in batches of other sizes: only the spread over a batch changes",
		"groups per batch", "batches", "spread, ddof 0", "spread, ddof 1", "without variance", "sigma²", "spread within")
	for _, e := range r.rollouts.BatchSizes() {
		batches.Row(e.Groups, e.Batches, digits(3, e.SpreadBatch[0]), digits(3, e.SpreadBatch[1]),
			digits(3, e.ZeroVariance), digits(4, e.Sigma2), digits(3, e.SpreadWithin))
	}
	sizes := output.NewTable("groups of other sizes, unbiased estimates from the stored groups",
		"members", "without variance", "all right", "all wrong", "sigma²")
	for _, e := range r.rollouts.GroupSizes() {
		sizes.Row(e.Size, digits(3, e.ZeroVariance), digits(3, e.AllRight), digits(3, e.AllWrong), digits(4, e.Sigma2))
	}
	if err := cmp.Or(values.Write(w, "advantages and loss", output.DefaultWidth),
		batches.Write(w, "batch size", output.DefaultWidth), sizes.Write(w, "group size", output.DefaultWidth)); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, `
Stored rollouts contain the log-probabilities of the sampling policy only. So all ratios are 1, clipping has no effect,
and divergence and entropy are omitted. Groups that zero_variance = "resample" would replace are included.`)
	return err
}
