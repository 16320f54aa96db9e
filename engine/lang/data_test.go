package lang_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"golang.org/x/sys/unix"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/internal/must"
)

func TestMapOfFilesAndPortsBecomesEdgesAndDigests(t *testing.T) {
	x := enginetest.MustLoadPaper(t, `
experiment {}
stage "tasks" "t" {
  source = "bfcl"
}
stage "exec" "x" {
  command = ["true"]
  inputs  = { src = file("raw.csv"), train = stage.tasks.t.train }
}
`)
	n := x.Node("stage.exec.x")
	s := n.Stage.(*enginetest.PaperExec)
	if got := filepath.Base(s.Inputs["src"].File.Path); got != "raw.csv" || s.Inputs["src"].Ref != (artifact.Ref{}) {
		t.Errorf("inputs.src: got %+v, want the file raw.csv", s.Inputs["src"])
	}
	if got := s.Inputs["train"].Ref; got.Name != "t" || got.Port != "train" {
		t.Errorf("inputs.train: got %+v, want port train of t", got)
	}
	wantList(t, "edges", inputsOf(n), "inputs.train = stage.tasks.t.train")
	i := slices.IndexFunc(n.Settings, func(s lang.Setting) bool { return s.Name == "inputs.src" })
	if i < 0 || n.Settings[i].Value != strconv.Quote(s.Inputs["src"].File.Digest) {
		t.Errorf("settings: got %+v, want inputs.src with the file's digest", n.Settings)
	}
	if _, _, ok := plan.Key(n, func(*lang.Node, string) (string, bool) { return "d", true }); !ok {
		t.Error("got no key, want one")
	}
}

// A key can only contain the content of a plain file. Devices and pipes are refused before they are opened,
// since a read may never end.
func TestDataAreOnlyPlainFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"pipes", "links", "sound"} {
		must.OK(t, os.Mkdir(at(name), 0o755))
	}
	sparse := must.Get(os.Create(at("sparse")))(t)
	if err := errors.Join(sparse.Truncate(disk.MaxPlain+1), sparse.Close()); err != nil {
		t.Skip("this file system has no large files: ", err)
	}
	must.OK(t, errors.Join(unix.Mkfifo(at("pipe"), 0o600), unix.Mkfifo(at("pipes/pipe"), 0o600),
		os.Symlink("/dev/zero", at("zero")), os.Symlink("/dev/zero", at("links/zero")),
		os.Symlink("/proc/self/maps", at("proc")), os.Symlink("pipe", at("linked pipe")),
		os.WriteFile(at("sound/file"), nil, 0o600)))
	for expr, want := range map[string]string{
		`file("pipe")`:        "pipe is a named pipe",
		`file("linked pipe")`: "linked pipe is a named pipe",
		`file("zero")`:        "zero is a device",
		`file("/dev/zero")`:   "/dev/zero is a device",
		`dir("/dev/zero")`:    "/dev/zero is a device",
		`dir("pipe")`:         "pipe is a named pipe",
		`dir("pipes")`:        "pipes/pipe is no plain file but a named pipe",
		`dir("links")`:        "links/zero is no plain file but a device",
		`file("sparse")`:      "at most 1099511627776 are read",
		`file("proc")`:        "more than the 0 bytes of its size",
		`dir("sound")`:        "",
	} {
		t.Run(expr, func(t *testing.T) {
			enginetest.WriteFile(t, at("x.hcl"), "experiment {\n}\nstage \"toy\" \"a\" {\n  data = ["+expr+"]\n}\n")
			src := lang.Source{Path: at("x.hcl"), Env: []string{"HOME=" + dir}}
			_, diags := lang.Load(src, enginetest.ToyKinds())
			if want == "" && diags.HasErrors() || want != "" && !strings.Contains(diags.Error(), want) {
				t.Errorf("got %v, want %q", diags, want)
			}
		})
	}
}

func TestSourcesAreOnlySmallPlainFiles(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	good := at("good.hcl")
	enginetest.WriteFile(t, good, "experiment {\n}\n")
	enginetest.WriteFile(t, at("large.hcl"), "")
	must.OK(t, errors.Join(unix.Mkfifo(at("pipe.hcl"), 0o600), os.Truncate(at("large.hcl"), 64<<20+1)))
	for name, tc := range map[string]struct {
		src  lang.Source
		want string
	}{
		"experiment is a pipe":    {lang.Source{Path: at("pipe.hcl")}, "pipe.hcl is no plain file"},
		"experiment is a device":  {lang.Source{Path: "/dev/zero"}, "/dev/zero is no plain file"},
		"experiment is too large": {lang.Source{Path: at("large.hcl")}, "large.hcl has 67108865 bytes"},
		"variables are a pipe": {lang.Source{Path: good, VarFiles: []string{at("pipe.hcl")}},
			"pipe.hcl is no plain file"},
		"site file is a pipe": {lang.Source{Path: good, Site: at("pipe.hcl")}, "pipe.hcl is no plain file"},
	} {
		tc.src.Env = []string{"HOME=" + dir}
		if _, diags := lang.Load(tc.src, enginetest.ToyKinds()); !strings.Contains(diags.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", name, diags, tc.want)
		}
		if tc.src.Path != good {
			_, err := lang.ReadSource(tc.src.Path)
			must.Match(t, err, tc.want, "ReadSource", name)
		}
	}
	_, err := lang.FindExperiment(dir, nil)
	if err == nil || !strings.Contains(err.Error(), "no plain file") && !strings.Contains(err.Error(), "bytes") {
		t.Errorf("FindExperiment: got %v, want an error about the first refused file", err)
	}
}

// A folder may contain very many files, so the memory for each is limited.
func TestFolderDigestCoversNamesAndContentsInLittleMemory(t *testing.T) {
	const folders, each = 20, 200
	dir := t.TempDir()
	want := sha256.New()
	for d := range folders {
		must.OK(t, os.MkdirAll(filepath.Join(dir, "many", fmt.Sprintf("d%02d", d)), 0o755))
		for f := range each {
			name, text := fmt.Sprintf("d%02d/f%03d", d, f), fmt.Sprintf("%d %d", d, f)
			enginetest.WriteFile(t, filepath.Join(dir, "many", name), text)
			fmt.Fprintf(want, "%x  %s\n", sha256.Sum256([]byte(text)), name)
		}
	}
	file := filepath.Join(dir, "x.hcl")
	enginetest.WriteFile(t, file, "experiment {\n}\nstage \"toy\" \"a\" {\n  data = [dir(\"many\")]\n}\n")
	digest := func() string {
		x, diags := lang.Load(lang.Source{Path: file}, enginetest.ToyKinds())
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		return x.Node("stage.toy.a").Files[0].Digest
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := digest()
	runtime.ReadMemStats(&after)
	wantEqual(t, "digest", got, fmt.Sprintf("%x", want.Sum(nil)))
	if perFile := (after.TotalAlloc - before.TotalAlloc) / (folders * each); perFile > 4<<10 {
		t.Errorf("got %d bytes allocated per file, want at most 4 KiB", perFile)
	}
	enginetest.WriteFile(t, filepath.Join(dir, "many", "d07/f100"), "x 100")
	if digest() == got {
		t.Error("changed file: got the same digest, want another")
	}
}

type extra struct {
	Extra json.RawMessage `hcl:"extra,optional"`
}

func (*extra) Check() hcl.Diagnostics { return nil }

func TestASettingOfPlainValuesIsTheirJSON(t *testing.T) {
	kinds := lang.Registry{{Name: "extra", New: func() lang.Stage { return &extra{} }, Outputs: enginetest.FilesOut}}
	const stage = "stage \"extra\" \"s\" {\n  extra = { b = [1, 0.1, true, null], a = %s }\n}\n"
	x, diags := enginetest.Load(t, kinds, fmt.Sprintf(stage, `"x"`))
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	const want = `{"a":"x","b":[1,0.1,true,null]}`
	wantEqual(t, "value", string(x.Nodes[0].Stage.(*extra).Extra), want)
	wantEqual(t, "in the key", x.Nodes[0].Settings[0].Value, want)
	_, diags = enginetest.Load(t, kinds, fmt.Sprintf(stage, `dir(".")`))
	must.Contain(t, enginetest.Mistakes(diags), "extra must be a plain value")
}
