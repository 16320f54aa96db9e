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

	"rcgrpo/engine/lang"
)

// formatter is the command fmt.
type formatter struct {
	*experimentFlags
	check, diff, recursive bool
	failed                 bool // with --check also: a file would change
}

func fmtCommand() *cobra.Command {
	f := &formatter{experimentFlags: newExperimentCommand("fmt [PATH...]", "Format files; - is standard input",
		cobra.ArbitraryArgs)}
	f.Flags().BoolVar(&f.check, "check", false, "write nothing; exit with 1 if a file would change")
	f.Flags().BoolVar(&f.diff, "diff", false, "write nothing; print the changes")
	f.Flags().BoolVar(&f.recursive, "recursive", false, "also format the folders below, except hidden ones")
	f.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			args = []string{"."}
		}
		if len(args) == 1 && args[0] == "-" {
			return f.formatInput()
		}
		return f.formatFiles(args)
	}
	return f.Command
}

func (f *formatter) formatInput() error {
	text, err := io.ReadAll(f.InOrStdin())
	if err != nil {
		return err
	}
	formatted, ok := f.format("<stdin>", text)
	f.failed = !ok || f.check && !bytes.Equal(text, formatted)
	switch {
	case ok && f.diff:
		f.printDiff("<stdin>", text, formatted)
	case ok && !f.check:
		if _, err := f.stdout().Write(formatted); err != nil {
			return err
		}
	}
	return f.result()
}

func (f *formatter) formatFiles(args []string) error {
	paths, err := hclFiles(args, f.recursive)
	if err != nil {
		return err
	}
	for _, path := range paths {
		if err := f.formatFile(path); err != nil { // the other files can still be formatted
			reportError(f.Command, err)
			f.failed = true
		}
	}
	return f.result()
}

func (f *formatter) formatFile(path string) error {
	text, err := lang.ReadSource(path)
	if err != nil {
		return err
	}
	formatted, ok := f.format(path, text)
	switch {
	case !ok:
		f.failed = true
		return nil
	case bytes.Equal(text, formatted):
		return nil
	case f.diff:
		f.printDiff(path, text, formatted)
	default:
		fmt.Fprintln(f.stdout(), path)
	}
	if f.check || f.diff {
		f.failed = f.failed || f.check
		return nil
	}
	return renameio.WriteFile(path, formatted, 0o644, renameio.WithExistingPermissions())
}

func (f *formatter) result() error {
	if f.failed {
		return exitCode(exitFailed)
	}
	return nil
}

// format returns the formatted text. It prints syntax errors and then returns ok false.
func (f *formatter) format(path string, text []byte) (formatted []byte, ok bool) {
	formatted, diags := lang.Format(text, path)
	f.printDiagnostics(diags, map[string]*hcl.File{path: {Bytes: text}})
	return formatted, !diags.HasErrors()
}

func (f *formatter) printDiff(path string, before, after []byte) {
	_, text, _ := bytes.Cut(diff.Diff(path, before, path+" (formatted)", after), []byte("\n")) // without the line "diff …"
	f.stdout().Write(text)
}

// hclFiles returns the files that args name, and the .hcl files in the folders that args name.
func hclFiles(args []string, recursive bool) ([]string, error) {
	var paths []string
	for _, arg := range args {
		info, err := os.Stat(arg)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("there is no file or folder %s", arg)
		}
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
