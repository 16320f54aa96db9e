package stages

import (
	"fmt"
	"io"
	"time"

	"rcgrpo/stages/internal/lm"
)

// Serving is a checkpoint, Hugging Face folder or GGUF file behind an HTTP endpoint. In a binary with tensors it has a
// method
//
//	Run(ctx context.Context) error
//
// that answers requests until ctx ends.
type Serving struct {
	Dir       string   // folder of the checkpoint or model, or GGUF file
	Name      string   // of the model
	Aliases   []string // further names
	Layout    string   // name of a chat layout in place of the model's own template; "": none
	Listen    string   // host:port; port 0 is any
	Key       string   // API key; "": none
	Token     string   // reward token: checkpoint, high, low or none
	Device    string   // cpu or cuda
	Precision string   // float32 or bf16
	Threads   int      // CPU threads; 0: those of the process
	Slots     int      // replies sampled at once
	Context   int      // tokens of prompt and reply; 0: the model's maximum, at most 8,192
	Queue     int      // replies that may wait
	MaxBody   int64    // bytes of a request
	Timeout   time.Duration
	Drain     time.Duration
	Record    string // folder for the trajectories of conversations; "": none
	Memory    int64  // bytes of this machine; 0: unknown
	Out, Log  io.Writer
}

// fit completes the use of a model on a CPU: as many replies at once as the memory has room for, and fewer threads if
// there is no room for one. One reply of the whole context must fit.
func (s *Serving) fit(shape lm.Config, use lm.Use) (lm.Use, error) {
	if s.Device != "cpu" || s.Memory == 0 {
		return use, nil
	}
	have := s.Memory / 10 * 9 // other programs need some
	if lm.TotalMemory(shape.Memory(use)) <= have {
		return use, nil
	}
	all := use
	use = shape.FitSlots(all, have)
	for ; all.Threads > 1 && lm.TotalMemory(shape.Memory(use)) > have; use = shape.FitSlots(all, have) {
		all.Threads /= 2 // each computes in memory of its own
	}
	if need := shape.Memory(use); lm.TotalMemory(need) > have {
		return use, fmt.Errorf("one reply does not fit into 90 %% of this machine's %s: it needs %s; a smaller "+
			"--context than %d and --precision bf16 need less", lm.BytesText(s.Memory), lm.MemoryText(need), use.Context)
	}
	return use, nil
}
