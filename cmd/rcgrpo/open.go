package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rcgrpo/cmd/rcgrpo/internal/output"
	"rcgrpo/reports"
)

func openCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "open [PAGE]",
		Short: "Open the newest page in the browser",
		Long: "Open a page in the browser and print its path. PAGE is an HTML file, or an experiment or folder: then its " +
			"newest page.\nThe default is this folder. $BROWSER names another browser; without a display only the path is " +
			"printed.",
		Args: wantArgs(0, 1, "want one page, experiment or folder"),
		RunE: func(c *cobra.Command, args []string) error {
			page, err := findPage(cmp.Or(strings.Join(args, ""), "."))
			if err == nil {
				page, err = filepath.Abs(page)
			}
			if err != nil {
				return err
			}
			fmt.Fprintln(c.OutOrStdout(), page)
			words := browserCommand(page)
			if words == nil {
				return nil
			}
			browser := exec.Command(words[0], words[1:]...)
			stderr := output.Raw(c.ErrOrStderr()) // a file, so that a browser may outlive this process
			browser.Stdin, browser.Stdout, browser.Stderr = c.InOrStdin(), stderr, stderr
			if err := browser.Run(); err != nil {
				return fmt.Errorf("%s: %w", words[0], err)
			}
			return nil
		},
	}
}

// findPage returns the page at path. For an experiment or a folder it is the newest page there, also one folder below.
func findPage(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("there is no page, experiment or folder %s", path)
	case err != nil:
		return "", err
	case !info.IsDir() && filepath.Ext(path) != ".hcl":
		return path, nil
	}
	dir, experiment := path, ""
	if !info.IsDir() {
		dir, experiment = filepath.Dir(path), strings.TrimSuffix(filepath.Base(path), ".hcl")
	}
	type file struct {
		path string
		made time.Time
	}
	var files []file
	for _, pattern := range []string{"*.html", "*/*.html"} {
		names, err := fs.Glob(os.DirFS(dir), pattern)
		if err != nil {
			return "", err
		}
		for _, name := range names {
			path := filepath.Join(dir, filepath.FromSlash(name))
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				files = append(files, file{path, info.ModTime()})
			}
		}
	}
	slices.SortStableFunc(files, func(a, b file) int { return b.made.Compare(a.made) })
	for _, f := range files {
		if isPage(f.path, experiment) {
			return f.path, nil
		}
	}
	of := "of " + path
	if path == "." {
		of = "in this folder"
	}
	return "", fmt.Errorf("there is no page %s yet; `rcgrpo run` writes one if the experiment has a report stage", of)
}

// isPage reports whether a file is a page of an experiment; "" means any.
func isPage(path, experiment string) bool {
	page, err := reports.ReadPage(path)
	if err != nil {
		return false
	}
	ev, err := reports.ReadEvidence(page)
	return err == nil && (experiment == "" || ev.Name == experiment)
}

// browserCommand returns the command that opens a page: $BROWSER, else the opener of the system. It is nil if there is
// none or no display. No shell reads the command, and the path becomes one word without special characters.
func browserCommand(page string) []string {
	address := (&url.URL{Scheme: "file", Path: filepath.ToSlash(page)}).String()
	address = strings.NewReplacer("$", "%24", "&", "%26", ";", "%3B").Replace(address)
	for _, entry := range filepath.SplitList(os.Getenv("BROWSER")) {
		words := strings.Fields(entry)
		if !strings.Contains(entry, "%s") {
			words = append(words, "%s")
		}
		for i := range words {
			words[i] = strings.ReplaceAll(words[i], "%s", address)
		}
		if _, err := exec.LookPath(words[0]); err == nil {
			return words
		}
	}
	display := runtime.GOOS == "darwin" || os.Getenv("WSL_DISTRO_NAME") != "" ||
		os.Getenv("DISPLAY") != "" || os.Getenv("WAYLAND_DISPLAY") != ""
	openers := []string{"wslview", "xdg-open"}
	if runtime.GOOS == "darwin" {
		openers = []string{"open"} // elsewhere it is another program
	}
	for _, program := range openers {
		if _, err := exec.LookPath(program); err == nil && display {
			return []string{program, address}
		}
	}
	return nil
}
