package plan

import (
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/internal/stat"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
)

// bench is an experiment with a stored verdict: its store is the store of its site file.
type bench struct {
	*engine.lab
	src lang.Source
}

// everything contains each input of a verdict: files, folders, variables, published files, stages that are
// disabled, that run after failures, and that read others.
const everything = `
experiment {
}
variable "word" {
  default = "a"
}
variable "other" {
  default = "o"
}
stage "light" "first" {
  text = "${var.word}${var.other}"
  data = [file("data/one.txt"), file("data/link.txt"), dir("data/many")]
}
stage "light" "second" {
  from = [stage.light.first.out]
  text = "second"
}
stage "light" "left" {
  enabled = false
}
stage "page" "report" {
  from = [stage.light.second.out]
  text = "page"
}
`

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{lab: engine.newLab(t)}
	b.put("site.hcl", "store {\n  path = \"store\"\n}\n"+engine.labSite)
	b.put("x.hcl", everything)
	for _, name := range []string{"data/one.txt", "data/target.txt", "data/many/1.txt", "data/many/below/2.txt"} {
		b.put(name, "content of "+filepath.Base(name))
	}
	if err := os.Symlink("target.txt", b.path("data/link.txt")); err != nil {
		t.Fatal(err)
	}
	b.put("vars.hcl.txt", `other = "p"`)
	b.src = lang.Source{Path: b.file, Site: b.path("site.hcl"), Env: []string{"HOME=" + b.dir},
		Vars: map[string]string{}, VarFiles: []string{b.path("vars.hcl.txt")}}
	return b
}

// put writes a file and its folders.
func (b *bench) put(name, text string) {
	b.Helper()
	b.must(os.MkdirAll(filepath.Dir(b.path(name)), 0o755))
	b.lab.put(name, text)
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, filepath.FromSlash(name)) }

// planned loads and plans without the stored verdict.
func (b *bench) planned() *Plan {
	b.Helper()
	x, diags := lang.Load(b.src, engine.toys())
	if diags.HasErrors() {
		b.Fatal(diags)
	}
	p, err := New(x, b.store(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	return p
}

// settle runs everything and waits for the next clock tick, so that a file written next has a different stamp.
func (b *bench) settle() {
	b.Helper()
	stat.AwaitTick()
	if r := b.runPlan(b.Context(), b.planned(), engine.Options{}); r.err != nil {
		b.Fatalf("%v\n%s", r.err, r.text())
	}
	stat.AwaitTick()
}

// rewrite changes the content of a file, but not its length and modification time.
func (b *bench) rewrite(name string) {
	b.Helper()
	info, err := os.Stat(b.path(name))
	if err != nil {
		b.Fatal(err)
	}
	text, err := os.ReadFile(b.path(name))
	if err != nil {
		b.Fatal(err)
	}
	text[0] ^= 1
	b.must(os.WriteFile(b.path(name), text, 0o644))
	b.must(os.Chtimes(b.path(name), info.ModTime(), info.ModTime()))
}

func (b *bench) edit(name, old, new string) {
	b.Helper()
	text, err := os.ReadFile(b.path(name))
	b.must(err)
	if !strings.Contains(string(text), old) {
		b.Fatalf("%s has no %q", name, old)
	}
	b.must(os.WriteFile(b.path(name), []byte(strings.Replace(string(text), old, new, 1)), 0o644))
}

func (b *bench) touch(name string) {
	b.Helper()
	now := time.Now()
	b.must(os.Chtimes(b.path(name), now, now))
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// glob returns the first file below the lab's folder that matches a pattern.
func (b *bench) glob(pattern string) string {
	b.Helper()
	found, err := filepath.Glob(b.path(pattern))
	if err != nil || len(found) == 0 {
		b.Fatalf("nothing fits %s: %v", pattern, err)
	}
	return found[0]
}

// compare reports whether Unchanged answered, and checks the answer against a plan.
func (b *bench) compare() (answered bool) {
	b.Helper()
	idle := Unchanged(b.src)
	x, diags := lang.Load(b.src, engine.toys())
	if idle == nil {
		return false
	}
	if len(diags) > 0 {
		b.Fatalf("answered in spite of %v", diags)
	}
	p, err := New(x, b.store(), Options{})
	b.must(err)
	r := b.runPlan(b.Context(), p, engine.Options{})
	ended := engine.EndedUnchanged(idle)
	if len(r.events) != 1 || r.events[0].Kind != ended.Kind || !maps.Equal(r.events[0].Counts, ended.Counts) {
		b.Errorf("answered with %v; a run says\n%s%v", ended, r.text(), r.events[0].Counts)
	}
	if idle.Experiment != x.Name || !slices.Equal(idle.Disabled, x.Disabled) {
		b.Errorf("got %s without %v, want %s without %v", idle.Experiment, idle.Disabled, x.Name, x.Disabled)
	}
	return true
}

// Unchanged answers as loading and planning would; otherwise it returns nil.
func TestUnchangedAnswersAsAPlanDoes(t *testing.T) {
	for name, tc := range map[string]struct {
		change   func(b *bench)
		answered bool
	}{
		"nothing":                    {func(b *bench) {}, true},
		"experiment touched":         {func(b *bench) { b.touch("x.hcl") }, true},
		"comment added":              {func(b *bench) { b.edit("x.hcl", "experiment", "# no\nexperiment") }, false},
		"setting changed":            {func(b *bench) { b.edit("x.hcl", `"second"`, `"sec"`) }, false},
		"setting changed, time kept": {func(b *bench) { b.rewrite("x.hcl") }, false},
		"input touched":              {func(b *bench) { b.touch("data/one.txt") }, true},
		"input changed, time kept":   {func(b *bench) { b.rewrite("data/one.txt") }, false},
		"input longer": {func(b *bench) { b.put("data/one.txt", "content of one.txt and more") },
			false},
		"input removed": {func(b *bench) { b.must(os.Remove(b.path("data/one.txt"))) }, false},
		"input is a folder now": {func(b *bench) {
			b.must(os.Remove(b.path("data/one.txt")))
			b.must(os.Mkdir(b.path("data/one.txt"), 0o755))
		}, false},
		"input rewritten, content kept": {func(b *bench) { b.put("data/one.txt", "content of one.txt") }, true},
		"target of a link changed":      {func(b *bench) { b.rewrite("data/target.txt") }, false},
		"link to another file": {func(b *bench) {
			b.must(os.Remove(b.path("data/link.txt")))
			b.must(os.Symlink("one.txt", b.path("data/link.txt")))
		}, false},
		"file in an input folder":           {func(b *bench) { b.rewrite("data/many/below/2.txt") }, false},
		"file new in an input folder":       {func(b *bench) { b.put("data/many/below/3.txt", "3") }, false},
		"file touched in a folder":          {func(b *bench) { b.touch("data/many/1.txt") }, true},
		"published file removed":            {func(b *bench) { b.must(os.Remove(b.path("page.txt"))) }, false},
		"published file edited":             {func(b *bench) { b.put("page.txt", "mine") }, false},
		"published file changed, time kept": {func(b *bench) { b.rewrite("page.txt") }, false},
		"published file touched":            {func(b *bench) { b.touch("page.txt") }, false},
		"published file replaced by a link": {func(b *bench) {
			b.must(os.Rename(b.path("page.txt"), b.path("page2.txt")))
			b.must(os.Symlink("page2.txt", b.path("page.txt")))
		}, false},
		"variable on the command line": {func(b *bench) { b.src.Vars["word"] = "b" }, false},
		"variable in the environment": {func(b *bench) {
			b.src.Env = append(b.src.Env,
				"RCGRPO_VAR_word=b")
		}, false},
		"variable in its file":                {func(b *bench) { b.edit("vars.hcl.txt", "p", "q") }, false},
		"without the variables' file":         {func(b *bench) { b.src.VarFiles = nil }, false},
		"another home folder":                 {func(b *bench) { b.src.Env = []string{"HOME=/"} }, false},
		"another variable of the environment": {func(b *bench) { b.src.Env = append(b.src.Env, "LANG=C") }, true},
		"another site file": {func(b *bench) {
			b.put("site2.hcl", "store {\n  path = \"store\"\n}\n")
			b.src.Site = b.path("site2.hcl")
		}, false},
		"site file edited":       {func(b *bench) { b.edit("site.hcl", "cpus = 4", "cpus = 3") }, false},
		"site file broken":       {func(b *bench) { b.edit("site.hcl", "cpus", "cpu") }, false},
		"another store":          {func(b *bench) { b.edit("site.hcl", `"store"`, `"store2"`) }, false},
		"turned off":             {func(b *bench) { b.src.Env = append(b.src.Env, "RCGRPO_COMPILED=off") }, false},
		"experiment removed":     {func(b *bench) { b.must(os.Remove(b.file)); b.src.Path = b.path("y.hcl"); b.put("y.hcl", everything) }, false},
		"experiment is a folder": {func(b *bench) { b.src.Path = b.dir }, false},
		"another build": {func(b *bench) {
			own := buildID
			b.Cleanup(func() { buildID = own })
			buildID = func() string { return "another" }
		}, false},
		"collected": {func(b *bench) {
			_, err := b.store().Collect(1)
			b.must(err)
		}, false},
		"garbage collected": {func(b *bench) {
			_, err := b.store().Collect(0)
			b.must(err)
		}, false},
		"manifest removed":    {func(b *bench) { b.must(os.Remove(b.glob("store/nodes/*.json"))) }, false},
		"object removed":      {func(b *bench) { b.must(os.RemoveAll(b.glob("store/objects/*"))) }, false},
		"store removed":       {func(b *bench) { b.must(os.RemoveAll(b.storeDir)) }, false},
		"result file removed": {func(b *bench) { b.must(os.Remove(b.glob("store/objects/*/out.txt"))) }, false},
		"result file appended to": {func(b *bench) {
			object := b.glob("store/objects/*/out.txt")
			b.must(os.Chmod(object, 0o644))
			f, err := os.OpenFile(object, os.O_APPEND|os.O_WRONLY, 0)
			b.must(err)
			_, err = f.WriteString("more")
			b.must(errors.Join(err, f.Close()))
		}, false},
		"manifest truncated": {func(b *bench) { b.must(os.Truncate(b.glob("store/nodes/*.json"), 40)) },
			false},
		"random bytes over manifests": {(*bench).garbleManifests, false},
		"another result came in": {func(b *bench) {
			b.put("store/nodes/"+strings.Repeat("a", 64)+".json", "{}")
			b.must(os.Remove(b.path("store/nodes/" + strings.Repeat("a", 64) + ".json")))
		}, true},
		"damage found by check": {func(b *bench) {
			object := b.glob("store/objects/*/out.txt")
			b.must(os.Chmod(object, 0o644))
			b.must(os.WriteFile(object, []byte("by hand"), 0o644))
			if problems, err := b.store().Check(); err != nil || len(problems) == 0 {
				b.Errorf("check: got %v, %v, want the damage", problems, err)
			}
		}, false},
		"record removed":  {func(b *bench) { b.must(os.RemoveAll(b.path("store/compiled"))) }, false},
		"record emptied":  {func(b *bench) { b.must(os.Truncate(b.glob("store/compiled/*"), 0)) }, false},
		"record torn":     {func(b *bench) { b.must(os.Truncate(b.glob("store/compiled/*"), 400)) }, false},
		"record a folder": {func(b *bench) { r := b.glob("store/compiled/*"); b.must(os.Remove(r)); b.must(os.Mkdir(r, 0o700)) }, false},
		"record of another experiment": {func(b *bench) {
			mine := b.glob("store/compiled/*")
			b.src.Vars["word"] = "b"
			b.settle()
			b.must(os.Remove(mine))
			b.must(os.Rename(b.glob("store/compiled/*"), mine))
			delete(b.src.Vars, "word")
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.settle()
			if !b.compare() {
				t.Fatal("no answer although nothing changed")
			}
			tc.change(b)
			if got := b.compare(); got != tc.answered {
				t.Errorf("answered: got %v, want %v", got, tc.answered)
			}
			b.mend()
		})
	}
}

// garbleManifests overwrites every manifest with random bytes.
func (b *bench) garbleManifests() {
	b.Helper()
	manifests, err := filepath.Glob(b.path("store/nodes/*.json"))
	b.must(err)
	for _, path := range manifests {
		info, err := os.Stat(path)
		b.must(err)
		noise := make([]byte, info.Size())
		rand.NewChaCha8([32]byte{1}).Read(noise)
		b.must(os.WriteFile(path, noise, 0o600))
	}
}

// Whatever happens to result files between two runs, the second run makes those results again, and the store is
// sound.
func TestDamagedResultsRunAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		damage func(*bench)
		again  []string // addresses that run
	}{
		"file removed": {func(b *bench) { b.must(os.Remove(b.object("first"))) }, []string{"stage.light.first"}},
		"folder removed": {func(b *bench) { b.must(os.RemoveAll(filepath.Dir(b.object("first")))) },
			[]string{"stage.light.first"}},
		"file truncated": {func(b *bench) {
			b.must(os.Chmod(b.object("first"),
				0o644))
			b.must(os.Truncate(b.object("first"), 1))
		}, []string{"stage.light.first"}},
		"file appended to": {func(b *bench) {
			b.must(os.Chmod(b.object("first"), 0o644))
			f, err := os.OpenFile(b.object("first"), os.O_WRONLY|os.O_APPEND, 0)
			b.must(err)
			_, err = f.WriteString("more")
			b.must(errors.Join(err, f.Close()))
		}, []string{"stage.light.first"}},
		"manifest truncated": {func(b *bench) { b.must(os.Truncate(b.manifest("second"), 40)) },
			[]string{"stage.light.second"}},
		"manifest emptied": {func(b *bench) { b.must(os.Truncate(b.manifest("second"), 0)) },
			[]string{"stage.light.second"}},
		"random bytes over manifests": {(*bench).garbleManifests,
			[]string{"stage.light.first", "stage.light.second", "stage.page.report"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.settle()
			if !b.compare() {
				t.Fatal("no answer although nothing changed")
			}
			tc.damage(b)
			if b.compare() {
				t.Error("the run says that there is nothing to do")
			}
			r := b.runPlan(b.Context(), b.planned(), engine.Options{})
			if r.err != nil {
				t.Fatalf("the run: %v\n%s", r.err, r.text())
			}
			var ran []string
			for _, e := range r.events {
				if e.Kind == runs.EventDone {
					ran = append(ran, e.Address)
				}
			}
			slices.Sort(ran)
			if !slices.Equal(ran, tc.again) {
				t.Errorf("ran again: got %v, want %v", ran, tc.again)
			}
			if problems, err := b.store().Check(); err != nil || len(problems) > 0 {
				t.Errorf("the store afterwards: got %v, %v, want no problem", problems, err)
			}
		})
	}
}

// manifest returns the path of a stage's manifest, by the name of the stage; object the path of its only file.
func (b *bench) manifest(stage string) string {
	return b.path("store/nodes/" + b.recorded(stage).Key + ".json")
}

func (b *bench) object(stage string) string {
	return b.path("store/objects/" + b.recorded(stage).Outputs["out"].Digest + "/out.txt")
}

func (b *bench) recorded(stage string) *artifact.Manifest {
	b.Helper()
	m, err := b.store().Last("x", "stage.light."+stage)
	b.must(err)
	return m
}

// mend leaves the store in a state that newLab accepts.
func (b *bench) mend() {
	if problems, err := b.store().Check(); err != nil || len(problems) > 0 {
		b.must(os.RemoveAll(b.storeDir))
	}
}

// A file that is rewritten within one clock tick may keep its stamp, so a stamp of the last tick proves nothing.
func TestStampsOfTheLastTickAreNotTrusted(t *testing.T) {
	second := int64(time.Second)
	for name, tc := range map[string]struct {
		s    stat.Stamp
		now  int64
		want bool
	}{
		"changed before this tick":             {stat.Stamp{Mtime: 5, Ctime: 7}, 8, false},
		"changed in this tick":                 {stat.Stamp{Mtime: 5, Ctime: 7}, 7, true},
		"modified in this tick, says the file": {stat.Stamp{Mtime: 7, Ctime: 5}, 7, true},
		"modified in the future":               {stat.Stamp{Mtime: 9, Ctime: 5}, 7, true},
		"whole seconds, one ago":               {stat.Stamp{Mtime: 4 * second, Ctime: 4 * second}, 5 * second, true},
		"whole seconds, three ago":             {stat.Stamp{Mtime: 4 * second, Ctime: 4 * second}, 7 * second, false},
	} {
		if got := tc.s.TooRecent(tc.now); got != tc.want {
			t.Errorf("%s: young: got %v, want %v", name, got, tc.want)
		}
	}

	b := newBench(t)
	future := time.Now().Add(time.Hour)
	for _, name := range []string{"x.hcl", "data/one.txt", "data/many/1.txt"} {
		b.must(os.Chtimes(b.path(name), future, future))
	}
	b.settle()
	b.must(os.Chtimes(b.path("page.txt"), future, future))
	b.settle()
	c, err := readVerdict(b.glob("store/compiled/*"), buildID(), filepath.Base(b.glob("store/compiled/*")))
	b.must(err)
	var young []string
	for _, w := range append(c.sources, c.published...) {
		if w.TooRecent {
			young = append(young, w.Path)
		}
	}
	if want := []string{"data/many", "data/one.txt", "x.hcl", "page.txt"}; !slices.Equal(young, want) {
		t.Errorf("young: got %v, want %v", young, want)
	}
	w := c.sources[1]
	now, err := os.Stat(b.path("data/one.txt"))
	b.must(err)
	for _, young := range []bool{false, true} {
		forged := stat.File{Path: b.path("data/one.txt"), Stamp: stat.StampOf(now), Digest: w.Digest + "x",
			TooRecent: young}
		if same, _ := unchanged(&forged, 0, "", 0); same == young {
			t.Errorf("another content with this stamp, young %v: got same %v", young, same)
		}
	}
	if !b.compare() {
		t.Error("no answer although the young files hold what they held")
	}
}

// A record with a changed byte is rejected.
func TestGarbledRecordIsRejected(t *testing.T) {
	b := newBench(t)
	b.settle()
	path := b.glob("store/compiled/*")
	sound, err := os.ReadFile(path)
	b.must(err)
	for i := 0; i < len(sound); i += 7 {
		bad := slices.Clone(sound)
		bad[i] ^= 0x10
		b.must(os.WriteFile(path, bad, 0o600))
		if _, err := readVerdict(path, buildID(), filepath.Base(path)); err == nil {
			t.Errorf("byte %d of %d garbled: read all the same", i, len(sound))
		}
	}
}

// Unchanged notices new and deleted files of a folder.
func TestNewFileInAFolderIsNoticed(t *testing.T) {
	b := newBench(t)
	b.put("exp/x.hcl", "experiment {\n}\n")
	b.put("exp/y.hcl", "stage \"light\" \"a\" {\n}\n")
	b.src = lang.Source{Path: b.path("exp"), Site: b.path("site.hcl"), Env: b.src.Env}
	b.settle()
	if !b.compare() {
		t.Error("no answer although nothing changed")
	}
	b.put("exp/z.hcl", "stage \"light\" \"b\" {\n}\n")
	if b.compare() {
		t.Error("answered without the new file")
	}
	b.settle()
	if !b.compare() {
		t.Error("no answer after a run")
	}
	b.must(os.Remove(b.path("exp/z.hcl")))
	if b.compare() {
		t.Error("answered with the file that is gone")
	}
}

// Variable files and site files are never part of the experiment in their folder, under any name; a change of
// their content is noticed all the same.
func TestNamedFilesAreNotPartOfAFolder(t *testing.T) {
	b := newBench(t)
	b.put("exp/x.hcl", "experiment {\n}\nvariable \"word\" {\n}\n")
	b.put("exp/y.hcl", "stage \"toy\" \"a\" {\n  text = var.word\n}\n")
	b.put("exp/values.hcl", "word = \"one\"\n")
	b.put("exp/machine.hcl", "store {\n  path = \"../store\"\n}\n"+engine.labSite)
	b.must(os.Symlink("exp/values.hcl", b.path("link")))
	b.src = lang.Source{Path: b.path("exp"), Site: b.path("exp/machine.hcl"), Env: b.src.Env}
	if _, diags := lang.Load(b.src, engine.toys()); len(diags) == 0 || !strings.Contains(diags.Error(),
		"pass --var-file "+b.path("exp/values.hcl")) {
		t.Errorf("without -var-file: got %v, want the way out", diags)
	}
	for _, name := range []string{"exp/values.hcl", "link"} {
		b.src.VarFiles = []string{b.path(name)}
		b.settle()
		if !b.compare() {
			t.Errorf("%s: no answer although nothing changed", name)
		}
	}
	kept, err := os.ReadDir(filepath.Dir(b.glob("store/runs/exp/*/files/x.hcl")))
	if err != nil || len(kept) != 2 || kept[1].Name() != "y.hcl" {
		t.Errorf("files of the run folder: got %v, %v, want x.hcl and y.hcl", kept, err)
	}
	b.rewrite("exp/values.hcl")
	if b.compare() {
		t.Error("the changed file of variables was not noticed")
	}
	b.src.VarFiles = nil
	if b.compare() {
		t.Error("answered without -var-file")
	}
}

// No verdict is stored for a part of a plan, a plan with warnings or a failed run.
func TestOnlyACompletePlanWithoutWarningsIsSaved(t *testing.T) {
	b := newBench(t)
	b.settle()
	b.must(os.RemoveAll(b.path("store/compiled")))
	x, _ := lang.Load(b.src, engine.toys())
	p, err := New(x, b.store(), Options{Targets: []string{"light.first"}})
	b.must(err)
	p.SaveVerdict()
	if b.compare() {
		t.Error("part of the plan was compiled")
	}
	b.edit("x.hcl", "${var.other}", "")
	b.settle()
	if b.compare() {
		t.Error("an experiment with a warning was compiled")
	}
	b.put("x.hcl", everything+"stage \"light\" \"bad\" {\n  fail = \"on purpose\"\n}\n")
	if r := b.runPlan(b.Context(), b.planned(), engine.Options{KeepGoing: true}); r.err == nil {
		t.Error("the stage did not fail")
	}
	if b.compare() {
		t.Error("a failed run was compiled")
	}
}

// A power cut may tear results until the last flush of the run, and their stamps would not show it.
func TestNoVerdictIsSavedBeforeResultsAreFlushed(t *testing.T) {
	b := newBench(t)
	p := b.planned()
	t.Cleanup(func() { disk.Fail(nil) })
	disk.Fail(func(op, _ string) error {
		if recorded, _ := filepath.Glob(b.path("store/nodes/*.json")); op == "syncfs" && len(recorded) == len(p.Nodes) {
			return syscall.EIO
		}
		return nil
	})
	if r := b.runPlan(b.Context(), p, engine.Options{}); !errors.Is(r.err, syscall.EIO) {
		t.Errorf("got %v, want the error of the last flush", r.err)
	}
	disk.Fail(nil)
	stat.AwaitTick()
	if b.compare() {
		t.Error("answered from results that were not flushed")
	}
}

// A store that cannot be written plans as before.
func TestUnwritableVerdictDoesNoHarm(t *testing.T) {
	b := newBench(t)
	b.put("store/compiled", "in the way")
	b.settle()
	if b.compare() {
		t.Error("answered from nothing")
	}
	if p := b.planned(); p.Changes() {
		t.Error("the run left something to do")
	}
	b.must(os.Remove(b.path("store/compiled")))
}

// Many touched files, for example after a checkout, are read once and then trusted again; a few do not justify a
// write.
func TestRecordIsRenewedAfterManyTouches(t *testing.T) {
	b := newBench(t)
	var files []string
	for i := range refreshFrom {
		name := "data/f" + strconv.Itoa(i)
		b.put(name, name)
		files = append(files, `file("`+name+`")`)
	}
	b.put("x.hcl", "experiment {\n}\nstage \"light\" \"a\" {\n  data = ["+strings.Join(files, ", ")+"]\n}\n")
	b.src.VarFiles = nil
	b.settle()
	record := b.glob("store/compiled/*")
	read := func() string {
		text, err := os.ReadFile(record)
		b.must(err)
		return string(text)
	}
	before := read()
	for i := range refreshFrom - 1 {
		b.touch("data/f" + strconv.Itoa(i))
	}
	if Unchanged(b.src) == nil || read() != before {
		t.Error("few touches: want an answer and nothing written")
	}
	b.touch("data/f" + strconv.Itoa(refreshFrom-1))
	stat.AwaitTick()
	if Unchanged(b.src) == nil || read() == before {
		t.Error("many touches: want an answer and a new record")
	}
	before = read()
	if Unchanged(b.src) == nil || read() != before {
		t.Error("after that: want an answer and nothing written")
	}
	b.rewrite("data/f7")
	if b.compare() {
		t.Error("a change after the renewal was not noticed")
	}
}

// Parsing any line ends with an error at worst.
func FuzzVerdictLine(f *testing.F) {
	f.Add("r 1 2 3 4 - store/nodes/a.json")
	f.Add("s/? 1 -2 3 18446744073709551615 d /base with spaces")
	f.Fuzz(func(t *testing.T, line string) {
		use, state, ok := parseLine(line)
		if !ok || strings.Contains(line, "\n") {
			return
		}
		if again, same, ok := parseLine(strings.TrimSuffix(string(appendLine(&state, []byte{use}, "/")),
			"\n")); !ok || again != use ||
			same.Stamp != state.Stamp || same.Digest != state.Digest {
			t.Errorf("%q: got %c %+v, then %c %+v", line, use, state, again, same)
		}
	})
}

func TestRecordKeepsEverything(t *testing.T) {
	path := filepath.Join(t.TempDir(), "compiled", "r")
	want := verdictFile{Build: "b", Identity: "i", Experiment: "x",
		Counts:   map[Verb]int{UpToDate: 300, Collected: 1},
		Disabled: []string{"d", ""}, Base: "/base", Paths: []string{"/base/x.hcl"},
		sources: []stat.File{{Path: "/base/one", TooRecent: true, Digest: "d", Stamp: stat.Stamp{1, -2, 3, 1 << 63}},
			{Path: "/basement", Folder: true, Digest: "e"}},
		published: []stat.File{{Path: "/base/two words", Digest: "f"}},
		results:   []stat.File{{Path: "/base/r", Stamp: stat.Stamp{Size: 9}}}}
	record, ok := want.encode()
	if !ok {
		t.Fatal("not encoded")
	}
	if err := writeVerdict(path, record); err != nil {
		t.Fatal(err)
	}
	got, err := readVerdict(path, "b", "i")
	if err != nil {
		t.Fatal(err)
	}
	want.sources[0].Path, want.published[0].Path, want.results[0].Path = "one", "two words", "r"
	if !reflect.DeepEqual(got, &want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for name, of := range map[string][2]string{"another build": {"another", "i"},
		"another experiment": {"b", "another"}} {
		if _, err := readVerdict(path, of[0], of[1]); err == nil {
			t.Errorf("read a record of %s", name)
		}
	}
	want.sources[0].Path = "two\nlines"
	if _, ok := want.encode(); ok {
		t.Error("a path of two lines was encoded")
	}
}
