//go:build libtorch

package lm

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMalformedSafetensorsAreRefused(t *testing.T) {
	for name, header := range map[string]string{
		"no object":       `[]`,
		"broken":          `{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}`,
		"twice":           `{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`,
		"unknown type":    `{"a":{"dtype":"F8","shape":[4],"data_offsets":[0,4]}}`,
		"no shape":        `{"a":{"dtype":"F32","data_offsets":[0,4]}}`,
		"wrong size":      `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`,
		"negative":        `{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`,
		"overflow":        `{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}}`,
		"beyond the file": `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`,
		"gap":             `{"a":{"dtype":"F32","shape":[0],"data_offsets":[4,4]}}`,
		"uncovered":       `{"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}}`,
		"reversed":        `{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}`,
		"metadata":        `{"__metadata__":{"a":1},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`,
		"rest":            `{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} x`,
	} {
		path := filepath.Join(t.TempDir(), "x.safetensors")
		data := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
		if err := os.WriteFile(path, append(data, 0, 0, 0, 0), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := openWeights(path); err == nil || !strings.Contains(err.Error(), "is no valid safetensors file: ") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	bad, err := filepath.Glob(filepath.Join(hf(t), "safetensors", "bad_*.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range bad {
		if _, err := openWeights(path); err == nil {
			t.Errorf("%s: got no error", filepath.Base(path))
		}
	}
}

func TestSafetensorsRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	want := []float32{1, -0.5, float32(math.Inf(1)), 1e-40}
	if err := writeSafetensors(path, map[string]hostTensor{"b": {[]int{2, 2}, want}, "a": {[]int{0}, nil}}, map[string]string{"k": "v"}); err != nil {
		t.Fatal(err)
	}
	r, err := openWeights(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	got := make([]float32, 4)
	if err := r.read("b", []int{2, 2}, got); err != nil || !slices.Equal(got, want) || len(r.tensors) != 2 || r.metadata["k"] != "v" {
		t.Errorf("got %v of %v with metadata %v (%v)", got, r.tensors, r.metadata, err)
	}
	if err := r.read("b", []int{4}, got); err == nil || err.Error() != `tensor "b" has shape [2 2], want [4]` {
		t.Errorf("another shape: got %v", err)
	}
}

func TestHalvesWiden(t *testing.T) {
	for bits, want := range map[uint16]float32{0x3c00: 1, 0xc000: -2, 0x0001: 1.0 / (1 << 24), 0x7bff: 65504, 0x8000: float32(math.Copysign(0, -1)), 0x7c00: float32(math.Inf(1))} {
		if got := halfToFloat(bits); got != want || math.Signbit(float64(got)) != math.Signbit(float64(want)) {
			t.Errorf("%#04x: got %v, want %v", bits, got, want)
		}
	}
}
