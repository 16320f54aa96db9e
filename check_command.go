package main

import (
	"fmt"
	"io"
	"strings"

	"rcgrpo/engine"
)

// checkCommand runs `rcgrpo check [EXP...]`.
func checkCommand(args []string, _ io.Reader, stdout, stderr io.Writer) int {
	c := newCall("check", "[EXP...]", stdout, stderr)
	asJSON := c.Bool("json", false, "print the diagnostics for programs")
	if code, done := c.parse(args); done {
		return code
	}
	if len(c.args) == 0 {
		found, err := engine.FindExperiment(".")
		if err != nil {
			return c.misuse("%v", err)
		}
		c.args = []string{found}
	}
	code := exitDone
	all := []engine.DiagnosticJSON{}
	for _, path := range c.args {
		source := c.source
		source.Path = path
		x, diags := engine.Load(source, kinds())
		if diags.HasErrors() {
			code = exitFailed
		}
		if *asJSON {
			all = append(all, engine.DiagnosticsJSON(diags)...)
			continue
		}
		c.tell(diags, x.Files)
		if !diags.HasErrors() {
			fmt.Fprintf(stdout, "%s is valid: %s\n", path, nodeCount(x))
		}
	}
	if *asJSON {
		if err := printJSON(stdout, all); err != nil {
			return c.fail(err)
		}
	}
	return code
}

// nodeCount says "60 nodes, seeds 1, 2, 3".
func nodeCount(x *engine.Experiment) string {
	text := fmt.Sprintf("%d nodes", len(x.Nodes))
	if len(x.Nodes) == 1 {
		text = "1 node"
	}
	if len(x.Seeds) > 1 {
		text += ", seeds " + strings.Trim(strings.ReplaceAll(fmt.Sprint(x.Seeds), " ", ", "), "[]")
	}
	return text
}

// kindsCommand runs `rcgrpo kinds [KIND]`.
func kindsCommand(args []string, _ io.Reader, stdout, stderr io.Writer) int {
	c := newCall("kinds", "[KIND]", stdout, stderr)
	asJSON := c.Bool("json", false, "print the reference for programs")
	markdown := c.Bool("markdown", false, "print the part of docs/language.md that comes from the code")
	if code, done := c.parse(args); done {
		return code
	}
	reg := kinds()
	var names []string
	var docs []engine.KindDoc
	for _, k := range reg {
		names = append(names, k.Name)
		if len(c.args) == 0 || c.args[0] == k.Name {
			docs = append(docs, k.Describe())
		}
	}
	switch {
	case len(c.args) > 1:
		return c.misuse("one kind at a time; got %s", strings.Join(c.args, " "))
	case len(docs) == 0:
		return c.misuse("there is no kind %s%s", c.args[0], engine.NearHint(c.args[0], names))
	case *asJSON:
		if err := printJSON(stdout, docs); err != nil {
			return c.fail(err)
		}
	case *markdown:
		reg.WriteMarkdown(stdout)
	case len(c.args) == 1:
		docs[0].WriteText(stdout)
	default:
		for _, d := range docs {
			fmt.Fprintf(stdout, "%-10s %s\n", d.Name, d.Summary)
		}
		fmt.Fprint(stdout, "\nEvery stage understands:\n")
		engine.WriteSettings(stdout, engine.StageSettings())
		fmt.Fprint(stdout, "\nrcgrpo kinds KIND prints ports and settings of one.\n")
	}
	return exitDone
}
