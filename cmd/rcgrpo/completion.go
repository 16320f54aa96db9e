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

func (c *experimentFlags) completeFlag(name string, candidates func() []string) {
	err := c.RegisterFlagCompletionFunc(name, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		if name == "var" {
			return candidates(), cobra.ShellCompDirectiveNoSpace
		}
		return candidates(), cobra.ShellCompDirectiveDefault
	})
	if err != nil {
		panic(err) // the flag does not exist
	}
}

// completeFirst registers the candidates for the first argument. The shell offers files for the others.
func (c *experimentFlags) completeFirst(candidates func() []string) {
	c.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return candidates(), cobra.ShellCompDirectiveDefault
	}
}

// onlyExperiment loads the only experiment of this folder without printing diagnostics; nil if there is none. ok is
// false if it has errors.
func (c *experimentFlags) onlyExperiment() (x *lang.Experiment, ok bool) {
	path, err := lang.FindExperiment(".")
	if err != nil {
		return nil, false
	}
	c.source.Path = path
	x, diags := lang.Load(c.source, kinds())
	return x, !diags.HasErrors()
}

// variables returns the variables of the only experiment, valid or not, as "NAME=".
func (c *experimentFlags) variables() (names []string) {
	if x, _ := c.onlyExperiment(); x != nil {
		for _, name := range x.VariableNames {
			names = append(names, name+"=")
		}
	}
	return names
}

func (c *experimentFlags) addresses() (names []string) {
	if x, ok := c.onlyExperiment(); ok {
		for _, n := range x.Nodes {
			names = append(names, lang.ShortAddress(n.Address))
		}
	}
	slices.Sort(names)
	return names
}

// ports returns the addresses of the only experiment with each of their ports, if it is valid.
func (c *experimentFlags) ports() (names []string) {
	if x, ok := c.onlyExperiment(); ok {
		for _, n := range x.Nodes {
			for port := range n.Outputs {
				names = append(names, lang.ShortAddress(n.Address)+"."+port)
			}
		}
	}
	slices.Sort(names)
	return names
}
