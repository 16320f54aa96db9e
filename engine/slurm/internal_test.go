package slurm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/alive"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

// Recorded from Slurm 22.05, with a banner and a job of another program.
func TestJobsAreReadFromTheOutputOfSqueue(t *testing.T) {
	all := parseStates("Welcome to the cluster\n" +
		"rcgrpo|wrap|2|RUNNING|2026-11-23T03:35:13|n3|None\n" +
		"rcgrpo|rcgrpo-c813a714-53414919|7|PENDING|2026-11-23T03:35:03||Resources\n" +
		"rcgrpo|rcgrpo-c813a714-00000001|8|PENDING|N/A||JobHeldUser\n" +
		"rcgrpo|rcgrpo-c813a714-00000001|9|NODE_FAIL|2026-11-23T03:35:03|n1|RaisedSignal:9(Killed)|x\n")
	if len(all) != 2 {
		t.Errorf("got %v, want two jobs", all)
	}
	st := all["rcgrpo-c813a714-53414919"]
	if want := "job 7 of Slurm waits: Resources, starts at Mon 03:35 at the latest"; st.Text() != want || !st.waits() {
		t.Errorf("got %q, want %q", st.Text(), want)
	}
	if st := all["rcgrpo-c813a714-00000001"]; st.ID != "8" || st.Text() != "job 8 of Slurm waits: JobHeldUser" {
		t.Errorf("got %+v, want the job that has not ended", st)
	}
}

func TestLimitsOfPartitionsAreRead(t *testing.T) {
	for text, want := range map[string]time.Duration{"infinite": 0, "1-00:00:00": 24 * time.Hour, "1:00:00": time.Hour,
		"30:00": 30 * time.Minute, "2-12:00:00": 60 * time.Hour, "n/a": 0, "": 0} {
		if got := parseLimit(text); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func TestAnswersOfSbatchAreToldApart(t *testing.T) {
	const failed = "sbatch: error: Batch job submission failed: "
	for text, want := range map[string]string{
		failed + "Socket timed out on send/recv operation":                       "uncertain",
		failed + "Unable to contact slurm controller (connect failure)":          "uncertain",
		"sbatch did not answer within 1m0s":                                      "uncertain",
		"sbatch: error: Slurm temporarily unable to accept job, sleeping":        "not now",
		failed + "Job violates accounting/QOS policy (job submit limit, user's)": "not now",
		failed + "Invalid partition name specified":                              "refused",
		failed + "Requested node configuration is not available":                 "refused",
	} {
		got := "refused"
		if matches(notNow, text) {
			got = "not now"
		} else if matches(uncertain, text) {
			got = "uncertain"
		}
		if got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

// The end of an attempt is decided once: 20 processes that write different ends at once read the same one.
func TestTheEndOfAnAttemptIsDecidedOnce(t *testing.T) {
	const variable = "RCGRPO_TEST_END"
	end := func(path string) string {
		e, err := (&attempt{path: path}).end(exit{Cause: causeFailed, Progress: os.Getpid()})
		return fmt.Sprintln("end", e.Progress, err)
	}
	if path := os.Getenv(variable); path != "" {
		fmt.Print(end(path))
		return
	}
	path := filepath.Join(t.TempDir(), "1")
	ends, wait := make([]string, 20), sync.WaitGroup{}
	for i := range ends {
		c := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		c.Env = append(os.Environ(), variable+"="+path)
		wait.Go(func() {
			out, err := c.Output()
			ends[i], _, _ = strings.Cut(string(out), "PASS")
			must.OK(t, err)
		})
	}
	wait.Wait()
	if all := slices.Compact(ends); len(all) != 1 || !strings.HasPrefix(all[0], "end ") || end(path) != all[0] {
		t.Errorf("got %q, want one end", all)
	}
	must.OK(t, os.WriteFile(path+".exit", nil, 0o600)) // a power cut has torn it
	if got, want := end(path), fmt.Sprintf("end %d <nil>\n", os.Getpid()); got != want {
		t.Errorf("over a torn exit file: got %q, want %q", got, want)
	}
}

func TestAJobThatStartsLateFindsItsEnd(t *testing.T) {
	beat, lost := alive.SetTimes(time.Second, time.Minute)
	defer alive.SetTimes(beat, lost)
	a := &attempt{path: filepath.Join(t.TempDir(), "1"), spec: spec{Name: newName("01234567"), Beat: beat, Lost: lost}}
	must.OK(t, createJSON(a.path, a.spec))
	want := must.Get(a.end(exit{Cause: causeCancelled}))(t)
	for _, when := range []string{"at its first start", "at its second start"} {
		if got, err := superviseJob(t.Context(), a.path); err != nil || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", when, got, err, want)
		}
	}
}

// A job stops its stage when another process has ended the attempt, and when no sign of life can be written.
func TestAJobWithoutAnAttemptOrASignOfLifeStops(t *testing.T) {
	for name, spoil := range map[string]func(a *attempt) error{
		"an end is recorded":         func(a *attempt) error { return createJSON(a.file("exit"), exit{}) },
		"there is a newer attempt":   func(a *attempt) error { return createJSON(filepath.Dir(a.path)+"/2", a.spec) },
		"the spec is gone":           func(a *attempt) error { return os.Remove(a.path) },
		"the sign cannot be touched": func(a *attempt) error { return a.alive.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			a := &attempt{path: filepath.Join(t.TempDir(), "1"), n: 1, spec: spec{Beat: time.Millisecond,
				Lost: 20 * time.Millisecond}}
			must.OK(t, createJSON(a.path, a.spec))
			_, ended, err := a.claim(t.Context())
			if ended || err != nil {
				t.Fatalf("claim: got %v, %v, want the attempt", ended, err)
			}
			must.OK(t, spoil(a))
			replaced := make(chan struct{})
			defer a.startBeat(sync.OnceFunc(func() { close(replaced) }))()
			<-replaced
		})
	}
}

// A stranger's store may have another program in the place of the copy that jobs execute.
func TestAForeignProgramIsReplacedByTheCopy(t *testing.T) {
	own, x := filepath.Join(t.TempDir(), "rcgrpo"), NewExecutor(lang.Slurm{})
	must.OK(t, os.WriteFile(own, []byte("ours"), 0o700))
	digest := must.Get(artifact.FileDigest(own))(t)
	program := filepath.Join(t.TempDir(), digest[:digestLength], "rcgrpo")
	must.OK(t, os.MkdirAll(filepath.Dir(program), 0o700))
	must.OK(t, os.WriteFile(program, []byte("theirs"), 0o700))
	for range 2 {
		must.OK(t, x.copyBinary(own, program))
		if got := string(must.Get(os.ReadFile(program))(t)); got != "ours" {
			t.Errorf("got the program %q, want the copy of ours", got)
		}
	}
}

// A stranger's store may have the end of an attempt that has not begun.
func TestAnAttemptBeginsWithoutAnEnd(t *testing.T) {
	store := must.Get(artifact.Open(t.TempDir()))(t)
	key := strings.Repeat("0", 64)
	a := &attempt{spec: spec{Name: newName(key)}, path: filepath.Join(store.Jobs(key), "1"), n: 1}
	must.OK(t, os.MkdirAll(store.Jobs(key), 0o700))
	must.OK(t, runs.WriteJSON(a.file("exit"), exit{Cause: causeReplaced}))
	must.OK(t, runs.WriteJSON(a.file("alive"), sign{Job: "1"}))
	must.OK(t, a.create(store))
	if e, ended := a.exit(); ended || a.sign() != (sign{}) {
		t.Errorf("got the end %v and the sign %v, want none", e, a.sign())
	}
	st := &stage{Executor: NewExecutor(lang.Slurm{})}
	_, err := st.decide(t.Context(), &job{stage: st, attempt: a}, exit{Cause: causeFailed}, nil)
	must.Match(t, err, "without a reason")
}

// A copied store with the specs of four attempts held a job for eight minutes.
func TestManyEarlierAttemptsTakeTheTimeOfOne(t *testing.T) {
	beat, lost := alive.SetTimes(10*time.Millisecond, 100*time.Millisecond)
	defer alive.SetTimes(beat, lost)
	a, begin := &attempt{path: filepath.Join(t.TempDir(), "21"), n: 21}, time.Now()
	must.OK(t, a.awaitOthers(t.Context()))
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("20 attempts without a sign of life took %v", took)
	}
}

// A command of Slurm that prints without end does not fill the memory.
func TestTheOutputOfACommandHasALimit(t *testing.T) {
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, "squeue"), []byte("#!/bin/sh\nyes\n"), 0o700))
	x := NewExecutor(lang.Slurm{Path: dir, Deadline: time.Minute})
	_, err := x.list(t.Context())
	must.Match(t, err, "prints more than")
}

// scancel cancels the jobs of a name, and a list of names is a name too.
func TestARecordNamesOnlyJobsOfThisProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "1")
	for name, want := range map[string]string{newName("0123456789abcdef"): "", "": "is no spec",
		"rcgrpo-01234567-89abcdef,backup": "is no spec"} {
		must.OK(t, runs.WriteJSON(path, spec{Name: name}))
		if _, err := readAttempt(path); want == "" {
			must.OK(t, err)
		} else {
			must.Match(t, err, want)
		}
	}
	store := t.TempDir()
	path = filepath.Join(store, "jobs", "01234567", "1")
	must.OK(t, os.MkdirAll(filepath.Dir(path), 0o700))
	for run, want := range map[string]string{"/home/user/precious/x/1": "runs/x/1", "..": ""} {
		must.OK(t, runs.WriteJSON(path, spec{Name: newName("0123456789abcdef"), Run: runs.Folder(run)}))
		a, err := readAttempt(path)
		if want == "" {
			must.Match(t, err, "is no spec")
		} else if got := string(a.Run); err != nil || got != filepath.Join(store, want) {
			t.Errorf("%s: got the folder %s, %v", run, got, err)
		}
	}
}
