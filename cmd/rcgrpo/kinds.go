package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"rcgrpo/engine/lang"
	"rcgrpo/stages/rl/objective"
)

func kindsCommand() *cobra.Command {
	c := newExperimentCommand("kinds [KIND]", "Describe the kinds of stages and their settings",
		wantArgs(0, 1, "want one kind at a time"))
	asJSON := c.Flags().Bool("json", false, "print JSON")
	markdown := c.Flags().Bool("markdown", false, "print the generated part of docs/language.md")
	profile := c.Flags().String("profile", "", "compare the settings of profile `NAME`, or of all, with the defaults")
	c.completeFirst(kindNames)
	c.RunE = func(_ *cobra.Command, args []string) error {
		var docs []lang.KindDoc
		for _, k := range kinds() {
			if len(args) == 0 || args[0] == k.Name {
				docs = append(docs, k.Describe())
			}
		}
		switch {
		case len(docs) == 0:
			return misuse("there is no kind %s%s", args[0], lang.NearHint(args[0], kindNames()))
		case *profile != "":
			return c.printProfiles(docs, *profile)
		case *asJSON:
			return printJSON(c.stdout(), docs)
		case *markdown:
			kinds().WriteMarkdown(c.stdout())
		case len(args) == 1:
			c.printKind(docs[0])
		default:
			for _, d := range docs {
				fmt.Fprintf(c.stdout(), "%-10s %s\n", d.Name, d.Summary)
			}
			fmt.Fprint(c.stdout(), "\nSettings of every stage:\n")
			lang.WriteSettings(c.stdout(), lang.StageSettings())
			fmt.Fprint(c.stdout(), "\nrcgrpo kinds KIND prints the ports and settings of one kind.\n")
		}
		return nil
	}
	return c.Command
}

func kindNames() []string {
	var names []string
	for _, k := range kinds() {
		names = append(names, k.Name)
	}
	return names
}

func (c *experimentFlags) printKind(doc lang.KindDoc) {
	doc.WriteText(c.stdout())
}

// printProfiles prints the settings of a kind that depend on the profile, one column per profile. A star marks values
// that differ from the defaults in the first column.
func (c *experimentFlags) printProfiles(docs []lang.KindDoc, name string) error {
	if len(docs) != 1 {
		return misuse("--profile needs a kind, such as rcgrpo kinds grpo --profile %s", name)
	}
	reg := kinds()
	kind := reg[slices.IndexFunc(reg, func(k *lang.Kind) bool { return k.Name == docs[0].Name })]
	known := kind.Presets()
	if len(known) == 0 {
		return misuse("kind %s has no profiles; grpo and rc-grpo have", kind.Name)
	}
	if name != "all" && !slices.Contains(known, name) {
		return misuse("there is no profile %s%s", name, lang.NearHint(name, known))
	}
	var columns [][]lang.SettingDoc
	header := []string{"setting"}
	for _, p := range objective.Profiles() {
		if !slices.Contains(known, p.Name) || p.Name != known[0] && p.Name != name && name != "all" {
			continue
		}
		header = append(header, p.Name)
		columns = append(columns, kind.DescribePreset(p.Name).Settings)
		fmt.Fprintf(c.stdout(), "%-9s %s\n", p.Name, p.Source)
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
	fmt.Fprintln(c.stdout())
	w := tabwriter.NewWriter(c.stdout(), 0, 0, 3, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(c.stdout(), "\n* differs from %s\n", known[0])
	return nil
}
