package reports

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/reports/page"
)

// Evidence names the inputs of a page and contains the page as data. The page contains it in packed form, so that a
// reader with the page and its artifacts can recompute every number.
type Evidence struct {
	Format   int    `json:"format"` // EvidenceFormat
	Name     string `json:"name"`   // name of the experiment
	Question string `json:"question,omitempty"`
	Expect   string `json:"expect,omitempty"`

	Notes     []string       `json:"notes,omitempty"`
	Overrides []string       `json:"overrides,omitempty"` // --set of the run
	Arms      []string       `json:"arms,omitempty"`      // labels in the order of the page
	Compare   []Comparison   `json:"compare,omitempty"`
	Maps      []Map          `json:"maps,omitempty"` // map blocks of the report
	Windows   Windows        `json:"windows"`
	Sections  []Section      `json:"chosen,omitempty"` // section blocks of the report
	Failures  []page.Failure `json:"failures,omitempty"`

	References []Reference `json:"references,omitempty"`

	Files []SourceFile `json:"files,omitempty"` // files of the experiment

	Inputs []Input    `json:"inputs"`
	Stages []StageRef `json:"records"`

	Document *page.Page `json:"document"`
}

// EvidenceFormat is the version of the pages that this program writes, verifies and reproduces. It is the version of
// the kind: a page of another version has other text, other tables or other evidence, and would differ from the
// recomputed page although its numbers hold.
const EvidenceFormat = 22

// manifestAddress names the manifest of a stage in a Source.
func manifestAddress(address string) string { return address + ".manifest" }

// SourceFile is a file of the experiment at the time of the page.
type SourceFile struct {
	Name   string `json:"name"` // as in lang.Experiment.SourceFiles
	SHA256 string `json:"sha256"`
}

// CheckFiles compares files of an experiment, by name, with the recorded files. It returns a sentence for each missing,
// different or unrecorded file.
func (ev *Evidence) CheckFiles(files map[string][]byte) []string {
	recorded, names := map[string]string{}, map[string]bool{}
	for _, f := range ev.Files {
		recorded[f.Name], names[f.Name] = f.SHA256, true
	}
	for name := range files {
		names[name] = true
	}
	var faults []string
	for _, name := range sortedKeys(names) {
		text, exists := files[name]
		switch got, want := hexSum(text), recorded[name]; {
		case !exists:
			faults = append(faults, fmt.Sprintf("the experiment's file %q is missing", name))
		case want == "":
			faults = append(faults, fmt.Sprintf("the page was not made from the experiment's file %q", name))
		case got != want:
			faults = append(faults, fmt.Sprintf("the experiment's file %q has sha256 %s, the page was made from %s", name,
				page.Prefix(got, 16), page.Prefix(want, 16)))
		}
	}
	return faults
}

// CheckExperiment returns an error unless a report of the experiment says what the evidence says: its texts, its
// comparisons, and the name and design of each input. No artifact contains these, so Verify takes them from the page.
func (ev *Evidence) CheckExperiment(x *lang.Experiment) error {
	shown := *ev
	shown.Arms, shown.Failures, shown.Files, shown.Stages, shown.Document = nil, nil, nil, nil, nil
	text := func(v any) string {
		b, _ := json.Marshal(v) // has no field that cannot be marshalled
		return string(b)
	}
	present := map[string]bool{} // inputs, without those that failed
	shown.Inputs = slices.DeleteFunc(slices.Clone(ev.Inputs),
		func(in Input) bool { return in.Role == roleCalls || in.Role == roleReplay }) // no report names these
	for i := range shown.Inputs {
		shown.Inputs[i].Key, shown.Inputs[i].Digest = "", ""
		present[text(shown.Inputs[i])] = true
	}
	wanted := text(shown)
	for _, n := range x.Nodes {
		s, ok := n.Stage.(*settings)
		if !ok {
			continue
		}
		said, err := s.declared(x, n)
		if err != nil {
			return err
		}
		said.Arms, said.Files = nil, nil
		if s.Windows == nil {
			said.Windows = ev.Windows // those that fit the trainings
		}
		if said.Compare = (&Study{Compare: said.Compare}).comparisons(); said.Compare == nil {
			said.Compare = ev.Compare // every arm with the first
		}
		said.Inputs = slices.DeleteFunc(said.Inputs, func(in Input) bool { return !present[text(in)] })
		if text(said) == wanted {
			return nil
		}
	}
	return errors.New("no report of the experiment has the names of arms, question, notes, comparisons and sections of " +
		"the page")
}

func hexSum(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Roles of an Input: the setting of the report that refers to it, or the use of an artifact that the report finds
// behind its inputs.
const (
	roleScores      = "scores"
	roleCurves      = "curves"
	roleData        = "data"
	roleTranscripts = "transcripts"

	roleCalls  = "calls"  // record of a stage that sampled from an API model
	roleReplay = "replay" // inputs of a replay of these calls, which the page does not show
)

// Input is an artifact that the page reads.
type Input struct {
	Role    string       `json:"role"`
	Address string       `json:"address"` // address of the stage
	Ref     artifact.Ref `json:"ref"`
	Label   string       `json:"label,omitempty"` // label of its arm
	Design  Design       `json:"design,omitzero"` // design of its arm
	Key     string       `json:"key"`
	Digest  string       `json:"digest"`
}

// port returns the address of the input's port, as in Source.From.
func (in *Input) port() string { return in.Address + "." + in.Ref.Port }

// StageRef names a stage whose settings, cost and digests the page shows. They come from the manifest of its key.
type StageRef struct {
	Address  string   `json:"address"`
	Kind     string   `json:"kind"`
	Key      string   `json:"key"`
	Manifest string   `json:"manifest"`            // fingerprint
	NoEffect []string `json:"no_effect,omitempty"` // settings without effect in combination with the others
	// Card is the file of the result that describes a model or an endpoint, of the digest in the manifest. The page
	// contains it, so that a page is verified without the weights.
	Card string `json:"card,omitempty"`
}

// timed reports whether the stage logged seconds by phase beside its metrics.
func timed(m *artifact.Manifest) bool { return m.Outputs["metrics"].Times != nil }

// ports returns the inputs of the page, and the metrics of the recorded stages whose seconds by phase it shows.
func (ev *Evidence) ports(store *artifact.Store) []Input {
	all, manifest := slices.Clone(ev.Inputs), once(store.Manifest)
	for _, stage := range ev.Stages {
		if m, err := manifest(stage.Key); err == nil && timed(m) {
			all = append(all, Input{Address: stage.Address, Ref: artifact.Ref{Port: "metrics"}, Key: stage.Key})
		}
	}
	return all
}

// once returns a function that calls f once for each key: a stranger's page may name a large record thousands of times.
func once[T any](f func(key string) (T, error)) func(key string) (T, error) {
	known, errs := map[string]T{}, map[string]error{}
	return func(key string) (T, error) {
		if _, again := errs[key]; !again {
			known[key], errs[key] = f(key)
		}
		return known[key], errs[key]
	}
}

// fingerprint returns the SHA-256 of a manifest, or the error of reading it.
func fingerprint(m *artifact.Manifest, err error) (string, error) {
	text, _ := json.Marshal(m) // has no field that cannot be marshalled
	return hexSum(text), err
}

// evidenceID is the id of the script element with the evidence.
const evidenceID = "evidence-of-this-page"

// Packed returns the evidence with the values of p and their sources, as the page contains it.
func (e *Evidence) Packed(p *page.Page) (string, error) {
	if err := p.Draw(); err != nil {
		return "", err
	}
	ev := *e
	ev.Document = p
	text, err := json.Marshal(ev)
	return page.Packed(text), err
}

// packedEvidence returns the packed evidence in an HTML page; "" without one.
func packedEvidence(html []byte) string {
	_, rest, _ := bytes.Cut(html, []byte(`<script type="application/gzip" id="`+evidenceID+`">`))
	content, _, closed := bytes.Cut(rest, []byte("</script>"))
	if !closed {
		return ""
	}
	return string(content)
}

// ReadEvidence returns the evidence in an HTML page of this program.
func ReadEvidence(html []byte) (*Evidence, error) {
	content := packedEvidence(html)
	if content == "" {
		return nil, errors.New("it has no evidence: want an HTML page that a report stage made from committed results")
	}
	text, err := page.Unpacked(content, maxEvidenceBytes)
	if err != nil {
		return nil, fmt.Errorf("its evidence is damaged: %w", err)
	}
	if err := checkVersion(text); err != nil {
		return nil, err
	}
	ev := new(Evidence)
	if err := json.Unmarshal(text, ev); err != nil {
		return nil, fmt.Errorf("its evidence is damaged: %w", err)
	}
	if err := ev.check(); err != nil {
		return nil, fmt.Errorf("its evidence is damaged: %w", err)
	}
	if ev.Document == nil || !ev.Document.Drawn {
		return nil, errors.New("its evidence is damaged: it has no document")
	}
	return ev, nil
}

// checkVersion refuses the evidence of a page of another version. It reads nothing else, because the fields of another
// version may have other types.
func checkVersion(evidence []byte) error {
	var version struct {
		Format int `json:"format"`
	}
	switch err := json.Unmarshal(evidence, &version); {
	case err != nil:
		return fmt.Errorf("its evidence is damaged: %w", err)
	case version.Format < EvidenceFormat:
		return fmt.Errorf("an older version of rcgrpo made the page (page version %d, want %d): renew it with `rcgrpo "+
			"report`, or use the version that made it", version.Format, EvidenceFormat)
	case version.Format > EvidenceFormat:
		return fmt.Errorf("a newer version of rcgrpo made the page (page version %d, want %d): use that version",
			version.Format, EvidenceFormat)
	}
	return nil
}

// Limits of the evidence in a page.
const (
	maxEvidenceBytes = 64 << 20 // with the document
	maxInputs        = 5_000
	maxStages        = 5_000
	maxUses          = 100   // of an artifact in one role, by stages with the same key
	maxChosen        = 1_000 // sections, items, pairs, maps, notes, arms
)

// notes returns the sentences for the head of the page: the overrides of the run first.
func (ev *Evidence) notes() []string {
	var notes []string
	for _, set := range ev.Overrides {
		notes = append(notes, "Override of this run, not in the experiment's file: "+set+".")
	}
	return append(notes, ev.Notes...)
}

// check refuses evidence that no report writes.
func (ev *Evidence) check() error {
	if ev.Name != "" && (ev.Name != filepath.Base(ev.Name) || !filepath.IsLocal(ev.Name)) {
		return fmt.Errorf("it calls the experiment %q, but a name contains no folder", ev.Name)
	}
	if early, late := ev.Windows.Early, ev.Windows.Late; early < 0 || late < 0 || (early == 0) != (late == 0) {
		return fmt.Errorf("its windows have %d and %d updates, but a page has two windows or none", early, late)
	}
	chosen := len(ev.Sections) + len(ev.Compare) + len(ev.Maps) + len(ev.Notes) + len(ev.Overrides) + len(ev.Arms) +
		len(ev.Failures)
	for _, one := range ev.Sections {
		chosen += len(one.Show)
	}
	for _, one := range ev.Compare {
		chosen += len(one.Pairs)
		if slices.ContainsFunc(one.Pairs, func(pair []string) bool { return len(pair) != 2 }) {
			return fmt.Errorf("a pair of the comparison %q does not name two arms", one.Label)
		}
	}
	for i := range ev.References {
		if faults := ev.References[i].faults(); len(faults) > 0 {
			return fmt.Errorf("the reference %q: %s", ev.References[i].Name, faults[0].Detail)
		}
		chosen += len(ev.References[i].Counts) + len(ev.References[i].Others)
	}
	uses, most, named := map[string]int{}, 0, map[string]bool{}
	for _, in := range ev.Inputs {
		if use := in.Role + " " + in.Key + in.Ref.Port; in.Role != roleReplay { // several stages play the same tasks
			uses[use]++
			most = max(most, uses[use])
		}
	}
	limit := func(n, most int, items string) error {
		if n > most {
			return fmt.Errorf("it has %d %s, more than the %d that a page can have", n, items, most)
		}
		return nil
	}
	if err := cmp.Or(limit(len(ev.Inputs), maxInputs, "inputs"), limit(len(ev.Stages), maxStages, "stages"),
		limit(most, maxUses, "uses of one artifact"),
		limit(chosen, maxChosen, "sections, pairs, maps, notes, arms and failures")); err != nil {
		return err
	}
	for _, stage := range ev.Stages {
		if named[stage.Address] {
			return fmt.Errorf("it names the stage %s twice", stage.Address)
		}
		named[stage.Address] = true
	}
	return nil
}

// Value returns a value of the page that has a source, by its id with or without "#".
func (ev *Evidence) Value(id string) (page.Value, error) {
	id = strings.TrimPrefix(id, "#")
	if v, _ := ev.Document.Value(id); v.Source.By != "" {
		return v, nil
	}
	var ids []string
	for v := range ev.Document.Values {
		if v.Source.By != "" {
			ids = append(ids, v.ID())
		}
	}
	return page.Value{}, fmt.Errorf("the page has no number %s%s", id, lang.NearHint(id, ids))
}
