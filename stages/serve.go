package stages

import (
	"io"
	"time"
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
	Slots     int      // replies sampled at once
	Context   int      // tokens of prompt and reply; 0: the model's maximum, at most 8,192
	Queue     int      // replies that may wait
	MaxBody   int64    // bytes of a request
	Timeout   time.Duration
	Drain     time.Duration
	Record    string // folder for the trajectories of conversations; "": none
	Out, Log  io.Writer
}
