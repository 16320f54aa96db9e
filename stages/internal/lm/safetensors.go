package lm

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"
	"unsafe"

	"rcgrpo/stages/internal/ranks"
	"rcgrpo/stages/internal/token"
)

// A safetensors file consists of the length of a JSON header (8 bytes, little-endian), the header, and the
// tensors. The header gives each tensor's type, shape and byte range; ranges are adjacent.

type fileTensor struct {
	DType   string `json:"dtype"`
	Shape   []int  `json:"shape"`
	Offsets []int  `json:"data_offsets"` // first byte and end
}

// writtenTensor is a tensor of a file to write. Its elements arrive in pieces, so that no copy of all weights exists:
// write stores the elements from index at on. The pieces of all ranks together are the tensor.
type writtenTensor struct {
	shape  []int
	pieces func(write func(at int, v []float32) error) error
}

// whole is a tensor in the host's memory.
func whole(shape []int, data []float32) writtenTensor {
	return writtenTensor{shape, func(write func(int, []float32) error) error { return write(0, data) }}
}

// pieceLen is the number of elements that are read, converted or written at once; tests lower it.
var pieceLen = 1 << 20

// eachPiece calls f with the parts of n elements: so many whole rows as pieceLen has, or one longer row.
func eachPiece(n, row int, f func(at, n int) error) error {
	step := max(1, pieceLen/row) * row
	for at := 0; at < n; at += step {
		if err := f(at, min(step, n-at)); err != nil {
			return err
		}
	}
	return nil
}

// maxHeader limits the headers of a folder's files together, several times those of any published model. The format
// allows 100 MB in each file, whose entries would take 1.4 GB.
const maxHeader = 16 << 20

const metadataName = "__metadata__"

// writeSafetensors writes tensors in float32, sorted by name. Equal tensors give identical files. All ranks of r call
// it and write their pieces into the file of rank 0, whose path counts; it returns when the file is complete.
func writeSafetensors(r *ranks.Rank, path string, tensors map[string]writtenTensor, metadata map[string]string) error {
	names := slices.Sorted(maps.Keys(tensors))
	entries, starts, end := map[string]any{metadataName: metadata}, map[string]int{}, 0
	for _, name := range names {
		t := tensors[name]
		starts[name] = end
		end += 4 * product(t.shape)
		entries[name] = fileTensor{"F32", t.shape, []int{starts[name], end}}
	}
	header, err := json.Marshal(entries) // sorts the keys
	if err != nil {
		return err
	}
	for len(header)%8 != 0 {
		header = append(header, ' ')
	}
	header = append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)
	f, err := sharedFile(r, path, header)
	if err != nil {
		return err
	}
	unflushed := 0
	for _, name := range names {
		if err == nil {
			err = tensors[name].pieces(func(at int, v []float32) error {
				n, err := f.WriteAt(littleEndian(v), int64(len(header)+starts[name]+4*at))
				if unflushed += n; err == nil && unflushed >= flushEvery {
					unflushed, err = 0, f.Sync()
				}
				return err
			})
		}
	}
	_, err = r.Sync(ranks.Point{Phase: "written " + filepath.Base(path), Err: errors.Join(err, f.Close())})
	return err
}

// sharedFile opens the file that rank 0 creates at its path, with a header.
func sharedFile(r *ranks.Rank, path string, header []byte) (f *os.File, err error) {
	if r.Index() == 0 {
		if f, err = os.Create(path); err == nil {
			_, err = f.Write(header)
		}
	}
	if _, err = r.Sync(ranks.Point{Phase: "create " + filepath.Base(path), Err: err}); err != nil {
		if f != nil {
			f.Close()
		}
		return nil, err
	}
	paths, err := ranks.ShareValues(r, path)
	switch {
	case err != nil && f != nil:
		f.Close()
	case err == nil && r.Index() > 0:
		f, err = os.OpenFile(paths[0], os.O_WRONLY, 0)
	}
	return f, err
}

// flushEvery is the number of bytes after which a file is flushed to the disk while it is written. The flush at its end
// is then short, whatever its size, and a process that writes makes steps.
const flushEvery = 256 << 20

// littleEndian returns the memory of v: all supported machines are little-endian.
func littleEndian(v []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}

// weightsReader reads tensors from an open file, so a file of any size takes no memory.
type weightsReader struct {
	path     string
	file     *os.File
	body     int64 // first byte of the tensors
	tensors  map[string]fileTensor
	metadata map[string]string
}

// openWeights opens a file and checks its header: every tensor's type, shape and range, and that the ranges cover
// the file.
func openWeights(path string) (*weightsReader, error) {
	file, err := token.Open(path, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	r := &weightsReader{path: path, file: file, tensors: map[string]fileTensor{}}
	if err := r.parse(); err != nil {
		r.close()
		return nil, fmt.Errorf("%s is no valid safetensors file: %.1000v", path, err)
	}
	return r, nil
}

func (r *weightsReader) close() error { return r.file.Close() }

func (r *weightsReader) parse() error {
	info, err := r.file.Stat()
	if err != nil {
		return err
	}
	var length [8]byte
	if _, err := r.file.ReadAt(length[:], 0); err != nil {
		return fmt.Errorf("it has %d bytes, fewer than the length of a header", info.Size())
	}
	size := binary.LittleEndian.Uint64(length[:])
	if size > maxHeader || size > uint64(info.Size()-8) {
		return fmt.Errorf("its header of %d bytes is above %d, or does not fit into the file of %d", size, maxHeader,
			info.Size())
	}
	header := make([]byte, size)
	if _, err := r.file.ReadAt(header, 8); err != nil {
		return fmt.Errorf("read its header: %w", err)
	}
	r.body = 8 + int64(size)
	bodyLen := int(info.Size() - r.body)
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(header, &entries); err != nil {
		return fmt.Errorf("its header is no JSON object: %w", err)
	}
	if !utf8.Valid(header) {
		return errors.New("its header is no valid UTF-8")
	}
	if text, ok := entries[metadataName]; ok {
		if err := json.Unmarshal(text, &r.metadata); err != nil {
			return fmt.Errorf("its entry %q: %w", metadataName, err)
		}
		delete(entries, metadataName)
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		var t fileTensor
		if err := json.Unmarshal(entries[name], &t); err != nil {
			return fmt.Errorf("its entry %q: %w", name, err)
		}
		if err := t.check(bodyLen); err != nil {
			return fmt.Errorf("tensor %q %w", name, err)
		}
		r.tensors[name] = t
	}
	end := 0
	byOffset := func(a, b fileTensor) int { return slices.Compare(a.Offsets, b.Offsets) }
	for _, t := range slices.SortedFunc(maps.Values(r.tensors), byOffset) {
		if t.Offsets[0] != end {
			return fmt.Errorf("a tensor starts at byte %d, but the one before ends at %d", t.Offsets[0], end)
		}
		end = t.Offsets[1]
	}
	if end != bodyLen {
		return fmt.Errorf("its tensors cover %d bytes of %d", end, bodyLen)
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

// read reads the elements of a tensor from an index on, as many as fit into the slice.
func (r *weightsReader) read(name string, shape []int, from int, into []float32) error {
	if err := r.has(name, shape); err != nil {
		return err
	}
	t := r.tensors[name]
	at := r.body + int64(t.Offsets[0])
	if t.DType == "F32" {
		_, err := r.file.ReadAt(littleEndian(into), at+4*int64(from))
		return err
	}
	buffer := make([]byte, 2*min(len(into), 1<<16))
	for len(into) > 0 {
		n := min(len(into), len(buffer)/2)
		if _, err := r.file.ReadAt(buffer[:2*n], at+2*int64(from)); err != nil {
			return err
		}
		for i := range n {
			bits := binary.LittleEndian.Uint16(buffer[2*i:])
			if t.DType == "BF16" {
				into[i] = math.Float32frombits(uint32(bits) << 16)
			} else {
				into[i] = HalfToFloat(bits)
			}
		}
		from, into = from+n, into[n:]
	}
	return nil
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
	if f.Shape == nil || len(f.Offsets) != 2 {
		return errors.New("has no shape or no two data_offsets")
	}
	lo, hi := f.Offsets[0], f.Offsets[1]
	if lo < 0 || hi < lo || hi > bytes || hi-lo != n*width {
		return fmt.Errorf("of shape %v and type %s has the byte range %d..%d of %d", f.Shape, f.DType, lo, hi, bytes)
	}
	return nil
}

// HalfToFloat widens the bits of a float16.
func HalfToFloat(h uint16) float32 {
	sign, rest := uint32(h>>15)<<31, uint32(h&0x7fff)<<13
	if h>>10&31 == 31 { // infinite or NaN
		return math.Float32frombits(sign | 0xff<<23 | rest)
	}
	value := math.Float32frombits(rest) * 0x1p112 // the difference of the exponents' biases; exact for subnormals too
	return math.Float32frombits(sign | math.Float32bits(value))
}
