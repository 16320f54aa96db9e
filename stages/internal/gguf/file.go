package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
)

// File is an open GGUF file whose metadata and tensor table were checked. Its methods are for one goroutine at a time.
type File struct {
	path    string
	file    *os.File
	keys    map[string]any // string, bool, int64, float64, []string, []int32, or ignoredArray
	tensors map[string]tensor
	data    int64 // first byte of the tensors
}

// tensor is an entry of the tensor table.
type tensor struct {
	shape  []int // as in a Hugging Face file: rows, then the length of a row
	kind   kind
	offset int64 // from the first byte of the tensors
}

func (t tensor) len() int {
	n := 1
	for _, d := range t.shape {
		n *= d
	}
	return n
}

// ignoredArray is the value of an array that holds neither strings nor 32-bit integers. No key of a decoder has one.
type ignoredArray struct{}

// Limits of a file, several times those of any published one.
const (
	maxMetadata  = 64 << 20 // bytes before the tensors
	maxEntries   = 1 << 16  // keys, and tensors
	maxString    = 1 << 20
	maxName      = 64
	maxElements  = 1 << 40 // of a tensor
	maxAlignment = 4096
)

// Open opens a file and checks everything but the values of the weights. The caller closes it.
func Open(path string) (*File, error) {
	info, err := os.Stat(path) // opening a FIFO would block
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s must be a plain file, got %v", path, info.Mode())
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	f := &File{path: path, file: file, keys: map[string]any{}, tensors: map[string]tensor{}}
	if err := f.parse(info.Size()); err != nil {
		file.Close()
		return nil, fmt.Errorf("%s is no GGUF file that can be read: %w", path, err)
	}
	return f, nil
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

func (f *File) parse(size int64) error {
	r := &reader{in: bufio.NewReaderSize(f.file, 1<<16), left: min(size, maxMetadata), limited: size > maxMetadata}
	if magic := r.bytes(4); r.err != nil || string(magic) != "GGUF" {
		return errors.New(`it does not start with "GGUF"`)
	}
	version := r.uint32()
	switch {
	case r.err == nil && version != 0 && version&0xffff == 0:
		return errors.New("it is big-endian; convert it with gguf_convert_endian.py of llama.cpp")
	case r.err == nil && version != 2 && version != 3:
		return fmt.Errorf("it has version %d; 2 and 3 are supported", version)
	}
	tensors, keys := r.uint64(), r.uint64()
	if r.err == nil && max(tensors, keys) > maxEntries {
		return fmt.Errorf("it says that it has %d tensors and %d keys; at most %d each are read", tensors, keys, maxEntries)
	}
	for i := 0; i < int(keys) && r.err == nil; i++ {
		if err := f.parseKey(r); err != nil {
			return err
		}
	}
	alignment, err := value(f, "general.alignment", int64(32))
	if err != nil {
		return err
	}
	if alignment < 1 || alignment > maxAlignment || alignment&(alignment-1) != 0 {
		return fmt.Errorf("general.alignment is %d; a power of two up to %d is needed", alignment, maxAlignment)
	}
	if parts, err := value(f, "split.count", int64(1)); err != nil || parts > 1 {
		return errors.Join(err, fmt.Errorf("it is one of %d parts; join them with llama-gguf-split --merge", parts))
	}
	aligned := func(n int64) int64 { return (n + alignment - 1) &^ (alignment - 1) }
	end := int64(0) // of the last tensor
	for i := 0; i < int(tensors) && r.err == nil; i++ {
		name, t, bytes, err := f.parseTensor(r)
		switch start := aligned(end); {
		case err != nil:
			return err
		case r.err != nil:
		case t.offset != start:
			return fmt.Errorf("tensor %q starts at byte %d of the tensors; after the one before it, that is byte %d", name,
				uint64(t.offset), start)
		case bytes > size-start:
			return fmt.Errorf("tensor %q has %d bytes and the file %d: the file is not complete", name, bytes, size)
		default:
			f.tensors[name] = t
			end = start + bytes
		}
	}
	if f.data = aligned(r.at); r.err == nil && f.data+end > size {
		return fmt.Errorf("its tensors end at byte %d and the file at %d: the file is not complete", f.data+end, size)
	}
	return r.err
}

// parseKey reads a key and its value. An error of the reader is not returned.
func (f *File) parseKey(r *reader) error {
	name, kind := r.string(), r.uint32()
	if r.err != nil {
		return nil
	}
	if _, twice := f.keys[name]; twice {
		return fmt.Errorf("the key %.64q occurs twice", name)
	}
	v, err := r.value(kind)
	if err != nil {
		return fmt.Errorf("key %.64q: %w", name, err)
	}
	f.keys[name] = v
	return nil
}

// parseTensor reads an entry of the tensor table; bytes is the length of its data.
func (f *File) parseTensor(r *reader) (name string, t tensor, bytes int64, err error) {
	name = r.string()
	dims := r.uint32()
	if r.err != nil {
		return name, t, 0, nil
	}
	if _, twice := f.tensors[name]; twice || name == "" || len(name) > maxName {
		return name, t, 0, fmt.Errorf("the tensor name %.80q is empty, longer than %d bytes, or occurs twice", name, maxName)
	}
	if dims < 1 || dims > 2 {
		return name, t, 0, fmt.Errorf("tensor %q has %d dimensions; 1 and 2 are supported", name, dims)
	}
	n := uint64(1)
	for range dims {
		d := r.uint64()
		if r.err == nil && (d < 1 || d > maxElements/n) {
			return name, t, 0, fmt.Errorf("tensor %q has a dimension of %d; 1 to %d elements in all are supported", name, d,
				maxElements)
		}
		n *= max(d, 1)
		t.shape = append(t.shape, int(d))
	}
	id := r.uint32()
	t.offset = int64(r.uint64())
	if r.err != nil {
		return name, t, 0, nil
	}
	row := t.shape[0]
	slices.Reverse(t.shape)
	var known bool
	if t.kind, known = kinds[id]; !known {
		return name, t, 0, fmt.Errorf("tensor %q has a type with the unknown number %d; supported are %s", name, id,
			supported())
	}
	if row%t.kind.block != 0 {
		return name, t, 0, fmt.Errorf("tensor %q has rows of %d elements, which are no blocks of %d as %s has", name, row,
			t.kind.block, t.kind.name)
	}
	return name, t, t.kind.bytes(t.len()), nil
}

// value returns the value of a key, or otherwise if the key is absent.
func value[T any](f *File, key string, otherwise T) (T, error) {
	v, present := f.keys[key]
	if !present {
		return otherwise, nil
	}
	typed, ok := v.(T)
	if !ok {
		return otherwise, fmt.Errorf("key %q has a value of type %T, want %T", key, v, otherwise)
	}
	return typed, nil
}

// reader reads little-endian numbers from the start of a file. The first error sticks, and results are then zero.
type reader struct {
	in      *bufio.Reader
	at      int64
	left    int64 // bytes of the file or of the limit
	limited bool  // left ends at the limit
	err     error
	buffer  [8]byte
}

// has reports whether n more bytes can be read.
func (r *reader) has(n uint64) bool {
	if r.err == nil && n > uint64(r.left) {
		if r.err = fmt.Errorf("its metadata ends after %d bytes, inside an entry of %d", r.at, n); r.limited {
			r.err = fmt.Errorf("its metadata has more than %d MiB", maxMetadata>>20)
		}
	}
	return r.err == nil
}

func (r *reader) read(into []byte) {
	if r.has(uint64(len(into))) {
		if _, r.err = io.ReadFull(r.in, into); r.err == nil {
			r.at, r.left = r.at+int64(len(into)), r.left-int64(len(into))
		}
	}
}

// bytes returns at most 8 bytes, which are valid until the next call.
func (r *reader) bytes(n int) []byte {
	clear(r.buffer[:])
	r.read(r.buffer[:n])
	return r.buffer[:n]
}

func (r *reader) uint32() uint32 { return binary.LittleEndian.Uint32(r.bytes(4)) }
func (r *reader) uint64() uint64 { return binary.LittleEndian.Uint64(r.bytes(8)) }

func (r *reader) string() string {
	n := r.uint64()
	if r.err == nil && n > maxString {
		r.err = fmt.Errorf("at byte %d it has a string of %d bytes; at most %d are read", r.at, n, maxString)
	}
	if !r.has(n) {
		return ""
	}
	text := make([]byte, n)
	r.read(text)
	return string(text)
}

// Types of values.
const (
	typeString = 8
	typeArray  = 9
)

// scalars are the types of numbers: their width in bytes and their value.
var scalars = map[uint32]struct {
	width int
	value func(bits uint64) any
}{
	0:  {1, func(b uint64) any { return int64(b) }},
	1:  {1, func(b uint64) any { return int64(int8(b)) }},
	2:  {2, func(b uint64) any { return int64(b) }},
	3:  {2, func(b uint64) any { return int64(int16(b)) }},
	4:  {4, func(b uint64) any { return int64(b) }},
	5:  {4, func(b uint64) any { return int64(int32(b)) }},
	6:  {4, func(b uint64) any { return float64(math.Float32frombits(uint32(b))) }},
	7:  {1, func(b uint64) any { return b != 0 }},
	10: {8, func(b uint64) any { return int64(min(b, math.MaxInt64)) }},
	11: {8, func(b uint64) any { return int64(b) }},
	12: {8, func(b uint64) any { return math.Float64frombits(b) }},
}

// value reads a value of a type.
func (r *reader) value(kind uint32) (any, error) {
	switch s, scalar := scalars[kind]; {
	case scalar:
		r.bytes(s.width)
		return s.value(binary.LittleEndian.Uint64(r.buffer[:])), nil
	case kind == typeString:
		return r.string(), nil
	case kind != typeArray:
		return nil, fmt.Errorf("its value has the unknown type %d", kind)
	}
	element, n := r.uint32(), r.uint64()
	width := scalars[element].width
	switch {
	case r.err != nil:
		return nil, nil
	case element == typeString:
		width = 8 // the length of each
	case width == 0:
		return nil, fmt.Errorf("it is an array of the type %d; arrays of numbers and strings are supported", element)
	}
	if n > maxMetadata || !r.has(n*uint64(width)) {
		return nil, fmt.Errorf("it is an array of %d elements, more than the rest of the metadata", n)
	}
	switch element {
	case typeString:
		all := make([]string, 0, n)
		for range n {
			all = append(all, r.string())
		}
		return all, nil
	case 4, 5:
		all := make([]int32, 0, n)
		for range n {
			all = append(all, int32(r.uint32()))
		}
		return all, nil
	}
	for range n {
		r.bytes(width)
	}
	return ignoredArray{}, nil
}
