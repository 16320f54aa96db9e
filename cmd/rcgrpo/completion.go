package main

import (
	"bytes"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rcgrpo/engine/lang"
)

func completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print the completion script of a shell",
		Long: `Print the completion script of a shell. Load it with

  bash  source <(rcgrpo completion bash)      in ~/.bashrc; needs the package bash-completion
  zsh   source <(rcgrpo completion zsh)       in ~/.zshrc, after compinit
  fish  rcgrpo completion fish | source       in ~/.config/fish/config.fish`,
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(c.ValidArgs, args[0]) {
				return misuse("want a shell: bash, zsh or fish")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			switch args[0] {
			case "zsh":
				return c.Root().GenZshCompletion(c.OutOrStdout())
			case "fish":
				return c.Root().GenFishCompletion(c.OutOrStdout(), true)
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
	var values func() []string
	after := cobra.ShellCompDirectiveDefault
	switch name {
	case "var":
		values, after = c.variables, cobra.ShellCompDirectiveNoSpace
	case "target", "replace":
		values = c.addresses
	case "kind":
		values = kindNames
	case "profile":
		values = profileNames
	case "sort":
		values = storeOrderNames
	case "format":
		values = func() []string { return graphFormats }
	default:
		return
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
	path, err := lang.FindExperiment(".")
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
