package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"rcgrpo/bfcl"
	"rcgrpo/cmd/rcgrpo/internal/output"
)

func bfclCommand() *cobra.Command {
	return newGroup("bfcl", "Check, show and play the tasks of the benchmark BFCL",
		bfclCheckCommand(), bfclShowCommand(), bfclChatCommand())
}

// dataCommand is a command that reads the official data.
type dataCommand struct {
	*command
	dataDir string
}

func newBFCLCommand(use, short string, args cobra.PositionalArgs) *dataCommand {
	c := &dataCommand{command: newCommand(use, short, args)}
	c.Flags().StringVar(&c.dataDir, "data", ".deps/bfcl", "`FOLDER` of the official data, which make build downloads")
	return c
}

func bfclCheckCommand() *cobra.Command {
	c := newBFCLCommand("check [DIR]", "Check the data and replay its ground truth", wantArgs(0, 1, "want one folder"))
	return c.does(func(args []string) error {
		if len(args) == 1 {
			c.dataDir = args[0]
		}
		data, err := bfcl.LoadData(c.dataDir)
		if data == nil {
			return err
		}
		var faults bfcl.Faults
		errors.As(err, &faults)
		for _, f := range faults {
			fmt.Fprintln(c.stdout(), f)
		}
		failed, err := checkTruth(c.stdout(), data)
		if err != nil {
			return err
		}
		fmt.Fprintf(c.stdout(), "faults in the data: %d\n", len(faults))
		if len(faults) > 0 || failed > 0 {
			return exitCode(exitFailed)
		}
		return nil
	})
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
func (c *dataCommand) data() (*bfcl.Data, error) {
	data, err := bfcl.LoadData(c.dataDir)
	var faults bfcl.Faults
	if errors.As(err, &faults) {
		return nil, fmt.Errorf("the data has %d faults, the first: %w; `rcgrpo bfcl check %s` lists all",
			len(faults), faults[0], c.dataDir)
	}
	return data, err
}

var oneTask = wantArgs(1, 1, "want a task")

// start loads the data and starts a task.
func (c *dataCommand) start(id string) (*bfcl.Data, *bfcl.Episode, error) {
	data, err := c.data()
	if err != nil {
		return nil, nil, err
	}
	t, err := findTask(data, id)
	if err != nil {
		return nil, nil, err
	}
	e, err := t.Start(bfcl.Settings{Data: data, Today: bfcl.ReleaseDate})
	return data, e, err
}

// findTask returns a task. The prefix multi_turn_ may be omitted.
func findTask(data *bfcl.Data, id string) (*bfcl.Task, error) {
	if t := cmp.Or(data.Task(id), data.Task("multi_turn_"+id)); t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("there is no task %q; the IDs are multi_turn_base_0 to multi_turn_miss_param_199", id)
}

func bfclShowCommand() *cobra.Command {
	c := newBFCLCommand("show TASK", "Show a task with its requests, ground truth and results", oneTask)
	full := c.Flags().Bool("full", false, "do not shorten results")
	return c.does(func(args []string) error { return c.show(args[0], *full) })
}

func (c *dataCommand) show(id string, full bool) error {
	_, e, err := c.start(id)
	if err != nil {
		return err
	}
	t, w := e.Task(), c.OutOrStdout()
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

const chatHelp = `One line is one step: a call such as cd(folder='docs'), or several separated by a semicolon.
An empty line yields the turn. ? lists the tools, ?NAME describes one, :quit ends.
`

func bfclChatCommand() *cobra.Command {
	c := newBFCLCommand("chat TASK", "Play a task in the terminal, in place of the policy", oneTask)
	return c.does(func(args []string) error { return c.chat(args[0]) })
}

func (c *dataCommand) chat(id string) error {
	data, e, err := c.start(id)
	if err != nil {
		return err
	}
	t, w := e.Task(), c.OutOrStdout()
	next := output.LineReader(c.InOrStdin(), w)
	fmt.Fprintf(w, "%s  %s\n%s", t.ID, strings.Join(t.Classes, ", "), chatHelp)
	for turn := -1; !e.Done(); {
		if e.Turn() != turn {
			turn = e.Turn()
			fmt.Fprintf(w, "\nturn %d of %d  user: %s\n", turn+1, len(t.Turns), e.User())
		}
		line, err := next()
		if errors.Is(err, io.EOF) || line == ":quit" {
			break
		}
		if err != nil {
			return err
		}
		if name, asked := strings.CutPrefix(line, "?"); asked {
			describe(w, data, e, name)
			continue
		}
		results, _, err := e.Step(splitCalls(line))
		if err != nil {
			return err
		}
		for _, r := range results {
			fmt.Fprintf(w, "  %s\n", r)
		}
	}
	printVerdict(w, e.Verdict())
	return nil
}

// callPattern matches a call up to the next semicolon outside quotes.
var callPattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?:\\.?|'(?:\\.|[^'\\])*'?|"(?:\\.|[^"\\])*"?|[^;'"\\])+`)
})

func splitCalls(line string) (calls []string) {
	for _, text := range callPattern().FindAllString(line, -1) {
		if text = strings.TrimSpace(text); text != "" {
			calls = append(calls, text)
		}
	}
	return calls
}

func describe(w io.Writer, data *bfcl.Data, e *bfcl.Episode, name string) {
	if name == "" {
		fmt.Fprintln(w, strings.Join(e.Tools(), " "))
		return
	}
	for _, class := range e.Task().Classes {
		for _, doc := range data.Docs(class) {
			if doc.Name == name {
				fmt.Fprintf(w, "%s\n", doc.JSON)
				return
			}
		}
	}
	fmt.Fprintf(w, "there is no tool %q\n", name)
}

func printVerdict(w io.Writer, v bfcl.Verdict) {
	if v.Official {
		fmt.Fprintln(w, "\nverdict: accepted")
	} else {
		fmt.Fprintf(w, "\nverdict: %s\n  %s\n", v.ErrorType, v.Message)
		if len(v.Attrs) > 0 {
			fmt.Fprintf(w, "  differing attributes: %s\n", strings.Join(v.Attrs, ", "))
		}
		for _, m := range v.Missing {
			fmt.Fprintf(w, "  missing result: %s\n", clipped(m, false))
		}
	}
	fmt.Fprintf(w, "reward %v = state %v * action %v\n", v.Reward, v.RState, v.RAction)
}
