package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"rcgrpo/engine"
	"rcgrpo/stages/rl/objective"
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
	profile := c.String("profile", "", "print a kind's settings under the convention `NAME` beside its defaults; all prints every one")
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
	case *profile != "":
		return c.profiles(reg, docs, *profile)
	case *asJSON:
		if err := printJSON(stdout, docs); err != nil {
			return c.fail(err)
		}
	case *markdown:
		reg.WriteMarkdown(stdout)
	case len(c.args) == 1:
		docs[0].WriteText(stdout)
		if slices.ContainsFunc(docs[0].Settings, func(s engine.SettingDoc) bool { return s.Name == "kl.beta" }) {
			fmt.Fprintf(stdout, "\nweight of KL beside the policy, with these defaults: %s\n", objective.Profiles()[0].Objective.KLWeightText())
		}
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

// profiles prints the settings of a kind that conventions decide, one column for each. What differs from the first, the
// kind's defaults, carries a star.
func (c *call) profiles(reg engine.Registry, docs []engine.KindDoc, name string) int {
	if len(docs) != 1 {
		return c.misuse("-profile needs a kind, such as rcgrpo kinds grpo -profile %s", name)
	}
	kind := reg[slices.IndexFunc(reg, func(k *engine.Kind) bool { return k.Name == docs[0].Name })]
	known := kind.Presets()
	if len(known) == 0 {
		return c.misuse("kind %s has no profiles; grpo and rc-grpo have", kind.Name)
	}
	if name != "all" && !slices.Contains(known, name) {
		return c.misuse("there is no profile %s%s", name, engine.NearHint(name, known))
	}
	sources := map[string]string{}
	for _, p := range objective.Profiles() {
		sources[p.Name] = p.Source
	}
	var columns [][]engine.SettingDoc
	weights := []string{"weight of KL beside the policy"}
	header := []string{"setting"}
	for _, p := range known {
		if p == known[0] || p == name || name == "all" {
			header = append(header, p)
			columns = append(columns, kind.DescribePreset(p).Settings)
			o, err := objective.ProfileNamed(p)
			if err != nil {
				return c.fail(err)
			}
			weights = append(weights, o.KLWeightText())
			fmt.Fprintf(c.stdout, "%-9s %s\n", p, sources[p])
		}
	}
	rows := [][]string{header}
	for i, s := range docs[0].Settings {
		block, _, _ := strings.Cut(s.Name, ".")
		if !slices.Contains(objective.ProfileSettings, block) || s.Type == "block" {
			continue
		}
		row := []string{s.Name}
		for _, settings := range columns {
			value := settings[i].Default
			if value != columns[0][i].Default {
				value += " *"
			}
			row = append(row, value)
		}
		rows = append(rows, row)
	}
	rows = append(rows, weights)
	fmt.Fprintln(c.stdout)
	w := tabwriter.NewWriter(c.stdout, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return c.fail(err)
	}
	fmt.Fprintf(c.stdout, "\n* differs from %s\n", known[0])
	return exitDone
}
