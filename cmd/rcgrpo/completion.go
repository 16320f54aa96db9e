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
			var script bytes.Buffer // it accepts every write
			switch args[0] {
			case "bash":
				c.Root().GenBashCompletionV2(&script, true)
			case "zsh":
				c.Root().GenZshCompletion(&script)
			case "fish":
				c.Root().GenFishCompletion(&script, true)
			default:
				return misuse(wantShell)
			}
			// Bash also splits words at @, which addresses contain. The script of fish evaluates the words of the line,
			// from which fish has removed the quotes.
			const special = `_handle_special_char "$cur" `
			changes := strings.NewReplacer("_init_completion -n =:", "_init_completion -n =:@",
				special+"=", special+"=\n    __rcgrpo"+special+"@",
				"(commandline -opc)", "(string escape -- (commandline -opc))")
			_, err := changes.WriteString(c.OutOrStdout(), script.String())
			return err
		},
	}
}

// offered returns, sorted, the candidates that are only words in every shell. The scripts evaluate the words of the
// line, and bash inserts what several candidates share without quotes, so the name $(rm x) of a foreign experiment
// would be executed.
func offered(candidates []string) []string {
	return slices.DeleteFunc(slices.Sorted(slices.Values(candidates)), func(name string) bool {
		return strings.ContainsAny(name, "$`\\\"'!#&()*;<>?^{|}~\t\n") || strings.Contains(name, " -")
	})
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
		return offered(values()), after
	})
}

// completeFirst registers the candidates for the first argument. The shell offers files for the others.
func (c *command) completeFirst(candidates func() []string) {
	c.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return offered(candidates()), cobra.ShellCompDirectiveDefault
	}
}

// onlyExperiment loads the only experiment of this folder without printing diagnostics. It has no nodes if there is
// none, or if it has errors.
func (c *command) onlyExperiment() *lang.Experiment {
	c.source.Path, _ = lang.FindExperiment(".", nil) // Load reports a path that is empty
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
	return names
}

// ports returns the addresses of the only experiment with each of their ports.
func (c *command) ports() (names []string) {
	for _, n := range c.onlyExperiment().Nodes {
		for port := range n.Outputs {
			names = append(names, lang.ShortAddress(n.Address)+"."+port)
		}
	}
	return names
}
