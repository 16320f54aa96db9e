package engine

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/disk"
)

func TestMapOfFilesAndPortsBecomesEdgesAndDigests(t *testing.T) {
	x := mustLoad(t, `
experiment {
}
stage "tasks" "t" {
  source = "bfcl"
}
stage "exec" "x" {
  command = ["true"]
  inputs  = { src = file("raw.csv"), train = stage.tasks.t.train }
}
`)
	n := x.Node("stage.exec.x")
	s := n.Stage.(*toyExec)
	if got := filepath.Base(s.Inputs["src"].File.Path); got != "raw.csv" || s.Inputs["src"].Ref != (artifact.Ref{}) {
		t.Errorf("inputs.src: got %+v, want the file raw.csv", s.Inputs["src"])
	}
	if got := s.Inputs["train"].Ref; got.Name != "t" || got.Port != "train" {
		t.Errorf("inputs.train: got %+v, want port train of t", got)
	}
	if len(n.Inputs) != 1 || n.Inputs[0].Setting != "inputs.train" || n.Inputs[0].From.Address != "stage.tasks.t" {
		t.Errorf("edges: got %+v, want inputs.train from stage.tasks.t", n.Inputs)
	}
	i := slices.IndexFunc(n.Settings, func(s Setting) bool { return s.Name == "inputs.src" })
	if i < 0 || n.Settings[i].Value != jsonText(s.Inputs["src"].File.Digest) {
		t.Errorf("settings: got %+v, want inputs.src with the file's digest", n.Settings)
	}
	if _, _, ok := Key(n, func(*Node, string) (string, bool) { return "d", true }); !ok {
		t.Error("the node has no key")
	}
}

// Only regular files have content for a key. Everything else is rejected without opening it or reading it to its
// end, which devices and pipes may not have.
func TestDataMustBeRegularFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"pipes", "links", "sound"} {
		if err := os.Mkdir(at(name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	sparse, err := os.Create(at("sparse"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sparse.Truncate(disk.MaxPlain+1), sparse.Close()); err != nil {
		t.Skip("this file system has no large files: ", err)
	}
	err = errors.Join(unix.Mkfifo(at("pipe"), 0o600), unix.Mkfifo(at("pipes/pipe"), 0o600),
		os.Symlink("/dev/zero", at("zero")),
		os.Symlink("/dev/zero", at("links/zero")), os.Symlink("/proc/self/maps", at("proc")), os.Symlink("pipe",
			at("linked pipe")),
		os.WriteFile(at("sound/file"), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for expr, want := range map[string]string{
		`file("pipe")`:        "pipe is a named pipe",
		`file("linked pipe")`: "linked pipe is a named pipe",
		`file("zero")`:        "zero is a device",
		`file("/dev/zero")`:   "/dev/zero is a device",
		`dir("/dev/zero")`:    "/dev/zero is a device",
		`dir("pipe")`:         "pipe is a named pipe",
		`dir("pipes")`:        "pipes/pipe is no plain file but a named pipe",
		`dir("links")`:        "links/zero links to a device",
		`file("sparse")`:      "at most 1099511627776 are read",
		`file("proc")`:        "more than the 0 bytes of its size",
		`dir("sound")`:        "",
	} {
		t.Run(expr, func(t *testing.T) {
			if err := os.WriteFile(at("x.hcl"),
				[]byte("experiment {\n}\nstage \"toy\" \"a\" {\n  data = ["+expr+"]\n}\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			_, diags := Load(Source{Path: at("x.hcl"), Env: []string{"HOME=" + dir}}, toys())
			if want == "" && diags.HasErrors() || want != "" && !strings.Contains(diags.Error(), want) {
				t.Errorf("got %v, want %q", diags, want)
			}
		})
	}
}

// HCL files must be regular and small.
func TestSourcesMustBeRegularFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	good := at("good.hcl")
	err := errors.Join(unix.Mkfifo(at("pipe.hcl"), 0o600), os.WriteFile(good, []byte("experiment {\n}\n"), 0o600),
		os.WriteFile(at("large.hcl"), nil, 0o600), os.Truncate(at("large.hcl"), maxSource+1))
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"HOME=" + dir}
	for name, tc := range map[string]struct {
		src  Source
		want string
	}{
		"experiment": {Source{Path: at("pipe.hcl"), Env: env}, "pipe.hcl is no plain file"},
		"device":     {Source{Path: "/dev/zero", Env: env}, "/dev/zero is no plain file"},
		"variables": {Source{Path: good, VarFiles: []string{at("pipe.hcl")}, Env: env},
			"pipe.hcl is no plain file"},
		"site": {Source{Path: good, Site: at("pipe.hcl"), Env: env}, "pipe.hcl is no plain file"},
		"size": {Source{Path: at("large.hcl"), Env: env}, "large.hcl has 67108865 bytes"},
	} {
		if _, diags := Load(tc.src, toys()); !strings.Contains(diags.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, diags, tc.want)
		}
		if tc.src.Path != good {
			if _, err := ReadSource(tc.src.Path); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("ReadSource of %s: got %v, want %q", name, err, tc.want)
			}
		}
	}
	if _, err := FindExperiment(dir); err == nil || !strings.Contains(err.Error(),
		"no plain file") && !strings.Contains(err.Error(), "bytes") {
		t.Errorf("FindExperiment beside them: got %v, want the first that is refused", err)
	}
}

// raced is true under the race detector.
var raced bool

// A folder may contain very many files: its digest covers names and contents, memory is linear in the number of
// files, and a change of one file is noticed. (With a million files the first Load took 458 MB and later ones 36.)
func TestFolderOfManyFiles(t *testing.T) {
	const folders, each = 20, 200
	dir := t.TempDir()
	want := sha256.New()
	for d := range folders {
		if err := os.MkdirAll(filepath.Join(dir, "many", fmt.Sprintf("d%02d", d)), 0o755); err != nil {
			t.Fatal(err)
		}
		for f := range each {
			name, text := fmt.Sprintf("d%02d/f%03d", d, f), fmt.Sprintf("%d %d", d, f)
			if err := os.WriteFile(filepath.Join(dir, "many", name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(want, "%x  %s\n", sha256.Sum256([]byte(text)), name)
		}
	}
	file := filepath.Join(dir, "x.hcl")
	writeFile(t, file, "experiment {\n}\nstage \"toy\" \"a\" {\n  data = [dir(\"many\")]\n}\n")
	digest := func() string {
		x, diags := Load(sourceOf(file), toys())
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		return x.Node("stage.toy.a").Files[0].Digest
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := digest()
	runtime.ReadMemStats(&after)
	if got != fmt.Sprintf("%x", want.Sum(nil)) {
		t.Errorf("got %s, want %x", got, want.Sum(nil))
	}
	if perFile := (after.TotalAlloc - before.TotalAlloc) / (folders * each); perFile > 4<<10 && !raced { // the race detector empties pools
		t.Errorf("allocated %d bytes for each file, want at most 4 KiB", perFile)
	}
	if err := os.WriteFile(filepath.Join(dir, "many", "d07/f100"), []byte("x 100"), 0o600); err != nil {
		t.Fatal(err)
	}
	if digest() == got {
		t.Error("the change of one file was not noticed")
	}
}
