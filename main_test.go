package main

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite the golden text of the scripts")

// TestMain lets the test binary be the command, so that scripts run it, and it runs itself for the stages.
func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0") // a process otherwise lingers for a second under the race detector
	testscript.Main(m, map[string]func(){"rcgrpo": main})
}

// TestScripts runs the sessions of testdata/script, named verb_case.txtar. -update rewrites their golden text.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", UpdateScripts: *update, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("RCGRPO_LEASES", filepath.Join(e.WorkDir, ".leases")) // runs of other scripts are none of ours
			e.Setenv("GORACE", os.Getenv("GORACE"))
			return nil
		}})
}
