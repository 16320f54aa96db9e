package runs_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

func TestLastLinesEndWithTheEndOfALongLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	long := strings.Repeat("x", 1_000_000)
	for text, want := range map[string]string{
		long + "the end":         "the end",
		long + "the end\n":       "the end",
		"one\n" + long + "end\n": "end",
		long + "\nlast\n":        "last",
	} {
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
		lines := runs.LastLines(path)
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
