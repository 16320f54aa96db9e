package proc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/internal/must"
)

// The mark in a log counts the bytes that this cut and all earlier ones removed.
func TestCutLogKeepsStartAndEndAndCountsTheRest(t *testing.T) {
	const most = 64 << 10
	path := filepath.Join(t.TempDir(), "log")
	f := must.Get(os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600))(t)
	defer f.Close()
	written, line := 0, 0
	for cut := range 4 {
		for written < (cut+2)*3*most {
			line++
			n, _ := fmt.Fprintf(f, "line %d\n", line)
			written += n
		}
		err := cutLog(path, most)
		b, readErr := os.ReadFile(path)
		must.OK(t, errors.Join(err, readErr))
		head, rest := string(b[:most/2]), string(b[most/2:])
		var removed int
		if _, err := fmt.Sscanf(rest, cutMark, &removed); err != nil {
			t.Fatalf("cut %d: got %.100q, want the mark", cut, rest)
		}
		mark := fmt.Sprintf(cutMark, removed)
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
