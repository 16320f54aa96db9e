package page

import (
	"slices"
)

// Page is everything that a reader sees, in order, as plain values.
type Page struct {
	Title    string    `json:"title"`
	Question string    `json:"question,omitempty"`
	Expect   string    `json:"expect,omitempty"`
	Terms    []Term    `json:"terms,omitempty"`   // words of the question and the arms, below the question
	Answers  []Answer  `json:"answers,omitempty"` // the lines of the first screen, one per outcome of the question
	Effects  []Effect  `json:"effects,omitempty"` // rows of the forest plot: claims on the first set and in training
	Run      string    `json:"run,omitempty"`     // model, tasks, seeds, updates, hours, commit
	Limits   []string  `json:"limits,omitempty"`  // limits of the result, with the notes of the report
	Failures []Failure `json:"failures,omitempty"`
	First    Section   `json:"first"` // forest plots and the table of initialisations and methods, on the first screen
	Sections []Section `json:"sections"`
	Evidence string    `json:"-"`                 // packed; "" for numbers that no store contains
	Sources  []Source  `json:"sources,omitempty"` // sources of all values, each once

	Looks map[string]Look `json:"looks,omitempty"` // looks of the arms, by label

	Drawn bool `json:"drawn"` // Draw has completed the page
}

// Term is a word with its meaning.
type Term struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// Section is a chapter of the page.
type Section struct {
	ID     string `json:"id"`
	Title  string `json:"title"`
	Lead   string `json:"lead,omitempty"`
	Folded bool   `json:"folded,omitempty"` // for reference: behind a fold in HTML
	Parts  []Part `json:"parts,omitempty"`
}

// Part is an element of a section; exactly one of the first three fields is set.
type Part struct {
	Table  *Table  `json:"table,omitempty"`
	Talks  *Talks  `json:"talks,omitempty"`
	Figure *Figure `json:"figure,omitempty"`

	Set string `json:"-"` // set of tasks; "" for a part that does not exist once for each set
}

// Failure is a stage without a result.
type Failure struct {
	Address string   `json:"address"`
	Cause   string   `json:"cause"`         // "failed: …", "was skipped: …"
	Log     []string `json:"log,omitempty"` // its last lines
}

// check is a way to check the page: a sentence and a command.
type check struct{ Text, Command string }

// Checks returns how a reader checks the page; nil without evidence.
func (p *Page) Checks() []check {
	if p.Evidence == "" {
		return nil
	}
	file, cell := Slug(p.Title)+".html", "TABLE.r1c2"
	if tables := p.Tables(); len(tables) > 0 {
		cell = CellID(tables[0].ID, 1, 2)
	}
	return []check{
		{Text: "Every number has an id. Click a number, or press Enter on it, to see its id, its source and the command " +
			"that recomputes it. Ids count rows and columns from 1."},
		{"This recomputes the whole page from the stored artifacts and compares every value and every byte:",
			"rcgrpo verify " + file},
		{"This recomputes one number:", "rcgrpo reproduce '" + file + "#" + cell + "' --run"},
		{"This runs the experiment, and reuses every result that exists:", "rcgrpo run " + Slug(p.Title) + ".hcl"},
	}
}

// Tables returns all tables in their order on the page.
func (p *Page) Tables() []*Table { return collect(p, func(part Part) *Table { return part.Table }) }

// Figures returns all figures in their order on the page.
func (p *Page) Figures() []*Figure { return collect(p, func(part Part) *Figure { return part.Figure }) }

func collect[T any](p *Page, of func(Part) *T) []*T {
	var all []*T
	for part := range p.parts {
		if one := of(*part); one != nil {
			all = append(all, one)
		}
	}
	return all
}

// parts iterates over all parts in their order on the page.
func (p *Page) parts(yield func(*Part) bool) {
	for i := -1; i < len(p.Sections); i++ {
		s := &p.First
		if i >= 0 {
			s = &p.Sections[i]
		}
		for j := range s.Parts {
			if !yield(&s.Parts[j]) {
				return
			}
		}
	}
}

// Trim removes the omitted parts of the section. It keeps a note of several tables only below the first of them.
func (s *Section) Trim() {
	s.Parts = slices.DeleteFunc(s.Parts, func(p Part) bool {
		return p.Table != nil && p.Table.Trim() == nil || p.Figure != nil && p.Figure.Omitted
	})
	seen := map[string]bool{}
	for _, part := range s.Parts {
		if t := part.Table; t != nil {
			t.Notes = slices.DeleteFunc(t.Notes, func(note string) bool { return seen[note] })
			for _, note := range t.Notes {
				seen[note] = true
			}
		}
	}
}

// Parts returns the table as a part; none if it is nil or has no rows.
func (t *Table) Parts(set string) []Part {
	if t == nil || len(t.Rows) == 0 {
		return nil
	}
	return []Part{{Table: t, Set: set}}
}

// Parts returns the figure as a part; none if it is nil or empty.
func (f *Figure) Parts(set string) []Part {
	if f == nil || len(f.Series)+len(f.Effects) == 0 {
		return nil
	}
	return []Part{{Figure: f, Set: set}}
}
