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
)

var update = flag.Bool("update", false, "rewrite the golden text of the scripts")

// TestMain lets the test binary be the command, so that scripts run it, and it runs itself for the stages.
func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0") // a process otherwise lingers for a second under the race detector
	testscript.Main(m, map[string]func(){"rcgrpo": main, "holds-temporary": holdTemporaryFolder})
}

// TestScripts runs the sessions of testdata/script, named verb_case.txtar. -update rewrites their golden text.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", UpdateScripts: *update, RequireUniqueNames: true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"rebundle": rebundle, "bomb": bomb},
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("RCGRPO_LEASES", filepath.Join(e.WorkDir, ".leases")) // runs of other scripts are none of ours
			e.Setenv("GORACE", os.Getenv("GORACE"))
			return nil
		}})
}

// TestNoPackageOfOursBuildsTablesBeforeMain holds the start of every command short: what a package makes before main is
// first touched memory, of which each page costs 2 µs. A map or a regular expression that a few commands need is a
// sync.OnceValue.
func TestNoPackageOfOursBuildsTablesBeforeMain(t *testing.T) {
	const most = 8 << 10 // bytes
	c := exec.Command(os.Args[0], "-test.run=^$")
	c.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	traced, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, traced)
	}
	packages := regexp.MustCompile(`(?m)^init (rcgrpo\S*) .*, (\d+) bytes`).FindAllStringSubmatch(string(traced), -1)
	if len(packages) < 5 {
		t.Fatalf("the runtime tells of %d packages of ours:\n%s", len(packages), traced)
	}
	for _, p := range packages {
		if bytes, err := strconv.Atoi(p[2]); err != nil || bytes > most {
			t.Errorf("package %s allocates %s bytes before main, want at most %d", p[1], p[2], most)
		}
	}
}
