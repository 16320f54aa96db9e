package main

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"rcgrpo/internal/must"
)

var update = flag.Bool("update", false, "rewrite the golden text of the scripts")

// scripts is the folder of the sessions; with libtorch those that need it.
var scripts = "testdata/script"

// TestMain turns the test binary into the command when it is called rcgrpo: by scripts, and by itself for stages.
func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0") // the race detector delays each exit by a second
	testscript.Main(m, map[string]func(){"rcgrpo": main})
}

// commandBinary links or copies the test binary into a folder as rcgrpo, and returns its path.
func commandBinary(t *testing.T, dir string) string {
	t.Helper()
	self := must.Get(os.Executable())(t)
	path := filepath.Join(dir, "rcgrpo")
	if os.Link(self, path) == nil {
		return path
	}
	program, err := os.ReadFile(self)
	if err == nil {
		err = os.WriteFile(path, program, 0o755)
	}
	must.OK(t, err)
	return path
}

// TestScripts runs the sessions of a folder, named verb_case.txtar. -update rewrites their golden text.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: scripts, UpdateScripts: *update, RequireUniqueNames: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"rebundle": rebundle, "bomb": bomb, "fits": fits,
			"api": api},
		Condition: func(name string) (bool, error) {
			_, err := os.Stat(benchmark())
			return name == "bfcl" && err == nil, nil
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("RCGRPO_LEASES", filepath.Join(e.WorkDir, ".leases")) // separate from other scripts
			e.Setenv("GORACE", os.Getenv("GORACE"))
			e.Setenv("BFCL_DATA", benchmark())
			return nil
		}})
}

// Start-up is short because no package builds tables before main: each new page of memory costs 2 µs. A map or regular
// expression that few commands need is a sync.OnceValue.
func TestNoPackageBuildsTablesBeforeMain(t *testing.T) {
	const most = 20 << 10 // bytes; the methods of the simulated classes take 19 KB
	c := exec.Command(os.Args[0], "-test.run=^$")
	c.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	traced, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, traced)
	}
	packages := regexp.MustCompile(`(?m)^init (rcgrpo\S*) .*, (\d+) bytes`).FindAllStringSubmatch(string(traced), -1)
	if len(packages) < 5 {
		t.Fatalf("got %d packages:\n%s", len(packages), traced)
	}
	for _, p := range packages {
		if bytes, err := strconv.Atoi(p[2]); err != nil || bytes > most {
			t.Errorf("package %s allocates %s bytes before main, want at most %d", p[1], p[2], most)
		}
	}
}
