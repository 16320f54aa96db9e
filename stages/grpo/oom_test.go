//go:build libtorch

package grpo

import (
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/torch"
)

// starve makes every matrix product of more than so many rows run out of memory.
func starve(rows int64) (remove func()) {
	return torch.PlantFailure(func(operation string, shapes [][]int64) error {
		if operation == "mm" && shapes[0][0] > rows {
			return torch.ErrOutOfMemory
		}
		return nil
	})
}

func TestOutOfMemoryErrorNamesTheMicroBatch(t *testing.T) {
	for name, tc := range map[string]struct {
		micro int
		want  string
	}{
		"several passes":              {4096, "; set micro_batch = "},
		"a pass for every trajectory": {1, "every trajectory already had its own pass"},
	} {
		t.Run(name, func(t *testing.T) {
			r := alone(t)
			r.settings.MicroBatch, r.settings.Temperature = tc.micro, 1
			defer starve(1)()
			err := r.learn(t.Context(), 1, newBatch(conversations(), r.settings.Group), map[string]float64{})
			must.Match(t, err, tc.want)
			must.Match(t, err, "out of memory")
		})
	}
}
