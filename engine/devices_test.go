package engine_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

// fakeDriver puts an nvidia-smi into PATH that prints the files gpus and apps of the returned folder.
func fakeDriver(t *testing.T, gpus, apps string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	script := "#!/bin/sh\ncase $1 in --query-gpu*) cat " + dir + "/gpus ;; *) cat " + dir + "/apps ;; esac\n"
	for name, text := range map[string]string{"gpus": gpus, "apps": apps, "nvidia-smi": script} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return dir
}

const threeGPUs = "0, GPU-aaa, 81920, 4\n1, GPU-bbb, 81920, 20000\n2, GPU-ccc, 40960, [N/A]\n"

var onDevice = toyStage("a", "resources {\n gpus = 1\n }")

// Only GPU 2 of each case is usable.
func TestUnusableGPUsAreNotUsed(t *testing.T) {
	for name, tc := range map[string]struct{ gpus, apps, memory string }{
		"a foreign process":    {threeGPUs, "GPU-aaa, 999999999, 1200\n", ""},
		"too little of memory": {strings.ReplaceAll(threeGPUs, "81920", "20480"), "", "gpu_memory = \"30 GiB\""},
	} {
		t.Run(name, func(t *testing.T) {
			ownLedger(t)
			fakeDriver(t, tc.gpus, tc.apps)
			stage := strings.Replace(onDevice, "gpus = 1", "gpus = 1\n "+tc.memory, 1)
			l := newLab(t, stage)
			l.MustRun()
			must.Contain(t, l.Read("count"), "gpus=2\n")
			if tc.memory == "" {
				return
			}
			l.Write(strings.Replace(strings.Replace(stage, "30 GiB", "60 GiB", 1), "count", "text = \"new\"\n count", 1))
			must.Match(t, l.Run(engine.Options{}).Err, "with 61440 MiB each", "more than any device has")
		})
	}
}

func TestStageWaitsForTheEndOfAForeignProcess(t *testing.T) {
	ownLedger(t)
	dir := fakeDriver(t, "0, GPU-aaa, 81920, 4\n", "GPU-aaa, 999999999, 1200\n")
	l := newLab(t, onDevice+toyStage("beside", "text = \"beside\""))
	l.Put("site.hcl", "executor \"local\" {\n}\n")
	notes, started := make(chan string, 8), make(chan string, 8)
	done := l.Start(t.Context(), l.Plan(), func(e runs.Event) {
		switch e.Kind {
		case runs.EventNote:
			notes <- e.Text
		case runs.EventStarted:
			started <- lang.ShortAddress(e.Address)
		}
	})
	must.Contain(t, <-notes, "GPU 0", "process 999999999")
	if got := <-started; got != "toy.beside" || len(started) > 0 {
		t.Errorf("started: got %s and %d more, want toy.beside alone", got, len(started))
	}
	must.OK(t, os.WriteFile(filepath.Join(dir, "apps"), nil, 0o644))
	wantEqual(t, "then", <-started, "toy.a")
	wantSuccess(t, <-done)
}

func TestFailingDriverIsReportedAndGPUsCountAsUnused(t *testing.T) {
	ownLedger(t)
	fakeDriver(t, "no table\n", "")
	l := newLab(t, onDevice)
	r := l.MustRun()
	wantEvent(t, r, runs.EventNote, "", "cannot check")
	l.Want(r, runs.EventDone, "toy.a")
}
