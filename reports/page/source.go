package page

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Value is a value of a table, or of the data of a figure, with its place.
type Value struct {
	In          string        // id of the table or figure
	Row, Column int           // from 1; row 0 is the head
	Name        func() string // of its row and column, which another version of the page may have elsewhere; "" for a head
	Text        string
	Figure      bool
	Source      Source // By is "" without one
	SourceAt    int    // as Cell.SourceAt
}

// ID returns the id of the value on the page: "main-test.r3c2".
func (v *Value) ID() string { return CellID(v.In, v.Row, v.Column) }

// Values iterates over all values of the page. The leading columns of text name a row of a table, after its group if it
// has no arm; the first column, and the following series, task and seed, name a row of a figure.
func (p *Page) Values(yield func(Value) bool) {
	for part := range p.parts {
		in, rows, name, source := part.values()
		for r, cells := range rows {
			v := Value{In: in, Row: r, Figure: part.Table == nil, Name: func() string { return "" }}
			for c, text := range cells {
				v.Column, v.Text = c+1, text
				if r > 0 && c < len(rows[0]) {
					v.Name = func() string { return name(r) + " | " + rows[0][c] }
					if v.SourceAt, v.Source = source(r, c), (Source{}); 0 < v.SourceAt && v.SourceAt <= len(p.Sources) {
						v.Source = p.Sources[v.SourceAt-1]
					}
				}
				if !yield(v) {
					return
				}
			}
		}
	}
}

// values returns the values of a table or figure with their heads, the names of the rows and the numbers of the sources
// of values; none of transcripts.
func (part *Part) values() (in string, rows [][]string, name func(row int) string, source func(row, column int) int) {
	if t := part.Table; t != nil {
		rows = [][]string{nil}
		for _, c := range t.Columns {
			rows[0] = append(rows[0], c.Name)
		}
		rows = append(rows, t.rows(func(_, _ int, c Cell) string { return c.Line() })...)
		return t.ID, rows, t.rowName, func(row, column int) int {
			if cells := t.Rows[row-1].Cells; column < len(cells) {
				return cells[column].SourceAt
			}
			return 0
		}
	}
	f := part.Figure
	if f == nil {
		return "", nil, nil, nil
	}
	rows, names, more := Inert(f.CSV()), 1, []string{"series", "task", "seed"}
	for len(rows) > 0 && names < len(rows[0]) && slices.Contains(more, rows[0][names]) {
		names++
	}
	return f.ID, rows, func(row int) string { return strings.Join(rows[row][:min(names, len(rows[row]))], " | ") },
		func(row, column int) int {
			return cmp.Or(f.Sources[fmt.Sprintf(".c%d", column+1)], f.Sources[fmt.Sprintf(".r%d", row)], f.Sources[""])
		}
}

// rowName returns the name of a row, which counts from 1.
func (t *Table) rowName(row int) string {
	var names []string
	one := t.Rows[row-1]
	if one.Group != "" && one.Arm == NoArm {
		names = append(names, one.Group)
	}
	for c, cell := range one.Cells {
		if c >= len(t.Columns) || !t.Columns[c].Left {
			break
		}
		names = append(names, cell.Text)
	}
	return strings.Join(names, " | ")
}

// Value returns the value with an id.
func (p *Page) Value(id string) (Value, bool) {
	for v := range p.Values {
		if v.ID() == id {
			return v, true
		}
	}
	return Value{}, false
}

// CellID returns the id of a cell. Row and column count from 1, row 0 is the head.
func CellID(table string, row, column int) string {
	return fmt.Sprintf("%s.r%dc%d", table, row, column)
}

// ParseCell splits the id of a cell. ok is false for any other text.
func ParseCell(id string) (table string, row, column int, ok bool) {
	table, place, _ := CutLast(id, ".")
	_, err := fmt.Sscanf(place, "r%dc%d", &row, &column)
	return table, row, column, err == nil && id == CellID(table, row, column)
}

// Source names the origin of a value, so that a reader can recompute it.
type Source struct {
	// ports by address: `stage.eval.arm["SFT"]@1.scores`; `….manifest` for records of a stage
	From []string `json:"from"`
	Rows string   `json:"rows,omitempty"` // selected rows of the ports: "set test, token high, greedy"; "" for all
	By   string   `json:"by"`             // method: "share of reward 1, Wilson interval"
}

// SourceOf returns the source of a value that is computed from one port.
func SourceOf(from, rows, by string) Source { return Source{From: []string{from}, Rows: rows, By: by} }

// String returns the source in one line: "share of reward 1 — set test, greedy — stage.eval.arm["SFT"]@1,2.scores".
func (s Source) String() string {
	parts := []string{s.By, s.Rows, strings.Join(joinSeeds(s.From), ", ")}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), " — ")
}

// Stages returns the addresses of the stages of the source, each once.
func (s Source) Stages() []string {
	var stages []string
	for _, from := range s.From {
		if stage, _, ok := CutLast(from, "."); ok && !slices.Contains(stages, stage) {
			stages = append(stages, stage)
		}
	}
	return stages
}

// joinSeeds joins addresses that differ only by their seed: `stage.sft.warm@1,2.metrics`.
func joinSeeds(addresses []string) []string {
	var joined []string
	at := map[[2]string]int{} // by stage and port
	for _, address := range addresses {
		stage, rest, seeded := CutLast(address, "@")
		seed, port, dotted := strings.Cut(rest, ".")
		seeded = seeded && dotted && !strings.ContainsAny(rest, `"]`) // a for_each key may contain an @
		if i, known := at[[2]string{stage, port}]; seeded && known {
			before, _, _ := CutLast(joined[i], ".")
			joined[i] = before + "," + seed + "." + port
			continue
		} else if seeded {
			at[[2]string{stage, port}] = len(joined)
		}
		joined = append(joined, address)
	}
	return joined
}

// CutLast splits a text at the last separator, like strings.Cut.
func CutLast(s, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// Together returns the union of the ports of several sources, in order of appearance.
func Together(by, rows string, sources ...Source) Source {
	s := Source{Rows: rows, By: by}
	for _, one := range sources {
		for _, from := range one.From {
			if !slices.Contains(s.From, from) {
				s.From = append(s.From, from)
			}
		}
	}
	return s
}

// sources returns the sources of the figure's data: of the whole ("") or of its columns (".c2") or rows (".r3").
func (f *Figure) sources() map[string]Source {
	if f.Source.By != "" {
		return map[string]Source{"": f.Source}
	}
	sources := map[string]Source{}
	for i := range f.Effects {
		sources[fmt.Sprintf(".r%d", i+1)] = f.Effects[i].Source
	}
	for _, p := range f.Points {
		sources[fmt.Sprintf(".r%d", len(sources)+1)] = p.Source
	}
	for _, s := range f.Series {
		for _, r := range s.Curves {
			sources[fmt.Sprintf(".c%d", len(sources)+2)] = r.Source
		}
	}
	return sources
}

// Packed returns text as gzip in base64, in the alphabet that requires no escapes in an attribute. The page's script
// unpacks it.
func Packed(text []byte) string {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is valid, and a buffer accepts every write
	z.Write(text)
	z.Close()
	return base64.RawURLEncoding.EncodeToString(b.Bytes())
}

// Unpacked inverts Packed. A text of more than limit bytes is an error.
func Unpacked(text string, limit int64) ([]byte, error) {
	z, err := gzip.NewReader(base64.NewDecoder(base64.RawURLEncoding, strings.NewReader(text)))
	if err != nil {
		return nil, err
	}
	all, err := io.ReadAll(io.LimitReader(z, limit+1))
	if err == nil && int64(len(all)) > limit {
		return nil, fmt.Errorf("it unpacks to more than %d bytes", limit)
	}
	return all, err
}
