package reports

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
)

// Evidence is what a page was computed from. It stands in the page, packed, so that whoever has the page and the artifacts
// it names can compute every number again.
type Evidence struct {
	Format   int    `json:"format"` // EvidenceFormat
	Name     string `json:"name"`   // of the experiment
	Question string `json:"question,omitempty"`
	Expect   string `json:"expect,omitempty"`

	Notes    []string     `json:"notes,omitempty"`
	Arms     []string     `json:"arms,omitempty"` // labels in the order of the page
	Compare  []Comparison `json:"compare,omitempty"`
	Windows  Windows      `json:"windows"`
	Chosen   []Chosen     `json:"chosen,omitempty"` // sections that the report asked for; none: the usual ones
	Failures []Failure    `json:"failures,omitempty"`

	// Files of the experiment. Pages that were made before these were recorded have none.
	Files []SourceFile `json:"files,omitempty"`

	Inputs  []Input         `json:"inputs"`
	Records []StageEvidence `json:"records"`

	// Sources of the values of the page, and which of them a cell has: "main-test.r3c2" is the second column of the third
	// row of that table; in the data of a figure "fig-reward.c2" is a column, "fig-categories-test.r3" a row, and the
	// figure's id alone stands for all of it.
	Sources []Source       `json:"sources"`
	Cells   map[string]int `json:"cells"`
}

// SourceFile is a file of the experiment as it was when the page was made.
type SourceFile struct {
	Name   string `json:"name"` // without its folder
	SHA256 string `json:"sha256"`
}

// sourceFiles records the experiment's files.
func sourceFiles(x *engine.Experiment) []SourceFile {
	var files []SourceFile
	for _, path := range x.Paths {
		if f := x.Files[path]; f != nil {
			sum := sha256.Sum256(f.Bytes)
			files = append(files, SourceFile{filepath.Base(path), hex.EncodeToString(sum[:])})
		}
	}
	return files
}

// checkFiles compares files of an experiment, by name, with those that the evidence records, and returns a sentence for
// each that is missing, differs or is not recorded; nil where the evidence records none.
func (ev *Evidence) checkFiles(files map[string][]byte) []string {
	if len(ev.Files) == 0 {
		return nil
	}
	var faults []string
	recorded := map[string]bool{}
	for _, f := range ev.Files {
		recorded[f.Name] = true
		text, ok := files[f.Name]
		sum := sha256.Sum256(text)
		if got := hex.EncodeToString(sum[:]); !ok {
			faults = append(faults, fmt.Sprintf("the experiment's file %q is missing", f.Name))
		} else if got != f.SHA256 {
			faults = append(faults, fmt.Sprintf("the experiment's file %q has sha256 %s, the page was made from %s", f.Name, prefix(got, 16), prefix(f.SHA256, 16)))
		}
	}
	for _, name := range sortedKeys(files) {
		if !recorded[name] {
			faults = append(faults, fmt.Sprintf("the page was not made from the experiment's file %q", name))
		}
	}
	return faults
}

// CheckExperiment compares the files of a loaded experiment with those that the evidence records, as Verify does with
// those of a bundle.
func (ev *Evidence) CheckExperiment(x *engine.Experiment) []string {
	files := map[string][]byte{}
	for _, path := range x.Paths {
		files[filepath.Base(path)] = x.Files[path].Bytes
	}
	return ev.checkFiles(files)
}

// EvidenceFormat is the version of Evidence that this program writes and reads.
const EvidenceFormat = 1

// Roles of an Input: the setting of the report that names it.
const (
	roleScores      = "scores"
	roleCurves      = "curves"
	roleData        = "data"
	roleTranscripts = "transcripts"
)

// Input is one artifact that the page read.
type Input struct {
	Role    string       `json:"role"`
	Address string       `json:"address"` // of the stage
	Ref     artifact.Ref `json:"ref"`
	Label   string       `json:"label,omitempty"` // of the arm it belongs to
	Key     string       `json:"key"`
	Digest  string       `json:"digest"`
}

// port is the address of the input's port, as Source.From names it.
func (in *Input) port() string { return in.Address + "." + in.Ref.Port }

// StageEvidence is a stage that the page tells about: its settings, cost and digests are those of the manifest recorded
// under its key.
type StageEvidence struct {
	Address  string            `json:"address"`
	Kind     string            `json:"kind"`
	Key      string            `json:"key,omitempty"`       // "" when the store knew no result
	Manifest string            `json:"manifest,omitempty"`  // fingerprint
	Settings map[string]string `json:"settings,omitempty"`  // of a stage without a result
	NoEffect []string          `json:"no_effect,omitempty"` // settings that change nothing beside the others, by name
}

// fingerprint is the SHA-256 of what a manifest says about how a result was made. What changes without the result
// (files published, bytes collected) is left out.
func fingerprint(m *artifact.Manifest) (string, error) {
	kept := *m
	kept.Published, kept.Collected = nil, time.Time{}
	text, err := json.Marshal(kept)
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), err
}

// evidenceID is the id of the script element that holds the evidence.
const evidenceID = "evidence-of-this-page"

// packedEvidence is the evidence with the sources of every cell of p, as it stands in the page.
func (p *Page) packedEvidence() (string, error) {
	ev := *p.Evidence
	ev.Sources, ev.Cells = nil, map[string]int{}
	at := map[string]int{}
	give := func(cell string, s Source) error {
		if s.By == "" {
			return nil
		}
		text, err := json.Marshal(s)
		if err != nil {
			return err
		}
		i, known := at[string(text)]
		if !known {
			i = len(ev.Sources)
			at[string(text)] = i
			ev.Sources = append(ev.Sources, s)
		}
		ev.Cells[cell] = i
		return nil
	}
	for _, t := range p.tables() {
		for r, row := range t.Rows {
			for c, cell := range row.Cells {
				if err := give(cellID(t.ID, r+1, c+1), cell.Source); err != nil {
					return "", err
				}
			}
		}
	}
	for _, f := range p.figures() {
		sources := f.sources()
		for _, suffix := range sortedKeys(sources) {
			if err := give(f.ID+suffix, sources[suffix]); err != nil {
				return "", err
			}
		}
	}
	text, err := json.Marshal(ev)
	if err != nil {
		return "", err
	}
	return packed(text)
}

// cellID is the id of a cell: row and column count from 1, row 0 is the head.
func cellID(table string, row, column int) string {
	return fmt.Sprintf("%s.r%dc%d", table, row, column)
}

// sources of the figure's data: of the whole ("") or of its columns (".c2") or rows (".r3").
func (f *Figure) sources() map[string]Source {
	sources := map[string]Source{}
	switch {
	case f.Source.By != "":
		sources[""] = f.Source
	case f.Categories != nil:
		row := 0
		for i := range f.Categories {
			for _, s := range f.Series {
				if s.has(i) {
					row++
					sources[fmt.Sprintf(".r%d", row)] = s.Points[i].Source
				}
			}
		}
	case f.Diagonal != "":
		row := 0
		for _, s := range f.Series {
			for _, p := range s.Points {
				row++
				sources[fmt.Sprintf(".r%d", row)] = p.Source
			}
		}
	default:
		column := 1
		for _, s := range f.Series {
			for _, r := range s.Runs {
				column++
				sources[fmt.Sprintf(".c%d", column)] = r.Source
			}
		}
	}
	return sources
}

// evidencePattern finds the packed evidence of a page.
var evidencePattern = pattern(`<script type="application/gzip" id="` + evidenceID + `">([A-Za-z0-9_-]*)</script>`)

// ReadEvidence returns the evidence that stands in an HTML page of this program.
func ReadEvidence(page []byte) (*Evidence, error) {
	found := evidencePattern().FindSubmatch(page)
	if found == nil {
		return nil, errors.New("it carries no evidence: want an HTML page that a report stage made from committed results")
	}
	text, err := unpacked(string(found[1]), maxEvidenceBytes)
	if err != nil {
		return nil, fmt.Errorf("its evidence is damaged: %w", err)
	}
	ev := new(Evidence)
	if err := json.Unmarshal(text, ev); err != nil {
		return nil, fmt.Errorf("its evidence is damaged: %w", err)
	}
	if ev.Format != EvidenceFormat {
		return nil, fmt.Errorf("its evidence has format %d; this program reads %d", ev.Format, EvidenceFormat)
	}
	if err := ev.check(); err != nil {
		return nil, fmt.Errorf("its evidence is damaged: %w", err)
	}
	return ev, nil
}

// Limits of the evidence in a page, and of everything else that is packed in it.
const (
	maxEvidenceBytes = 16 << 20
	maxPackedBytes   = 16 << 20
	maxInputs        = 5_000
	maxRecords       = 5_000
	maxChosen        = 1_000 // sections, pieces in them, pairs, notes, arms
)

// check refuses evidence that no report writes.
func (ev *Evidence) check() error {
	if ev.Name != "" && (ev.Name != filepath.Base(ev.Name) || !filepath.IsLocal(ev.Name)) {
		return fmt.Errorf("it calls the experiment %q, and a name holds no folder", ev.Name)
	}
	if ev.Windows.Early < 1 || ev.Windows.Late < 1 {
		return fmt.Errorf("its windows have %d and %d updates, and a window has at least one", ev.Windows.Early, ev.Windows.Late)
	}
	chosen := len(ev.Chosen) + len(ev.Compare) + len(ev.Notes) + len(ev.Arms) + len(ev.Failures)
	for _, one := range ev.Chosen {
		chosen += len(one.Show)
	}
	for _, one := range ev.Compare {
		chosen += len(one.Pairs)
	}
	for _, count := range []struct {
		n, most int
		what    string
	}{{len(ev.Inputs), maxInputs, "inputs"}, {len(ev.Records), maxRecords, "stages"}, {chosen, maxChosen, "sections, pairs, notes, arms and failures"}} {
		if count.n > count.most {
			return fmt.Errorf("it has %d %s, more than the %d that a page can have", count.n, count.what, count.most)
		}
	}
	return nil
}

// unpacked is the text that packed packed; an error where it has more than limit bytes.
func unpacked(text string, limit int64) ([]byte, error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	all, err := io.ReadAll(io.LimitReader(z, limit+1))
	if err == nil && int64(len(all)) > limit {
		return nil, fmt.Errorf("it unpacks to more than %d bytes", limit)
	}
	return all, err
}

// SourceOf returns the source of a cell by its id, with or without "#".
func (ev *Evidence) SourceOf(cell string) (Source, error) {
	cell = strings.TrimPrefix(cell, "#")
	if s, ok := ev.source(cell); ok {
		return s, nil
	}
	return Source{}, fmt.Errorf("the page has no number %s%s", cell, engine.NearHint(cell, sortedKeys(ev.Cells)))
}

func (ev *Evidence) source(cell string) (Source, bool) {
	stem, place, _ := cutLast(cell, ".")
	candidates := []string{cell, stem}
	if m := placePattern().FindStringSubmatch(place); m != nil {
		candidates = []string{cell, stem + ".c" + m[2], stem + ".r" + m[1], stem}
	}
	for _, id := range candidates {
		if i, ok := ev.Cells[id]; ok && 0 <= i && i < len(ev.Sources) {
			return ev.Sources[i], true
		}
	}
	return Source{}, false
}

var placePattern = pattern(`^r(\d+)c(\d+)$`)

// Stages are the addresses of the stages that a source reads, without the ports, each once.
func (s Source) Stages() []string {
	var stages []string
	for _, from := range s.From {
		if stage, _, ok := cutLast(from, "."); ok && !slices.Contains(stages, stage) {
			stages = append(stages, stage)
		}
	}
	return stages
}
