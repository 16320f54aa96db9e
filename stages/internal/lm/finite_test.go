//go:build libtorch

package lm

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/torch"
)

func TestNonFiniteWeightsAreRefused(t *testing.T) {
	for name, bits := range map[string]uint32{"NaN": math.Float32bits(float32(math.NaN())), "+Inf": 0x7f800000,
		"-Inf": 0xff800000} {
		m := llama(t)
		dir := t.TempDir()
		must.OK(t, m.Save(dir))
		again := must.Get(Load(dir, torch.CPU, Buffers{}))(t)
		again.Close()
		path := filepath.Join(dir, weightsFile)
		raw := must.Get(os.ReadFile(path))(t)
		binary.LittleEndian.PutUint32(raw[len(raw)-8:], bits) // the last number but one
		must.OK(t, os.WriteFile(path, raw, 0o600))
		_, err := Load(dir, torch.CPU, Buffers{})
		if err == nil || !strings.Contains(err.Error(), "holds "+name+" at index ") ||
			!strings.Contains(err.Error(), "damaged or comes from a training that diverged") {
			t.Errorf("%s: got %v, want an error that names it", name, err)
		}
	}
}
