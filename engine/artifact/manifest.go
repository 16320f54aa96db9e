package artifact

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	"rcgrpo/engine/internal/disk"
)

// MaxManifest is the size in bytes of the largest manifest, with some 200,000 files. Decoding that of a stranger may
// take 40 times its size in memory.
const MaxManifest = 32 << 20

// mostEntries limits the parts and the ranks of a manifest.
const mostEntries = 1 << 20

// Parts are the components of a key by name: "kind", "version", "settings.lr", "seed", "input.policy". Values are
// canonical JSON. The difference between the parts of two manifests explains why a node runs again.
type Parts map[string]string

// Manifest records one result of a node. A result exists if its manifest does, and a manifest never changes: Store.Has
// observes whether its objects are in a store.
type Manifest struct {
	// Sum is, in a remote store, the SHA-256 of the manifest's text with zeros in the place of the sum; see ParseManifest.
	Sum        string            `json:"sum,omitempty"`
	Key        string            `json:"key"` // "" with ShownOnly
	Kind       string            `json:"kind"`
	Version    int               `json:"version"`
	Experiment string            `json:"experiment"`
	Address    string            `json:"address"`
	Seed       *int64            `json:"seed,omitempty"`
	Parts      Parts             `json:"parts"`
	Outputs    map[string]Output `json:"outputs"` // by port

	Revision string    `json:"revision"`         // of the code that ran
	Device   string    `json:"device,omitempty"` // "cpu", "cuda:0 NVIDIA H200"
	Run      string    `json:"run,omitempty"`    // id of the run that executed the stage
	Started  time.Time `json:"started"`
	Seconds  float64   `json:"seconds"` // wall time of the stage
	// CPUSeconds is the processor time of the stage's own processes; 0 if unknown.
	CPUSeconds float64 `json:"cpu_seconds,omitempty"`
	// PeakBytes is 0 if unknown. That of a command is at least the engine's, which Linux counts for its children.
	PeakBytes int64  `json:"peak_bytes,omitempty"`
	Ranks     *Ranks `json:"ranks,omitempty"` // of a stage with several processes; nil: one
	Begun     string `json:"begun,omitempty"` // key of the shorter result of its series that the stage resumed from
}

// ShownOnly reports whether the manifest describes output that a run shows in its folder and does not commit, because
// inputs are missing. Such a manifest has neither a key nor outputs.
func (m *Manifest) ShownOnly() bool { return m.Key == "" }

// Ranks records the processes that shared a stage. PeakBytes of the manifest is the sum of theirs.
type Ranks struct {
	Count     int     `json:"count"`
	Backend   string  `json:"backend,omitempty"` // of their exchange of tensors: "gloo" or "nccl"
	PeakBytes []int64 `json:"peak_bytes"`        // of each process, up to a second before the end of the stage
	// Waited are the seconds that each has spent in exchanges of data and in waiting for the others.
	Waited []float64 `json:"waited_seconds"`
}

// Output is the result of a node under one port.
type Output struct {
	Type   string     `json:"type"`   // artifact type: "checkpoint", "scores", …
	Digest string     `json:"digest"` // over names and contents; also the folder of the object
	Bytes  int64      `json:"bytes"`
	Files  []FileInfo `json:"files"` // sorted by name

	// Times holds the files called times.*: clock times, rates, memory. They are verified like the others and
	// are part of no key.
	Times *Output `json:"aside,omitempty"`
}

// FileInfo is one file of an output.
type FileInfo struct {
	Name   string `json:"name"` // slash-separated, relative to the port's folder
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// Duration is the wall time of the stage.
func (m *Manifest) Duration() time.Duration { return time.Duration(m.Seconds * float64(time.Second)) }

// Ended is when the stage ended.
func (m *Manifest) Ended() time.Time { return m.Started.Add(m.Duration()) }

// Bytes is the size of all outputs; ports with the same files count once.
func (m *Manifest) Bytes() (n int64) {
	for _, o := range m.objects() {
		n += o.Bytes
	}
	return n
}

// Ports returns the names of the outputs, sorted.
func (m *Manifest) Ports() []string {
	return slices.Sorted(maps.Keys(m.Outputs))
}

// Types returns the artifact type of each port.
func (m *Manifest) Types() map[string]string {
	types := make(map[string]string, len(m.Outputs))
	for port, o := range m.Outputs {
		types[port] = o.Type
	}
	return types
}

// output returns the output of a port.
func (m *Manifest) output(port string) (Output, error) {
	o, ok := m.Outputs[port]
	if !ok {
		return o, fmt.Errorf("%s has no port %q; it has %v", m.Address, port, m.Ports())
	}
	return o, nil
}

// File returns the entry of a file of a port; ok is false if the port does not have it.
func (m *Manifest) File(port, name string) (f FileInfo, ok bool) {
	for _, o := range m.Outputs[port].Objects() {
		for _, f := range o.Files {
			if f.Name == name {
				return f, true
			}
		}
	}
	return f, false
}

// objects returns the outputs and their times by port, and those of several ports once.
func (m *Manifest) objects() (all []Output) {
	seen := map[string]bool{}
	for _, port := range m.Ports() {
		for _, o := range m.Outputs[port].Objects() {
			if !seen[o.Digest] {
				seen[o.Digest], all = true, append(all, o)
			}
		}
	}
	return all
}

// Objects returns the output and its times.
func (o Output) Objects() []Output {
	if o.Times == nil {
		return []Output{o}
	}
	return []Output{o, *o.Times}
}

// isTimes reports whether a file is not part of the digest: its base name begins with "times.".
func isTimes(name string) bool {
	return strings.HasPrefix(path.Base(name), "times.")
}

// SameOutputs reports whether two results have the same ports with the same digests.
func (m *Manifest) SameOutputs(other *Manifest) bool {
	for port, o := range m.Outputs {
		if other.Outputs[port].Digest != o.Digest {
			return false
		}
	}
	return len(m.Outputs) == len(other.Outputs)
}

// noSum replaces the sum in the text over which it is computed.
var noSum = []byte(strings.Repeat("0", 2*sha256.Size))

// EncodeManifest returns the text of a manifest for a remote store, which has a sum.
func EncodeManifest(m Manifest) ([]byte, error) {
	m.Sum = string(noSum)
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(text)
	return bytes.Replace(text, noSum, hex.AppendEncode(nil, sum[:]), 1), nil // the sum comes first
}

// ParseManifest reads the text of a remote store for a key. Any changed byte is an error, and so is a manifest that no
// store writes.
func ParseManifest(text []byte, key string) (*Manifest, error) {
	m := new(Manifest)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("read the manifest: %.300v", err) // it may quote the value
	}
	sum := sha256.Sum256(bytes.Replace(text, []byte(m.Sum), noSum, 1))
	if m.Sum != hex.EncodeToString(sum[:]) {
		return nil, errors.New("the manifest is damaged: its sum differs")
	}
	if m.Key != key {
		return nil, errors.New("the manifest has another key")
	}
	m.Sum = ""
	return m, m.Check()
}

// Check returns an error unless the names in a manifest of another store are local, and its sizes and digests follow
// from its files.
func (m *Manifest) Check() error {
	if err := validKey(m.Key); err != nil {
		return err
	}
	if len(m.Outputs) == 0 {
		return fmt.Errorf("%s has no outputs", m.Address)
	}
	if err := m.check(); err != nil {
		return err
	}
	for port, o := range m.Outputs {
		for _, object := range o.Objects() {
			for _, f := range object.Files {
				if strings.ContainsFunc(f.Name, unicode.IsControl) {
					return fmt.Errorf("port %s: the name %q has a control character", port, f.Name)
				}
			}
		}
		if o.Times != nil && o.Times.Times != nil {
			return fmt.Errorf("port %s: its times have times", port)
		}
	}
	return nil
}

// check returns an error unless ports, objects and files are below the folders of a store and the entries of the
// objects add up. Each manifest that is read has this check: those of a bundle come from a stranger.
func (m *Manifest) check() error {
	if len(m.Parts) > mostEntries || m.Ranks != nil && len(m.Ranks.PeakBytes)+len(m.Ranks.Waited) > mostEntries {
		return fmt.Errorf("it has more than %d parts or ranks", mostEntries)
	}
	for port, o := range m.Outputs {
		if path.Base(port) != port || !filepath.IsLocal(port) || port == "." {
			return fmt.Errorf("%q is not a port name", port)
		}
		for _, object := range o.Objects() {
			if err := object.check(); err != nil {
				return fmt.Errorf("port %s: %w", port, err)
			}
		}
	}
	return nil
}

func isLocal(name string) bool {
	return filepath.IsLocal(filepath.FromSlash(name)) && path.Clean(name) == name && name != "."
}

// checkFiles returns an error unless the files of a folder have local names in order.
func checkFiles(files []FileInfo) error {
	before := ""
	for _, f := range files {
		if !isLocal(f.Name) || strings.ContainsAny(f.Name, "\n\r") || f.Name <= before {
			return fmt.Errorf("%q is not a file name of an object, or not in order", f.Name)
		}
		if validKey(f.SHA256) != nil || f.Bytes < 0 || f.Bytes > disk.MaxPlain {
			return fmt.Errorf("%s has no hash, or %d bytes, which no file of a result has", f.Name, f.Bytes)
		}
		before = f.Name
	}
	return nil
}

// check returns an error unless the names in the entry of an object are local and its digest follows from its files.
func (o Output) check() error {
	if err := checkFiles(o.Files); err != nil {
		return err
	}
	var sum int64
	for _, f := range o.Files {
		sum += f.Bytes
	}
	if got := treeDigest(o.Files); got != o.Digest || sum != o.Bytes || sum < 0 {
		return fmt.Errorf("its entry does not add up: its files give digest %.16s and %d bytes", got, sum)
	}
	return nil
}
