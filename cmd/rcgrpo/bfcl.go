package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"rcgrpo/bfcl"
	"rcgrpo/bfcl/golden"
)

const bfclUsage = `usage:
  rcgrpo bfcl check [-time] [-repeats N] [-workers N] [DIR]   check the benchmark's data and replay its ground truth
  rcgrpo bfcl replay -in FILE [-out FILE] [-verify]           replay recorded trajectories, and compare with their record
  rcgrpo bfcl show TASK                                       a task with its requests, ground truth and results
  rcgrpo bfcl chat TASK                                       play the policy in the terminal

Each takes -data DIR, the folder of the official data; the default is .deps/bfcl, where make build unpacks it.
`

// bfclCommand runs "rcgrpo bfcl ARGS" and gives the exit code: 0 fine, 1 faults or differences found or a failure, 64 wrong
// usage.
func bfclCommand(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	commands := map[string]func(c *bfclCall) error{
		"check": (*bfclCall).check, "replay": (*bfclCall).replay, "show": (*bfclCall).show, "chat": (*bfclCall).chat,
	}
	name, rest := cutCommand(args, slices.Collect(maps.Keys(commands)))
	if name == "" {
		return noSubcommand("bfcl", bfclUsage, args, slices.Collect(maps.Keys(commands)), stdout, stderr)
	}
	c := &bfclCall{stdin: stdin, stdout: stdout, stderr: stderr, args: rest}
	c.flags = flag.NewFlagSet("rcgrpo bfcl "+name, flag.ContinueOnError)
	c.flags.SetOutput(io.Discard)
	c.flags.Usage = func() {}
	c.flags.StringVar(&c.dataDir, "data", ".deps/bfcl", "`FOLDER` of the official data")
	err := commands[name](c)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, flag.ErrHelp):
		return exitDone
	case errors.Is(err, errBFCLUsage):
		return exitMisuse
	case !errors.Is(err, errBFCLFound):
		fmt.Fprintf(stderr, "rcgrpo bfcl %s: %v\n", name, err)
	}
	return 1
}

var (
	errBFCLUsage = errors.New("wrong usage")
	errBFCLFound = errors.New("something was found and printed")
)

// bfclCall is one call of the command.
type bfclCall struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	flags          *flag.FlagSet
	dataDir        string
	args           []string
}

// parse reads the flags, wherever they stand, and checks how many arguments are left. It answers a call for help.
func (c *bfclCall) parse(least, most int) error {
	words, err := parseFlags(c.flags, c.args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(c.stdout, "%s\nFlags of %s:\n", bfclUsage, c.flags.Name())
		c.flags.SetOutput(c.stdout)
		c.flags.PrintDefaults()
		return err
	case err != nil:
		fmt.Fprintf(c.stderr, "%s: %s; %s -h lists the flags\n", c.flags.Name(), flagError(c.flags, err), c.flags.Name())
		return errBFCLUsage
	case len(words) < least || len(words) > most:
		fmt.Fprint(c.stderr, bfclUsage)
		return errBFCLUsage
	}
	c.args = words
	return nil
}

func (c *bfclCall) check() error {
	timing := c.flags.Bool("time", false, "time the replay of all ground truths; prints one JSON object")
	repeats := c.flags.Int("repeats", 3, "timed rounds (-time)")
	workers := c.flags.Int("workers", 1, "goroutines that share the tasks (-time)")
	if err := c.parse(0, 1); err != nil {
		return err
	}
	if len(c.args) == 1 {
		c.dataDir = c.args[0]
	}
	data, err := bfcl.LoadData(c.dataDir)
	if data == nil {
		return err
	}
	var faults bfcl.Faults
	errors.As(err, &faults)
	if *timing && len(faults) == 0 {
		timed, err := data.Time(*repeats, *workers)
		if err != nil {
			return err
		}
		text, err := json.MarshalIndent(timed, "", " ")
		if err != nil {
			return err
		}
		fmt.Fprintf(c.stdout, "%s\n", text)
		return nil
	}
	for _, f := range faults {
		fmt.Fprintln(c.stdout, f)
	}
	failed, err := c.checkTruth(data)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.stdout, "faults in the data: %d\n", len(faults))
	if len(faults) > 0 || failed > 0 {
		return errBFCLFound
	}
	return nil
}

// checkTruth plays the ground truth of every task, names those that do not pass, and prints a line per category.
func (c *bfclCall) checkTruth(data *bfcl.Data) (failed int, err error) {
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
			fmt.Fprintf(c.stdout, "%s: its ground truth does not pass: official %v %s, reward %v\n", t.ID, v.Official, v.ErrorType, v.Reward)
		}
	}
	for _, s := range tally.Scores() {
		fmt.Fprintf(c.stdout, "%-13s %4d/%d passed  %5d calls\n", s.Category, s.Passed, s.N, calls[s.Category])
	}
	return failed, nil
}

// data loads the official data, which must be without faults.
func (c *bfclCall) data() (*bfcl.Data, error) {
	data, err := bfcl.LoadData(c.dataDir)
	var faults bfcl.Faults
	if errors.As(err, &faults) {
		return nil, fmt.Errorf("the data has %d faults, the first: %w; `rcgrpo bfcl check %s` lists them all", len(faults), faults[0], c.dataDir)
	}
	return data, err
}

func (c *bfclCall) replay() error {
	in := c.flags.String("in", "", "recorded trajectories, JSON Lines, gzipped or not")
	out := c.flags.String("out", "", "where the computed trajectories go; gzipped when the name ends in .gz")
	verify := c.flags.Bool("verify", false, "compare with the recorded values")
	if err := c.parse(0, 0); err != nil {
		return err
	}
	if *in == "" {
		fmt.Fprintln(c.stderr, "rcgrpo bfcl replay: name the recorded trajectories with -in FILE")
		return errBFCLUsage
	}
	data, err := c.data()
	if err != nil {
		return err
	}
	report, err := golden.ReplayFile(data, *in, *out)
	if err != nil {
		return err
	}
	for _, score := range report.Scores {
		fmt.Fprintf(c.stdout, "%-12s n %d, accepted %d (%.1f%%), mean reward %.3f\n", score.Category, score.N, score.Passed, 100*score.Accuracy, score.Reward)
	}
	if !*verify {
		fmt.Fprintf(c.stdout, "%d trajectories, %d calls\n", report.Trajectories, report.Calls)
		return nil
	}
	for _, d := range report.Differing {
		fmt.Fprintln(c.stdout, d)
	}
	for _, call := range report.Unsupported {
		fmt.Fprintf(c.stdout, "unsupported, the rest of the record is not compared: %s\n", call)
	}
	if report.Allowed > 0 {
		fmt.Fprintf(c.stdout, "%d texts of syntax errors, other TypeErrors and sets in hash order differ, which does not count\n", report.Allowed)
	}
	if report.Prompting > 0 {
		fmt.Fprintf(c.stdout, "%d records of the format \"prompting\" are not compared: the format is not implemented\n", report.Prompting)
	}
	fmt.Fprintf(c.stdout, "%d trajectories, %d calls, differing: %d, unsupported: %d\n", report.Trajectories, report.Calls, len(report.Differing), len(report.Unsupported))
	if len(report.Differing) > 0 {
		return errBFCLFound
	}
	return nil
}

// task loads the data and finds the task that the only argument names.
func (c *bfclCall) task() (*bfcl.Data, *bfcl.Task, error) {
	if err := c.parse(1, 1); err != nil {
		return nil, nil, err
	}
	data, err := c.data()
	if err != nil {
		return nil, nil, err
	}
	id := c.args[0]
	t := data.Task(id)
	if t == nil {
		t = data.Task("multi_turn_" + id)
	}
	if t == nil {
		return nil, nil, fmt.Errorf("there is no task %q; ids go from multi_turn_base_0 to multi_turn_miss_param_199", id)
	}
	return data, t, nil
}

func (c *bfclCall) show() error {
	full := c.flags.Bool("full", false, "print long results whole")
	data, t, err := c.task()
	if err != nil {
		return err
	}
	e, err := t.Start(bfcl.Settings{Data: data, Today: bfcl.ReleaseDate})
	if err != nil {
		return err
	}
	w := c.stdout
	fmt.Fprintf(w, "%s  %s\nclasses: %s\ntools: %s\n", t.ID, t.Family, strings.Join(t.Classes, ", "), strings.Join(e.Tools(), " "))
	state, err := e.State()
	if err != nil {
		return err
	}
	for i, class := range t.Classes {
		fmt.Fprintf(w, "%s begins with %s\n", class, clipped(string(state[i]), *full))
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
			fmt.Fprintf(w, "  %s\n    %s\n", call, clipped(results[0], *full))
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
