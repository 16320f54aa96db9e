package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/engine/internal/disk"
)

// Stages that print nothing hand their log's file on. No log may ever show what another stage printed, and each stage that has ended
// has one, whatever cannot be written meanwhile.
func TestLogsShowWhatTheirOwnStagePrinted(t *testing.T) {
	type stage struct {
		prints string
		named  bool // runs until its log has its name
		fails  bool
	}
	faults := map[string]func(op, path string) error{
		"nothing fails":     nil,
		"no early names":    func(op, path string) error { return failIf(op == "link" && !strings.HasSuffix(path, "7.log")) },
		"no links to empty": func(op, path string) error { return failIf(op == "open" && strings.HasSuffix(path, ".empty")) },
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			folder := runFolder(t.TempDir())
			if err := os.Mkdir(folder.path("logs"), 0o700); err != nil {
				t.Fatal(err)
			}
			defer disk.Fail(nil)
			disk.Fail(fault)
			pool := newLogPool(folder)
			printed := map[string]string{} // by log
			check := func(when string) {
				t.Helper()
				for log, want := range printed {
					if got, err := os.ReadFile(log); err != nil || string(got) != want {
						t.Errorf("%s, %s: got %q, %v, want %q", when, filepath.Base(log), got, err, want)
					}
				}
			}
			for i, s := range []stage{{}, {}, {prints: "loud\n"}, {}, {prints: "loud again\n", named: true}, {named: true}, {fails: true}, {}} {
				log := folder.log(fmt.Sprintf("stage.exec.s%d", i))
				l, err := pool.take()
				if err != nil {
					t.Fatal(err)
				}
				l.begin(log)
				if s.named {
					l.name(log)
				}
				if _, err := l.file.WriteString(s.prints); err != nil {
					t.Fatal(err)
				}
				check("while it runs")
				var failed error
				if s.fails {
					failed = errors.New("it fails")
				}
				blank, err := pool.end(l, failed)
				if err != nil {
					t.Fatal(err)
				}
				if want := s.prints == "" && !s.fails && !l.named; blank != want {
					t.Errorf("stage %d: blank %v, want %v", i, blank, want)
				}
				if blank {
					pool.giveBack(l)
				}
				if err := pool.mark(log); err != nil && fault == nil {
					t.Fatal(err)
				} else if err == nil {
					printed[log] = s.prints
				}
				check("after it")
			}
			if err := pool.close(); err != nil {
				t.Error(err)
			}
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

// A process that has left its stage's session may write to the log whenever it likes. No other stage gets that file.
func TestLogThatWasWrittenToLaterIsNobodys(t *testing.T) {
	folder := runFolder(t.TempDir())
	if err := os.Mkdir(folder.path("logs"), 0o700); err != nil {
		t.Fatal(err)
	}
	pool := newLogPool(folder)
	first, err := pool.take()
	if err != nil {
		t.Fatal(err)
	}
	first.begin(folder.log("stage.exec.a"))
	left, err := os.OpenFile(first.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer left.Close()
	if blank, err := pool.end(first, nil); !blank || err != nil {
		t.Fatal(blank, err)
	}
	pool.giveBack(first)
	fmt.Fprintln(left, "still here")
	second, err := pool.take()
	if err != nil {
		t.Fatal(err)
	}
	if size, err := sizeOf(second.file); err != nil || size != 0 {
		t.Errorf("the next log has %d bytes, %v", size, err)
	}
	if err := second.drop(); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(folder.path("logs", ".*")); len(left) != 0 {
		t.Errorf("left: %s", left)
	}
}

// What a program printed whose engine was gone before its log had its name is found.
func TestLogWithoutNameIsShownWhereItIsAdopted(t *testing.T) {
	gone, now := runFolder(t.TempDir()), runFolder(t.TempDir())
	for _, folder := range []runFolder{gone, now} {
		if err := os.Mkdir(folder.path("logs"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	l, err := newLogPool(gone).take()
	if err != nil {
		t.Fatal(err)
	}
	defer l.file.Close()
	fmt.Fprintln(l.file, "said before")
	h := holder{Run: string(gone), Address: "stage.exec.a", Log: l.path}
	for range 2 {
		if err := now.showLogOf(h, "stage.exec.b"); err != nil {
			t.Fatal(err)
		}
		for _, log := range []string{gone.log("stage.exec.a"), now.log("stage.exec.b")} {
			if got, err := os.ReadFile(log); err != nil || string(got) != "said before\n" {
				t.Errorf("%s: got %q, %v", log, got, err)
			}
		}
	}
}

func failIf(fails bool) error {
	if fails {
		return fs.ErrPermission
	}
	return nil
}
