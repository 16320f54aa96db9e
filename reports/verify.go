package reports

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"html"
	"regexp"
	"slices"
	"strings"
	"sync"

	"rcgrpo/engine/artifact"
)

// Verification is what Verify found.
type Verification struct {
	Cells       int `json:"cells"`       // of tables
	Values      int `json:"values"`      // in the data of figures
	Transcripts int `json:"transcripts"` // arms whose transcripts the page shows
	Artifacts   int `json:"artifacts"`   // that were read, with every byte hashed
	Files       int `json:"files"`       // of the experiment, compared with those that the page was made from

	NotCovered  []string     `json:"not_covered,omitempty"` // sentences about what was compared with nothing
	Faults      []string     `json:"faults,omitempty"`      // artifacts, records and files that are not those of the page
	Differences []Difference `json:"differences,omitempty"` // between the page and what follows from the artifacts
}

// Difference is one thing of the page that is not what follows from its evidence.
type Difference struct {
	Where      string `json:"where"` // id of a cell ("main-test.r1c2"), "fig-reward.r3c2", or a place of the page
	Shown      string `json:"shown"`
	Recomputed string `json:"recomputed"` // "" where it could not be computed again
	Source     string `json:"source,omitempty"`
}

// OK says that nothing differs.
func (v *Verification) OK() bool { return len(v.Faults) == 0 && len(v.Differences) == 0 }

// NumbersHold says that every artifact is as recorded and every cell and value as recomputed, whatever else differs.
func (v *Verification) NumbersHold() bool {
	return len(v.Faults) == 0 && !slices.ContainsFunc(v.Differences, func(d Difference) bool { return !strings.Contains(d.Where, " ") }) // places have words, cells an id
}

// Verify computes a page again from the artifacts in a store (a folder that a bundle was unpacked into is one) and
// compares: each byte of the artifacts with its record, each cell and each byte of the page with what comes out. It
// fails only when the page carries no evidence; whatever is wrong stands in the result.
func Verify(page []byte, store *artifact.Store) (*Verification, error) {
	return verify(page, store, nil)
}

// VerifyBundle is Verify with the artifacts of a bundle. It also compares the experiment's files in the bundle with
// those that the page was made from. page is the bundle's own or another one.
func VerifyBundle(page []byte, b *Bundle) (*Verification, error) {
	return verify(page, b.Store, b.Files)
}

// verify is Verify; experiment is nil where no files of the experiment are at hand.
func verify(page []byte, store *artifact.Store, experiment map[string][]byte) (*Verification, error) {
	ev, err := ReadEvidence(page)
	if err != nil {
		return nil, err
	}
	v := new(Verification)
	switch {
	case experiment == nil:
	case len(ev.Files) == 0:
		v.NotCovered = append(v.NotCovered, "The page was made before pages recorded the experiment's files: those of the bundle were compared with nothing. Read them before you run them.")
	default:
		v.Files = len(experiment)
		v.Faults = append(v.Faults, ev.checkFiles(experiment)...)
	}
	shown := readPage(page)
	v.Cells, v.Transcripts = len(shown.cells), len(shown.talks)
	for _, f := range shown.figures {
		v.Values += f.values()
	}
	damaged := v.checkArtifacts(ev, store)
	if len(damaged) > 0 { // nothing follows from them
		v.notComputed(ev, shown, damaged)
		return v, nil
	}
	study, err := gather(ev, opener(store), store)
	if err != nil {
		v.Faults = append(v.Faults, err.Error())
		return v, nil
	}
	if err := study.checkSize(); err != nil {
		v.Faults = append(v.Faults, err.Error())
		return v, nil
	}
	var again bytes.Buffer
	if err := ev.page(study).HTML(&again); err != nil {
		return nil, err
	}
	if !bytes.Equal(page, again.Bytes()) {
		v.compare(ev, shown, readPage(again.Bytes()))
	}
	return v, nil
}

// Limits of a page that is computed again: task sets, and cells of its tables or values of a figure.
const (
	maxSets  = 100
	maxCells = 2_000_000
)

// checkSize refuses a study whose page would be larger than a page of real results can be: a few bytes of an artifact
// can name a task set, a category or an update of their own.
func (s *Study) checkSize() error {
	sets, categories, tasks, updates := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[int]bool{}
	runs, pairs := 0, len(s.Arms)
	for i := range s.Arms {
		for _, r := range s.Arms[i].Runs {
			runs++
			for _, row := range r.Scores {
				sets[row.Set], categories[row.Category], tasks[row.Set+"\x00"+row.Task] = true, true, true
			}
			for _, row := range r.Curve {
				updates[row.Update] = true
			}
			for _, row := range r.Tuning {
				updates[row.Update] = true
			}
		}
	}
	for _, d := range s.Data {
		for _, task := range d.Tasks {
			categories[task.Category] = true
		}
	}
	for _, c := range s.Compare {
		pairs += len(c.Pairs)
	}
	const columns = 20 // at least as many as any table has beside its categories
	rows := len(sets)*(runs+pairs) + len(s.Data)
	for _, size := range []struct {
		n    int
		what string
	}{
		{len(sets) * (maxCells / maxSets), fmt.Sprintf("%d task sets", len(sets))},
		{rows * (len(categories) + columns), fmt.Sprintf("%d task sets, %d categories, %d runs and %d pairs", len(sets), len(categories), runs, pairs)},
		{len(tasks) * len(s.Arms), fmt.Sprintf("%d tasks and %d arms", len(tasks), len(s.Arms))},
		{len(updates) * runs, fmt.Sprintf("%d updates and %d runs", len(updates), runs)},
	} {
		if size.n > maxCells {
			return fmt.Errorf("the artifacts have %s, more than a page can show: nothing was computed again", size.what)
		}
	}
	return nil
}

// checkArtifacts hashes everything that the page rests on and returns the ports and records that are missing
// or damaged. What was made again with another outcome is a fault, but can be computed with.
func (v *Verification) checkArtifacts(ev *Evidence, store *artifact.Store) map[string]bool {
	damaged := map[string]bool{}
	seen := map[string]bool{} // key and port
	check := func(address, port, key, digest string) {
		bad := func(format string, args ...any) {
			v.Faults = append(v.Faults, address+"."+port+": "+fmt.Sprintf(format, args...))
		}
		if seen[key+"."+port] {
			return
		}
		seen[key+"."+port] = true
		v.Artifacts++
		m, err := store.Manifest(key)
		if err != nil {
			damaged[address+"."+port] = true
			bad("key %s: %v", prefix(key, 16), err)
			return
		}
		if got := m.Outputs[port].Digest; digest != "" && got != digest {
			bad("the store records digest %s, the page was made from %s", prefix(got, 16), prefix(digest, 16))
		}
		for _, p := range store.CheckPort(m, port) {
			damaged[address+"."+port] = true
			bad("%s is %s", p.Path, p.What)
		}
	}
	for i := range ev.Inputs {
		in := &ev.Inputs[i]
		check(in.Address, in.Ref.Port, in.Key, in.Digest)
	}
	for _, stage := range ev.Records {
		if stage.Key == "" {
			continue
		}
		m, err := store.Manifest(stage.Key)
		if err != nil {
			damaged[manifestOf(stage.Address)] = true
			v.Faults = append(v.Faults, fmt.Sprintf("%s: record %s: %v", stage.Address, prefix(stage.Key, 16), err))
			continue
		}
		if got, err := fingerprint(m); err != nil || got != stage.Manifest {
			v.Faults = append(v.Faults, stage.Address+": its record is not the one that the page was made from (it was made again, or edited)")
		}
		if m.Outputs["metrics"].Times != nil { // seconds by phase
			check(stage.Address, "metrics", stage.Key, "")
		}
	}
	return damaged
}

// notComputed lists the cells that rest on damaged artifacts.
func (v *Verification) notComputed(ev *Evidence, shown *pageText, damaged map[string]bool) {
	for _, id := range shown.order {
		s, ok := ev.source(id)
		if ok && slices.ContainsFunc(s.From, func(from string) bool { return damaged[from] }) {
			v.Differences = append(v.Differences, Difference{Where: id, Shown: shown.cells[id].text, Source: s.String()})
		}
	}
}

// compare lists what differs between the page and the recomputed one.
func (v *Verification) compare(ev *Evidence, shown, again *pageText) {
	differ := func(where, a, b string) {
		if a == b {
			return
		}
		s, _ := ev.source(where)
		v.Differences = append(v.Differences, Difference{where, a, b, s.String()})
	}
	for _, id := range union(shown.order, again.order) {
		a, b := shown.cells[id], again.cells[id]
		if a.text != b.text {
			differ(id, a.text, b.text)
		} else {
			differ(id+" (markup)", a.raw, b.raw)
		}
	}
	for _, id := range union(shown.figureOrder, again.figureOrder) {
		before := len(v.Differences)
		a, b := shown.figures[id], again.figures[id]
		for r := range max(len(a.rows), len(b.rows)) {
			for c := range max(a.width(r), b.width(r)) {
				differ(cellID(id, r, c+1), a.cell(r, c), b.cell(r, c))
			}
		}
		if len(v.Differences) == before {
			differ(id+" (packed data)", a.packed, b.packed)
		}
		differ(id+" (drawing)", a.options, b.options)
	}
	for i := range max(len(shown.talks), len(again.talks)) {
		if a, b := at(shown.talks, i), at(again.talks, i); a != b {
			was, err := unpacked(a, maxPackedBytes)
			is, err2 := unpacked(b, maxPackedBytes)
			if err != nil || err2 != nil {
				was, is = []byte(a), []byte(b)
			}
			x, y := around(string(was), string(is))
			v.Differences = append(v.Differences, Difference{Where: fmt.Sprintf("transcripts, block %d", i+1), Shown: x, Recomputed: y})
		}
	}
	before := len(v.Differences)
	a, b := strings.Split(shown.rest, "\n"), strings.Split(again.rest, "\n")
	for i := range max(len(a), len(b)) {
		if x, y := at(a, i), at(b, i); x != y {
			x, y = around(x, y)
			v.Differences = append(v.Differences, Difference{Where: fmt.Sprintf("line %d of the rest of the page", i+1), Shown: x, Recomputed: y})
			if len(v.Differences)-before == 20 {
				break // one line too many moves all the others
			}
		}
	}
}

func at(list []string, i int) string {
	if i < len(list) {
		return list[i]
	}
	return ""
}

// union is the elements of both lists, those of the first in their order before the others.
func union(a, b []string) []string {
	all := slices.Clone(a)
	known := map[string]bool{}
	for _, id := range a {
		known[id] = true
	}
	for _, id := range b {
		if !known[id] {
			all = append(all, id)
		}
	}
	return all
}

// around cuts two long texts to the neighbourhood of the first byte that differs.
func around(a, b string) (string, string) {
	first := 0
	for first < min(len(a), len(b)) && a[first] == b[first] {
		first++
	}
	cut := func(s string) string {
		from, to := max(0, first-30), min(len(s), first+60)
		text := s[min(from, len(s)):to]
		if from > 0 {
			text = "…" + text
		}
		if to < len(s) {
			text += "…"
		}
		return strings.ToValidUTF8(text, "�")
	}
	return cut(a), cut(b)
}

// pageText is an HTML page of ours taken apart.
type pageText struct {
	cells       map[string]cellText
	order       []string // ids of cells
	figures     map[string]figureText
	figureOrder []string
	talks       []string // packed transcripts
	rest        string   // what remains without all these
}

type cellText struct {
	words string // without details
	text  string // as a reader sees it, details in parentheses
	raw   string // the element
	left  bool   // words at the left of a row: part of its name
}

// figureText is a figure's data as CSV, and the options of its drawing.
type figureText struct {
	rows    [][]string // the first is the head
	packed  string
	options string
}

func (f figureText) width(row int) int {
	if row < len(f.rows) {
		return len(f.rows[row])
	}
	return 0
}

func (f figureText) cell(row, column int) string {
	if row < len(f.rows) && column < len(f.rows[row]) {
		return f.rows[row][column]
	}
	return ""
}

// values are the filled cells below the head and right of the first column.
func (f figureText) values() int {
	n := 0
	for r := 1; r < len(f.rows); r++ {
		for _, cell := range f.rows[r][1:] {
			if cell != "" {
				n++
			}
		}
	}
	return n
}

var (
	cellPattern    = pattern(`(?s)<t[dh][^>]* id="([^"]+\.r\d+c\d+)"([^>]*)>(.*?)</t[dh]>`)
	detailPattern  = pattern(`(?s)<span class="detail">(.*?)</span>`)
	tagPattern     = pattern(`<[^>]*>`)
	figurePattern  = pattern(`id="([^"]+)-csv" data-file="[^"]*" data-packed="([^"]*)"`)
	optionsPattern = pattern(`<script type="application/json" id="([^"]+)-options">(.*?)</script>`)
	talksPattern   = pattern(`<details class="talks" data-packed="([^"]*)">`)
)

// pattern is a regular expression that is compiled when it is first asked for, as most commands need none.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

func readPage(page []byte) *pageText {
	p := &pageText{cells: map[string]cellText{}, figures: map[string]figureText{}}
	left := int64(maxPackedBytes) // that figures may unpack to, all together
	text := string(page)
	if lib, err := library(); err == nil { // a megabyte that holds none of what is looked for
		text = strings.Replace(text, lib, "", 1)
	}
	// take calls found with each match and its groups, and leaves a mark in its place.
	take := func(pattern *regexp.Regexp, found func(m []string)) {
		text = pattern.ReplaceAllStringFunc(text, func(whole string) string {
			found(pattern.FindStringSubmatch(whole))
			return "\x00"
		})
	}
	take(cellPattern(), func(m []string) {
		id := m[1]
		if _, twice := p.cells[id]; twice {
			id += " (again)"
		}
		p.order = append(p.order, id)
		details := ""
		for _, d := range detailPattern().FindAllStringSubmatch(m[3], -1) {
			details += " · " + d[1]
		}
		plain := func(markup string) string { return html.UnescapeString(tagPattern().ReplaceAllString(markup, "")) }
		cell := cellText{words: plain(detailPattern().ReplaceAllString(m[3], "")), raw: m[0], left: strings.Contains(m[2], `class="left`)}
		if cell.text = cell.words; details != "" {
			cell.text += " (" + plain(strings.TrimPrefix(details, " · ")) + ")"
		}
		p.cells[id] = cell
	})
	take(figurePattern(), func(m []string) {
		f := figureText{packed: m[2]}
		if csvText, err := unpacked(m[2], left); err == nil {
			left -= int64(len(csvText))
			r := csv.NewReader(bytes.NewReader(csvText))
			r.FieldsPerRecord = -1
			f.rows, _ = r.ReadAll() // a damaged one shows as packed data that differ
		}
		p.figureOrder = append(p.figureOrder, m[1])
		p.figures[m[1]] = f
	})
	take(optionsPattern(), func(m []string) {
		f := p.figures[m[1]]
		f.options = m[2]
		p.figures[m[1]] = f
	})
	take(talksPattern(), func(m []string) { p.talks = append(p.talks, m[1]) })
	p.rest = text
	return p
}

// name is what a cell is called by its row and column, which tells it from all others of its table, also where other
// rows and columns are not there: "SFT + GRPO | Overall".
func (p *pageText) name(id string) (string, error) {
	table, place, _ := cutLast(strings.TrimPrefix(id, "#"), ".")
	var row, column int
	if _, err := fmt.Sscanf(place, "r%dc%d", &row, &column); err != nil {
		return "", fmt.Errorf("%q is no cell: want TABLE.rROWcCOLUMN, such as main-test.r1c2", id)
	}
	if f, ok := p.figures[table]; ok {
		if row < 1 || f.cell(row, column-1) == "" {
			return "", fmt.Errorf("the data of figure %s have no value at %s", table, place)
		}
		return f.name(row, column-1), nil
	}
	if _, ok := p.cells[cellID(table, row, column)]; !ok || row < 1 {
		return "", fmt.Errorf("the page has no cell %s", id)
	}
	return p.rowName(table, row) + " | " + p.cells[cellID(table, 0, column)].text, nil
}

// rowName is the words at the left of a row, without their details.
func (p *pageText) rowName(table string, row int) string {
	var words []string
	for c := 1; ; c++ {
		cell, ok := p.cells[cellID(table, row, c)]
		if !ok || !cell.left {
			break
		}
		words = append(words, cell.words)
	}
	return strings.Join(words, " | ")
}

// name of a figure's value: the first columns that say what it is of, and its column.
func (f figureText) name(row, column int) string {
	words := []string{f.rows[row][0]}
	for c := 1; c < column && slices.Contains([]string{"series", "task", "seed"}, f.rows[0][c]); c++ {
		words = append(words, f.rows[row][c])
	}
	return strings.Join(append(words, f.rows[0][column]), " | ")
}

// find returns the text of the cell of that table or figure and name.
func (p *pageText) find(table, name string) (text string, ok bool) {
	if f, isFigure := p.figures[table]; isFigure {
		for r := 1; r < len(f.rows); r++ {
			for c := 1; c < len(f.rows[r]); c++ {
				if f.name(r, c) == name {
					return f.rows[r][c], true
				}
			}
		}
		return "", false
	}
	for r := 1; ; r++ {
		if _, ok := p.cells[cellID(table, r, 1)]; !ok {
			return "", false
		}
		row := p.rowName(table, r)
		for c := 1; ; c++ {
			cell, ok := p.cells[cellID(table, r, c)]
			if !ok {
				break
			}
			if row+" | "+p.cells[cellID(table, 0, c)].text == name {
				return cell.text, true
			}
		}
	}
}
