package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"rcgrpo/cmd/rcgrpo/internal/output"
	"rcgrpo/engine/lang"
	"rcgrpo/stages/rl/objective"
)

func kindsCommand() *cobra.Command {
	c := newCommand("kinds [KIND]", "Describe the kinds of stages and their settings",
		wantArgs(0, 1, "want one kind at a time"))
	asJSON := c.Flags().Bool("json", false, "print JSON")
	markdown := c.Flags().Bool("markdown", false, "print the generated part of docs/language.md")
	profile := c.Flags().String("profile", "", "compare the settings of profile `NAME`, or of all, with the defaults")
	c.completeFirst(kindNames)
	return c.does(func(args []string) error {
		chosen := kinds()
		if len(args) == 1 {
			kind := chosen.Lookup(args[0])
			if kind == nil {
				return misuse("there is no kind %s%s", args[0], lang.NearHint(args[0], kindNames()))
			}
			chosen = lang.Registry{kind}
		}
		var docs []lang.KindDoc
		for _, k := range chosen {
			docs = append(docs, k.Describe())
		}
		w := c.stdout()
		switch {
		case *profile != "" && len(args) == 0:
			return misuse("--profile needs a kind, such as rcgrpo kinds grpo --profile %s", *profile)
		case *profile != "":
			return c.printProfiles(chosen[0], *profile)
		case *asJSON:
			return output.JSON(w, docs)
		case *markdown:
			kinds().WriteMarkdown(w)
		case len(args) == 1:
			docs[0].WriteText(w)
			if slices.ContainsFunc(docs[0].Settings, func(s lang.SettingDoc) bool { return s.Name == "kl.beta" }) {
				paper := objective.PaperObjective()
				fmt.Fprintf(w, "\nweight of the KL term, with these defaults: %s\n", paper.KLWeightText())
			}
		default:
			for _, d := range docs {
				fmt.Fprintf(w, "%-10s %s\n", d.Name, d.Summary)
			}
			fmt.Fprint(w, "\nSettings of every stage:\n")
			lang.WriteSettings(w, lang.StageSettings())
			fmt.Fprint(w, "\nrcgrpo kinds KIND prints the ports and settings of one kind.\n")
		}
		return nil
	})
}

func kindNames() (names []string) {
	for _, k := range kinds() {
		names = append(names, k.Name)
	}
	return names
}

func profileNames() []string {
	names := []string{"all"}
	for _, p := range objective.Profiles() {
		names = append(names, p.Name)
	}
	return names
}

// printProfiles prints the settings of a kind that depend on the profile, one column per profile. A star marks values
// that differ from the defaults in the first column.
func (c *command) printProfiles(kind *lang.Kind, name string) error {
	known := kind.Presets()
	if len(known) == 0 {
		return misuse("kind %s has no profiles; grpo and rc-grpo have", kind.Name)
	}
	if name != "all" && !slices.Contains(known, name) {
		return misuse("there is no profile %s%s", name, lang.NearHint(name, known))
	}
	var columns [][]lang.SettingDoc
	header, weights := "setting", "weight of the KL term"
	for _, p := range objective.Profiles() {
		if !slices.Contains(known, p.Name) || p.Name != known[0] && p.Name != name && name != "all" {
			continue
		}
		fmt.Fprintf(c.stdout(), "%-9s %s\n", p.Name, p.Source)
		columns = append(columns, kind.DescribePreset(p.Name).Settings)
		header += "\t" + p.Name
		weights += "\t" + p.Objective.KLWeightText()
	}
	w := tabwriter.NewWriter(c.stdout(), 0, 0, 3, ' ', 0)
	fmt.Fprintf(w, "\n%s\n", header)
	for i, s := range columns[0] {
		block, _, _ := strings.Cut(s.Name, ".")
		if !slices.Contains(objective.ProfileSettings, block) || s.Type == "block" {
			continue
		}
		fmt.Fprint(w, s.Name)
		for _, settings := range columns {
			mark := ""
			if settings[i].Default != s.Default {
				mark = " *"
			}
			fmt.Fprintf(w, "\t%s%s", settings[i].Default, mark)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "%s\n\n* differs from %s\n", weights, known[0])
	return w.Flush()
}
