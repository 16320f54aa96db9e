//go:build libtorch

package torch

import (
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/internal/must"
)

func TestMissingCUDANamesTheTriedPathsAndTheRemedy(t *testing.T) {
	elsewhere := t.TempDir()
	t.Setenv("LIBTORCH", elsewhere)
	err := Do(t.Context(), Device{cuda: 1024}, func(*Scope) error { return nil }) // nobody has so many
	if err == nil {
		t.Fatal("there is a GPU 1023")
	}
	if strings.Contains(err.Error(), "GPUs (CUDA_VISIBLE_DEVICES=") { // the library is there
		return
	}
	must.Contain(t, err.Error(), "device cuda:1023", filepath.Join(elsewhere, "lib", "libtorch_cuda.so")+": cannot open",
		"set LIBTORCH=DIR", "libtorch 2.11.0", "leave `gpus` out")
	if got := cudaLibraries(); len(got) != 3 || !filepath.IsAbs(got[1]) || filepath.Base(got[1]) != "libtorch_cuda.so" {
		t.Errorf("looked in %q, want the folder of the CPU half second", got)
	}
}
