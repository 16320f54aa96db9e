package reports

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
	"rcgrpo/reports/page"
	"rcgrpo/stages/rl"
)

// hostilePage commits rows as the result of an evaluation and returns a page of an empty study whose evidence names it,
// with its store.
func hostilePage(t *testing.T, rows func(yield func(rl.Score) bool)) ([]byte, *artifact.Store) {
	t.Helper()
	store := must.Get(artifact.Open(filepath.Join(t.TempDir(), "store")))(t)
	key := strings.Repeat("ab", 32)
	staging := must.Get(store.Begin(key))(t)
	w := must.Get(os.Create(filepath.Join(must.Get(staging.Dir("scores"))(t), rl.ScoresFile)))(t)
	encoder := json.NewEncoder(w) // too many rows for artifact.WriteRows
	rows(func(row rl.Score) bool { return encoder.Encode(row) == nil })
	must.OK(t, w.Close())
	c := must.Get(staging.Commit(artifact.Manifest{Key: key, Address: "stage.eval.arm"},
		map[string]string{"scores": "scores"}))(t)
	ev := emptyEvidence()
	ev.Inputs = []Input{{Role: roleScores, Address: "stage.eval.arm",
		Ref: artifact.Ref{Kind: "eval", Name: "arm", Port: "scores", Type: "scores"},
		Key: key, Digest: c.Outputs["scores"].Digest}}
	p := (&Study{Name: "hostile"}).Page()
	p.Evidence = must.Get(ev.Packed(p))(t)
	return []byte(htmlOf(t, p)), store
}

// A few kilobytes of gzip may contain episodes or names that a page has no room for.
func TestMoreTextThanAPageHasRoomForIsRefused(t *testing.T) {
	long := strings.Repeat("a", maxEvidenceBytes)
	for want, row := range map[string]rl.Trajectory{
		"a page has room for 67108864": {Messages: []rl.Message{{Role: rl.RoleAssistant, Calls: []string{long}}}},
		"a page has room for 262144":   {Category: long},
		"the episodes that":            {Task: "a", Stop: long},
	} {
		a := &artifact.Artifact{Dir: t.TempDir(), Type: "dataset", Manifest: &artifact.Manifest{}}
		must.OK(t, artifact.WriteRows(a.Dir, rl.DatasetFile, []rl.Trajectory{row}))
		ev := emptyEvidence()
		ev.Inputs = []Input{{Role: roleData}}
		_, err := gather(ev, func(*Input) (*artifact.Artifact, error) { return a, nil }, nil)
		must.Match(t, err, want)
	}
}

func emptyEvidence() *Evidence {
	return &Evidence{Format: EvidenceFormat, Name: "hostile", Windows: PaperWindows, Document: &page.Page{Drawn: true}}
}

// withEvidence is a page with this text as its evidence.
func withEvidence(t *testing.T, text []byte) []byte {
	t.Helper()
	p := (&Study{Name: "hostile"}).Page()
	p.Evidence = page.Packed(text)
	return []byte(htmlOf(t, p))
}

func TestInvalidEvidenceIsRefused(t *testing.T) {
	for want, change := range map[string]func(*Evidence){
		"":                                 func(*Evidence) {},
		`calls the experiment "../../etc"`: func(ev *Evidence) { ev.Name = "../../etc" },
		`calls the experiment ".."`:        func(ev *Evidence) { ev.Name = ".." },
		"a page has two windows or none":   func(ev *Evidence) { ev.Windows.Late = -5 },
		"5001 inputs":                      func(ev *Evidence) { ev.Inputs = make([]Input, maxInputs+1) },
		"5001 stages":                      func(ev *Evidence) { ev.Stages = make([]StageRef, maxStages+1) },
		"names the stage a twice":          func(ev *Evidence) { ev.Stages = []StageRef{{Address: "a"}, {Address: "a"}} },
		"101 uses of one artifact":         func(ev *Evidence) { ev.Inputs = slices.Repeat([]Input{{Role: "x"}}, 101) },
		"1001 sections":                    func(ev *Evidence) { ev.Sections = []Section{{Show: make([]string, maxChosen)}} },
		"does not name two arms":           func(ev *Evidence) { ev.Compare = []Comparison{{Pairs: [][]string{{"a"}}}} },
		"unpacks to more than":             func(ev *Evidence) { ev.Question = strings.Repeat("a", maxEvidenceBytes) },
		"it has no document":               func(ev *Evidence) { ev.Document = nil },
	} {
		ev := emptyEvidence()
		change(ev)
		_, err := ReadEvidence(withEvidence(t, must.Get(json.Marshal(ev))(t)))
		must.Match(t, err, want)
	}
}

// A page of a few kilobytes unpacks to many values: it is refused, or verified in memory like that of a real page.
func TestEvidenceOfManyValuesNeedsLittleMemory(t *testing.T) {
	list := func(one string, n int) string { return strings.TrimPrefix(strings.Repeat(","+one, n), ",") }
	lost := `"records":[{"address":"a","key":"` + strings.Repeat("ab", 32) + `"}],` // which the store lacks
	document := func(text string) string { return `"document":{"drawn":true,` + text + `}` }
	table := func(columns, rows string) string {
		return `"sections":[{"parts":[{"table":{"id":"t","columns":[` + columns + `],"rows":[` + rows + `]}}]}]`
	}
	for name, tc := range map[string]struct {
		text  string
		want  string // of the error
		found int    // differences
	}{
		"more differences than a reader needs": {lost + document(`"sources":[{"by":"x","from":["a.manifest"]}],`+
			table(`{}`, list(`{"cells":[{"source":1}]}`, mostDifferences+1000))), "", mostDifferences + 1},
		"a row with many names": {document(table(list(`{"left":true}`, 20_000),
			`{"cells":[`+list(`{"text":"x"}`, 20_000)+`]}`)), "", mostDifferences + 1},
		"many folded figures": {document(`"sections":[{"parts":[` +
			list(`{"figure":{"folded":true,"title":"xx"}}`, 30_000) + `]}]`), "", 2},
	} {
		html := withEvidence(t, fmt.Appendf(nil, `{"format":%d,%s}`, EvidenceFormat, tc.text))
		store := must.Get(artifact.Open(filepath.Join(t.TempDir(), "store")))(t)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		v, err := Verify(html, store, nil, nil)
		runtime.ReadMemStats(&after)
		if must.Match(t, err, tc.want); err == nil && len(v.Differences) != tc.found {
			t.Errorf("%s: got %d differences, want %d", name, len(v.Differences), tc.found)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 400<<20 {
			t.Errorf("%s: verify allocated %d MiB, want at most 400", name, n>>20)
		}
	}
}

func TestAPageIsReadUpToALimit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.html")
	must.OK(t, os.WriteFile(file, nil, 0o644))
	must.OK(t, os.Truncate(file, maxPageBytes+1))
	_, err := ReadPage(file)
	must.Match(t, err, "the maximum of a page")
}

func TestPipesAreNeitherPagesNorBundles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pipe")
	must.OK(t, unix.Mkfifo(file, 0o600))
	_, err := ReadPage(file)
	must.Match(t, err, "is no plain file")
	_, err = OpenBundle(file, t.TempDir(), BundleBytes)
	must.Match(t, err, "is no plain file")
}

// A store has checkpoints, and its files may be someone else's.
func TestABundleIsWrittenAsAStream(t *testing.T) {
	html, store := hostilePage(t, func(yield func(rl.Score) bool) {
		for row := (rl.Score{Task: strings.Repeat("x", 1<<20)}); row.Sample < 64; row.Sample++ {
			yield(row)
		}
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	must.OK(t, WriteBundle(io.Discard, html, store, nil))
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 32<<20 {
		t.Errorf("a bundle with a file of 64 MiB took %d MiB of memory", n>>20)
	}
	m := must.Get(store.Manifest(strings.Repeat("ab", 32)))(t)
	file := store.ObjectPath(m.Outputs["scores"], m.Outputs["scores"].Files[0])
	must.OK(t, os.Chmod(file, 0o600))
	must.OK(t, os.Truncate(file, 1<<40))
	must.Match(t, WriteBundle(io.Discard, html, store, nil), file+": edited")
}

// A page of a few kilobytes can name one record, which compresses well, thousands of times.
func TestARecordThatManyStagesNameIsReadOnce(t *testing.T) {
	store := must.Get(artifact.Open(filepath.Join(t.TempDir(), "store")))(t)
	parts := map[string]string{}
	for i := range 20_000 {
		parts[fmt.Sprint("input.", i)] = "1"
	}
	key := strings.Repeat("ab", 32)
	staging := must.Get(store.Begin(key))(t)
	dir := must.Get(staging.Dir("calls"))(t)
	must.OK(t, os.WriteFile(filepath.Join(dir, "cost.json"), []byte("{}"), 0o600))
	must.Get(staging.Commit(artifact.Manifest{Key: key, Kind: "sft", Address: "stage.eval.arm", Parts: parts},
		map[string]string{"calls": "calls"}))(t)
	ev := emptyEvidence()
	for i := range 100 {
		ev.Stages = append(ev.Stages, StageRef{Address: fmt.Sprint("stage.eval.a", i), Kind: "sft", Key: key})
	}
	for i := range 100 {
		ev.Inputs = append(ev.Inputs, Input{Role: roleReplay, Address: fmt.Sprint("stage.eval.a", i),
			Ref: artifact.Ref{Kind: "eval", Name: "arm", Port: "calls"}, Key: key})
	}
	html := withEvidence(t, must.Get(json.Marshal(ev))(t))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	verified(t, html, store)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 256<<20 {
		t.Errorf("allocated %d MiB, want at most 256", n>>20)
	}
}
