package plan_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/internal/stat"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/internal/must"
)

func TestMain(m *testing.M) { enginetest.Main(m) }

// idleLab is a lab whose runs store a verdict: its store is that of the site file.
type idleLab struct {
	*enginetest.Lab
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

func newIdleLab(t *testing.T) *idleLab {
	t.Helper()
	b := &idleLab{Lab: enginetest.NewLab(t)}
	b.put("site.hcl", "store {\n  path = \"store\"\n}\n"+enginetest.Site)
	b.put("x.hcl", everything)
	for _, name := range []string{"data/one.txt", "data/target.txt", "data/many/1.txt", "data/many/below/2.txt"} {
		b.put(name, "content of "+filepath.Base(name))
	}
	b.link("target.txt", "data/link.txt")
	b.put("vars.hcl.txt", `other = "p"`)
	b.src = lang.Source{Path: b.File, Site: b.path("site.hcl"), Env: []string{"HOME=" + b.Dir},
		Vars: map[string]string{}, VarFiles: []string{b.path("vars.hcl.txt")}}
	return b
}

func (b *idleLab) path(name string) string { return filepath.Join(b.Dir, name) }

func (b *idleLab) must(err error) { b.Helper(); must.OK(b, err) }

// put writes a file and creates its folder.
func (b *idleLab) put(name, text string) {
	b.Helper()
	b.must(os.MkdirAll(filepath.Dir(b.path(name)), 0o755))
	b.Put(name, text)
}

func (b *idleLab) remove(name string) { b.Helper(); b.must(os.RemoveAll(b.path(name))) }

// link replaces a file by a symbolic link.
func (b *idleLab) link(target, name string) {
	b.Helper()
	b.remove(name)
	b.must(os.Symlink(target, b.path(name)))
}

func (b *idleLab) edit(name, old, new string) {
	b.Helper()
	text := b.Read(name)
	if !strings.Contains(text, old) {
		b.Fatalf("%s has no %q", name, old)
	}
	b.put(name, strings.Replace(text, old, new, 1))
}

func (b *idleLab) touch(name string) {
	b.Helper()
	now := time.Now()
	b.must(os.Chtimes(b.path(name), now, now))
}

// rewrite changes the content of a file, but not its length and modification time.
func (b *idleLab) rewrite(name string) {
	b.Helper()
	info := must.Get(os.Stat(b.path(name)))(b)
	text := []byte(b.Read(name))
	text[0] ^= 1
	b.put(name, string(text))
	b.must(os.Chtimes(b.path(name), info.ModTime(), info.ModTime()))
}

// glob returns the first file that matches a pattern, relative to the lab's folder.
func (b *idleLab) glob(pattern string) string {
	b.Helper()
	found, err := filepath.Glob(b.path(pattern))
	if err != nil || len(found) == 0 {
		b.Fatalf("nothing fits %s: %v", pattern, err)
	}
	return must.Get(filepath.Rel(b.Dir, found[0]))(b)
}

const record = "store/compiled/*"

// planned loads and plans without the stored verdict.
func (b *idleLab) planned(o plan.Options) *plan.Plan {
	b.Helper()
	x, diags := lang.Load(b.src, enginetest.ToyKinds())
	if diags.HasErrors() {
		b.Fatal(diags)
	}
	return must.Get(plan.New(x, b.Store(), o))(b)
}

// settle runs everything and waits for the next clock tick, so that a file written next has a different stamp.
func (b *idleLab) settle() {
	b.Helper()
	stat.AwaitTick()
	if r := b.RunPlan(b.Context(), b.planned(plan.Options{}), engine.Options{}); r.Err != nil {
		b.Fatalf("%v\n%s", r.Err, r)
	}
	stat.AwaitTick()
}

// want checks whether Unchanged answers, and compares the answer with a plan.
func (b *idleLab) want(answer bool, when string) {
	b.Helper()
	idle := plan.Unchanged(b.src)
	wantEqual(b.T, when+": an answer", idle != nil, answer)
	if idle == nil {
		return
	}
	p := b.planned(plan.Options{})
	r, ended := b.RunPlan(b.Context(), p, engine.Options{}), engine.EndedUnchanged(idle.Counts)
	if len(r.Events) != 1 || r.Events[0].Kind != ended.Kind || !maps.Equal(r.Events[0].Counts, ended.Counts) {
		b.Errorf("%s: the answer is %v; a run reports\n%s", when, ended, r)
	}
	if x := p.Experiment; x.Warned || idle.Experiment != x.Name || !slices.Equal(idle.Disabled, x.Disabled) {
		b.Errorf("%s: got %s without %v, want %s without %v", when, idle.Experiment, idle.Disabled, x.Name, x.Disabled)
	}
}

// Unchanged answers as loading and planning would; otherwise it returns nil.
func TestUnchangedAnswersAsAPlanDoes(t *testing.T) {
	unaffected := map[string]func(b *idleLab){
		"nothing":                             func(b *idleLab) {},
		"another variable of the environment": func(b *idleLab) { b.src.Env = append(b.src.Env, "LANG=C") },
		"a result came and went": func(b *idleLab) {
			name := "store/nodes/" + strings.Repeat("a", 64) + ".json"
			b.put(name, "{}")
			b.remove(name)
		},
	}
	noticed := map[string]func(b *idleLab){
		"experiment touched":            func(b *idleLab) { b.touch("x.hcl") },
		"input touched":                 func(b *idleLab) { b.touch("data/one.txt") },
		"input rewritten, content kept": func(b *idleLab) { b.put("data/one.txt", "content of one.txt") },
		"file touched in a folder":      func(b *idleLab) { b.touch("data/many/1.txt") },
		"comment added":                 func(b *idleLab) { b.edit("x.hcl", "experiment", "# no\nexperiment") },
		"setting changed":               func(b *idleLab) { b.edit("x.hcl", `"second"`, `"sec"`) },
		"setting changed, time kept":    func(b *idleLab) { b.rewrite("x.hcl") },
		"input changed, time kept":      func(b *idleLab) { b.rewrite("data/one.txt") },
		"input longer":                  func(b *idleLab) { b.put("data/one.txt", "content of one.txt and more") },
		"input removed":                 func(b *idleLab) { b.remove("data/one.txt") },
		"input is a folder now": func(b *idleLab) {
			b.remove("data/one.txt")
			b.must(os.Mkdir(b.path("data/one.txt"), 0o755))
		},
		"target of a link changed":          func(b *idleLab) { b.rewrite("data/target.txt") },
		"link to another file":              func(b *idleLab) { b.link("one.txt", "data/link.txt") },
		"file in an input folder":           func(b *idleLab) { b.rewrite("data/many/below/2.txt") },
		"file new in an input folder":       func(b *idleLab) { b.put("data/many/below/3.txt", "3") },
		"published file removed":            func(b *idleLab) { b.remove("page.txt") },
		"published file edited":             func(b *idleLab) { b.put("page.txt", "mine") },
		"published file changed, time kept": func(b *idleLab) { b.rewrite("page.txt") },
		"published file touched":            func(b *idleLab) { b.touch("page.txt") },
		"published file replaced by a link": func(b *idleLab) {
			b.must(os.Rename(b.path("page.txt"), b.path("page2.txt")))
			b.link("page2.txt", "page.txt")
		},
		"variable on the command line": func(b *idleLab) { b.src.Vars["word"] = "b" },
		"variable in the environment":  func(b *idleLab) { b.src.Env = append(b.src.Env, "RCGRPO_VAR_word=b") },
		"variable in its file":         func(b *idleLab) { b.edit("vars.hcl.txt", "p", "q") },
		"without the variables' file":  func(b *idleLab) { b.src.VarFiles = nil },
		"another home folder":          func(b *idleLab) { b.src.Env = []string{"HOME=/"} },
		"another site file": func(b *idleLab) {
			b.put("site2.hcl", "store {\n  path = \"store\"\n}\n")
			b.src.Site = b.path("site2.hcl")
		},
		"site file edited": func(b *idleLab) { b.edit("site.hcl", "cpus = 4", "cpus = 3") },
		"site file broken": func(b *idleLab) { b.edit("site.hcl", "cpus", "cpu") },
		"another store":    func(b *idleLab) { b.edit("site.hcl", `"store"`, `"store2"`) },
		"turned off":       func(b *idleLab) { b.src.Env = append(b.src.Env, "RCGRPO_COMPILED=off") },
		"experiment renamed": func(b *idleLab) {
			b.must(os.Rename(b.File, b.path("y.hcl")))
			b.src.Path = b.path("y.hcl")
		},
		"experiment is a folder": func(b *idleLab) { b.src.Path = b.Dir },
		"another build":          func(b *idleLab) { b.Cleanup(plan.SetBuildID("another")) },
		"collected":              func(b *idleLab) { _, err := b.Store().Collect(1); b.must(err) },
		"garbage collected":      func(b *idleLab) { _, err := b.Store().Collect(0); b.must(err) },
		"manifest removed":       func(b *idleLab) { b.remove(b.glob("store/nodes/*.json")) },
		"object removed":         func(b *idleLab) { b.remove(b.glob("store/objects/*")) },
		"store removed":          func(b *idleLab) { b.remove("store") },
		"damage found by check": func(b *idleLab) {
			object := b.glob("store/objects/*/out.txt")
			b.must(os.Chmod(b.path(object), 0o644))
			b.put(object, "by hand")
			if problems, err := b.Store().Check(); err != nil || len(problems) == 0 {
				b.Errorf("check: got %v, %v, want the damage", problems, err)
			}
		},
		"record removed":  func(b *idleLab) { b.remove("store/compiled") },
		"record emptied":  func(b *idleLab) { b.must(os.Truncate(b.path(b.glob(record)), 0)) },
		"record torn":     func(b *idleLab) { b.must(os.Truncate(b.path(b.glob(record)), 400)) },
		"record a folder": func(b *idleLab) { r := b.glob(record); b.remove(r); b.must(os.Mkdir(b.path(r), 0o700)) },
		"record of another experiment": func(b *idleLab) {
			mine := b.glob(record)
			b.src.Vars["word"] = "b"
			b.settle()
			b.remove(mine)
			b.must(os.Rename(b.path(b.glob(record)), b.path(mine)))
			delete(b.src.Vars, "word")
		},
	}
	for answer, changes := range map[bool]map[string]func(*idleLab){true: unaffected, false: noticed} {
		for name, change := range changes {
			t.Run(name, func(t *testing.T) {
				b := newIdleLab(t)
				b.settle()
				b.want(true, "before")
				change(b)
				b.want(answer, "afterwards")
				if problems, err := b.Store().Check(); err != nil || len(problems) > 0 {
					b.remove("store") // the lab accepts only a sound store
				}
			})
		}
	}
}

// A stamp from the future may stay the same when the file changes, so it proves nothing.
func TestFilesOfTheFutureAreNotTrusted(t *testing.T) {
	for _, name := range []string{"x.hcl", "data/one.txt", "data/many/1.txt", "page.txt"} {
		b := newIdleLab(t)
		b.settle()
		b.want(true, "before")
		future := time.Now().Add(time.Hour)
		b.must(os.Chtimes(b.path(name), future, future))
		b.settle()
		b.want(false, "with "+name+" from the future")
	}
}

// Unchanged notices new and deleted files of a folder.
func TestNewFileInAFolderIsNoticed(t *testing.T) {
	b := newIdleLab(t)
	b.put("exp/x.hcl", "experiment {\n}\n")
	b.put("exp/y.hcl", "stage \"light\" \"a\" {\n}\n")
	b.src = lang.Source{Path: b.path("exp"), Site: b.path("site.hcl"), Env: b.src.Env}
	b.settle()
	b.want(true, "without a change")
	b.put("exp/z.hcl", "stage \"light\" \"b\" {\n}\n")
	b.want(false, "with a new file")
	b.settle()
	b.want(true, "after a run")
	b.remove("exp/z.hcl")
	b.want(false, "without the file")
}

// Variable files and site files are never part of the experiment in their folder, under any name; a change of
// their content is noticed all the same.
func TestNamedFilesAreNotPartOfAFolder(t *testing.T) {
	b := newIdleLab(t)
	b.put("exp/x.hcl", "experiment {\n}\nvariable \"word\" {\n}\n")
	b.put("exp/y.hcl", "stage \"toy\" \"a\" {\n  text = var.word\n}\n")
	b.put("exp/values.hcl", "word = \"one\"\n")
	b.put("exp/machine.hcl", "store {\n  path = \"../store\"\n}\n"+enginetest.Site)
	b.link("exp/values.hcl", "link")
	b.src = lang.Source{Path: b.path("exp"), Site: b.path("exp/machine.hcl"), Env: b.src.Env}
	wayOut := "pass --var-file " + b.path("exp/values.hcl")
	if _, diags := lang.Load(b.src, enginetest.ToyKinds()); !strings.Contains(enginetest.Mistakes(diags), wayOut) {
		t.Errorf("without -var-file: got %v, want the way out", diags)
	}
	for _, name := range []string{"exp/values.hcl", "link"} {
		b.src.VarFiles = []string{b.path(name)}
		b.settle()
		b.want(true, name)
	}
	kept, err := os.ReadDir(b.path(filepath.Dir(b.glob("store/runs/exp/*/files/x.hcl"))))
	if err != nil || len(kept) != 2 || kept[1].Name() != "y.hcl" {
		t.Errorf("files of the run folder: got %v, %v, want x.hcl and y.hcl", kept, err)
	}
	b.rewrite("exp/values.hcl")
	b.want(false, "with changed variables")
	b.src.VarFiles = nil
	b.want(false, "without -var-file")
}

// No verdict is stored for a part of a plan, a plan with warnings or a failed run.
func TestOnlyACompletePlanWithoutWarningsIsSaved(t *testing.T) {
	b := newIdleLab(t)
	b.settle()
	b.remove("store/compiled")
	b.planned(plan.Options{Targets: []string{"light.first"}}).SaveIdle()
	b.want(false, "part of the plan")
	b.edit("x.hcl", "${var.other}", "")
	b.settle()
	b.want(false, "with a warning")
	b.put("x.hcl", everything+"stage \"light\" \"bad\" {\n  fail = \"on purpose\"\n}\n")
	r := b.RunPlan(b.Context(), b.planned(plan.Options{}), engine.Options{KeepGoing: true})
	if r.Err == nil {
		t.Error("the stage did not fail")
	}
	b.want(false, "after a failed run")
}

// A power cut may tear results until the last flush of the run, and their stamps would not show it.
func TestNoVerdictIsSavedBeforeResultsAreFlushed(t *testing.T) {
	b := newIdleLab(t)
	p := b.planned(plan.Options{})
	t.Cleanup(func() { disk.Fail(nil) })
	disk.Fail(func(op, _ string) error {
		if recorded, _ := filepath.Glob(b.path("store/nodes/*.json")); op == "syncfs" && len(recorded) == len(p.Nodes) {
			return syscall.EIO
		}
		return nil
	})
	if r := b.RunPlan(b.Context(), p, engine.Options{}); !errors.Is(r.Err, syscall.EIO) {
		t.Errorf("got %v, want the error of the last flush", r.Err)
	}
	disk.Fail(nil)
	stat.AwaitTick()
	b.want(false, "without the last flush")
}

// A store that cannot be written plans as before.
func TestUnwritableVerdictDoesNoHarm(t *testing.T) {
	b := newIdleLab(t)
	b.put("store/compiled", "in the way")
	b.settle()
	b.want(false, "without a record")
	if b.planned(plan.Options{}).Changes() {
		t.Error("the run left something to do")
	}
	b.remove("store/compiled")
}
