package gguf

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"rcgrpo/stages/internal/lm"
)

// kind is a type of tensors: blocks of so many elements in so many bytes.
type kind struct {
	name    string
	block   int
	length  int                                // bytes of a block
	unpack  func(block []byte, into []float32) // nil if the type is not supported
	rounded bool                               // by quantisation
}

func (k kind) bytes(elements int) int64 { return int64(elements/k.block) * int64(k.length) }

// kinds are the types by their number in a file. Those without unpack have fewer than 4 bits for a weight, or tables
// that are not implemented.
var kinds = map[uint32]kind{
	0:  {"F32", 1, 4, unpackF32, false},
	1:  {"F16", 1, 2, unpackF16, false},
	30: {"BF16", 1, 2, unpackBF16, false},
	2:  {"Q4_0", 32, 18, unpackQ4x0, true},
	3:  {"Q4_1", 32, 20, unpackQ4x1, true},
	6:  {"Q5_0", 32, 22, unpackQ5x0, true},
	7:  {"Q5_1", 32, 24, unpackQ5x1, true},
	8:  {"Q8_0", 32, 34, unpackQ8x0, true},
	12: {"Q4_K", 256, 144, unpackQ4K, true},
	13: {"Q5_K", 256, 176, unpackQ5K, true},
	14: {"Q6_K", 256, 210, unpackQ6K, true},

	10: {name: "Q2_K", block: 256, length: 84},
	11: {name: "Q3_K", block: 256, length: 110},
	16: {name: "IQ2_XXS", block: 256, length: 66},
	17: {name: "IQ2_XS", block: 256, length: 74},
	18: {name: "IQ3_XXS", block: 256, length: 98},
	19: {name: "IQ1_S", block: 256, length: 50},
	20: {name: "IQ4_NL", block: 32, length: 18},
	21: {name: "IQ3_S", block: 256, length: 110},
	22: {name: "IQ2_S", block: 256, length: 82},
	23: {name: "IQ4_XS", block: 256, length: 136},
	29: {name: "IQ1_M", block: 256, length: 56},
	34: {name: "TQ1_0", block: 256, length: 54},
	35: {name: "TQ2_0", block: 256, length: 66},
	39: {name: "MXFP4", block: 32, length: 17},
}

// supported lists the names of the types that can be read.
func supported() string {
	var names []string
	for _, id := range slices.Sorted(maps.Keys(kinds)) {
		if k := kinds[id]; k.unpack != nil {
			names = append(names, k.name)
		}
	}
	return strings.Join(names, ", ")
}

// Rows reads rows of a tensor, from a row on, as many whole rows as into holds. A vector is one row. The values are
// those of gguf-py, bit for bit.
func (f *File) Rows(name string, from int, into []float32) error {
	t, ok := f.tensors[name]
	if !ok {
		return fmt.Errorf("tensor %q is missing", name)
	}
	k, row := t.kind, t.shape[len(t.shape)-1]
	if k.unpack == nil {
		return fmt.Errorf("tensor %q has type %s; supported are %s", name, k.name, supported())
	}
	if from < 0 || len(into)%row != 0 || from > t.len()/row-len(into)/row {
		return fmt.Errorf("tensor %q has %d rows of %d: %d elements from row %d on are no rows of it", name, t.len()/row,
			row, len(into), from)
	}
	at := f.data + t.offset + k.bytes(from*row)
	buffer := make([]byte, min(len(into)/k.block, 4096)*k.length)
	for len(into) > 0 {
		n := min(len(into)/k.block, len(buffer)/k.length)
		if _, err := f.file.ReadAt(buffer[:n*k.length], at); err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		for i := range n {
			k.unpack(buffer[i*k.length:(i+1)*k.length], into[i*k.block:(i+1)*k.block])
		}
		at, into = at+int64(n*k.length), into[n*k.block:]
	}
	return nil
}

// The functions below compute in the order of gguf-py. A conversion to float32 around a product keeps the compiler from
// fusing it with the addition after it, which would round differently.

func half(b []byte) float32 { return lm.HalfToFloat(binary.LittleEndian.Uint16(b)) }

func unpackF32(b []byte, x []float32) { x[0] = math.Float32frombits(binary.LittleEndian.Uint32(b)) }
func unpackF16(b []byte, x []float32) { x[0] = half(b) }
func unpackBF16(b []byte, x []float32) {
	x[0] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16)
}

// nibble returns element i of 32 in 16 bytes: the lower halves of all bytes come first.
func nibble(b []byte, i int) int { return int(b[i%16] >> (i / 16 * 4) & 15) }

func unpackQ4x0(b []byte, x []float32) {
	d := half(b)
	for i := range x {
		x[i] = d * float32(nibble(b[2:], i)-8)
	}
}

func unpackQ4x1(b []byte, x []float32) {
	d, m := half(b), half(b[2:])
	for i := range x {
		x[i] = float32(d*float32(nibble(b[4:], i))) + m
	}
}

func unpackQ5x0(b []byte, x []float32) {
	d, high := half(b), binary.LittleEndian.Uint32(b[2:])
	for i := range x {
		x[i] = d * float32(nibble(b[6:], i)+int(high>>i&1)<<4-16)
	}
}

func unpackQ5x1(b []byte, x []float32) {
	d, m, high := half(b), half(b[2:]), binary.LittleEndian.Uint32(b[4:])
	for i := range x {
		x[i] = float32(d*float32(nibble(b[8:], i)+int(high>>i&1)<<4)) + m
	}
}

func unpackQ8x0(b []byte, x []float32) {
	d := half(b)
	for i := range x {
		x[i] = d * float32(int8(b[2+i]))
	}
}

func unpackQ4K(b []byte, x []float32) { unpackK(b, nil, b[16:], x) }
func unpackQ5K(b []byte, x []float32) { unpackK(b, b[16:48], b[48:], x) }

// unpackK unpacks eight parts of 32 elements, each with a scale and a minimum of 6 bits. high, which may be nil, has
// bit 4 of the elements.
func unpackK(b, high, low []byte, x []float32) {
	d, dmin, s := half(b), half(b[2:]), b[4:16]
	for j := range 8 {
		scale, minimum := s[j%4]&63, s[j%4+4]&63
		if j >= 4 {
			scale, minimum = s[j+4]&15|s[j-4]>>6<<4, s[j+4]>>4|s[j]>>6<<4
		}
		part, least := d*float32(scale), dmin*float32(minimum)
		for i := range 32 {
			q := low[j/2*32+i] >> (j % 2 * 4) & 15
			if high != nil {
				q |= high[i] >> j & 1 << 4
			}
			x[32*j+i] = float32(part*float32(q)) - least
		}
	}
}

func unpackQ6K(b []byte, x []float32) {
	low, high, scales, d := b[:128], b[128:192], b[192:208], half(b[208:])
	for at := range x {
		h, k, i := at/128, at/32%4, at%32
		q := low[64*h+32*(k%2)+i]>>(k/2*4)&15 | high[32*h+i]>>(2*k)&3<<4
		x[at] = float32(d*float32(int8(scales[at/16]))) * float32(int(q)-32)
	}
}
