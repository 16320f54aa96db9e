//go:build libtorch

package lm

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"unicode/utf8"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A safetensors file consists of the length of a JSON header (8 bytes, little-endian), the header, and the
// tensors. The header gives each tensor's type, shape and byte range; ranges are adjacent.

type fileTensor struct {
	DType   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets []int  `json:"data_offsets"` // first byte and end
}

type hostTensor struct {
	shape []int
	data  []float32
}

// maxHeader is the format's limit of a header's length.
const maxHeader = 100_000_000

// writeSafetensors writes tensors in float32, sorted by name. Equal tensors give identical files.
func writeSafetensors(path string, tensors map[string]hostTensor, metadata map[string]string) error {
	names := slices.Sorted(maps.Keys(tensors))
	header := []byte("{")
	field := func(key string, value any) error {
		k, err := json.Marshal(key)
		if err != nil {
			return err
		}
		v, err := json.Marshal(value) // sorts the keys of maps
		if err != nil {
			return err
		}
		if len(header) > 1 {
			header = append(header, ',')
		}
		header = append(append(append(header, k...), ':'), v...)
		return nil
	}
	if err := field("__metadata__", metadata); err != nil {
		return err
	}
	at := 0
	for _, name := range names {
		t := tensors[name]
		end := at + 4*len(t.data)
		if err := field(name, fileTensor{"F32", t.shape, []int{at, end}}); err != nil {
			return err
		}
		at = end
	}
	header = append(header, '}')
	for len(header)%8 != 0 {
		header = append(header, ' ')
	}
	parts := [][]byte{binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header}
	for _, name := range names {
		parts = append(parts, littleEndian(tensors[name].data))
	}
	return writeWhole(path, parts...)
}

// littleEndian returns the memory of v: all supported machines are little-endian.
func littleEndian(v []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}

type weightsReader struct {
	path     string
	data     []byte
	body     []byte
	tensors  map[string]fileTensor
	metadata map[string]string
}

// openWeights maps a file and checks its header: every tensor's type, shape and range, and that the ranges cover
// the file.
func openWeights(path string) (*weightsReader, error) {
	data, err := mapFile(path)
	if err != nil {
		return nil, err
	}
	r := &weightsReader{path: path, data: data, tensors: map[string]fileTensor{}}
	if err := r.parse(); err != nil {
		r.close()
		return nil, fmt.Errorf("%s is no valid safetensors file: %w", path, err)
	}
	return r, nil
}

// mapFile maps a file for reading; the result for an empty file is nil.
func mapFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return nil, err
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return data, nil
}

func (r *weightsReader) close() error {
	if r.data == nil {
		return nil
	}
	err := unix.Munmap(r.data)
	r.data, r.body = nil, nil
	return err
}

func (r *weightsReader) parse() error {
	if len(r.data) < 8 {
		return fmt.Errorf("it has %d bytes, fewer than the length of a header", len(r.data))
	}
	size := binary.LittleEndian.Uint64(r.data)
	if size > maxHeader || size > uint64(len(r.data)-8) {
		return fmt.Errorf("its header of %d bytes does not fit into the file of %d", size, len(r.data))
	}
	header, err := headerOf(r.data[8 : 8+size])
	if err != nil {
		return fmt.Errorf("its header %w", err)
	}
	r.body, r.metadata = r.data[8+size:], header.metadata
	at := 0
	for _, e := range header.tensors { // in order of their bytes
		if e.Offsets[0] != at {
			return fmt.Errorf("tensor %q begins at byte %d, but the one before ends at %d", e.name, e.Offsets[0], at)
		}
		if err := e.check(len(r.body)); err != nil {
			return fmt.Errorf("tensor %q %w", e.name, err)
		}
		r.tensors[e.name], at = e.fileTensor, e.Offsets[1]
	}
	if at != len(r.body) {
		return fmt.Errorf("its tensors cover %d bytes of %d", at, len(r.body))
	}
	return nil
}

func (r *weightsReader) has(name string, shape []int) error {
	t, ok := r.tensors[name]
	if !ok {
		return fmt.Errorf("tensor %q is missing", name)
	}
	if !slices.Equal(t.Shape, shape) {
		return fmt.Errorf("tensor %q has shape %v, want %v", name, t.Shape, shape)
	}
	return nil
}

func (r *weightsReader) read(name string, shape []int, into []float32) error {
	if err := r.has(name, shape); err != nil {
		return err
	}
	t := r.tensors[name]
	b := r.body[t.Offsets[0]:t.Offsets[1]]
	for i := range into {
		switch t.DType {
		case "F32":
			into[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		case "BF16":
			into[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*i:])) << 16)
		case "F16":
			into[i] = halfToFloat(binary.LittleEndian.Uint16(b[2*i:]))
		}
	}
	return nil
}

type fileHeader struct {
	metadata map[string]string
	tensors  []fileEntry
}

type fileEntry struct {
	name string
	fileTensor
}

func headerOf(text []byte) (h fileHeader, err error) {
	if !utf8.Valid(text) {
		return h, errors.New("is no valid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return h, errors.New("is no JSON object")
	}
	seen := map[string]bool{}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return h, fmt.Errorf("is broken JSON (%v)", err)
		}
		name, ok := key.(string)
		if !ok || seen[name] {
			return h, fmt.Errorf("names %v twice", key)
		}
		seen[name] = true
		if name == "__metadata__" {
			if err := d.Decode(&h.metadata); err != nil {
				return h, fmt.Errorf("has metadata that are no table of texts (%v)", err)
			}
			continue
		}
		e := fileEntry{name: name}
		if err := d.Decode(&e.fileTensor); err != nil {
			return h, fmt.Errorf("describes tensor %q wrongly (%v)", name, err)
		}
		if e.DType == "" || e.Shape == nil || len(e.Offsets) != 2 {
			return h, fmt.Errorf("gives tensor %q no dtype, no shape or no two data_offsets", name)
		}
		h.tensors = append(h.tensors, e)
	}
	if _, err := d.Token(); err != nil {
		return h, fmt.Errorf("is broken JSON (%v)", err)
	}
	if rest := bytes.TrimSpace(text[d.InputOffset():]); len(rest) > 0 {
		return h, fmt.Errorf("is followed by %d more bytes", len(rest))
	}
	slices.SortFunc(h.tensors, func(a, b fileEntry) int {
		return cmp.Or(cmp.Compare(a.Offsets[0], b.Offsets[0]), cmp.Compare(a.Offsets[1], b.Offsets[1]),
			cmp.Compare(a.name, b.name))
	})
	return h, nil
}

// check checks type, shape and range against each other and the size of the file.
func (f fileTensor) check(bytes int) error {
	widths := map[string]int{"F32": 4, "BF16": 2, "F16": 2}
	width, ok := widths[f.DType]
	if !ok {
		return fmt.Errorf("has the type %q; F32, BF16 and F16 are supported", f.DType)
	}
	n := 1
	for _, d := range f.Shape {
		if d < 0 || d > 0 && n > math.MaxInt32*64/d {
			return fmt.Errorf("has the impossible shape %v", f.Shape)
		}
		n *= d
	}
	lo, hi := f.Offsets[0], f.Offsets[1]
	if lo < 0 || hi < lo || hi > bytes || hi-lo != n*width {
		return fmt.Errorf("of shape %v and type %s has the byte range %d..%d of %d", f.Shape, f.DType, lo, hi, bytes)
	}
	return nil
}

func halfToFloat(h uint16) float32 {
	sign, exponent, fraction := uint32(h>>15)<<31, uint32(h>>10)&31, uint32(h)&1023
	switch exponent {
	case 0: // zero and subnormals: fraction·2⁻²⁴
		v := math.Float32bits(float32(fraction) / (1 << 24))
		return math.Float32frombits(v | sign)
	case 31:
		return math.Float32frombits(sign | 0xff<<23 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
}
