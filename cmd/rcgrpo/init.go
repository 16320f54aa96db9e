package main

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rcgrpo/engine/lang"
)

//go:embed templates
var templateFiles embed.FS

// template is a small experiment that init writes: the file templates/NAME.hcl.
type template struct {
	name, summary string
	needs         string   // what to do before a command loads the experiment
	page          bool     // the experiment has a report
	more          []string // further files, below templates/NAME and below the folder of the experiment
}

var templates = []template{
	{name: "drills", summary: "two arms on generated tasks, with a tiny model from random weights", page: true},
	{name: "tools", summary: "the four arms on tasks and tools of your own, in 40 lines of Python", page: true,
		more: []string{"shop/shop.py", "agent/agent.py"}},
	{name: "exec", summary: "commands only"},
}

func initCommand() *cobra.Command {
	var names []string
	var list strings.Builder
	var model string
	for _, t := range templates {
		names = append(names, t.name)
		fmt.Fprintf(&list, "\n  %-7s %s", t.name, t.summary)
	}
	c := &cobra.Command{
		Use:   "init [TEMPLATE] [DIR]",
		Short: "Write a small experiment that runs as it is",
		Long: "Write a small experiment that runs as it is into DIR, by default this folder. " +
			"An existing file is never overwritten.\n\n" +
			"With --model PATH no TEMPLATE is named: the experiment evaluates and trains that model.\n\n" +
			"Templates (default " + names[0] + "):" + list.String(),
		Args: wantArgs(0, 2, "want a template and a folder"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return names, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
		RunE: func(c *cobra.Command, args []string) error {
			if model != "" {
				if len(args) > 1 {
					return misuse("--model replaces the template: rcgrpo init --model PATH [DIR]")
				}
				return initModel(c.OutOrStdout(), model, cmp.Or(strings.Join(args, ""), "."))
			}
			t, dir := templates[0], "."
			if len(args) > 0 {
				i := slices.Index(names, args[0])
				if i < 0 {
					return misuse("there is no template %s%s (templates: %s; for a model of yours: --model PATH)", args[0],
						lang.NearHint(args[0], names), strings.Join(names, ", "))
				}
				t = templates[i]
			}
			if len(args) > 1 {
				dir = args[1]
			}
			path := filepath.Join(dir, t.name+".hcl")
			if err := t.write(path); err != nil {
				return err
			}
			t.printNext(c.OutOrStdout(), path)
			return nil
		},
	}
	c.Flags().StringVar(&model, "model", "", "experiment for the model in `PATH`, a Hugging Face folder or FILE.gguf")
	return c
}

// write creates the files of the template with their folders. An existing file is an error.
func (t template) write(path string) error {
	to := []string{path}
	from := []string{t.name + ".hcl"}
	for _, more := range t.more {
		to = append(to, filepath.Join(filepath.Dir(path), filepath.FromSlash(more)))
		from = append(from, t.name+"/"+more)
	}
	for _, to := range to {
		if err := refuseExisting(to, t.name); err != nil {
			return err
		}
	}
	for i := range to {
		text, err := templateFiles.ReadFile("templates/" + from[i])
		if err == nil {
			err = writeNew(to[i], text)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// refuseExisting returns an error if a file, or a link without a file, has the path. words are the arguments of init.
func refuseExisting(path, words string) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s exists already; nothing was written (name another folder: rcgrpo init %s DIR)", path, words)
	}
	return nil
}

// writeNew writes a file that does not exist, with its folders.
func writeNew(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		os.Remove(path)
	}
	return err
}

// printNext prints the path and the commands to type next.
func (t template) printNext(w io.Writer, path string) {
	fmt.Fprintf(w, "wrote %s\n\nNext:\n", path)
	if strings.ContainsAny(path, " '\"\\$`*?[](){}<>|&;#~!\t\n") {
		path = "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
	}
	next := [][2]string{
		{"plan " + path, "the stages that would run, and why"},
		{"run " + path, "a second run does nothing"},
		{"open " + path, "the page"},
	}
	if !t.page {
		next = next[:2]
	}
	if t.needs != "" {
		fmt.Fprintf(w, "  %s\n", t.needs)
	}
	for _, line := range next {
		fmt.Fprintf(w, "  rcgrpo %-*s  # %s\n", len(next[0][0]), line[0], line[1])
	}
}
