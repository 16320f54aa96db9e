//go:build libtorch

package lm

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/stages/internal/torch"
)

func TestWeightsThatAreNoFiniteNumbersAreRefused(t *testing.T) {
	for name, bits := range map[string]uint32{"NaN": math.Float32bits(float32(math.NaN())), "+Inf": 0x7f800000,
		"-Inf": 0xff800000} {
		m := llama(t)
		dir := t.TempDir()
		if err := m.Save(dir); err != nil {
			t.Fatal(err)
		}
		again, err := Load(dir, torch.CPU)
		if err != nil {
			t.Fatal(err)
		}
		again.Close()
		path := filepath.Join(dir, weightsFile)
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		binary.LittleEndian.PutUint32(raw[len(raw)-8:], bits) // the last number but one
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = Load(dir, torch.CPU)
		if err == nil || !strings.Contains(err.Error(), "holds "+name+" at index ") ||
			!strings.Contains(err.Error(), "damaged or comes from a training that diverged") {
			t.Errorf("%s: got %v, want an error that names it", name, err)
		}
	}
}
