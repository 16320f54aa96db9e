package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"rcgrpo/engine"
)

// graphCommand runs `rcgrpo graph [EXP]`.
func graphCommand(args []string, _ io.Reader, stdout, stderr io.Writer) int {
	c := newCall("graph", "[EXP]", stdout, stderr)
	format := c.String("format", "dot", "`FORMAT`: dot or mermaid")
	seeds := c.Bool("seeds", false, "a box for every seed")
	if code, done := c.parse(args); done {
		return code
	}
	if *format != "dot" && *format != "mermaid" {
		return c.misuse("-format must be dot or mermaid; got %s", *format)
	}
	x, code := c.experiment()
	if x == nil {
		return code
	}
	nodes, edges := graphOf(x, *seeds)
	if *format == "mermaid" {
		writeMermaid(stdout, nodes, edges)
	} else {
		writeDot(stdout, x.Name, nodes, edges)
	}
	return exitDone
}

// edge is an arrow of the drawing; one without label is a depends_on.
type edge struct{ from, to, label string }

// graphOf lists boxes and arrows, each once, in the order of the experiment.
func graphOf(x *engine.Experiment, seeds bool) (nodes []string, edges []edge) {
	name := func(n *engine.Node) string {
		text := strings.TrimPrefix(n.Address, "stage.")
		if !seeds {
			text, _, _ = strings.Cut(text, "@")
		}
		return text
	}
	seenNode, seenEdge := map[string]bool{}, map[edge]bool{}
	add := func(e edge) {
		if !seenEdge[e] {
			seenEdge[e] = true
			edges = append(edges, e)
		}
	}
	for _, n := range x.Nodes {
		to := name(n)
		if !seenNode[to] {
			seenNode[to] = true
			nodes = append(nodes, to)
		}
		for _, in := range n.Inputs {
			add(edge{name(in.From), to, in.Ref.Port})
		}
		for _, from := range n.DependsOn {
			add(edge{name(from), to, ""})
		}
	}
	return nodes, edges
}

func writeDot(w io.Writer, name string, nodes []string, edges []edge) {
	fmt.Fprintf(w, "digraph %q {\n  rankdir = LR\n  node [shape = box, fontname = \"sans-serif\"]\n", name)
	for _, n := range nodes {
		fmt.Fprintf(w, "  %q\n", n)
	}
	for _, e := range edges {
		attr := fmt.Sprintf("label = %q", e.label)
		if e.label == "" {
			attr = "style = dashed"
		}
		fmt.Fprintf(w, "  %q -> %q [%s]\n", e.from, e.to, attr)
	}
	fmt.Fprintln(w, "}")
}

func writeMermaid(w io.Writer, nodes []string, edges []edge) {
	id := map[string]int{}
	fmt.Fprintln(w, "flowchart LR")
	for i, n := range nodes {
		id[n] = i
		fmt.Fprintf(w, "  n%d[\"%s\"]\n", i, strings.ReplaceAll(n, `"`, "#quot;"))
	}
	for _, e := range edges {
		arrow := "-->|" + e.label + "|"
		if e.label == "" {
			arrow = "-.->"
		}
		fmt.Fprintf(w, "  n%d %s n%d\n", id[e.from], arrow, id[e.to])
	}
}

// consoleCommand runs `rcgrpo console [EXP] [EXPRESSION...]`; without expressions it reads one from each line.
func consoleCommand(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	c := newCall("console", "[EXP] [EXPRESSION...]", stdout, stderr)
	if code, done := c.parse(args); done {
		return code
	}
	path := ""
	if len(c.args) > 0 {
		if _, err := os.Stat(c.args[0]); err == nil || strings.HasSuffix(c.args[0], ".hcl") {
			path, c.args = c.args[0], c.args[1:]
		}
	}
	x, code := c.load(path)
	if x == nil {
		return code
	}
	eval := func(expression string) {
		value, diags := x.Eval(expression)
		if c.tell(diags, x.Files); diags.HasErrors() {
			code = exitFailed
			return
		}
		fmt.Fprintln(stdout, value)
	}
	if len(c.args) > 0 {
		for _, expression := range c.args {
			eval(expression)
		}
		return code
	}
	next, restore, err := lineReader(stdin, stdout)
	if err != nil {
		return c.fail(err)
	}
	for {
		line, err := next()
		switch line = strings.TrimSpace(line); {
		case errors.Is(err, io.EOF) && line == "" || line == "exit" || line == "quit":
			if err != nil && isTerminal(stdout) {
				fmt.Fprint(stdout, "\r\n") // ^D leaves the prompt standing
			}
			return max(code, c.ended(restore()))
		case err != nil && !errors.Is(err, io.EOF):
			return max(c.fail(err), c.ended(restore()))
		case line != "":
			// The terminal is an ordinary one while an answer is written, so that lines end where they should.
			code = max(code, c.ended(restore()))
			eval(line)
		}
	}
}

// ended is the exit code of an error that came last; nil is none.
func (c *call) ended(err error) int {
	if err != nil {
		return c.fail(err)
	}
	return exitDone
}

// lineReader gives the lines of stdin; on a terminal with a prompt, editing and a history. restore makes the terminal what
// it was until the next line.
func lineReader(stdin io.Reader, stdout io.Writer) (next func() (string, error), restore func() error, err error) {
	in, ok := stdin.(*os.File)
	if !ok || !isTerminal(stdout) || !term.IsTerminal(int(in.Fd())) {
		lines := bufio.NewReader(stdin)
		return func() (string, error) { return lines.ReadString('\n') }, func() error { return nil }, nil
	}
	editor := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{in, stdout}, "> ")
	var before *term.State
	next = func() (string, error) {
		if before, err = term.MakeRaw(int(in.Fd())); err != nil {
			return "", err
		}
		return editor.ReadLine()
	}
	restore = func() error {
		if before == nil {
			return nil
		}
		state := before
		before = nil
		return term.Restore(int(in.Fd()), state)
	}
	return next, restore, nil
}
