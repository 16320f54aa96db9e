package reports

// Page is everything a reader sees, in order, as plain values.
type Page struct {
	Title    string
	Question string
	Expect   string
	Answers  []string // one sentence per tested pair of the first comparison
	Facts    []string // what was run: arms, seeds, tasks, and what the numbers cannot say
	Failures []Failure
	Sections []Section
	Arms     []string  // labels in the order of their colours
	Evidence *Evidence // nil for a page of numbers that no store holds
}

// Section is a chapter of the page.
type Section struct {
	ID, Title string
	Lead      string
	Parts     []Part
}

// Part is one thing of a section; exactly one of the first four is set.
type Part struct {
	Table       *Table
	Figure      *Figure
	Transcripts *Transcripts
	Text        string // a paragraph

	set string // of tasks, where there is one such part for each
}

// Failure is a stage whose result is missing.
type Failure struct {
	Address string   `json:"address"`
	Cause   string   `json:"cause"`         // "failed: …", "was skipped: …"
	Log     []string `json:"log,omitempty"` // its last lines, as they were
}

// tables of the page, in order.
func (p *Page) tables() []*Table {
	var all []*Table
	for _, s := range p.Sections {
		for _, part := range s.Parts {
			if part.Table != nil {
				all = append(all, part.Table)
			}
		}
	}
	return all
}

// figures of the page, in order.
func (p *Page) figures() []*Figure {
	var all []*Figure
	for _, s := range p.Sections {
		for _, part := range s.Parts {
			if part.Figure != nil {
				all = append(all, part.Figure)
			}
		}
	}
	return all
}
