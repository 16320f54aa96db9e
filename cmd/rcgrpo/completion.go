package main

import (
	"bytes"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rcgrpo/engine/lang"
)

const wantShell = "want a shell: bash, zsh or fish"

func completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print the completion script of a shell",
		Long: `Print the completion script of a shell. Load it with

  bash  source <(rcgrpo completion bash)      in ~/.bashrc; needs the package bash-completion
  zsh   source <(rcgrpo completion zsh)       in ~/.zshrc, after compinit
  fish  rcgrpo completion fish | source       in ~/.config/fish/config.fish`,
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args:      wantArgs(1, 1, wantShell),
		RunE: func(c *cobra.Command, args []string) error {
			switch args[0] {
			case "zsh":
				return c.Root().GenZshCompletion(c.OutOrStdout())
			case "fish":
				return c.Root().GenFishCompletion(c.OutOrStdout(), true)
			}
			if args[0] != "bash" {
				return misuse(wantShell)
			}
			var script bytes.Buffer
			if err := c.Root().GenBashCompletionV2(&script, true); err != nil {
				return err
			}
			// Bash also splits words at @, which addresses contain.
			text := strings.ReplaceAll(script.String(), "_init_completion -n =:", "_init_completion -n =:@")
			const equals = `__rcgrpo_handle_special_char "$cur" =`
			text = strings.Replace(text, equals, equals+"\n    "+strings.TrimSuffix(equals, "=")+"@", 1)
			_, err := c.OutOrStdout().Write([]byte(text))
			return err
		},
	}
}

// completeFlag offers the values of a flag.
func (c *command) completeFlag(name string) {
	values := map[string]func() []string{
		"var": c.variables, "target": c.addresses, "replace": c.addresses, "kind": kindNames, "profile": profileNames,
		"sort": storeOrderNames, "format": func() []string { return graphFormats },
	}[name]
	if values == nil {
		return
	}
	after := cobra.ShellCompDirectiveDefault
	if name == "var" {
		after = cobra.ShellCompDirectiveNoSpace
	}
	// It fails for an unknown flag only, and the caller visits existing ones.
	_ = c.RegisterFlagCompletionFunc(name, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values(), after
	})
}

// completeFirst registers the candidates for the first argument. The shell offers files for the others.
func (c *command) completeFirst(candidates func() []string) {
	c.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return candidates(), cobra.ShellCompDirectiveDefault
	}
}

// onlyExperiment loads the only experiment of this folder without printing diagnostics. It has no nodes if there is
// none, or if it has errors.
func (c *command) onlyExperiment() *lang.Experiment {
	path, err := lang.FindExperiment(".", nil)
	if err != nil {
		return &lang.Experiment{}
	}
	c.source.Path = path
	x, diags := lang.Load(c.source, kinds())
	if diags.HasErrors() {
		x.Nodes = nil
	}
	return x
}

// variables returns the variables of the only experiment, valid or not, as "NAME=".
func (c *command) variables() (names []string) {
	for _, name := range c.onlyExperiment().VariableNames {
		names = append(names, name+"=")
	}
	return names
}

func (c *command) addresses() (names []string) {
	for _, n := range c.onlyExperiment().Nodes {
		names = append(names, lang.ShortAddress(n.Address))
	}
	slices.Sort(names)
	return names
}

// ports returns the addresses of the only experiment with each of their ports.
func (c *command) ports() (names []string) {
	for _, n := range c.onlyExperiment().Nodes {
		for port := range n.Outputs {
			names = append(names, lang.ShortAddress(n.Address)+"."+port)
		}
	}
	slices.Sort(names)
	return names
}
