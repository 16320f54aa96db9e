package resume

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"

	"rcgrpo/engine/artifact"
)

// castagnoli is a function, because building the table at the start would slow down programs that do not resume.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// mark is a length of a growing file, and the checksum of the file up to that length.
type mark struct {
	Bytes int64  `json:"bytes"`
	CRC   uint32 `json:"crc32c"`
}

// reached reports whether the file at path still begins with the bytes of the mark.
func (m mark) reached(path string) bool {
	f, err := artifact.OpenPlain(path) // the store may be a copy
	if err != nil {
		return m.Bytes == 0
	}
	defer f.Close()
	h := crc32.New(castagnoli())
	_, err = io.CopyN(h, f, m.Bytes)
	return err == nil && h.Sum32() == m.CRC
}

// Rows is a file of JSON Lines that grows during the training. CopyTo makes it a file of a port.
type Rows struct {
	path string
	file *os.File // nil in ranks above 0, which write nothing
	mark mark     // the end of the file
	buf  bytes.Buffer
}

// Rows opens a file of rows, truncated to its length at the restored state.
func (t *Scratch) Rows(name string) (*Rows, error) {
	r := &Rows{path: filepath.Join(t.rowFiles(), name), mark: t.marks[name]}
	if t.rank > 0 {
		return r, nil
	}
	f, err := os.OpenFile(r.path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("resume: %w", err)
	}
	r.file = f
	if err := f.Truncate(r.mark.Bytes); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if _, err := f.Seek(r.mark.Bytes, io.SeekStart); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	t.rows = append(t.rows, r)
	return r, nil
}

// Path returns the path of the growing file.
func (r *Rows) Path() string { return r.path }

// Empty reports whether the file has no rows.
func (r *Rows) Empty() bool { return r.mark.Bytes == 0 }

// Append adds a row.
func (r *Rows) Append(row any) error {
	r.buf.Reset()
	e := json.NewEncoder(&r.buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(row); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(r.path), err)
	}
	_, err := r.Write(r.buf.Bytes())
	return err
}

// Write adds encoded rows, each with its line end.
func (r *Rows) Write(text []byte) (n int, err error) {
	if r.file == nil {
		return len(text), nil
	}
	n, err = r.file.Write(text)
	r.mark.Bytes += int64(n)
	r.mark.CRC = crc32.Update(r.mark.CRC, castagnoli(), text[:n])
	return n, err
}

// CopyFrom adds the rows of a file, decompressed if its name ends in ".gz". Others may have written the file, so one
// that would fill the disk is an error.
func (r *Rows) CopyFrom(path string) error {
	f, err := artifact.OpenPlain(path)
	if err != nil {
		return err
	}
	defer f.Close()
	limit := artifact.RowsBytes(f.Info.Size())
	var in io.Reader = f
	if strings.HasSuffix(path, ".gz") {
		if in, err = gzip.NewReader(f); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	switch _, err = io.CopyN(r, in, limit+1); err {
	case io.EOF:
		return nil
	case nil:
		return fmt.Errorf("%s: its rows have more than %d bytes; remove this result from the store", path, limit)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// CopyTo writes all rows into a new file of dir, compressed if its name ends in ".gz". Equal rows give identical
// files.
func (r *Rows) CopyTo(dir, name string) error {
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	rows := io.NewSectionReader(r.file, 0, r.mark.Bytes)
	if strings.HasSuffix(name, ".gz") {
		z := gzip.NewWriter(f)
		_, err = io.Copy(z, rows)
		err = errors.Join(err, z.Close())
	} else {
		_, err = io.Copy(f, rows)
	}
	return errors.Join(err, f.Close())
}
