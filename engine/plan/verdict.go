package plan

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"rcgrpo/engine/internal/stat"
)

// verdictFile is the stored form of the verdict "nothing to do": everything it was derived from, so that a later run
// confirms it with one stat per file, without parsing or decoding the experiment.
type verdictFile struct {
	Build    string // ID of the binary that derived it
	Identity string // of the experiment and its variables (verdictPath)

	// The answer.
	Experiment string
	Counts     map[Verb]int
	Disabled   []string

	Base      string      // the experiment's folder; read back, paths below it are relative to it
	Paths     []string    // the experiment's own files, absolute
	sources   []stat.File // files of the experiment and of variables, the site file, data
	published []stat.File
	results   []stat.File // manifests and files of objects
}

// A record is text: a line with the CRC-32 of the remaining text, a line of JSON with the exported fields of
// verdictFile, and a line for each file: use, size, mtime, ctime, inode, digest and path.
const recordMagic = "rcgrpo verdict 4 "

const (
	useSource    = 's' // compared by stamp, then by content
	usePublished = 'p' // compared by stamp; a copy that was only touched has to be published again
	useResult    = 'r' // compared by stamp
	markFolder   = "/" // follows the use
	markRecent   = "?" // follows the use: tooRecent
	noDigest     = "-"
)

var errGarbled = errors.New("garbled record")

// encode returns the record. ok is false if a path cannot be written as one line.
func (c *verdictFile) encode() (record []byte, ok bool) {
	header, err := json.Marshal(c)
	if err != nil {
		return nil, false
	}
	b := append(header, '\n')
	for _, list := range []struct {
		use   byte
		files []stat.File
	}{{useSource, c.sources}, {usePublished, c.published}, {useResult, c.results}} {
		for i := range list.files {
			f := &list.files[i]
			if strings.Contains(f.Path, "\n") {
				return nil, false
			}
			b = appendLine(f, append(b, list.use), c.Base+"/")
		}
	}
	return append(fmt.Appendf(nil, "%s%08x\n", recordMagic, crc32.ChecksumIEEE(b)), b...), true
}

// appendLine appends the line of a file after its use. Paths below base lose it.
func appendLine(f *stat.File, b []byte, base string) []byte {
	flags := ""
	if f.Folder {
		flags += markFolder
	}
	if f.TooRecent {
		flags += markRecent
	}
	return fmt.Appendf(b, "%s %d %d %d %d %s %s\n", flags, f.Stamp.Size, f.Stamp.Mtime, f.Stamp.Ctime, f.Stamp.Inode,
		cmp.Or(f.Digest, noDigest), strings.TrimPrefix(f.Path, base))
}

// readVerdict reads the record in path. A torn or garbled record, and one of another build or experiment, is an error.
func readVerdict(path, build, identity string) (*verdictFile, error) {
	record, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer record.Close()
	info, err := record.Stat()
	if err != nil {
		return nil, err
	}
	first := make([]byte, len(recordMagic)+len("00000000\n"))
	if _, err := io.ReadFull(record, first); err != nil {
		return nil, err
	}
	var text strings.Builder
	text.Grow(int(info.Size()) - len(first))
	sum := crc32.NewIEEE()
	if _, err := io.Copy(io.MultiWriter(&text, sum), record); err != nil {
		return nil, err
	}
	if string(first) != fmt.Sprintf("%s%08x\n", recordMagic, sum.Sum32()) {
		return nil, errGarbled
	}
	header, lines, _ := strings.Cut(text.String(), "\n")
	c := new(verdictFile)
	if json.Unmarshal([]byte(header), c) != nil {
		return nil, errGarbled
	}
	if c.Build != build || c.Identity != identity {
		return nil, errors.New("another build or experiment")
	}
	files := make([]stat.File, 0, strings.Count(lines, "\n"))
	ends := map[byte]int{} // of each use, the index after its last file
	for line := range strings.Lines(lines) {
		use, f, ok := parseLine(strings.TrimSuffix(line, "\n"))
		if !ok {
			return nil, errGarbled
		}
		files = append(files, f)
		ends[use] = len(files)
	}
	published := max(ends[useSource], ends[usePublished])
	c.sources, c.published, c.results = files[:ends[useSource]], files[ends[useSource]:published], files[published:]
	return c, nil
}

// parseLine is the inverse of appendLine.
func parseLine(line string) (use byte, f stat.File, ok bool) {
	var fields [6]string
	for i := range fields {
		if fields[i], line, ok = strings.Cut(line, " "); !ok || fields[0] == "" {
			return 0, f, false
		}
	}
	flags := fields[0][1:]
	f.Folder, f.TooRecent = strings.Contains(flags, markFolder), strings.Contains(flags, markRecent)
	for i, n := range [...]*int64{&f.Stamp.Size, &f.Stamp.Mtime, &f.Stamp.Ctime} {
		var err error
		*n, err = strconv.ParseInt(fields[1+i], 10, 64)
		ok = ok && err == nil
	}
	inode, err := strconv.ParseUint(fields[4], 10, 64)
	f.Stamp.Inode, f.Path = inode, line
	if fields[5] != noDigest {
		f.Digest = fields[5]
	}
	return fields[0][0], f, ok && err == nil
}

// writeVerdict stores a record in path, unless the file has this content already.
func writeVerdict(path string, record []byte) error {
	if have, err := os.ReadFile(path); err == nil && string(have) == string(record) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return stat.WriteTemporary(path, record)
}
