package page

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Grid holds the values of a table or a figure as text.
type Grid struct {
	ID   string
	Head []string
	Rows []GridRow
}

// GridRow is a row of a Grid. Name consists of the cells that identify the row.
type GridRow struct {
	Name  string
	Cells []string
}

// grid returns the values of the table. The leading columns of text identify a row, after its group if it has no arm.
func (t *Table) grid() Grid {
	g := Grid{ID: t.ID}
	for _, c := range t.Columns {
		g.Head = append(g.Head, c.Name)
	}
	for _, row := range t.Rows {
		var out GridRow
		var names []string
		if row.Group != "" && row.Arm == NoArm {
			names = append(names, row.Group)
		}
		heads := len(names)
		for c, cell := range row.Cells {
			out.Cells = append(out.Cells, cell.Line())
			if c < len(t.Columns) && t.Columns[c].Left && len(names) == c+heads {
				names = append(names, cell.Text)
			}
		}
		out.Name = strings.Join(names, " | ")
		g.Rows = append(g.Rows, out)
	}
	return g
}

// figureGrid returns the data of a figure, the first row being the head. The first column and the following series,
// task and seed identify a row.
func figureGrid(id string, data [][]string) Grid {
	g := Grid{ID: id}
	if len(data) == 0 {
		return g
	}
	g.Head = data[0]
	names := 1
	for names < len(g.Head) && slices.Contains([]string{"series", "task", "seed"}, g.Head[names]) {
		names++
	}
	for _, row := range data[1:] {
		g.Rows = append(g.Rows, GridRow{strings.Join(row[:min(names, len(row))], " | "), row})
	}
	return g
}

// Values iterates over the id and the text of every value, including the heads of a table (row 0).
func (g *Grid) Values(yield func(id, text string) bool) {
	for r, row := range slices.Concat([]GridRow{{Cells: g.Head}}, g.Rows) {
		for c, text := range row.Cells {
			if !yield(CellID(g.ID, r, c+1), text) {
				return
			}
		}
	}
}

// Name returns the name of a value, which consists of those of its row and its column.
func (g *Grid) Name(row, column int) string { return g.Rows[row].Name + " | " + g.Head[column] }

// Grids returns the values of all tables, and those of all figures.
func (p *Page) Grids() (tables, figures []Grid) {
	for part := range p.parts {
		switch {
		case part.Table != nil:
			tables = append(tables, part.Table.grid())
		case part.Drawing != nil:
			figures = append(figures, figureGrid(part.Drawing.ID, part.Drawing.Data))
		case part.Figure != nil:
			figures = append(figures, figureGrid(part.Figure.ID, Inert(part.Figure.CSV())))
		}
	}
	return tables, figures
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

// Sources returns the sources of the figure's data: of the whole ("") or of its columns (".c2") or rows (".r3").
func (f *Figure) Sources() map[string]Source {
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
