package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/hashicorp/hcl/v2"
	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"rcgrpo/cmd/rcgrpo/internal/lsp"
	"rcgrpo/cmd/rcgrpo/internal/output"
	"rcgrpo/engine/lang"
)

type formatter struct {
	*command
	check, diff, recursive bool
}

func fmtCommand() *cobra.Command {
	f := &formatter{command: newCommand("fmt [PATH...]", "Format HCL files and folders; - is standard input",
		cobra.ArbitraryArgs)}
	f.Flags().BoolVar(&f.check, "check", false, "write nothing; exit with 1 if a file would change")
	f.Flags().BoolVar(&f.diff, "diff", false, "write nothing; print the changes")
	f.Flags().BoolVar(&f.recursive, "recursive", false, "also format the folders below, except hidden ones")
	return f.does(func(args []string) error {
		if len(args) == 0 {
			args = []string{"."}
		}
		paths, err := hclFiles(args, f.recursive)
		if err != nil {
			return err
		}
		var failed error
		for _, path := range paths { // an error of one file does not affect the others
			if err := f.formatFile(path); err != nil {
				failed = exitCode(exitFailed)
				if !errors.As(err, new(exitCode)) {
					reportError(f.Command, err)
				}
			}
		}
		return failed
	})
}

// formatFile formats a file, or standard input for -. It returns an exitCode for a file with printed diagnostics, and
// with --check for a file that would change.
func (f *formatter) formatFile(path string) error {
	var text []byte
	var err error
	input := path == "-"
	if input {
		path = "<stdin>"
		text, err = io.ReadAll(f.InOrStdin())
	} else {
		text, err = lang.ReadSource(path)
	}
	if err != nil {
		return err
	}
	formatted, diags := lang.Format(text, path)
	f.printDiagnostics(diags, map[string]*hcl.File{path: {Bytes: text}})
	changed := !bytes.Equal(text, formatted)
	switch {
	case diags.HasErrors():
		return exitCode(exitFailed)
	case f.diff && changed:
		_, hunks, _ := bytes.Cut(diff.Diff(path, text, path+" (formatted)", formatted), []byte("\n")) // without "diff …"
		_, err = output.Data(f.stdout()).Write(hunks)
	case f.diff || input && f.check:
	case input:
		_, err = output.Data(f.stdout()).Write(formatted)
	case changed:
		fmt.Fprintln(f.stdout(), path)
		if !f.check {
			err = renameio.WriteFile(path, formatted, 0o644, renameio.WithExistingPermissions())
		}
	}
	if err == nil && f.check && changed {
		err = exitCode(exitFailed)
	}
	return err
}

// hclFiles returns the files that args name, and the .hcl files in the folders that args name.
func hclFiles(args []string, recursive bool) ([]string, error) {
	var paths []string
	for _, arg := range args {
		if arg == "-" {
			paths = append(paths, arg)
			continue
		}
		info, err := os.Stat(arg)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			paths = append(paths, arg)
			continue
		}
		err = filepath.WalkDir(arg, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && path != arg && (!recursive || strings.HasPrefix(d.Name(), ".")):
				return filepath.SkipDir
			case !d.IsDir() && filepath.Ext(path) == ".hcl":
				paths = append(paths, path)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return paths, nil
}

func lspCommand() *cobra.Command {
	c := newExperimentCommand("lsp", "Serve an editor (docs/editors.md)", wantArgs(0, 0, ""))
	c.Long = "A language server for experiment files. It speaks the Language Server Protocol on standard input and\n" +
		"output; editors start it. docs/editors.md shows the settings of VS Code, Neovim, Helix and Emacs."
	c.Flags().Bool("stdio", true, "ignored; some editors pass it")
	c.RunE = func(*cobra.Command, []string) error {
		return lsp.Serve(c.InOrStdin(), output.Raw(c.stdout()), lsp.Options{Kinds: kinds(), Source: c.source})
	}
	return c.Command
}
