package lang_test

import (
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
)

// FuzzLoad checks that no text makes Load panic, and that every node of a text without mistakes has a key.
func FuzzLoad(f *testing.F) {
	for _, pattern := range []string{"testdata/valid/*.hcl", "testdata/invalid/*.hcl"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(string(text))
		}
	}
	f.Fuzz(func(t *testing.T, text string) { loadAny(t, text) })
}

func loadAny(t *testing.T, text string) {
	x, diags := enginetest.LoadPaper(t, text)
	lang.WriteDiagnostics(io.Discard, diags, x.Files, true)
	if diags.HasErrors() {
		if len(x.Nodes) > 0 {
			t.Errorf("got %d nodes beside errors, want none", len(x.Nodes))
		}
		return
	}
	for address, key := range enginetest.Keys(x) {
		if len(key) != 64 {
			t.Errorf("%s: got key %q, want 64 digits", address, key)
		}
	}
}

// Lines are deleted, doubled or swapped, and words exchanged.
func TestTornFilesNeverPanic(t *testing.T) {
	text := enginetest.PaperText(t, paperFile)
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		lines := strings.Split(text, "\n")
		for range 1 + rng.IntN(3) {
			i, j := rng.IntN(len(lines)), rng.IntN(len(lines))
			switch rng.IntN(4) {
			case 0:
				lines = append(lines[:i], lines[i+1:]...)
			case 1:
				lines[i] = lines[j]
			case 2:
				lines[i], lines[j] = lines[j], lines[i]
			default:
				words := strings.Fields(text)
				mine := strings.Fields(lines[i])
				if len(mine) > 0 {
					lines[i] = strings.Replace(lines[i], mine[rng.IntN(len(mine))], words[rng.IntN(len(words))], 1)
				}
			}
		}
		loadAny(t, strings.Join(lines, "\n"))
	}
}
