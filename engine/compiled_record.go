package engine

import (
	"cmp"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// compiled is what is kept of an experiment that was found up to date: all that this was concluded from, so that a
// later run sees by looking at the same files that it still holds, without parsing or decoding anything.
type verdictFile struct {
	build    string // id of the binary that concluded it
	identity string // of the experiment and its variables: see identityOf

	// The answer.
	experiment string
	counts     map[Verb]int
	disabled   []string

	base      string      // the experiment's folder; paths of witnesses below it are relative to it, once read
	paths     []string    // the experiment's own files, absolute
	read      []fileState // files of the experiment and of variables, the site file, data
	published []fileState
	results   []fileState // manifests and files of objects
}

// fileState is a file or folder as it was found.
type fileState struct {
	path      string
	folder    bool
	tooRecent bool // the stamp proves nothing: look at the content
	stamp     stamp
	digest    string // of the content; "" where the stamp has to do
}

// A record is a header and a body with its checksum, so that a torn or garbled one is no record. The checksum is IEEE's,
// for Go makes the tables of the first sum in 0.03 ms, and Castagnoli's in 0.2, which every command would wait for.
const (
	compiledMagic  = "rcgrpo compiled\x03"
	compiledHeader = len(compiledMagic) + 4
)

func (c *verdictFile) encode() []byte {
	w := recordWriter{b: make([]byte, compiledHeader), base: c.base + "/"}
	for _, s := range []string{c.build, c.identity, c.experiment, c.base} {
		w.text(s)
	}
	w.number(uint64(len(c.counts)))
	for _, verb := range slices.Sorted(maps.Keys(c.counts)) {
		w.text(string(verb))
		w.number(uint64(c.counts[verb]))
	}
	w.texts(c.disabled)
	w.texts(c.paths)
	w.witnesses(c.read)
	w.witnesses(c.published)
	w.witnesses(c.results)
	copy(w.b, compiledMagic)
	binary.LittleEndian.PutUint32(w.b[len(compiledMagic):], crc32.ChecksumIEEE(w.b[compiledHeader:]))
	return w.b
}

// readCompiled reads the record in path. A record that was not written by this build for this identity is as good as
// none.
func readCompiled(path, build, identity string) (*verdictFile, error) {
	d, err := readRecord(path)
	if err != nil {
		return nil, err
	}
	c := &verdictFile{build: d.text(), identity: d.text(), counts: map[Verb]int{}}
	if d.failed || c.build != build || c.identity != identity {
		return nil, errors.New("another build or experiment")
	}
	c.experiment, c.base = d.text(), d.text()
	for range d.length() {
		verb := Verb(d.text())
		c.counts[verb] = int(d.number())
	}
	c.disabled, c.paths = d.texts(), d.texts()
	c.read, c.published, c.results = d.witnesses(), d.witnesses(), d.witnesses()
	if d.failed || d.rest != "" {
		return nil, errGarbled
	}
	return c, nil
}

var errGarbled = errors.New("garbled record")

// readRecord reads the body of a record whose checksum is right.
func readRecord(path string) (recordReader, error) {
	file, err := os.Open(path)
	if err != nil {
		return recordReader{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return recordReader{}, err
	}
	header := make([]byte, compiledHeader)
	if _, err := io.ReadFull(file, header); err != nil {
		return recordReader{}, err
	}
	if string(header[:len(compiledMagic)]) != compiledMagic {
		return recordReader{}, errGarbled
	}
	var text strings.Builder
	text.Grow(int(info.Size()) - compiledHeader)
	found := crc32.NewIEEE()
	if _, err := io.Copy(io.MultiWriter(&text, found), file); err != nil {
		return recordReader{}, err
	}
	if found.Sum32() != binary.LittleEndian.Uint32(header[len(compiledMagic):]) {
		return recordReader{}, errGarbled
	}
	return recordReader{rest: text.String()}, nil
}

// writeCompiled puts an encoded record in path, unless it stands there already.
func writeCompiled(path string, b []byte) error {
	if have, err := os.ReadFile(path); err == nil && string(have) == string(b) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	aside, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = aside.Write(b)
	if err = cmp.Or(err, aside.Close()); err == nil {
		err = os.Rename(aside.Name(), path)
	}
	if err != nil {
		os.Remove(aside.Name())
	}
	return err
}

// recordWriter appends values; paths below base lose it.
type recordWriter struct {
	b    []byte
	base string
}

func (w *recordWriter) number(n uint64) { w.b = binary.AppendUvarint(w.b, n) }

func (w *recordWriter) text(s string) {
	w.number(uint64(len(s)))
	w.b = append(w.b, s...)
}

func (w *recordWriter) texts(list []string) {
	w.number(uint64(len(list)))
	for _, s := range list {
		w.text(s)
	}
}

func (w *recordWriter) witnesses(list []fileState) {
	w.number(uint64(len(list)))
	size := 0
	for _, one := range list {
		size += witnessSize + len(one.path) + len(one.digest)
	}
	w.b = slices.Grow(w.b, size)
	for _, one := range list {
		w.text(strings.TrimPrefix(one.path, w.base))
		var flags byte
		if one.folder {
			flags |= flagFolder
		}
		if one.tooRecent {
			flags |= flagYoung
		}
		w.b = append(w.b, flags)
		s := one.stamp
		for _, n := range [...]uint64{uint64(s.Size), uint64(s.Mtime), uint64(s.Ctime), s.Inode} {
			w.b = binary.LittleEndian.AppendUint64(w.b, n)
		}
		w.text(one.digest)
	}
}

// witnessSize is how many bytes a fileState takes at most besides its texts.
const witnessSize = 1 + 4*8 + 2*binary.MaxVarintLen32

const (
	flagFolder = 1 << iota
	flagYoung
)

// recordReader takes values from a text. After a mistake it has failed and gives zeros.
type recordReader struct {
	rest   string
	failed bool
}

func (r *recordReader) number() uint64 {
	var n uint64
	for i := range min(len(r.rest), binary.MaxVarintLen64) {
		b := r.rest[i]
		n |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			r.rest = r.rest[i+1:]
			return n
		}
	}
	r.fail()
	return 0
}

func (r *recordReader) fail() { r.rest, r.failed = "", true }

// length is the number of things that follow, each of which takes at least one byte.
func (r *recordReader) length() int {
	n := r.number()
	if n > uint64(len(r.rest)) {
		r.fail()
		return 0
	}
	return int(n)
}

func (r *recordReader) bytes(n int) string {
	if n > len(r.rest) {
		r.fail()
		return ""
	}
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}

func (r *recordReader) text() string { return r.bytes(r.length()) }

func (r *recordReader) texts() []string {
	list := make([]string, r.length())
	for i := range list {
		list[i] = r.text()
	}
	return list
}

func (r *recordReader) witnesses() []fileState {
	list := make([]fileState, r.length())
	for i := range list {
		w := &list[i]
		w.path = r.text()
		fixed := r.bytes(1 + 4*8)
		if r.failed {
			return nil
		}
		w.folder, w.tooRecent = fixed[0]&flagFolder != 0, fixed[0]&flagYoung != 0
		w.stamp = stamp{int64(word(fixed[1:])), int64(word(fixed[9:])), int64(word(fixed[17:])), word(fixed[25:])}
		w.digest = r.text()
	}
	return list
}

// word is the little-endian number that s begins with.
func word(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 | uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}
