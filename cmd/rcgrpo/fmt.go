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

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine"
)

// fmtCommand runs `rcgrpo fmt [PATH...]`: it rewrites files in the one layout and prints their names.
func fmtCommand(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	c := newCall("fmt", "[PATH...]", stdout, stderr)
	check := c.Bool("check", false, "write nothing; exit with 1 when a file would change")
	diff := c.Bool("diff", false, "print what would change; write nothing")
	recursive := c.Bool("recursive", false, "format the folders in a folder, too; hidden ones are left alone")
	if code, done := c.parse(args); done {
		return code
	}
	if len(c.args) == 0 {
		c.args = []string{"."}
	}
	if len(c.args) == 1 && c.args[0] == "-" {
		text, err := io.ReadAll(stdin)
		if err != nil {
			return c.fail(err)
		}
		formatted, ok := c.format("<stdin>", text)
		switch {
		case !ok:
			return exitFailed
		case *check || *diff:
			if bytes.Equal(text, formatted) {
				return exitDone
			}
			if *diff {
				writeDiff(stdout, "<stdin>", text, formatted)
			}
			if *check {
				return exitFailed
			}
			return exitDone
		}
		if _, err := stdout.Write(formatted); err != nil {
			return c.fail(err)
		}
		return exitDone
	}
	paths, err := hclFiles(c.args, *recursive)
	if err != nil {
		return c.fail(err)
	}
	code := exitDone
	for _, path := range paths {
		text, err := engine.ReadSource(path)
		if err != nil { // the others can be formatted all the same
			code = c.fail(err)
			continue
		}
		formatted, ok := c.format(path, text)
		switch {
		case !ok:
			code = exitFailed
			continue
		case bytes.Equal(text, formatted):
			continue
		case *diff:
			writeDiff(stdout, path, text, formatted)
		default:
			fmt.Fprintln(stdout, path)
		}
		if *check {
			code = exitFailed
		}
		if *check || *diff {
			continue
		}
		if err := replaceFile(path, formatted); err != nil {
			code = c.fail(err)
		}
	}
	return code
}

// format lays a file out anew; a file with errors of syntax is told and left alone.
func (c *call) format(path string, text []byte) ([]byte, bool) {
	formatted, diags := engine.Format(text, path)
	c.tell(diags, map[string]*hcl.File{path: {Bytes: text}})
	return formatted, !diags.HasErrors()
}

// hclFiles lists the .hcl files that the arguments name: files as they are, of folders those directly in it, or, when
// recursive, at any depth outside hidden folders.
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

// replaceFile writes aside and renames, keeping the permissions.
func replaceFile(path string, text []byte) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	aside, err := os.CreateTemp(filepath.Dir(path), ".fmt-*")
	if err != nil {
		return err
	}
	_, err = aside.Write(text)
	if err = errors.Join(err, aside.Chmod(info.Mode().Perm()), aside.Close()); err == nil {
		err = os.Rename(aside.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(aside.Name()))
	}
	return nil
}

// writeDiff prints the lines that formatting changes. Formatting only moves spaces within lines, so line i of one
// is line i of the other; if that ever fails, the whole file is shown on both sides.
func writeDiff(w io.Writer, path string, before, after []byte) {
	fmt.Fprintf(w, "--- %s\n+++ %s (formatted)\n", path, path)
	old, formatted := bytes.Split(before, []byte("\n")), bytes.Split(after, []byte("\n"))
	if len(old) != len(formatted) {
		writeHunk(w, 0, old, formatted)
		return
	}
	for i := 0; i < len(old); i++ {
		from := i
		for i < len(old) && !bytes.Equal(old[i], formatted[i]) {
			i++
		}
		if i > from {
			writeHunk(w, from, old[from:i], formatted[from:i])
		}
	}
}

func writeHunk(w io.Writer, from int, old, formatted [][]byte) {
	fmt.Fprintf(w, "@@ -%d,%d +%d,%d @@\n", from+1, len(old), from+1, len(formatted))
	for _, line := range old {
		fmt.Fprintf(w, "-%s\n", line)
	}
	for _, line := range formatted {
		fmt.Fprintf(w, "+%s\n", line)
	}
}
