package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"rcgrpo/bfcl"
)

const chatHelp = `One line is one step: a call such as cd(folder='docs'), or several separated by a semicolon.
An empty line yields the turn. ? lists the tools, ?NAME describes one, :quit ends. Tab completes a tool's name.
`

func bfclChatCommand() *cobra.Command {
	c := newBFCLCommand("chat TASK", "Play the policy in the terminal", oneTask)
	c.RunE = func(_ *cobra.Command, args []string) error { return c.chat(args[0]) }
	return c.Command
}

func (c *bfclFlags) chat(id string) error {
	data, t, err := c.task(id)
	if err != nil {
		return err
	}
	e, err := t.Start(bfcl.Settings{Data: data, Today: bfcl.ReleaseDate})
	if err != nil {
		return err
	}
	w := c.OutOrStdout()
	next, restore := lineReader(c.InOrStdin(), w, func(line string, pos int, key rune) (string, int, bool) {
		if key != '\t' {
			return "", 0, false
		}
		return complete(line, pos, e.Tools())
	})
	fmt.Fprintf(w, "%s  %s\n%s", t.ID, strings.Join(t.Classes, ", "), chatHelp)
	for turn := -1; !e.Done(); {
		if e.Turn() != turn {
			turn = e.Turn()
			fmt.Fprintf(w, "\nturn %d of %d  user: %s\n", turn+1, len(t.Turns), e.User())
		}
		line, err := next()
		if err := restore(); err != nil {
			return err
		}
		line = strings.TrimRight(line, "\r\n")
		if err == io.EOF && line == "" || line == ":quit" {
			break
		}
		if err != nil && err != io.EOF {
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

// splitCalls splits a line at semicolons outside quotes.
func splitCalls(line string) []string {
	var calls []string
	quote, start := byte(0), 0
	flush := func(end int) {
		if call := strings.TrimSpace(line[start:end]); call != "" {
			calls = append(calls, call)
		}
	}
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == ';':
			flush(i)
			start = i + 1
		}
	}
	flush(len(line))
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

// complete extends the word before the cursor to the common prefix of the matching tools. A unique name gets an opening
// parenthesis.
func complete(line string, pos int, tools []string) (string, int, bool) {
	start := strings.LastIndexAny(line[:pos], " ;(?=,") + 1
	word := line[start:pos]
	var common string
	n := 0
	for _, name := range tools {
		if !strings.HasPrefix(name, word) {
			continue
		}
		if n++; n == 1 {
			common = name
		}
		for !strings.HasPrefix(name, common) {
			common = common[:len(common)-1]
		}
	}
	if n == 0 {
		return "", 0, false
	}
	if n == 1 && !strings.HasPrefix(line, "?") {
		common += "("
	}
	return line[:start] + common + line[pos:], start + len(common), true
}
