package reports

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/remote"
	"rcgrpo/reports/page"
)

// Verification is the result of Verify.
type Verification struct {
	Cells       int `json:"cells"`       // cells of tables
	Values      int `json:"values"`      // values in the data of figures
	Transcripts int `json:"transcripts"` // arms whose transcripts the page shows
	Artifacts   int `json:"artifacts"`   // artifacts that were hashed completely
	Files       int `json:"files"`       // files of the experiment, compared with the recorded files
	Calls       int `json:"calls"`       // calls of API models, whose episodes the caller has replayed

	Recorded    []Recorded   `json:"-"`                     // sampled from API models; the caller replays them
	Faults      []string     `json:"faults,omitempty"`      // artifacts, records and files that are not those of the page
	Differences []Difference `json:"differences,omitempty"` // between the page and the recomputed page

	sources map[int]string // texts of sources by their number: many values may have one that is long
}

// Difference is a part of the page that does not follow from its evidence.
type Difference struct {
	Where      string `json:"where"` // id of a value ("main-test.r1c2", "fig-reward.r3c2"), or a line of the page
	Shown      string `json:"shown"`
	Recomputed string `json:"recomputed"` // "" if it could not be recomputed
	Source     string `json:"source,omitempty"`
}

// OK reports whether nothing differs.
func (v *Verification) OK() bool { return len(v.Faults) == 0 && len(v.Differences) == 0 }

// ValuesHold reports whether every artifact is as recorded, and every value in the document of the page as recomputed.
// The text that the file shows may differ, in numbers too: only the first place is known where it does (checkBytes).
func (v *Verification) ValuesHold() bool {
	return len(v.Faults) == 0 && !slices.ContainsFunc(v.Differences,
		func(d Difference) bool { return !strings.Contains(d.Where, " ") })
}

// Verify recomputes a page from the artifacts in a store and compares: every byte of the artifacts with the recorded
// digests, every value and every byte of the page with the recomputed page. It compares the experiment's files, by
// name, with the recorded files unless they are nil. It fetches what the store lacks from r unless that is nil. The
// error reports a page without evidence; everything else is in the result.
func Verify(written []byte, store *artifact.Store, experiment map[string][]byte, r *remote.Remote) (*Verification,
	error) {
	ev, err := ReadEvidence(written)
	if err != nil {
		return nil, err
	}
	v := &Verification{Files: len(experiment)}
	v.checkBytes(ev, written)
	if experiment != nil {
		v.Faults = ev.CheckFiles(experiment)
	}
	v.count(ev)
	if err := ev.fetch(store, r); err != nil {
		v.Faults = append(v.Faults, fmt.Sprintf("the remote store: %v", err))
	}
	v.Recorded = ev.recorded(store)
	if damaged := v.checkArtifacts(ev, store); len(damaged) > 0 {
		lost := map[int]bool{} // sources by their number
		for i, source := range ev.Document.Sources {
			lost[i+1] = slices.ContainsFunc(source.From, func(from string) bool { return damaged[from] })
		}
		for one := range ev.Document.Values { // those of tables cannot be recomputed
			if !one.Figure && lost[one.SourceAt] {
				v.differ(one, "")
			}
		}
		return v, nil
	}
	study, err := gather(ev, opener(store), store)
	if err != nil {
		v.Faults = append(v.Faults, err.Error())
		return v, nil
	}
	again := study.Page()
	if again.Evidence, err = ev.Packed(again); err != nil {
		return nil, err
	}
	if again.Evidence != packedEvidence(written) {
		v.compareValues(ev, again)
	}
	return v, nil
}

// checkBytes writes the page again from its own document, and reports the first place where the file differs.
func (v *Verification) checkBytes(ev *Evidence, written []byte) {
	var again bytes.Buffer
	ev.Document.Evidence = packedEvidence(written)
	if err := ev.Document.HTML(&again); err != nil {
		v.Differences = append(v.Differences, Difference{Where: "the document of the page", Shown: err.Error()})
		return
	}
	if shown, text := string(written), again.String(); shown != text {
		at := lang.CommonPrefix(shown, text)
		where := place(text, at)
		value, _ := ev.Document.Value(where)
		cut := func(s string) string { // to the text between two tags
			after, _, _ := strings.Cut(s[at:min(len(s), at+60)], "<")
			return strings.ToValidUTF8(s[max(0, at-30, strings.LastIndex(s[:at], ">")+1):at]+after, "�")
		}
		v.Differences = append(v.Differences, Difference{where, cut(shown), cut(text), value.Source.String()})
	}
}

// place names a position in the text of a page: the cell that contains it, or its line.
func place(text string, at int) string {
	before := text[:at]
	if strings.LastIndex(before, "<") > strings.LastIndex(before, ">") { // the id may follow in the same tag
		end, _, _ := strings.Cut(text[at:], ">")
		before += end
	}
	if _, cell, ok := page.CutLast(before, ` id="`); ok {
		id, rest, _ := strings.Cut(cell, `"`)
		_, _, _, ok := page.ParseCell(id)
		if ok && !strings.Contains(rest, "</td>") && !strings.Contains(rest, "</th>") {
			return id
		}
	}
	return fmt.Sprintf("line %d of the page", strings.Count(text[:at], "\n")+1)
}

// fetch fetches the artifacts and manifests behind the page that the store lacks.
func (ev *Evidence) fetch(store *artifact.Store, r *remote.Remote) error {
	for range 2 { // fetched manifests name further ports
		need := map[string][]string{}
		for _, stage := range ev.Stages {
			need[stage.Key] = nil
		}
		for _, in := range ev.ports(store) {
			need[in.Key] = append(need[in.Key], in.Ref.Port)
		}
		if err := r.Complete(context.Background(), need); err != nil {
			return err
		}
	}
	return nil
}

func (v *Verification) count(ev *Evidence) {
	for one := range ev.Document.Values {
		switch {
		case !one.Figure:
			v.Cells++
		case one.Row > 0 && one.Column > 1 && one.Text != "":
			v.Values++
		}
	}
	labels := map[string]bool{}
	for _, in := range ev.Inputs {
		if in.Role == roleTranscripts {
			labels[in.Label] = true
		}
	}
	v.Transcripts = len(labels)
}

// checkArtifacts hashes all artifacts of the page and returns the missing or damaged ports and records. A stage with
// another result is a fault, but the page can be recomputed from it.
func (v *Verification) checkArtifacts(ev *Evidence, store *artifact.Store) map[string]bool {
	damaged := map[string]bool{}
	fault := func(from, format string, args ...any) {
		v.Faults = append(v.Faults, from+": "+fmt.Sprintf(format, args...))
	}
	manifest, seen := once(store.Manifest), map[string]bool{} // key and port
	print := once(func(key string) (string, error) { return fingerprint(manifest(key)) })
	for _, in := range ev.ports(store) {
		from, port := in.port(), in.Key+"."+in.Ref.Port
		if seen[port] {
			continue
		}
		seen[port] = true
		v.Artifacts++
		m, err := manifest(in.Key)
		if err != nil {
			damaged[from] = true
			fault(from, "key %s: %v", page.Prefix(in.Key, 16), err)
			continue
		}
		if got := m.Outputs[in.Ref.Port].Digest; in.Digest != "" && got != in.Digest {
			fault(from, "the store records digest %.16s, the page was made from %.16s", got, in.Digest)
		}
		for _, p := range store.CheckPort(m, in.Ref.Port) {
			damaged[from] = true
			fault(from, "%s is %s", p.Path, p.What)
		}
	}
	for _, stage := range ev.Stages {
		got, err := print(stage.Key)
		if err != nil {
			damaged[manifestAddress(stage.Address)] = true
			fault(stage.Address, "record %s: %v", page.Prefix(stage.Key, 16), err)
			continue
		}
		if got != stage.Manifest {
			fault(stage.Address, "its record is not the one that the page was made from (the stage ran again, or the "+
				"record was edited)")
		}
	}
	return damaged
}

// compareValues lists the values that differ from those of the recomputed page.
func (v *Verification) compareValues(ev *Evidence, again *page.Page) {
	shown, recomputed := map[string]page.Value{}, map[string]string{}
	for one := range ev.Document.Values {
		shown[one.ID()] = one
	}
	for one := range again.Values {
		recomputed[one.ID()] = one.Text
		shown[one.ID()] = shown[one.ID()] // also values that the page lacks
	}
	before := len(v.Differences)
	for _, id := range sortedKeys(shown) {
		if one := shown[id]; one.Text != recomputed[id] {
			v.differ(one, recomputed[id])
		}
	}
	if len(v.Differences) == before {
		v.Differences = append(v.Differences, Difference{Where: "the text or a source of the page",
			Shown: "another one than its artifacts give"})
	}
}

// Limits of the differences, whose number and text those who wrote the page choose.
const (
	mostDifferences = 10_000
	mostSource      = 4 << 10 // bytes
)

// differ adds a value that is not as recomputed.
func (v *Verification) differ(one page.Value, recomputed string) {
	if _, known := v.sources[one.SourceAt]; !known {
		if v.sources == nil {
			v.sources = map[int]string{}
		}
		v.sources[one.SourceAt] = page.Prefix(one.Source.String(), mostSource)
	}
	switch n := len(v.Differences); {
	case n < mostDifferences:
		v.Differences = append(v.Differences, Difference{one.ID(), one.Text, recomputed, v.sources[one.SourceAt]})
	case n == mostDifferences:
		v.Differences = append(v.Differences, Difference{Where: "the rest of the page", Shown: "more values that differ"})
	}
}

// Reproduction compares one value of a page with the value from other artifacts.
type Reproduction struct {
	Cell    string
	Name    string // names of row and column: "SFT + GRPO | Overall"
	Shown   string
	Got     string   // "" if the artifacts give no such value
	Differs []string // ports with other content than those of the page
}

// Equal reports whether the value is as shown.
func (r *Reproduction) Equal() bool { return r.Shown == r.Got }

// Reproduce recomputes one value of a page from the results that made returns for the addresses of the stages behind
// it, and from nothing else: the evidence is cut to the source of the value (part), its inputs become those results,
// and the page that follows from them has the value under the same name (recompute). The command reproduce has run the
// stages before (cmd/rcgrpo/reproduce.go).
func Reproduce(written []byte, cell string, store *artifact.Store,
	made func(address string) (*artifact.Manifest, error)) (*Reproduction, error) {
	ev, err := ReadEvidence(written)
	if err != nil {
		return nil, err
	}
	value, err := ev.Value(cell)
	if err != nil {
		return nil, err
	}
	r := &Reproduction{Cell: value.ID(), Name: value.Name(), Shown: value.Text}
	var edited Verification
	edited.checkBytes(ev, written)
	for _, d := range edited.Differences {
		return nil, fmt.Errorf("the page was edited at %s: it shows %q, its document has %q", d.Where, d.Shown, d.Recomputed)
	}
	part := ev.part(value.Source)
	for i := range part.Inputs {
		in := &part.Inputs[i]
		m, err := made(in.Address)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", in.Address, err)
		}
		if m.Outputs[in.Ref.Port].Digest != in.Digest {
			r.Differs = append(r.Differs, in.port())
		}
		in.Key = m.Key
	}
	for i := range part.Stages {
		stage := &part.Stages[i]
		m, err := made(stage.Address)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", stage.Address, err)
		}
		stage.Key = m.Key
	}
	again, err := part.recompute(store)
	if err != nil {
		return nil, err
	}
	r.Got = again[valueName{value.In, value.Name()}]
	return r, nil
}

// part returns the evidence without inputs and records that a source does not contain.
func (ev *Evidence) part(source page.Source) *Evidence {
	part := *ev
	part.Failures = nil
	part.Inputs = slices.DeleteFunc(slices.Clone(ev.Inputs),
		func(in Input) bool { return !slices.Contains(source.From, in.port()) })
	part.Stages = slices.DeleteFunc(slices.Clone(ev.Stages), func(r StageRef) bool {
		return !slices.Contains(source.From, manifestAddress(r.Address))
	})
	return &part
}

// valueName names a value in the table or figure with an id, whatever other rows there are.
type valueName struct{ in, name string }

// recompute returns the texts of all values by their names.
func (ev *Evidence) recompute(store *artifact.Store) (map[valueName]string, error) {
	study, err := gather(ev, opener(store), store)
	if err != nil {
		return nil, err
	}
	texts := map[valueName]string{}
	for v := range study.complete().Values {
		name := valueName{v.In, v.Name()}
		if _, known := texts[name]; !known {
			texts[name] = v.Text
		}
	}
	return texts, nil
}

// opener opens inputs by their keys.
func opener(store *artifact.Store) func(*Input) (*artifact.Artifact, error) {
	manifest := once(store.Manifest)
	return func(in *Input) (*artifact.Artifact, error) {
		m, err := manifest(in.Key)
		if err != nil {
			return nil, fmt.Errorf("%s, key %s: %w", in.Address, page.Prefix(in.Key, 16), err)
		}
		return store.Open(m, in.Ref.Port)
	}
}
