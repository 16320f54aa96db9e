package main

import (
	"github.com/spf13/cobra"

	"rcgrpo/cmd/rcgrpo/internal/lsp"
)

func lspCommand() *cobra.Command {
	c := newExperimentCommand("lsp", "Serve an editor (docs/editors.md)", wantArgs(0, 0, ""))
	c.Long = "A language server for experiment files. It speaks the Language Server Protocol on standard input and\n" +
		"output; editors start it. docs/editors.md shows the settings of VS Code, Neovim, Helix and Emacs."
	c.Flags().Bool("stdio", true, "ignored; some editors pass it")
	c.RunE = func(*cobra.Command, []string) error {
		return lsp.Serve(c.InOrStdin(), c.stdout(), lsp.Options{Kinds: kinds(), Source: c.source})
	}
	return c.Command
}
