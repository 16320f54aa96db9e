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
	"rcgrpo/internal/must"
)

// FuzzLoad checks that no text, alone or as a module, makes Load panic, and that every node of an experiment without
// mistakes has a key.
func FuzzLoad(f *testing.F) {
	including := enginetest.PaperText(f, paperFile) + moduleText
	for _, pattern := range []string{"testdata/valid/*.hcl", "testdata/invalid/*.hcl", "testdata/modules/*.hcl"} {
		for _, path := range must.Get(filepath.Glob(pattern))(f) {
			text := must.Get(os.ReadFile(path))(f)
			f.Add(string(text), "")
			f.Add(including, string(text))
		}
	}
	f.Fuzz(loadAny)
}

// moduleText includes the module m.hcl, with arguments that it may have.
const moduleText = `
module "m" {
  source = "m.hcl"
  layers = 2
}
module "each" {
  source   = "m.hcl"
  for_each = { a = 1, b = 2 }
  layers   = each.value
}
`

// loadAny loads an experiment and the module m.hcl beside it.
func loadAny(t *testing.T, text, module string) {
	x, diags := enginetest.LoadPaper(t, text, func(src *lang.Source) {
		enginetest.WriteFile(t, filepath.Join(filepath.Dir(src.Path), "m.hcl"), module)
		src.Targets = []string{"module.*"}
	})
	lang.WriteDiagnostics(io.Discard, diags, x.Files, true)
	if diags.HasErrors() {
		if len(x.Nodes) > 0 {
			t.Errorf("got %d nodes beside errors, want none", len(x.Nodes))
		}
		return
	}
	for address, key := range enginetest.Keys(x) {
		wantEqual(t, "digits of the key of "+address, len(key), 64)
	}
}

// Lines are deleted, doubled or swapped, and words exchanged.
func TestTornFilesNeverPanic(t *testing.T) {
	text := enginetest.PaperText(t, paperFile)
	including := text + moduleText
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
		torn := strings.Join(lines, "\n")
		loadAny(t, torn, "")
		loadAny(t, including, torn)
	}
}
