package artifact

import (
	"slices"
	"strings"
	"time"
)

// Parts is what a key is made of, by name: "kind", "version", "settings.lr", "seed", "input.policy". Values are
// canonical JSON. Two manifests are compared part by part to explain why a node runs again.
type Parts map[string]string

// Manifest records one result of a node. Its file is the commit: a result exists when its manifest does.
type Manifest struct {
	Key        string            `json:"key"`
	Kind       string            `json:"kind"`
	Version    int               `json:"version"`
	Experiment string            `json:"experiment"`
	Address    string            `json:"address"`
	Seed       *int64            `json:"seed,omitempty"`
	Parts      Parts             `json:"parts"`
	Outputs    map[string]Output `json:"outputs"` // by port

	Revision  string    `json:"revision"`         // of the code that ran
	Device    string    `json:"device,omitempty"` // "cpu", "cuda:0 NVIDIA H200"
	Run       string    `json:"run,omitempty"`    // id of the run that made it
	Started   time.Time `json:"started"`
	Seconds   float64   `json:"seconds"`              // wall time of the stage
	PeakBytes int64     `json:"peak_bytes,omitempty"` // 0 where nobody could see it; of a command at least the engine's, which Linux counts for what it starts
	Begun     string    `json:"begun,omitempty"`      // key of the shorter result of its series that it went on from

	Published []Published `json:"published,omitempty"`

	// Collected is when gc removed the bytes; zero while they are there.
	Collected time.Time `json:"collected,omitzero"`
}

// Output is what a node made under one port.
type Output struct {
	Type   string     `json:"type"`   // artifact type: "checkpoint", "scores", …
	Digest string     `json:"digest"` // over names and contents; also the object's folder
	Bytes  int64      `json:"bytes"`
	Files  []FileInfo `json:"files"` // sorted by name

	// Aside holds the files called times.*: clock times, rates, memory. Checked like the others, part of no key.
	Aside *Output `json:"aside,omitempty"`
}

// Published is a file of an output that is copied beside the experiment.
type Published struct {
	Port string `json:"port"`
	File string `json:"file"` // below the port's folder
	Name string `json:"name"` // below the experiment's folder
}

// FileInfo is one file of an output.
type FileInfo struct {
	Name   string `json:"name"` // slash-separated, relative to the port's folder
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Bytes is the size of all outputs.
func (m *Manifest) Bytes() int64 {
	var n int64
	for _, o := range m.objects() {
		n += o.Bytes
	}
	return n
}

// Ports returns the names of the outputs, sorted.
func (m *Manifest) Ports() []string {
	ports := make([]string, 0, len(m.Outputs))
	for port := range m.Outputs {
		ports = append(ports, port)
	}
	slices.Sort(ports)
	return ports
}

// objects returns the outputs and what stands aside of them, by port.
func (m *Manifest) objects() []Output {
	var all []Output
	for _, port := range m.Ports() {
		o := m.Outputs[port]
		all = append(all, o)
		if o.Aside != nil {
			all = append(all, *o.Aside)
		}
	}
	return all
}

// aside says whether a file belongs outside the digest: its own name begins with "times.".
func aside(name string) bool {
	return strings.HasPrefix(name[strings.LastIndexByte(name, '/')+1:], "times.")
}
