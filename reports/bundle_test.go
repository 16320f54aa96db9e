package reports

import (
	"compress/gzip"
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

	"rcgrpo/bfcl"
	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
	"rcgrpo/reports/page"
	"rcgrpo/stages/rl"
)

// hostilePage commits rows as the result of an evaluation and returns a page of an empty study whose evidence names it,
// with a store that has the limits of a bundle.
func hostilePage(t *testing.T, rows func(yield func(rl.Score) bool)) ([]byte, *artifact.Store) {
	t.Helper()
	return hostileInput(t, roleScores, "scores", func(dir string) {
		w := must.Get(os.Create(filepath.Join(dir, rl.ScoresFile)))(t) // too many rows for artifact.WriteRows
		encoder := json.NewEncoder(w)
		rows(func(row rl.Score) bool { return encoder.Encode(row) == nil })
		must.OK(t, w.Close())
	})
}

// hostileInput is hostilePage for an artifact of another type.
func hostileInput(t *testing.T, role, of string, write func(dir string)) ([]byte, *artifact.Store) {
	t.Helper()
	store := must.Get(artifact.Open(filepath.Join(t.TempDir(), "store")))(t)
	key := strings.Repeat("ab", 32)
	staging := must.Get(store.Begin(key))(t)
	write(must.Get(staging.Dir(of))(t))
	c := must.Get(staging.Commit(artifact.Manifest{Key: key, Address: "stage.eval.arm"},
		map[string]string{of: of}))(t)
	ev := emptyEvidence()
	ev.Inputs = []Input{{Role: role, Address: "stage.eval.arm",
		Ref: artifact.Ref{Kind: "eval", Name: "arm", Port: of, Type: of},
		Key: key, Digest: c.Outputs[of].Digest}}
	p := (&Study{Name: "hostile"}).Page()
	p.Evidence = must.Get(ev.Packed(p))(t)
	store.Limit(rowsOf(BundleBytes))
	return []byte(htmlOf(t, p)), store
}

// Artifacts that a report could read one by one may together take more than the memory.
func TestAllArtifactsOfAPageHaveOneBudget(t *testing.T) {
	a := &artifact.Artifact{Dir: t.TempDir(), Type: "dataset"}
	name, values := strings.Repeat("a", 1<<20), `{"x":[0`+strings.Repeat(",0", 3<<20)+"]}"
	must.OK(t, os.WriteFile(filepath.Join(a.Dir, rl.MetricsFile), []byte(values), 0o600))
	must.OK(t, artifact.WriteRows(a.Dir, rl.DatasetFile, []rl.Trajectory{{Task: name}}))
	ev := emptyEvidence()
	ev.Inputs = slices.Repeat([]Input{{Role: roleCurves}}, 6)
	_, err := gather(ev, func(*Input) (*artifact.Artifact, error) { return a, nil }, nil)
	must.Match(t, err, "values, and at most")
	g := &gathering{study: &Study{}, shown: maxShown - len(name)}
	must.Match(t, g.data(&Input{}, a), "its episodes are longer than a page may be")
}

// A bundle of a few kilobytes may contain many short values, each of which takes far more memory.
func TestArtifactsOfManyValuesAreRefused(t *testing.T) {
	const limit = 64 << 20
	many := func(one string, n int) string { return strings.TrimPrefix(strings.Repeat(","+one, n), ",") }
	episode := func(messages int) string { return `{"task":"a","messages":[` + many("{}", messages) + "]}\n" }
	turns := `{"turns":[` + many("{}", limit/leastValue/4+2) + "]}\n"
	for name, tc := range map[string]struct {
		role, of, file, text, want string
	}{
		"tasks with many turns": {roleData, "tasks", bfcl.TasksFile, strings.Repeat(turns, 4), "values, and at most"},
		"many short rows": {roleCurves, "metrics", rl.MetricsFile, strings.Repeat("{}\n", limit/leastRow+1),
			"more rows than the limit"},
		"an episode with many messages": {roleTranscripts, "trajectories", rl.TrajectoriesFile,
			episode(maxShown/256 + 1), "its episodes are longer than a page may be"},
		"episodes with many messages": {roleTranscripts, "trajectories", rl.TrajectoriesFile,
			strings.Repeat(episode(maxShown/256/4), 4), "its episodes are longer than a page may be"},
		"a long summary": {roleData, "dataset", "summary.json", strings.Repeat(" ", 64<<10) + "{}", "at most 65536 are read"},
		"a long cost":    {roleCalls, "calls", costFile, strings.Repeat(" ", 64<<10) + "{}", "at most 65536 are read"},
	} {
		t.Run(name, func(t *testing.T) {
			html, store := hostileInput(t, tc.role, tc.of, func(dir string) {
				must.OK(t, artifact.WriteRows(dir, rl.DatasetFile, []rl.Trajectory{})) // of a dataset
				w := must.Get(os.Create(filepath.Join(dir, tc.file)))(t)
				var out io.WriteCloser = w
				if strings.HasSuffix(tc.file, ".gz") {
					out = gzip.NewWriter(w)
				}
				must.Get(io.WriteString(out, tc.text))(t)
				must.OK(t, out.Close())
			})
			store.Limit(rowsOf(limit))
			if v := verified(t, html, store); len(v.Faults) != 1 || !strings.Contains(v.Faults[0], tc.want) {
				t.Errorf("got %q, want one with %q", v.Faults, tc.want)
			}
		})
	}
}

func emptyEvidence() *Evidence {
	return &Evidence{Format: EvidenceFormat, Name: "hostile", Windows: PaperWindows, Document: &page.Page{Drawn: true}}
}

func TestAStudyLargerThanAPageIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		rows int
		row  func(i int) rl.Score
		want string
	}{
		"a set of its own for each row": {100_000, func(i int) rl.Score { return rl.Score{Set: fmt.Sprint(i)} },
			"100000 task sets"},
		"a few sets of many categories": {50_000, func(i int) rl.Score {
			return rl.Score{Set: fmt.Sprint(i % 50), Category: fmt.Sprint(i)}
		}, "50 task sets, 50000 categories, 1 runs"},
		"what a page can show": {10, func(i int) rl.Score { return rl.Score{Set: "test", Task: fmt.Sprint(i)} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			html, store := hostilePage(t, func(yield func(rl.Score) bool) {
				for i := range tc.rows {
					yield(tc.row(i))
				}
			})
			if faults := strings.Join(verified(t, html, store).Faults, "\n"); (faults == "") != (tc.want == "") ||
				!strings.Contains(faults, tc.want) {
				t.Errorf("got faults %q, want one with %q", faults, tc.want)
			}
		})
	}
}

// A few kilobytes of gzip have thousands of categories, each of which is a column or a row.
func TestDataThatNoPageCanShowIsRefused(t *testing.T) {
	tasks := make([]*bfcl.Task, maxCategories)
	for i := range tasks {
		tasks[i] = &bfcl.Task{Category: fmt.Sprint(i)}
	}
	study := Study{TaskSets: []TaskSet{{Tasks: tasks}}, DataSets: []DataSet{{Members: []Member{{Category: "0"}}}}}
	must.OK(t, study.checkSize())
	study.DataSets[0].Members[0].Category = "another"
	must.Match(t, study.checkSize(), "501 categories")
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
		parts[fmt.Sprint("settings.", i)] = "1"
	}
	key := strings.Repeat("ab", 32)
	staging := must.Get(store.Begin(key))(t)
	dir := must.Get(staging.Dir("calls"))(t)
	must.OK(t, os.WriteFile(filepath.Join(dir, "cost.json"), []byte("{}"), 0o600))
	must.Get(staging.Commit(artifact.Manifest{Key: key, Address: "stage.eval.arm", Parts: parts},
		map[string]string{"calls": "calls"}))(t)
	ev := emptyEvidence()
	for i := range 1000 {
		ev.Stages = append(ev.Stages, StageRef{Address: fmt.Sprint("stage.eval.a", i), Kind: "sft", Key: key})
	}
	for i := range 100 {
		ev.Inputs = append(ev.Inputs, Input{Role: roleReplay, Address: fmt.Sprint("stage.eval.a", i),
			Ref: artifact.Ref{Kind: "eval", Name: "arm", Port: "calls"}, Key: key})
	}
	html := withEvidence(t, must.Get(json.Marshal(ev))(t))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	v := verified(t, html, store)
	runtime.ReadMemStats(&after)
	if faults := strings.Join(v.Faults, "\n"); !strings.Contains(faults, "more than a page can show") {
		t.Errorf("got faults %q", faults[:min(len(faults), 300)])
	}
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<30 {
		t.Errorf("allocated %d bytes, want at most 1 GiB", n)
	}
}
