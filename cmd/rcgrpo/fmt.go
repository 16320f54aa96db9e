package main

import (
	"bytes"
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

	"rcgrpo/engine/lang"
)

type formatter struct {
	*command
	check, diff, recursive bool
	failed                 bool // with --check also: a file would change
}

func fmtCommand() *cobra.Command {
	f := &formatter{command: newCommand("fmt [PATH...]", "Format HCL files and folders; - is standard input",
		cobra.ArbitraryArgs)}
	f.Flags().BoolVar(&f.check, "check", false, "write nothing; exit with 1 if a file would change")
	f.Flags().BoolVar(&f.diff, "diff", false, "write nothing; print the changes")
	f.Flags().BoolVar(&f.recursive, "recursive", false, "also format the folders below, except hidden ones")
	return f.runs(func(args []string) error {
		if len(args) == 0 {
			args = []string{"."}
		}
		return f.formatFiles(args)
	})
}

// formatFiles formats files, or standard input for -. An error of one file does not affect the others.
func (f *formatter) formatFiles(args []string) error {
	paths, err := hclFiles(args, f.recursive)
	if err != nil {
		return err
	}
	for _, path := range paths {
		if err := f.formatFile(path); err != nil {
			reportError(f.Command, err)
			f.failed = true
		}
	}
	if f.failed {
		return exitCode(exitFailed)
	}
	return nil
}

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
	f.failed = f.failed || diags.HasErrors() || f.check && changed
	switch {
	case diags.HasErrors():
	case f.diff && changed:
		_, hunks, _ := bytes.Cut(diff.Diff(path, text, path+" (formatted)", formatted), []byte("\n")) // without "diff …"
		_, err = f.stdout().Write(hunks)
	case f.diff || input && f.check:
	case input:
		_, err = f.stdout().Write(formatted)
	case changed:
		fmt.Fprintln(f.stdout(), path)
		if !f.check {
			err = renameio.WriteFile(path, formatted, 0o644, renameio.WithExistingPermissions())
		}
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
