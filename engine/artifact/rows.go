package artifact

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"rcgrpo/internal/nesting"
)

// Rows reads a file of JSON Lines, one T per line, and decompresses it if its name ends in ".gz". It stops at
// the first error and yields it, with file and line, beside a zero T. Readers keep something of each row, so the file
// may have RowsBytes and MaxRows, or more rows if it is large.
func Rows[T any](a *Artifact, file string) iter.Seq2[T, error] { return ReadRows[T](a.Path(file)) }

// AllRows returns the rows that Rows reads; none after an error. All together, they have at most as many values as one
// row may have, or one for each 8 bytes of the file.
func AllRows[T any](a *Artifact, file string) (rows []T, err error) {
	for row, err := range rowsWithin[T](a.Path(file), true) {
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// ReadRows is Rows for a file outside a store.
func ReadRows[T any](path string) iter.Seq2[T, error] { return rowsWithin[T](path, false) }

// Checked is a row with a rule that its readers rely on, such as indices within its slices. Rows keeps to it, because
// others may have written the file.
type Checked interface{ Check() error }

// limited is a reader of rows with limits: a few megabytes of gzip can contain gigabytes.
type limited struct {
	r      io.Reader
	bytes  int64 // of decompressed text left
	rows   int64 // left
	values int64 // left for the rows of AllRows
	line   int64 // bytes left for the current row
}

// Limits of the rows that are kept in memory. Below FewRowsBytes, decompression may give any multiple of the file.
const (
	FewRowsBytes = 512 << 20
	MaxRows      = 2_000_000
	maxGrowth    = 100
	leastRow     = 64 // bytes of a row in a file of more than MaxRows
	leastValue   = 8  // bytes of a value in a file with more than mostValues
	rowValues    = 8  // values that a kept row counts as, besides its own: {} may become a score of 250 bytes
)

// RowsBytes limits the decompressed rows of a file with size bytes. A long training has gigabytes of them, but text of
// models compresses far less than a file that is made to fill memory or a disk.
func RowsBytes(size int64) int64 { return max(FewRowsBytes, maxGrowth*size) }

// maxRow limits each row, in bytes: a row is held as a whole. Tests lower it.
var maxRow int64 = 256 << 20

// mostValues limits the values of each row: {} may become a message of 112 bytes. An episode of a million tokens has
// three values for each.
const mostValues = 4 << 20

func (l *limited) Read(p []byte) (int, error) {
	switch {
	case l.bytes <= 0:
		return 0, errors.New("the rows have more bytes than the limit allows")
	case l.line <= 0:
		return 0, fmt.Errorf("a row has more than %d bytes", maxRow)
	}
	n, err := l.r.Read(p[:min(int64(len(p)), l.bytes, l.line)])
	l.bytes -= int64(n)
	l.line -= int64(n)
	return n, err
}

// begin starts a row.
func (l *limited) begin() error {
	if l.rows--; l.rows < 0 {
		return errors.New("there are more rows than the limit allows")
	}
	l.line = maxRow
	return nil
}

// rowsWithin is ReadRows. Rows that are kept have a limit of values.
func rowsWithin[T any](path string, kept bool) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var zero T
		f, err := os.Open(path)
		if err != nil {
			yield(zero, err)
			return
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			yield(zero, err)
			return
		}
		in := &limited{r: bufio.NewReaderSize(f, 1<<16), bytes: RowsBytes(info.Size()),
			rows: max(MaxRows, info.Size()/leastRow), values: max(mostValues, info.Size()/leastValue)}
		if strings.HasSuffix(path, ".gz") {
			if in.r, err = gzip.NewReader(in.r); err != nil {
				yield(zero, fmt.Errorf("%s: %w", path, err))
				return
			}
		}
		lines := bufio.NewReaderSize(in, 1<<16)
		for n := 1; err != io.EOF; n++ {
			var line []byte
			if err = in.begin(); err == nil {
				line, err = lines.ReadBytes('\n')
			}
			var row T
			text := bytes.TrimSpace(line)
			if (err == nil || err == io.EOF) && len(text) > 0 {
				values := new(int64(mostValues))
				if kept {
					values = &in.values
					*values -= rowValues
				}
				if rowErr := parseRow(text, values, &row); rowErr != nil {
					err = rowErr
				} else if !yield(row, nil) {
					return
				}
			}
			if err != nil && err != io.EOF {
				yield(zero, fmt.Errorf("%s:%d: %w", path, n, err))
				return
			}
		}
	}
}

// parseRow decodes a row and checks it; values are left for it. null would leave a pointer without a row.
func parseRow[T any](text []byte, values *int64, row *T) error {
	if string(text) == "null" {
		return errors.New("the row is null")
	}
	if *values < 0 {
		return errors.New("the rows have more values than the limit allows")
	}
	_, n := nesting.JSON(text)
	if most := min(mostValues, *values); int64(n) > most {
		return fmt.Errorf("the row has %d values, and at most %d are read", n, most)
	}
	*values -= int64(n)
	if err := json.Unmarshal(text, row); err != nil {
		return err
	}
	for _, v := range []any{*row, row} {
		if checked, ok := v.(Checked); ok {
			return checked.Check()
		}
	}
	return nil
}

// WriteRows writes rows to a new file of JSON Lines in dir, compressed if its name ends in ".gz". Equal rows give
// identical bytes: keys of maps are sorted, the gzip header has no time.
func WriteRows[T any](dir, file string, rows []T) (err error) {
	f, err := os.Create(filepath.Join(dir, filepath.FromSlash(file)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buf := bufio.NewWriterSize(f, 1<<16)
	var out io.WriteCloser = unzipped{buf}
	if strings.HasSuffix(file, ".gz") {
		out = gzip.NewWriter(buf)
	}
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	for i, row := range rows {
		if err := encoder.Encode(row); err != nil {
			return fmt.Errorf("%s, row %d: %w", f.Name(), i+1, err)
		}
	}
	return errors.Join(out.Close(), buf.Flush())
}

// WriteJSON writes a JSON file that describes the other files in dir; see ReadJSON.
func WriteJSON(dir, file string, v any) error {
	text, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, file), append(text, '\n'), 0o600)
}

// unzipped is a writer of a file without compression.
type unzipped struct{ io.Writer }

func (unzipped) Close() error { return nil }
