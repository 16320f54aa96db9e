package engine

import (
	"slices"
	"testing"
)

// By default CUDA numbers GPUs by speed; nvidia-smi numbers them by PCI bus.
func TestStagesCountDevicesAsTheDriverDoes(t *testing.T) {
	got := childEnv([]string{"CUDA_DEVICE_ORDER=FASTEST_FIRST"}, 1, []string{"1"})
	want := []string{"OMP_NUM_THREADS=1", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=1", childVariable + "=1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
