package engine

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/engine/internal/disk"
)

// Stages that print nothing hand their log's file on. No log may ever show what another stage printed, and each that was
// begun stays, whatever cannot be written meanwhile.
func TestLogsShowWhatTheirOwnStagePrinted(t *testing.T) {
	type failure func(op, path string) error
	faults := map[string]failure{
		"nothing fails":            nil,
		"no links to the empty":    func(op, path string) error { return failIf(op == "link" && strings.HasSuffix(path, ".log")) },
		"no names for spare files": func(op, path string) error { return failIf(op == "link" && strings.Contains(path, ".spare")) },
		"no empty file":            func(op, path string) error { return failIf(op == "open" && strings.HasSuffix(path, ".empty")) },
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			folder := runFolder(t.TempDir())
			if err := os.Mkdir(folder.path("logs"), 0o700); err != nil {
				t.Fatal(err)
			}
			defer disk.Fail(nil)
			if fault != nil {
				disk.Fail(fault)
			}
			pool := &logPool{folder: folder, lent: map[string]string{}}
			printed := map[string]string{} // by log
			check := func(when string) {
				t.Helper()
				for log, want := range printed {
					if got, err := os.ReadFile(log); err != nil || string(got) != want {
						t.Errorf("%s, %s: got %q, %v, want %q", when, filepath.Base(log), got, err, want)
					}
				}
			}
			for i, text := range []string{"", "", "loud\n", "", "loud again\n", "", "failed\n", ""} {
				log := folder.log(fmt.Sprintf("stage.exec.s%d", i))
				pool.begin(log)
				f, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := f.WriteString(text); err != nil {
					t.Fatal(err)
				}
				printed[log] = text
				check("while it runs")
				if f.Close(); text != "failed\n" {
					pool.end(log)
				}
				check("after it")
			}
			pool.close()
			check("after the run")
			entries, err := os.ReadDir(folder.path("logs"))
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if name := e.Name(); !strings.HasSuffix(name, ".log") && name != ".empty" {
					t.Errorf("left: %s", name)
				}
			}
		})
	}
}

func failIf(fails bool) error {
	if fails {
		return fs.ErrPermission
	}
	return nil
}
