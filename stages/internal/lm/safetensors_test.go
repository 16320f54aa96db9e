//go:build libtorch

package lm

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/internal/must"
)

// Each malformed file of the fixtures is refused with a sentence that names it. A valid file is read, or refused
// for the one thing that the format allows and no decoder has: another type.
func TestSafetensorsOfTheFixtures(t *testing.T) {
	dir := fixtures.Dir(t, "hf/safetensors")
	text := must.Get(os.ReadFile(filepath.Join(dir, "expect.json")))(t)
	var expect struct {
		Malformed map[string]struct {
			Wrong   string
			Rejects bool `json:"reference_rejects"`
		}
		Valid map[string]struct {
			Metadata map[string]string
			Tensors  map[string]struct {
				DType  string
				Shape  []int
				Values []any
			}
		}
	}
	must.OK(t, json.Unmarshal(text, &expect))
	files, err := filepath.Glob(filepath.Join(dir, "*.safetensors"))
	if err != nil || len(files) != len(expect.Malformed)+len(expect.Valid) || len(expect.Malformed) == 0 ||
		len(expect.Valid) == 0 {
		t.Fatalf("%d files, of which %d malformed and %d valid ones are described (%v)", len(files),
			len(expect.Malformed), len(expect.Valid), err)
	}
	for name, tc := range expect.Malformed {
		r, err := openWeights(filepath.Join(dir, name))
		if err == nil {
			r.close()
		}
		if err == nil && tc.Rejects {
			t.Errorf("%s was read, although %s", name, tc.Wrong)
		} else if err == nil {
			continue
		} else if sentence := strings.SplitN(err.Error(), name+" is no valid safetensors file: ",
			2); len(sentence) != 2 || len(strings.Fields(sentence[1])) < 4 {
			t.Errorf("%s: got %q, want a sentence that names the file", name, err)
		}
	}
	read := 0
	for name, tc := range expect.Valid {
		other := ""
		for _, tensor := range tc.Tensors {
			if !slices.Contains([]string{"F32", "BF16", "F16"}, tensor.DType) {
				other = tensor.DType
			}
		}
		r, err := openWeights(filepath.Join(dir, name))
		if other != "" {
			must.Match(t, err, "F32, BF16 and F16 are supported")
			continue
		}
		must.OK(t, err)
		defer r.close()
		read++
		if len(r.tensors) != len(tc.Tensors) || len(r.metadata) != len(tc.Metadata) {
			t.Errorf("%s: got %d tensors and the metadata %v, want %d and %v", name, len(r.tensors), r.metadata,
				len(tc.Tensors), tc.Metadata)
		}
		for tensor, want := range tc.Tensors {
			got := make([]float32, len(want.Values))
			must.OK(t, r.read(tensor, want.Shape, 0, got))
			for i, v := range want.Values {
				if float64(got[i]) != v {
					t.Errorf("%s, %s: got %v, want %v", name, tensor, got, want.Values)
				}
			}
		}
	}
	if read == 0 {
		t.Error("no valid file holds only types that are read")
	}
}

func TestSafetensorsRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	want := []float32{1, -0.5, float32(math.Inf(1)), 1e-40}
	tensors := map[string]writtenTensor{"b": whole([]int{2, 2}, want), "a": whole([]int{0}, nil)}
	must.OK(t, writeSafetensors(nil, path, tensors, map[string]string{"k": "v"}))
	r := must.Get(openWeights(path))(t)
	defer r.close()
	got := make([]float32, 4)
	if err := r.read("b", []int{2, 2}, 0, got); err != nil || !slices.Equal(got, want) || len(r.tensors) != 2 ||
		r.metadata["k"] != "v" {
		t.Errorf("got %v of %v with metadata %v (%v)", got, r.tensors, r.metadata, err)
	}
	if err := r.read("b", []int{4}, 0, got); err == nil || err.Error() != `tensor "b" has shape [2 2], want [4]` {
		t.Errorf("another shape: got %v", err)
	}
}

func TestFloat16ToFloat32(t *testing.T) {
	for bits, want := range map[uint16]float32{0x3c00: 1, 0xc000: -2, 0x0001: 1.0 / (1 << 24), 0x7bff: 65504,
		0x8000: float32(math.Copysign(0, -1)), 0x7c00: float32(math.Inf(1))} {
		if got := HalfToFloat(bits); got != want || math.Signbit(float64(got)) != math.Signbit(float64(want)) {
			t.Errorf("%#04x: got %v, want %v", bits, got, want)
		}
	}
}
