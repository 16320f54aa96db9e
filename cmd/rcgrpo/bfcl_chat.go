package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"rcgrpo/bfcl"
)

const chatHelp = `One line is one step: a call such as cd(folder='docs'), or several separated by a semicolon.
An empty line yields the turn. ? lists the tools, ?NAME describes one, :quit ends. Tab completes a tool's name.
`

// chat lets a person play the policy.
func (c *bfclCall) chat() error {
	data, t, err := c.task()
	if err != nil {
		return err
	}
	e, err := t.Start(bfcl.Settings{Data: data, Today: bfcl.ReleaseDate})
	if err != nil {
		return err
	}
	read, w, closing, err := c.lines(e)
	if err != nil {
		return err
	}
	defer closing()
	fmt.Fprintf(w, "%s  %s\n%s", t.ID, strings.Join(t.Classes, ", "), chatHelp)
	for turn := -1; !e.Done(); {
		if e.Turn() != turn {
			turn = e.Turn()
			fmt.Fprintf(w, "\nturn %d of %d  user: %s\n", turn+1, len(t.Turns), e.User())
		}
		line, err := read()
		if err == io.EOF || line == ":quit" {
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

// splitCalls divides a line at semicolons outside quotes.
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
	fmt.Fprintf(w, "there is no tool %q here\n", name)
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

// lines gives a reader of lines and the writer that goes with it: an editor with completion when standard input is a
// terminal, plain lines otherwise.
func (c *bfclCall) lines(e *bfcl.Episode) (read func() (string, error), w io.Writer, closing func(), err error) {
	file, ok := c.stdin.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		scanner := bufio.NewScanner(c.stdin)
		scanner.Buffer(nil, 1<<20)
		return func() (string, error) {
			if scanner.Scan() {
				return scanner.Text(), nil
			}
			if err := scanner.Err(); err != nil {
				return "", err
			}
			return "", io.EOF
		}, c.stdout, func() {}, nil
	}
	old, err := term.MakeRaw(int(file.Fd()))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("the terminal: %w", err)
	}
	t := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{file, c.stdout}, "> ")
	t.AutoCompleteCallback = func(line string, pos int, key rune) (string, int, bool) {
		if key != '\t' {
			return "", 0, false
		}
		return complete(line, pos, e.Tools())
	}
	return t.ReadLine, t, func() { _ = term.Restore(int(file.Fd()), old) }, nil
}

// complete extends the word before the cursor as far as all tools that begin with it agree; a whole name gets its
// opening parenthesis.
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
