package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rcgrpo/engine/lang"
)

var graphFormats = []string{"dot", "mermaid"}

func graphCommand() *cobra.Command {
	c := newExperimentCommand("graph [EXP]", "Draw the stages as dot or mermaid", oneExperiment)
	c.overrideFlag()
	format := c.Flags().String("format", "dot", "`FORMAT` of the output: dot (Graphviz) or mermaid")
	seeds := c.Flags().Bool("seeds", false, "draw one box per seed instead of one per stage")
	return c.does(func(args []string) error {
		if !slices.Contains(graphFormats, *format) {
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
	})
}

// edge is an arrow. Without a label it is a depends_on.
type edge struct{ from, to, label string }

func graphOf(x *lang.Experiment, seeds bool) (nodes []string, edges []edge) {
	name := func(n *lang.Node) string {
		text := lang.TrimStage(n.Address)
		if !seeds {
			text, _, _ = strings.Cut(text, "@")
		}
		return text
	}
	for _, n := range x.Nodes {
		nodes = append(nodes, name(n))
		for _, in := range n.Inputs {
			edges = append(edges, edge{name(in.From), name(n), in.Ref.Port})
		}
		for _, from := range n.DependsOn {
			edges = append(edges, edge{name(from), name(n), ""})
		}
	}
	return unique(nodes), unique(edges)
}

// unique removes repeated values, in place.
func unique[T comparable](values []T) []T {
	seen := map[T]bool{}
	return slices.DeleteFunc(values, func(v T) bool {
		repeated := seen[v]
		seen[v] = true
		return repeated
	})
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
	fmt.Fprintln(w, "flowchart LR")
	id, text := map[string]int{}, strings.NewReplacer(`"`, "#quot;", "#", "#35;", "<", "#lt;") // labels are HTML
	for i, n := range nodes {
		id[n] = i
		fmt.Fprintf(w, "  n%d[\"%s\"]\n", i, text.Replace(n))
	}
	for _, e := range edges {
		arrow := "-->|" + e.label + "|"
		if e.label == "" {
			arrow = "-.->"
		}
		fmt.Fprintf(w, "  n%d %s n%d\n", id[e.from], arrow, id[e.to])
	}
}
