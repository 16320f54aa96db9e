package reports

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
	"rcgrpo/reports/page"
)

// scriptedPage runs the scripted experiment and returns its page and its store.
func scriptedPage(t *testing.T, failing string) ([]byte, *artifact.Store) {
	t.Helper()
	dir := t.TempDir()
	html, _, _, _ := runText(t, dir, scriptedExperiment, failing)
	store := must.Get(artifact.Open(filepath.Join(dir, "store")))(t)
	return []byte(html), store
}

func verified(t *testing.T, html []byte, store *artifact.Store) *Verification {
	t.Helper()
	v := must.Get(Verify(html, store, nil, nil))(t)
	return v
}

func TestAnUntouchedPageIsVerifiedWhole(t *testing.T) {
	for _, failing := range []string{"none", "much"} {
		html, store := scriptedPage(t, failing)
		v := verified(t, html, store)
		if !v.OK() {
			t.Errorf("failing %s: got %+v", failing, v)
		}
		if v.Cells < 100 || v.Values < 20 || v.Artifacts < 14 {
			t.Errorf("failing %s: only %d cells, %d values and %d artifacts were checked", failing, v.Cells, v.Values,
				v.Artifacts)
		}
	}
}

// Every cell with a number and every column of a figure has a source.
func TestEveryNumberHasASource(t *testing.T) {
	html, _ := scriptedPage(t, "none")
	ev := must.Get(ReadEvidence(html))(t)
	known := map[string]bool{}
	for i := range ev.Inputs {
		known[ev.Inputs[i].port()] = true
	}
	for _, r := range ev.Stages {
		known[manifestAddress(r.Address)] = true
	}
	for v := range ev.Document.Values {
		row, _, _ := page.CutLast(v.Name(), " | ")
		if v.Row == 0 || v.Column == 1 ||
			!v.Figure && (strings.Contains(row, v.Text) || !strings.ContainsAny(v.Text, "0123456789")) {
			continue
		}
		if len(v.Source.From) == 0 {
			t.Errorf("%s was computed from nothing", v.ID())
		}
		for _, from := range v.Source.From {
			if !known[from] {
				t.Errorf("%s was computed from %s, which the evidence lacks", v.ID(), from)
			}
		}
	}
}

// A page whose owner changes its document, and writes the file again from it, is consistent and still refuted by the
// artifacts: each changed value is named.
func TestAForgedDocumentIsFound(t *testing.T) {
	html, store := scriptedPage(t, "none")
	ev := must.Get(ReadEvidence(html))(t)
	random := rand.New(rand.NewPCG(7, 8))
	for range must.Short(t, 5, 200) {
		forged := must.Get(ReadEvidence(html))(t)
		var cells []*page.Cell
		var ids []string
		for _, table := range forged.Document.Tables() {
			for r, row := range table.Rows {
				for i := range row.Cells {
					cells, ids = append(cells, &row.Cells[i]), append(ids, page.CellID(table.ID, r+1, i+1))
				}
			}
		}
		at := random.IntN(len(cells))
		cells[at].Text += "1"
		text := must.Get(json.Marshal(forged))(t)
		var b bytes.Buffer
		forged.Document.Evidence = page.Packed(text)
		must.OK(t, forged.Document.HTML(&b))
		v := verified(t, b.Bytes(), store)
		if v.ValuesHold() || !slices.ContainsFunc(v.Differences, func(d Difference) bool { return d.Where == ids[at] }) {
			t.Errorf("%s is forged: got %+v", ids[at], v.Differences)
		}
	}
	record := slices.IndexFunc(ev.Stages, func(r StageRef) bool { return r.Kind == "sft" })
	other := must.Get(ReadEvidence(html))(t)
	other.Stages[record].Kind = "grpo" // of which the paper has other settings
	_, err := gather(other, opener(store), store)
	must.Match(t, err, "the page says grpo, its record sft")
	other.Stages[record].Key = "" // settings come from a record
	_, err = gather(other, opener(store), store)
	must.Match(t, err, "key : ")
	curve := slices.IndexFunc(ev.Inputs, func(in Input) bool { return in.Role == roleCurves })
	other = must.Get(ReadEvidence(html))(t)
	other.Inputs[curve].Ref.Seed = new(int64(99))
	_, err = gather(other, opener(store), store)
	must.Match(t, err, "the page says seed 99, its record 1")
	other.Inputs[curve].Ref.Seed = nil // as of a stage with a seed of its own, which would be compared with all
	_, err = gather(other, opener(store), store)
	must.Match(t, err, "have a seed in some stages and none in others")
	label := other.Inputs[curve].Label
	other.Inputs = slices.DeleteFunc(other.Inputs, func(in Input) bool {
		return in.Role == roleCurves && in.Label == label && in.Ref.Seed != nil
	})
	must.Get(gather(other, opener(store), store))(t)
	twice := must.Get(ReadEvidence(html))(t)
	for _, in := range ev.Inputs {
		if in.Role != roleData {
			in.Address += "0"
		}
		twice.Inputs = append(twice.Inputs, in)
	}
	want, got := must.Get(gather(ev, opener(store), store))(t), must.Get(gather(twice, opener(store), store))(t)
	if !reflect.DeepEqual(got, want) {
		t.Error("results that the page names twice count twice")
	}
	library := bytes.LastIndex(html[:bytes.LastIndex(html, []byte("<script>"))], []byte("<script>")) + len("<script>")
	for _, end := range []int{library, len(html) - 1} { // the library is one long write
		if v := verified(t, html[:end], store); v.OK() {
			t.Errorf("a page of %d bytes is cut to %d, and verify finds nothing", len(html), end)
		}
	}
	var b bytes.Buffer
	ev.Document.Evidence = packedEvidence(html)
	must.OK(t, ev.Document.HTML(&b))
	if !bytes.Equal(b.Bytes(), html) {
		t.Error("the document is not the page")
	}
}

// No artifact contains the names of arms: a page with two of them exchanged follows from its artifacts. The experiment
// contradicts it.
func TestAPageThatItsExperimentContradictsIsFound(t *testing.T) {
	dir := t.TempDir()
	for _, failing := range []string{"none", "much"} {
		html, _, _, _ := runText(t, dir, scriptedExperiment, failing)
		x, diags := lang.Load(lang.Source{Path: filepath.Join(dir, "scripted.hcl")}, scriptedKinds())
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		must.OK(t, must.Get(ReadEvidence([]byte(html)))(t).CheckExperiment(x))
		for name, change := range map[string]func(ev *Evidence){
			"name":       func(ev *Evidence) { ev.Inputs[0].Label = "None" },
			"stage":      func(ev *Evidence) { ev.Inputs[0].Address = "stage.sft.warm@1" },
			"question":   func(ev *Evidence) { ev.Question = "Does it?" },
			"note":       func(ev *Evidence) { ev.Notes = append(ev.Notes, "99.9 %") },
			"comparison": func(ev *Evidence) { slices.Reverse(ev.Compare[0].Pairs[0]) },
			"windows":    func(ev *Evidence) { ev.Windows.Late++ },
		} {
			ev := must.Get(ReadEvidence([]byte(html)))(t)
			change(ev)
			if err := ev.CheckExperiment(x); err == nil {
				t.Errorf("failing %s: another %s is not found", failing, name)
			}
		}
	}
}

// The fields of another version may have other types. A page whose version is not compared would be a page with
// differences, although its numbers hold.
func TestAPageOfAnotherVersionIsRefusedWithAWayOut(t *testing.T) {
	store := must.Get(artifact.Open(t.TempDir()))(t)
	for evidence, want := range map[string][]string{
		`{"format": 1, "arms": {"a": 1}, "tables": "none"}`: {"an older version of rcgrpo made the page",
			"renew it with `rcgrpo report`"},
		`{"format": 2, "name": "drills"}`:        {"an older version of rcgrpo made the page (page version 2, want 22)"},
		`{"format": 1000, "compare": "by seed"}`: {"a newer version of rcgrpo made the page", "use that version"},
	} {
		html := withEvidence(t, []byte(evidence))
		_, verify := Verify(html, store, nil, nil)
		_, reproduce := Reproduce(html, "main-test.r1c2", store, nil)
		for name, err := range map[string]error{"verify": verify, "reproduce": reproduce,
			"bundle": WriteBundle(io.Discard, html, store, nil)} {
			for _, part := range want {
				must.Match(t, err, part, name, evidence)
			}
		}
	}
}

func TestAChangedByteOfAnArtifactIsFound(t *testing.T) {
	html, store := scriptedPage(t, "none")
	ev := must.Get(ReadEvidence(html))(t)
	// The files behind the page: those of the ports it read.
	var files []string
	stored := must.Get(ev.storedFiles(store))(t)
	for _, name := range sortedKeys(stored) {
		if strings.HasPrefix(name, bundleObjects) {
			files = append(files, stored[name])
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	named := map[string]int{}
	const changes = 60
	for n := range changes {
		path := files[random.IntN(len(files))]
		must.OK(t, os.Chmod(path, 0o600))
		content := must.Get(os.ReadFile(path))(t)
		changed := bytes.Clone(content)
		at := random.IntN(len(content))
		changed[at] ^= byte(1 + random.IntN(255))
		write := func(b []byte) {
			must.OK(t, os.WriteFile(path, b, 0o600))
			must.OK(t, os.Chtimes(path, artifact.Sealed, artifact.Sealed))
		}
		write(changed)
		v := verified(t, html, store)
		if v.OK() || !slices.ContainsFunc(v.Faults, func(fault string) bool { return strings.Contains(fault, path) }) {
			t.Errorf("change %d: byte %d of %s went unnoticed: %+v", n, at, path, v)
		}
		if len(v.Differences) > 0 {
			named[filepath.Base(path)]++
		}
		write(content)
	}
	t.Logf("%d changes in %d files; differing cells named for %v", changes, len(files), slices.Sorted(maps.Keys(named)))
	if named["scores.jsonl.gz"] == 0 && named["scores.jsonl"] == 0 {
		t.Error("a change in scores named no cell")
	}
	if v := verified(t, html, store); !v.OK() {
		t.Errorf("after the restoration of all files: %+v", v)
	}
}

func TestAChangedByteOfThePageIsFound(t *testing.T) {
	html, store := scriptedPage(t, "none")
	for name, change := range map[string]struct{ old, new, where string }{
		"a cell":         {">75.0\u00a0%<", ">80.0\u00a0%<", "main-test.r"},
		"a cell's tag":   {` id="main-test.r1c2"`, ` data-x=">" id="main-test.r1c2"`, "main-test.r"},
		"the answer":     {"<b>20.0 points", "<b>25.0 points", "line "},
		"the expression": {"Does training help?</h1>", "Does training hurt?</h1>", "line "},
		"the style":      {"border-collapse", "border-collapsf", "line "},
		"a hidden place": {`class="block" id="main-test"`, `class="black" id="main-test"`, "line "},
	} {
		if !bytes.Contains(html, []byte(change.old)) {
			t.Fatalf("%s: the page has no %q", name, change.old)
		}
		v := verified(t, bytes.Replace(html, []byte(change.old), []byte(change.new), 1), store)
		if len(v.Differences) != 1 || !strings.Contains(v.Differences[0].Where, change.where) {
			t.Errorf("%s: got %+v, want one difference at %s", name, v.Differences, change.where)
		}
		if v.ValuesHold() != (!strings.HasPrefix(name, "a cell")) {
			t.Errorf("%s: got ValuesHold %v", name, v.ValuesHold())
		}
	}
	random := rand.New(rand.NewPCG(3, 4))
	const changes = 20
	unread := 0
	for range changes {
		changed := bytes.Clone(html)
		at := random.IntN(len(html))
		changed[at] ^= byte(1 + random.IntN(255))
		v, err := Verify(changed, store, nil, nil)
		if err != nil {
			unread++ // the evidence itself
		} else if v.OK() {
			t.Errorf("byte %d of the page went unnoticed", at)
		}
	}
	if unread > changes/2 {
		t.Errorf("%d of %d changes made the evidence unreadable", unread, changes)
	}
}

func TestAnotherRunOfAStageIsAFault(t *testing.T) {
	html, _ := scriptedPage(t, "none")
	_, other := scriptedPage(t, "none") // the same experiment elsewhere: equal artifacts, other times
	v := verified(t, html, other)
	if v.OK() || slices.ContainsFunc(v.Faults, func(fault string) bool {
		return !strings.Contains(fault, "its record is not the one") && !strings.Contains(fault, "edited") &&
			!strings.Contains(fault, "digest")
	}) {
		t.Errorf("got %q", v.Faults)
	}
	for _, d := range v.Differences {
		if strings.HasPrefix(d.Where, "main-") || strings.HasPrefix(d.Where, "compare-") {
			t.Errorf("a result differs: %+v", d)
		}
	}
}

// Each value is recomputed from the artifacts of its source alone.
func TestEveryCellFollowsFromItsSourceAlone(t *testing.T) {
	html, store := scriptedPage(t, "none")
	if checked, parts := followFromTheirSources(t, html, store); checked < 300 || parts < 10 {
		t.Errorf("%d cells and values from %d sets of artifacts are too few to mean anything", checked, parts)
	}
}

// followFromTheirSources checks the cells of some tables and figures, or of all, and returns their number and that of
// the sets of artifacts.
func followFromTheirSources(t *testing.T, html []byte, store *artifact.Store, only ...string) (cells, sets int) {
	t.Helper()
	ev := must.Get(ReadEvidence(html))(t)
	shown, parts := map[valueName]string{}, map[string]map[valueName]string{}
	for v := range ev.Document.Values {
		if v.Source.By == "" || len(only) > 0 && !slices.Contains(only, v.In) ||
			v.Figure && (v.Row%7 != 1 || v.Column == 1 || v.Text == "") {
			continue
		}
		cells++
		from, named := fmt.Sprint(v.Source.From), valueName{v.In, v.Name()}
		if parts[from] == nil {
			parts[from] = must.Get(ev.part(v.Source).recompute(store))(t)
		}
		if first, known := shown[named]; known && first != v.Text {
			t.Errorf("%s: its name %q means another cell too", v.ID(), v.Name())
		}
		shown[named] = v.Text
		if got, ok := parts[from][named]; got != v.Text {
			t.Errorf("%s, %s: got %q (%v) from %s alone, want %q", v.ID(), v.Name(), got, ok, v.Source, v.Text)
		}
	}
	return cells, len(parts)
}

func TestACellIsReproducedFromOtherResults(t *testing.T) {
	html, _ := scriptedPage(t, "none")
	_, other := scriptedPage(t, "none")
	made := func(address string) (*artifact.Manifest, error) { return other.Last("scripted", address) }
	named := regexp.MustCompile(`id="(main-test\.r\d)c1"[^>]*>(<span[^>]*></span>)?Much training`).FindSubmatch(html)
	if named == nil {
		t.Fatal("the page has no row of Much training")
	}
	cell := string(named[1]) + "c2"
	r := must.Get(Reproduce(html, "#"+cell, other, made))(t)
	if !r.Equal() || !strings.HasPrefix(r.Got, "75.0 %") && !strings.HasPrefix(r.Got, "75.0\u00a0%") ||
		len(r.Differs) > 0 || r.Name != "Much training | Overall" {
		t.Errorf("got %+v", r)
	}
	forged := []byte(strings.Replace(string(html), `id="`+cell+`">75.0`, `id="`+cell+`">80.0`, 1))
	_, err := Reproduce(forged, cell, other, made)
	must.Match(t, err, "the page was edited at "+cell)
	for _, cell := range []string{"main-test.r99c1", "man-test.r1c2", "nonsense"} {
		if _, err := Reproduce(html, cell, other, made); err == nil {
			t.Errorf("%s: want an error", cell)
		}
	}
}
