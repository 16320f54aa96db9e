package engine_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

// sharedLab is a machine with its own store and the remote store in dir.
func sharedLab(t *testing.T, dir, more string) *enginetest.Lab {
	l := enginetest.NewLab(t)
	l.Put("site.hcl", enginetest.Site+fmt.Sprintf("remote \"lab\" {\n url = %q\n push = \"yes\"\n%s}\n", dir, more))
	l.Write(sharedStages)
	return l
}

// A page reads b, and b reads a.
const sharedStages = `
stage "light" "a" {
  text  = "A"
  count = "$dir/count"
}
stage "light" "b" {
  from  = [stage.light.a.out]
  text  = "B"
  count = "$dir/count"
}
stage "page" "report" {
  text = "page"
  from = [stage.light.b.out]
}
`

func TestASecondMachineExecutesNothing(t *testing.T) {
	dir := t.TempDir()
	first := sharedLab(t, dir, "")
	first.MustRun()
	l := sharedLab(t, dir, "")
	p := l.Plan()
	for _, n := range p.Nodes {
		want := map[string]string{"page": "out"}[n.Kind.Name]
		if n.Verb != plan.Fetch || strings.Join(n.FetchPorts, " ") != want {
			t.Errorf("%s: got verb %s and ports %v, want fetch and %q", n.Address, n.Verb, n.FetchPorts, want)
		}
	}
	r := l.MustRun()
	l.Want(r, runs.EventFetched, "light.a", "light.b", "page.report")
	wantList(t, "starts", l.Starts())
	wantFile(l, "page.txt", first.Read("page.txt"))
	for _, name := range []string{"light.a", "light.b"} {
		wantEqual(t, name, l.Planned(name).Verb, plan.Collected) // its record is here without its bytes
	}
	must.OK(t, os.RemoveAll(dir)) // a local hit needs no remote
	l.Want(l.MustRun(), runs.EventFetched)
}

func TestAChangedStageFetchesTheInputsThatItReads(t *testing.T) {
	dir := t.TempDir()
	sharedLab(t, dir, "").MustRun()
	l := sharedLab(t, dir, "")
	l.MustRun() // b is here without its bytes
	l.Write(strings.Replace(sharedStages, `text = "page"`, `text = "other"`, 1))
	if b := l.Planned("light.b"); b.Verb != plan.Fetch || b.FetchBytes() == 0 {
		t.Errorf("b: got verb %s and %d bytes, want fetch and its bytes", b.Verb, b.FetchBytes())
	}
	r := l.MustRun()
	l.Want(r, runs.EventDone, "page.report")
	if starts := l.Starts(); len(starts) > 0 || l.Text("light.b") == "" {
		t.Errorf("got starts %v and text %q of b, want it fetched", starts, l.Text("light.b"))
	}
}

// Damage, a missing file and another signer are misses: the stages run, the result is the same, each miss is a note.
func TestAMissIsReportedAndItsStageRuns(t *testing.T) {
	for what, change := range map[string]func(dir string) string{
		"a damaged record": func(dir string) string { edit(dir, "v1/nodes/*"); return "" },
		"a damaged pack":   func(dir string) string { edit(dir, "v1/packs/*"); return "" },
		"no packs":         func(dir string) string { os.RemoveAll(filepath.Join(dir, "v1/packs")); return "" },
		"no signature": func(string) string {
			return " trust = [\"me-1:" + strings.Repeat("A", 43) + "=\"]\n"
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			first := sharedLab(t, dir, "")
			first.MustRun()
			l := sharedLab(t, dir, change(dir))
			r := l.MustRun()
			wantFile(l, "page.txt", first.Read("page.txt"))
			if len(r.Of(runs.EventDone)) == 0 {
				t.Errorf("got %s, want stages that run", r)
			}
			if what == "a damaged pack" || what == "no packs" {
				wantEvent(t, r, runs.EventNote, "page.report")
			}
		})
	}
}

// edit changes one byte of each file that a pattern matches.
func edit(dir, pattern string) {
	files, _ := filepath.Glob(filepath.Join(dir, pattern))
	for _, file := range files {
		b, _ := os.ReadFile(file)
		b[len(b)/2] ^= 1
		os.WriteFile(file, b, 0o600)
	}
}

func TestADeadRemoteLeavesTheRunAlone(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	dir := filepath.Join(t.TempDir(), "away")
	const nowhere = "s3://lab?region=eu&endpoint=http://127.0.0.1:1"
	var l *enginetest.Lab
	for _, url := range []string{nowhere, dir} {
		l = sharedLab(t, url, "")
		r := l.MustRun()
		l.Want(r, runs.EventDone, "light.a", "light.b", "page.report")
		var notes []string
		for _, e := range r.Events {
			if e.Kind == runs.EventNote {
				notes = append(notes, e.Text)
			}
		}
		const want = "3 of the results are not in remote lab"
		if !slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, want) }) || len(notes) > 2 {
			t.Errorf("%s: got notes %q, want the error and the number of results that were not pushed", url, notes)
		}
	}
	must.OK(t, os.Mkdir(dir, 0o700)) // the next run sends them
	l.Write(strings.Replace(sharedStages, `text = "page"`, `text = "other"`, 1))
	l.MustRun()
	wantEqual(t, "results in the remote store", len(must.Get(filepath.Glob(filepath.Join(dir, "v1/nodes/*")))(t)), 4)
}

// A key that is known only after an input has run is asked for during the run.
func TestARebuiltInputLeadsToFetchedReaders(t *testing.T) {
	dir := t.TempDir()
	sharedLab(t, dir, "").MustRun()
	l := sharedLab(t, dir, "")
	l.Write(strings.Replace(sharedStages, `text  = "A"`, "text  = \"A\"\n  note  = \"another key, the same output\"", 1))
	r := l.RunPlan(t.Context(), l.Plan(), engine.Options{})
	l.Want(r, runs.EventDone, "light.a")
	l.Want(r, runs.EventFetched, "light.b", "page.report")
}
