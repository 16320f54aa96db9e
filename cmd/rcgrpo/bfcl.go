package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"rcgrpo/bfcl"
	"rcgrpo/bfcl/golden"
)

func bfclCommand() *cobra.Command {
	return newGroup("bfcl", "Check, replay and show the benchmark BFCL",
		bfclCheckCommand(), bfclReplayCommand(), bfclShowCommand(), bfclChatCommand())
}

// bfclFlags is a command on the data of the benchmark.
type bfclFlags struct {
	*cobra.Command
	dataDir string
}

func newBFCLCommand(use, short string, args cobra.PositionalArgs) *bfclFlags {
	c := &bfclFlags{Command: &cobra.Command{Use: use, Short: short, Args: args}}
	c.Flags().StringVar(&c.dataDir, "data", ".deps/bfcl", "`FOLDER` of the official data; make build downloads it")
	return c
}

func bfclCheckCommand() *cobra.Command {
	c := newBFCLCommand("check [DIR]", "Check the data and replay its ground truth", wantArgs(0, 1, "want one folder"))
	timing := c.Flags().Bool("time", false, "time the replay of all ground truths; print JSON")
	repeats := c.Flags().Int("repeats", 3, "number of timed rounds")
	workers := c.Flags().Int("workers", 1, "number of goroutines for the timed rounds")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 1 {
			c.dataDir = args[0]
		}
		data, err := bfcl.LoadData(c.dataDir)
		if data == nil {
			return err
		}
		var faults bfcl.Faults
		errors.As(err, &faults)
		w := c.OutOrStdout()
		if *timing && len(faults) == 0 {
			timed, err := data.Time(*repeats, *workers)
			if err != nil {
				return err
			}
			return printJSON(w, timed)
		}
		for _, f := range faults {
			fmt.Fprintln(w, f)
		}
		failed, err := checkTruth(w, data)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "faults in the data: %d\n", len(faults))
		if len(faults) > 0 || failed > 0 {
			return exitCode(exitFailed)
		}
		return nil
	}
	return c.Command
}

// checkTruth plays the ground truth of every task. It prints the tasks that do not pass, and a line per category.
func checkTruth(w io.Writer, data *bfcl.Data) (failed int, err error) {
	var tally bfcl.Tally
	calls := map[string]int{}
	for _, t := range data.Tasks() {
		for _, turn := range t.Turns {
			calls[t.Category] += len(turn.GroundTruth)
			calls["all"] += len(turn.GroundTruth)
		}
		e, _, err := t.Play(bfcl.Settings{Data: data, Today: bfcl.ReleaseDate}, t.GroundTruthSteps())
		if err != nil {
			return failed, err
		}
		v := e.Verdict()
		tally.Add(t.Category, v)
		if !v.Official || v.Reward != 1 {
			failed++
			fmt.Fprintf(w, "%s: the ground truth does not pass: official %v %s, reward %v\n",
				t.ID, v.Official, v.ErrorType, v.Reward)
		}
	}
	for _, s := range tally.Scores() {
		fmt.Fprintf(w, "%-13s %4d/%d passed  %5d calls\n", s.Category, s.Passed, s.N, calls[s.Category])
	}
	return failed, nil
}

// data loads the official data. Faults in the data are an error.
func (c *bfclFlags) data() (*bfcl.Data, error) {
	data, err := bfcl.LoadData(c.dataDir)
	var faults bfcl.Faults
	if errors.As(err, &faults) {
		return nil, fmt.Errorf("the data has %d faults, the first: %w; `rcgrpo bfcl check %s` lists all",
			len(faults), faults[0], c.dataDir)
	}
	return data, err
}

func bfclReplayCommand() *cobra.Command {
	c := newBFCLCommand("replay", "Replay recorded trajectories", wantArgs(0, 0, ""))
	in := c.Flags().String("in", "", "`FILE` of recorded trajectories, JSON Lines, gzipped or not")
	out := c.Flags().String("out", "", "`FILE` for the computed trajectories; gzipped if its name ends in .gz")
	verify := c.Flags().Bool("verify", false, "compare with the recorded values")
	c.RunE = func(*cobra.Command, []string) error {
		if *in == "" {
			return misuse("name the recorded trajectories with --in FILE")
		}
		return c.replay(*in, *out, *verify)
	}
	return c.Command
}

func (c *bfclFlags) replay(in, out string, verify bool) error {
	w := c.OutOrStdout()
	data, err := c.data()
	if err != nil {
		return err
	}
	report, err := golden.ReplayFile(data, in, out)
	if err != nil {
		return err
	}
	for _, score := range report.Scores {
		fmt.Fprintf(w, "%-12s n %d, accepted %d (%.1f%%), mean reward %.3f\n",
			score.Category, score.N, score.Passed, 100*score.Accuracy, score.Reward)
	}
	if !verify {
		fmt.Fprintf(w, "%d trajectories, %d calls\n", report.Trajectories, report.Calls)
		return nil
	}
	for _, d := range report.Differing {
		fmt.Fprintln(w, d)
	}
	for _, call := range report.Unsupported {
		fmt.Fprintf(w, "unsupported, the rest of the record is not compared: %s\n", call)
	}
	if report.Allowed > 0 {
		fmt.Fprintf(w, "%d allowed differences: syntax errors, other TypeErrors, sets in hash order\n", report.Allowed)
	}
	if report.Prompting > 0 {
		fmt.Fprintf(w, "%d records of the format \"prompting\" are not compared: the format is not implemented\n",
			report.Prompting)
	}
	fmt.Fprintf(w, "%d trajectories, %d calls, differing: %d, unsupported: %d\n",
		report.Trajectories, report.Calls, len(report.Differing), len(report.Unsupported))
	if len(report.Differing) > 0 {
		return exitCode(exitFailed)
	}
	return nil
}

// oneTask is the argument of show and chat.
var oneTask = wantArgs(1, 1, "want a task")

// task loads the data and finds a task. The prefix multi_turn_ may be omitted.
func (c *bfclFlags) task(id string) (*bfcl.Data, *bfcl.Task, error) {
	data, err := c.data()
	if err != nil {
		return nil, nil, err
	}
	t := cmp.Or(data.Task(id), data.Task("multi_turn_"+id))
	if t == nil {
		return nil, nil, fmt.Errorf("there is no task %q; the IDs are multi_turn_base_0 to multi_turn_miss_param_199", id)
	}
	return data, t, nil
}

func bfclShowCommand() *cobra.Command {
	c := newBFCLCommand("show TASK", "Show a task with its requests, ground truth and results", oneTask)
	full := c.Flags().Bool("full", false, "do not shorten results")
	c.RunE = func(_ *cobra.Command, args []string) error { return c.show(args[0], *full) }
	return c.Command
}

func (c *bfclFlags) show(id string, full bool) error {
	data, t, err := c.task(id)
	if err != nil {
		return err
	}
	e, err := t.Start(bfcl.Settings{Data: data, Today: bfcl.ReleaseDate})
	if err != nil {
		return err
	}
	w := c.OutOrStdout()
	fmt.Fprintf(w, "%s  %s\nclasses: %s\ntools: %s\n", t.ID, t.Family, strings.Join(t.Classes, ", "),
		strings.Join(e.Tools(), " "))
	state, err := e.State()
	if err != nil {
		return err
	}
	for i, class := range t.Classes {
		fmt.Fprintf(w, "initial state of %s: %s\n", class, clipped(string(state[i]), full))
	}
	for k, turn := range t.Turns {
		fmt.Fprintf(w, "\nturn %d  user: %s\n", k, e.User())
		if len(turn.Revealed) > 0 {
			fmt.Fprintf(w, "  revealed: %s\n", strings.Join(turn.Revealed, " "))
		}
		if len(turn.GroundTruth) == 0 {
			fmt.Fprintln(w, "  no call is expected")
		}
		for _, call := range turn.GroundTruth {
			results, _, err := e.Step([]string{call})
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "  %s\n    %s\n", call, clipped(results[0], full))
		}
		if _, _, err := e.Step(nil); err != nil {
			return err
		}
	}
	return nil
}

func clipped(s string, full bool) string {
	const most = 300
	if r := []rune(s); !full && len(r) > most {
		return fmt.Sprintf("%s... (%d characters)", string(r[:most]), len(r))
	}
	return s
}
