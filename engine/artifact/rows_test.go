package artifact

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"rcgrpo/internal/must"
)

type row struct {
	Update int                `json:"update"`
	Text   string             `json:"text,omitempty"`
	Values map[string]float64 `json:"values,omitempty"`
}

// read returns the rows of a file before its first error.
func read(path string) (rows []row, err error) {
	for r, err := range ReadRows[row](path) {
		if err != nil {
			return rows, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func TestRowsAreReadAsWrittenAndReproducible(t *testing.T) {
	want := []row{{Update: 1, Text: "a <b> & c\n"}, {Update: 2, Values: map[string]float64{"z": 1, "a": 0.1}}, {}}
	for _, name := range []string{"rows.jsonl", "rows.jsonl.gz"} {
		var first []byte
		for range 2 {
			dir := t.TempDir()
			must.OK(t, WriteRows(dir, name, want))
			path := filepath.Join(dir, name)
			got, err := read(path)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s: got %+v, %v, want %+v", name, got, err, want)
			}
			b, _ := os.ReadFile(path)
			if first != nil && !bytes.Equal(first, b) {
				t.Errorf("%s: equal rows gave different bytes", name)
			}
			first = b
		}
	}
}

func TestRowMistakesNameFileAndLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	os.WriteFile(path, []byte("{\"update\":1}\n\n{\"update\":2\n"), 0o600)
	rows, err := read(path)
	if len(rows) != 1 || err == nil || !strings.Contains(err.Error(), path+":3:") {
		t.Errorf("got %v, %v, want one row and an error at line 3", rows, err)
	}
	os.WriteFile(path, []byte("{\"update\":1}\n{\"update\":2}"), 0o600)
	if rows, err := read(path); len(rows) != 2 || err != nil {
		t.Errorf("without a last line break: got %v, %v, want two rows", rows, err)
	}
	_, err = read(path + ".none")
	must.Match(t, err, "no such file", "a missing file")
	os.WriteFile(path+".gz", []byte("no gzip"), 0o600)
	_, err = read(path + ".gz")
	must.Match(t, err, "rows.jsonl.gz: ", "a broken gzip file")
}

func TestRowsThatJSONCannotHoldAreAnError(t *testing.T) {
	rows := []row{{}, {Values: map[string]float64{"loss": math.NaN()}}}
	must.Match(t, WriteRows(t.TempDir(), "rows.jsonl", rows), "rows.jsonl, row 2: ")
}

// even is a row with a rule.
type even struct{ N int }

func (e *even) Check() error {
	if e.N%2 == 1 {
		return errors.New("odd")
	}
	return nil
}

// Others may have written a file of rows.
func TestRowsAreChecked(t *testing.T) {
	most := maxRow
	maxRow = 1000
	t.Cleanup(func() { maxRow = most })
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	for text, want := range map[string]string{"{\"N\": 2}": "", "{\"N\": 2}\nnull": "rows.jsonl:2: the row is null",
		"{\"N\": 3}": "rows.jsonl:1: odd", strings.Repeat(" ", 1001): "a row has more than 1000 bytes"} {
		must.OK(t, os.WriteFile(path, []byte(text), 0o600))
		var errs [2]error
		for _, err := range ReadRows[even](path) {
			errs[0] = err
		}
		for _, err := range ReadRows[*even](path) {
			errs[1] = err
		}
		must.Match(t, errs[0], want, "values")
		must.Match(t, errs[1], want, "pointers")
	}
}

// Rows within the limit of one row may together take more than the memory.
func TestRowsThatAreKeptHaveALimitOfValues(t *testing.T) {
	s := openStore(t)
	line := "[" + strings.Repeat("0,", mostValues/4) + "0]\n"
	m := commit(t, s, "a", files{"rows.jsonl": strings.Repeat(line, 5)})
	a := must.Get(s.Open(m, "out"))(t)
	_, err := AllRows[[]int8](a, "rows.jsonl")
	must.Match(t, err, "rows.jsonl:4: the row has 1048576 values, and at most 1048544 are read")
	for _, err := range Rows[[]int8](a, "rows.jsonl") {
		must.OK(t, err)
	}
}

// A row of a few kilobytes in gzip can have millions of short values, each of which takes far more memory.
func TestARowHasAtMostAsManyValuesAsAnEpisode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	for n, want := range map[int]string{mostValues: "", mostValues + 2: "values, and at most 4194304 are read"} {
		must.OK(t, os.WriteFile(path, []byte("["+strings.Repeat("0,", n)+"0]\n"), 0o600))
		for _, err := range ReadRows[[]int8](path) {
			must.Match(t, err, want)
		}
	}
}

// A few kilobytes of gzip in a remote store can contain more rows than the memory.
func TestRowsOfAFileHaveALimit(t *testing.T) {
	for name, tc := range map[string]struct {
		line, lines int
		want        string
	}{
		"many rows":  {0, MaxRows + 1, "there are more rows than the limit allows"},
		"many bytes": {16 << 20, FewRowsBytes/(16<<20) + 1, "the rows have more bytes than the limit allows"},
		"few":        {0, 1000, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var packed bytes.Buffer
			z := must.Get(gzip.NewWriterLevel(&packed, gzip.BestSpeed))(t)
			w := bufio.NewWriter(z)
			for line := append(bytes.Repeat([]byte(" "), tc.line), '\n'); tc.lines > 0; tc.lines-- {
				must.Get(w.Write(line))(t)
			}
			must.OK(t, errors.Join(w.Flush(), z.Close()))
			s := openStore(t)
			m := commit(t, s, "a", files{"rows.jsonl.gz": packed.String()})
			a := must.Get(s.Open(m, "out"))(t)
			_, err := AllRows[row](a, "rows.jsonl.gz")
			must.Match(t, err, tc.want)
			for _, err = range ReadRows[row](a.Path("rows.jsonl.gz")) {
			}
			must.Match(t, err, tc.want)
		})
	}
}
