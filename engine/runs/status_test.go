package runs

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
)

func TestStatusFollowsARun(t *testing.T) {
	l := engine.newLab(t)
	g := l.gate()
	l.write(`
stage "toy" "a" {
  gate = "$dir/gate"
}
stage "toy" "bad" {
  from = [stage.toy.a.out]
  fail = "no luck"
}
stage "toy" "below" {
  from = [stage.toy.bad.out]
}
`)
	if _, _, err := logOf(l.store(), "x", "stage.toy.a"); !errors.Is(err, artifact.ErrNotFound) {
		t.Errorf("log before any run: got %v, want ErrNotFound", err)
	}
	done := make(chan engine.record)
	go func() { done <- l.run(engine.Options{}) }()
	inside := g.next()
	status := func() (*RunStatus, map[string]EventKind) {
		folders, err := Runs(l.store(), "x")
		if err != nil || len(folders) == 0 {
			t.Fatalf("runs: got %v, %v", folders, err)
		}
		s, err := Status(folders[0])
		if err != nil {
			t.Fatal(err)
		}
		states := map[string]EventKind{}
		for _, n := range s.Nodes {
			states[lang.ShortAddress(n.Address)] = n.State
		}
		return s, states
	}
	s, states := status()
	if !s.Live || s.Ended || states["toy.a"] != EventStarted || states["toy.below"] != EventPlanned ||
		!strings.HasPrefix(s.Text(), "running") {
		t.Errorf("during the run: got live %v, ended %v, %v, %q", s.Live, s.Ended, states, s.Text())
	}
	path, live, err := logOf(l.store(), "x", "stage.toy.a")
	if err != nil || !live {
		t.Errorf("log during the run: got %q, %v, %v, want a live one", path, live, err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	inside.pass()
	<-done
	s, states = status()
	if s.Live || !s.Ended || states["toy.a"] != EventDone || states["toy.bad"] != EventFailed ||
		states["toy.below"] != EventSkipped {
		t.Errorf("after the run: got live %v, ended %v, %v", s.Live, s.Ended, states)
	}
	for _, n := range s.Nodes {
		if n.State == EventFailed && n.Text(time.Now()) != "no luck" {
			t.Errorf("failed node: got %q", n.Text(time.Now()))
		}
	}
	names, err := Experiments(l.store())
	if err != nil || len(names) != 1 || names[0] != "x" {
		t.Errorf("experiments: got %v, %v, want x", names, err)
	}
	if got, err := FindLogged(l.store(), "x", "toy.bad"); err != nil || got != "stage.toy.bad" {
		t.Errorf("the address of toy.bad: got %q, %v", got, err)
	}
	if _, err := FindLogged(l.store(), "x", "toy.bda"); err == nil || !strings.Contains(err.Error(),
		"did you mean toy.bad") {
		t.Errorf("a misspelt address: got %v, want a hint", err)
	}
}

func TestFileNamesOfAddressesAreDistinctAndPlain(t *testing.T) {
	seen := map[string]string{}
	for _, address := range []string{`stage.eval.arm["SFT + GRPO"]@1`, `stage.eval.arm["SFT_+_GRPO"]@1`,
		`stage.eval.arm["a/b"]`,
		`stage.eval.arm["../../x"]`, "stage.sft.warm", `stage.eval.arm["` + strings.Repeat("long", 100) + `"]`} {
		name := FileName(address)
		if strings.ContainsAny(name, "/ \"") || len(name) > 200 || seen[name] != "" {
			t.Errorf("%s: got %q, want a plain name of its own (%q)", address, name, seen[name])
		}
		seen[name] = address
	}
}

func TestRunFoldersOmitSecretsOfTheEnvironment(t *testing.T) {
	for v, want := range map[string]bool{"HOME=/home/a": false, "RCGRPO_SITE=site.hcl": false, "HF_TOKEN=hf_x": true,
		"RCGRPO_VAR_base=/models": true, "PATH=/bin": true} {
		if got := engine.omitFromFolder(v); got != want {
			t.Errorf("%s: got left out %v, want %v", v, got, want)
		}
	}
}

func TestCausesOfFailures(t *testing.T) {
	for text, want := range map[string]string{
		"CUDA error: out of memory": lang.CauseOOM, "terminate called after throwing std::bad_alloc": lang.CauseOOM,
		"fork/exec: cannot allocate memory":                                                  lang.CauseOOM,
		"DefaultCPUAllocator: can't allocate memory: you tried to allocate 8589934592 bytes": lang.CauseOOM,
		"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB":            lang.CauseOOM,
		"shape [2, 3], want [3, 2]":                                                          "", "the room is full": "",
	} {
		if got := engine.causeOf(errors.New(text)); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got := engine.causeOf(engine.WithCause(lang.CauseNaN, errors.New("loss"))); got != lang.CauseNaN {
		t.Errorf("marked: got %q, want nan", got)
	}
}

// logOf returns the first log of a watch and whether the stage may write more.
func logOf(store *artifact.Store, experiment, address string) (path string, goesOn bool, err error) {
	w, err := WatchStage(store, experiment, address, "")
	if err != nil {
		return "", false, err
	}
	standing, err := w.Look()
	return w.Log, standing == GoesOn, err
}

// Log lines of earlier attempts do not determine the cause of a failure.
func TestCauseComesFromTheLastAttempt(t *testing.T) {
	lines := []string{"CUDA out of memory", engine.attemptMark + "2", "no such file"}
	if got := engine.ofLastAttempt(lines); len(got) != 1 || got[0] != "no such file" {
		t.Errorf("got %q, want the lines of the second attempt", got)
	}
	if got := engine.ofLastAttempt(lines[:1]); len(got) != 1 {
		t.Errorf("got %q, want all of a first attempt", got)
	}
	if got := engine.failureCause(errors.New("exit code 1"), engine.ofLastAttempt(lines)); got != "" {
		t.Errorf("got cause %q, want none", got)
	}
}
