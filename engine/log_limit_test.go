package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
)

// cutLog removes the middle, and its mark counts every removed byte.
func TestCutLogKeepsStartAndEndAndCountsTheRest(t *testing.T) {
	const most = 64 << 10
	path := filepath.Join(t.TempDir(), "log")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	written, line := 0, 0
	for cut := range 4 {
		for written < (cut+2)*3*most {
			line++
			n, err := fmt.Fprintf(f, "line %d\n", line)
			if err != nil {
				t.Fatal(err)
			}
			written += n
		}
		if err := proc.cutLog(path, most); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		head, rest := string(b[:most/2]), string(b[most/2:])
		var removed int
		if _, err := fmt.Sscanf(rest, proc.cutMark, &removed); err != nil {
			t.Fatalf("cut %d: got %.100q where the line about the cut is wanted", cut, rest)
		}
		mark := fmt.Sprintf(proc.cutMark, removed)
		if want := written - (len(b) - len(mark)); removed != want {
			t.Errorf("cut %d: got %d bytes removed, want %d", cut, removed, want)
		}
		tail := strings.TrimPrefix(rest, mark)
		if !strings.HasPrefix(head, "line 1\nline 2\n") || !strings.HasPrefix(tail, "line ") ||
			!strings.HasSuffix(tail, fmt.Sprintf("line %d\n", line)) {
			t.Errorf("cut %d: got a log of %.20q … %.20q … %q", cut, head, tail, tail[max(0, len(tail)-20):])
		}
		if len(b) > most {
			t.Errorf("cut %d: got %d bytes, want at most %d", cut, len(b), most)
		}
	}
}

// The log of a verbose stage is cut while it runs and at its end; that is reported once, and a failure still
// shows the last lines.
func TestStageLogStaysWithinTheLimitOfTheSite(t *testing.T) {
	l := newLab(t)
	l.put("site.hcl", labSite+"\nlogs {\n  limit = \"64KiB\"\n}\n")
	l.write(`
stage "light" "ends" {
  text  = "1"
  shell = "echo first; yes | head -c 1000000; echo last"
}
stage "light" "runs" {
  text  = "2"
  shell = "echo first; yes | head -c 1000000; until [ $(stat -L -c %s /proc/self/fd/2) -lt 65536 ]; do sleep 0.01; done; echo last"
}
stage "light" "fails" {
  text  = "3"
  shell = "echo first; yes | head -c 1000000; echo the reason; exit 3"
}
stage "light" "short" {
  text  = "4"
  shell = "yes | head -c 65536"
}
`)
	r := l.run(Options{KeepGoing: true})
	for _, name := range []string{"ends", "runs", "fails", "short"} {
		address := "stage.light." + name
		notes := 0
		for _, e := range r.events {
			if e.Kind == runs.EventNote && e.Address == address && strings.Contains(e.Text, "reached the limit of 65.5 kB") {
				notes++
			}
		}
		started, _ := r.find(runs.EventStarted, "light."+name)
		b, err := os.ReadFile(started.Path)
		if err != nil {
			t.Fatal(err)
		}
		if name == "short" {
			if len(b) != 64<<10 || notes != 0 {
				t.Errorf("short: got %d bytes and %d notes, want all 65536 and none", len(b), notes)
			}
			continue
		}
		last := map[string]string{"fails": "the reason\n"}[name]
		if last == "" {
			last = "last\n"
		}
		if len(b) > 64<<10 || notes != 1 || !strings.HasPrefix(string(b), "first\ny\n") ||
			!strings.HasSuffix(string(b), "\ny\n"+last) || !strings.Contains(string(b), "bytes were removed here") {
			t.Errorf("%s: got %d bytes, %d notes, %.20q … %.20q", name, len(b), notes, b, b[max(0, len(b)-20):])
		}
	}
	failed, _ := r.find(runs.EventFailed, "light.fails")
	if failed.Failure == nil || len(failed.Failure.Lines) == 0 ||
		failed.Failure.Lines[len(failed.Failure.Lines)-1] != "the reason" {
		t.Errorf("got %+v, want the last lines of the log", failed.Failure)
	}
}

func TestLimitOfLogs(t *testing.T) {
	for name, tc := range map[string]struct {
		site, mistake string
		want          int64
	}{
		"default":   {"", "", 1e9},
		"written":   {"logs {\n  limit = \"2MB\"\n}\n", "", 2e6},
		"no limit":  {"logs {\n  limit = \"0B\"\n}\n", "", 0},
		"too small": {"logs {\n  limit = \"10kB\"\n}\n", "Bad size", 0},
	} {
		path := filepath.Join(t.TempDir(), "site.hcl")
		if err := os.WriteFile(path, []byte(tc.site), 0o600); err != nil {
			t.Fatal(err)
		}
		site, _, diags := lang.LoadSite(lang.Source{Site: path, Env: []string{"HOME=" + t.TempDir()}})
		if tc.mistake != "" {
			if len(diags) != 1 || diags[0].Summary != tc.mistake {
				t.Errorf("%s: got %v, want %s", name, diags, tc.mistake)
			}
			continue
		}
		if diags.HasErrors() || site.LogLimit != tc.want {
			t.Errorf("%s: got %d, %v, want %d", name, site.LogLimit, diags, tc.want)
		}
	}
}

func TestLastLinesEndWithTheEndOfALongLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	long := strings.Repeat("x", 30_000_000)
	for text, want := range map[string]string{
		long + "the end":         "the end",
		long + "the end\n":       "the end",
		"one\n" + long + "end\n": "end",
		long + "\nlast\n":        "last",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		lines := shortLines(lastLines(path, failureLines))
		if len(lines) == 0 || !strings.HasSuffix(lines[len(lines)-1], want) {
			t.Fatalf("got %d lines, want the last to end with %q", len(lines), want)
		}
		for _, line := range lines {
			if len(line) > 2000 {
				t.Errorf("got a line of %d bytes, want one that a person can read", len(line))
			}
		}
	}
}
