package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"rcgrpo/engine/lang"
)

func graphCommand() *cobra.Command {
	c := newExperimentCommand("graph [EXP]", "Draw the stages as dot or mermaid", oneExperiment)
	c.overrideFlag()
	format := c.Flags().String("format", "dot", "`FORMAT`: dot or mermaid")
	seeds := c.Flags().Bool("seeds", false, "draw a box for every seed")
	c.completeFlag("format", func() []string { return []string{"dot", "mermaid"} })
	c.RunE = func(_ *cobra.Command, args []string) error {
		if *format != "dot" && *format != "mermaid" {
			return misuse("--format must be dot or mermaid; got %s", *format)
		}
		x, err := c.load(strings.Join(args, ""))
		if err != nil {
			return err
		}
		nodes, edges := graphOf(x, *seeds)
		if *format == "mermaid" {
			writeMermaid(c.stdout(), nodes, edges)
		} else {
			writeDot(c.stdout(), x.Name, nodes, edges)
		}
		return nil
	}
	return c.Command
}

// edge is an arrow. Without a label it is a depends_on.
type edge struct{ from, to, label string }

func graphOf(x *lang.Experiment, seeds bool) (nodes []string, edges []edge) {
	name := func(n *lang.Node) string {
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
