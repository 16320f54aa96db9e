package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

// sharedLab is a machine with its own store and the remote store in dir.
func sharedLab(t *testing.T, dir string) *enginetest.Lab {
	l := enginetest.NewLab(t)
	l.Put("site.hcl", enginetest.Site+fmt.Sprintf("remote \"lab\" {\n url = %q\n push = \"yes\"\n}\n", dir))
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
	first := sharedLab(t, dir)
	first.MustRun()
	l := sharedLab(t, dir)
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
		wantEqual(t, name, l.Planned(name).Verb, plan.NotHere) // its manifest is here without its bytes
	}
	must.OK(t, os.RemoveAll(dir)) // a local hit needs no remote
	l.Want(l.MustRun(), runs.EventFetched)
}

func TestAChangedStageFetchesTheInputsThatItReads(t *testing.T) {
	dir := t.TempDir()
	sharedLab(t, dir).MustRun()
	l := sharedLab(t, dir)
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

// Damage and a missing file are misses: the stages run, the result is the same, each miss is a note. So is anything
// that another user of the folder may have put there. The results that were made instead repair the store.
func TestAMissIsReportedAndItsStageRuns(t *testing.T) {
	nodes, files := "results/*", "objects/*/*"
	for what, change := range map[string]func(dir string){
		"a damaged manifest": func(dir string) { edit(dir, nodes, flip) },
		"a damaged file":     func(dir string) { edit(dir, files, flip) },
		"no files":           func(dir string) { os.RemoveAll(filepath.Join(dir, "objects")) },
		"a manifest that is a pipe": func(dir string) {
			edit(dir, nodes, func(file string) { must.OK(t, errors.Join(os.Remove(file), unix.Mkfifo(file, 0o600))) })
		},
		"a file that is a pipe": func(dir string) {
			edit(dir, files, func(file string) { must.OK(t, errors.Join(os.Remove(file), unix.Mkfifo(file, 0o600))) })
		},
		"a manifest that links to itself": func(dir string) {
			edit(dir, nodes, func(file string) { must.OK(t, errors.Join(os.Remove(file), os.Symlink(file, file))) })
		},
		"a size of 2^55 bytes with a link to a device": func(dir string) {
			rewrite(t, dir, func(m *artifact.Manifest) { change(m, func(f *artifact.FileInfo) { f.Bytes = 1 << 55 }) })
			edit(dir, files, func(file string) { must.OK(t, errors.Join(os.Remove(file), os.Symlink("/dev/zero", file))) })
		},
		"a file of 2^39 bytes that links to a device": func(dir string) {
			rewrite(t, dir, func(m *artifact.Manifest) { change(m, func(f *artifact.FileInfo) { f.Bytes = 1 << 39 }) })
			edit(dir, files, func(file string) { must.OK(t, errors.Join(os.Remove(file), os.Symlink("/dev/zero", file))) })
		},
		"a file that is larger than its entry": func(dir string) {
			edit(dir, files, func(file string) { must.OK(t, errors.Join(os.Chmod(file, 0o600), os.Truncate(file, 1<<39))) })
		},
		"a manifest without a port": func(dir string) {
			rewrite(t, dir, func(m *artifact.Manifest) {
				m.Outputs["other"] = m.Outputs["out"]
				delete(m.Outputs, "out")
			})
		},
		"a manifest without outputs": func(dir string) {
			rewrite(t, dir, func(m *artifact.Manifest) { m.Outputs = nil })
		},
		"a manifest of another type": func(dir string) {
			rewrite(t, dir, func(m *artifact.Manifest) {
				o := m.Outputs["out"]
				o.Type = "checkpoint"
				m.Outputs["out"] = o
			})
		},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			first := sharedLab(t, dir)
			first.MustRun()
			change(dir)
			l := sharedLab(t, dir)
			r := l.MustRun()
			wantFile(l, "page.txt", first.Read("page.txt"))
			if len(r.Of(runs.EventDone)) == 0 {
				t.Errorf("got %s, want stages that run", r)
			}
			if strings.Contains(what, "file") {
				wantEvent(t, r, runs.EventNote, "page.report")
			}
			third := sharedLab(t, dir)
			third.MustRun()
			wantList(t, "starts after the repair", third.Starts())
		})
	}
}

// edit calls f for each file that a pattern matches.
func edit(dir, pattern string, f func(file string)) {
	files, _ := filepath.Glob(filepath.Join(dir, pattern))
	for _, file := range files {
		f(file)
	}
}

// flip changes one byte of a file.
func flip(file string) {
	b, _ := os.ReadFile(file)
	b[len(b)/2] ^= 1
	replaceFile(file, b)
}

// replaceFile replaces a file that may be read-only.
func replaceFile(file string, b []byte) {
	os.Remove(file)
	os.WriteFile(file, b, 0o600)
}

// rewrite changes each manifest of a remote store and its hash.
func rewrite(t *testing.T, dir string, f func(m *artifact.Manifest)) {
	edit(dir, "results/*", func(file string) {
		var m artifact.Manifest
		must.OK(t, json.Unmarshal(must.Get(os.ReadFile(file))(t), &m))
		f(&m)
		replaceFile(file, must.Get(artifact.EncodeManifest(m))(t))
	})
}

// change changes each file of a manifest's port out, and the size of the port.
func change(m *artifact.Manifest, f func(*artifact.FileInfo)) {
	o := m.Outputs["out"]
	o.Bytes = 0
	for i := range o.Files {
		f(&o.Files[i])
		o.Bytes += o.Files[i].Bytes
	}
	m.Outputs["out"] = o
}

func TestADeadRemoteLeavesTheRunAlone(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	dir := filepath.Join(t.TempDir(), "away")
	const nowhere = "s3://lab?region=eu&endpoint=http://127.0.0.1:1"
	for _, url := range []string{nowhere, dir} {
		l := sharedLab(t, url)
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
}

// A key that is known only after an input has run is asked for during the run.
func TestARebuiltInputLeadsToFetchedReaders(t *testing.T) {
	dir := t.TempDir()
	sharedLab(t, dir).MustRun()
	l := sharedLab(t, dir)
	l.Write(strings.Replace(sharedStages, `text  = "A"`, "text  = \"A\"\n  note  = \"another key, the same output\"", 1))
	r := l.RunPlan(t.Context(), l.Plan(), engine.Options{})
	l.Want(r, runs.EventDone, "light.a")
	l.Want(r, runs.EventFetched, "light.b", "page.report")
}
