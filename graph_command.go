package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

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
		for _, from := range n.After {
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
	prompt := isTerminal(stdout)
	lines := bufio.NewScanner(stdin)
	for {
		if prompt {
			fmt.Fprint(stdout, "> ")
		}
		if !lines.Scan() {
			break
		}
		if line := strings.TrimSpace(lines.Text()); line != "" {
			eval(line)
		}
	}
	if err := lines.Err(); err != nil {
		return c.fail(err)
	}
	return code
}
