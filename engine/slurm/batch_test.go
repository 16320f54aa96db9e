package slurm_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/runs"
	"rcgrpo/engine/slurm"
	"rcgrpo/internal/must"
)

// toys are stages s0, s1, … without inputs.
func toys(n int, settings func(i int) string) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "stage \"toy\" \"s%d\" {\n  text = \"%d\"\n  count = \"$dir/count\"\n%s\n}\n", i, i, settings(i))
	}
	return text.String()
}

func plain(int) string { return "" }

// runAll runs the experiment, also after failures. Each stage has an expected time; 0: unknown.
func (l *lab) runAll(ctx context.Context, expected time.Duration) enginetest.Record {
	l.Helper()
	p := l.Plan()
	for _, n := range p.Nodes {
		n.Estimate = expected
	}
	return l.RunPlan(ctx, p, engine.Options{Executor: slurm.NewExecutor(l.executor(l.settings)), KeepGoing: true})
}

// wantEnds checks how many stages have a result and how many failed, and that each started once.
func (l *lab) wantEnds(r enginetest.Record, done, failed int) {
	l.Helper()
	l.wantNumber("done", len(r.Of(runs.EventDone)), done)
	l.wantNumber("failed", len(r.Of(runs.EventFailed)), failed)
	l.wantNumber("starts", len(l.Starts()), done+failed)
}

// calls returns what sbatch was given for the jobs of the lab: its options and its script.
func (l *lab) calls() []string {
	l.Helper()
	return strings.SplitAfter(strings.TrimSuffix(l.Read("calls"), "END\n"), "END\n")
}

// recorded makes sbatch record its calls.
const recorded = `{ echo "$@"; tee script.$$; echo END; } >call.$$; cat call.$$ >>calls; $real "$@" <script.$$`

func TestBatches(t *testing.T) {
	box.start(t)
	for name, test := range map[string]func(t *testing.T){
		"equal stages are arrays of the size that the cluster allows, and fail one by one": func(t *testing.T) {
			l := newLab(t, toys(40, func(i int) string {
				if i%8 == 0 {
					return `fail = "no luck"`
				}
				return ""
			}))
			l.settings.Array = true
			l.wrap("sbatch", recorded)
			r := l.runAll(t.Context(), 0)
			l.wantEnds(r, 35, 5)
			calls := strings.Count(l.Read("calls"), "--parsable")
			arrays := regexp.MustCompile(`--array=0-[1-8]\s`).FindAllString(l.Read("calls"), -1)
			if calls > 10 || len(arrays) < 4 {
				t.Errorf("got arrays %v and %d calls, want arrays of at most 9 stages", arrays, calls)
			}
			l.wantNoJob()
		},
		"an array beyond a limit of submitted jobs is divided": func(t *testing.T) {
			l := newLab(t, toys(8, plain))
			l.settings.Array = true
			l.wrap("sbatch", `case "$*" in *--array=0-7*|*--array=4-7*)
echo "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit)" >&2; exit 1
esac; echo "$@" >>calls; exec $real "$@"`)
			r := l.runAll(t.Context(), 0)
			if calls := l.Read("calls"); r.Err != nil || len(l.Starts()) != 8 || strings.Count(calls, "\n") != 3 {
				t.Errorf("got %v, %d starts, want 8 after three calls\n%s", r.Err, len(l.Starts()), calls)
			}
			l.wantNoJob()
		},
		"a stage of an array is preempted alone, and a run that ends cancels all": func(t *testing.T) {
			l := newLab(t, toys(3, func(int) string { return `gate = "$dir/gate"` }))
			l.settings.Array = true
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan enginetest.Record)
			go func() { done <- l.runAll(ctx, 0) }()
			for range 3 {
				l.next()
			}
			l.slurm("scancel", "--batch", "--signal=USR1", l.jobs()[1])
			l.next() // again, beside the two others
			l.wantNumber("starts", len(l.Starts()), 4)
			cancel()
			l.wantInterrupted(<-done)
		},
		"short stages share jobs, each with its own end": func(t *testing.T) {
			l := newLab(t, toys(36, func(i int) string { return map[bool]string{true: `fail = "no luck"`}[i == 3] }))
			l.settings.Pack = 15 * time.Minute
			l.settings.Array = true
			l.wrap("sbatch", recorded)
			r := l.runAll(t.Context(), 5*time.Second)
			l.wantEnds(r, 35, 1)
			for _, call := range l.calls() {
				if jobs := 1 + strings.Count(call, " -- "); strings.Count(call, "/jobs/") <= jobs || jobs < 2 {
					t.Errorf("got %d jobs of one stage each, want jobs of several: %s", jobs, call)
				}
			}
			l.wantNoJob()
		},
		"the end of a job leaves its other stages to a new one": func(t *testing.T) {
			l := newLab(t, toys(34, func(int) string { return `shell = "[ -e again ] || { touch again; sleep 1; }"` }))
			l.settings.Pack = 15 * time.Minute
			done := make(chan enginetest.Record)
			go func() { done <- l.runAll(t.Context(), 5*time.Second) }()
			l.until("a stage runs", func() bool { return len(l.Starts()) > 0 })
			l.slurm("scancel", append([]string{"--batch", "--signal=USR1", "--state=RUNNING"}, l.jobs()...)...)
			r := <-done
			if r.Err != nil || len(r.Of(runs.EventDone)) != 34 || !strings.Contains(r.String(), "before it started this stage") {
				t.Errorf("got %v, want all stages, and a note\n%s", r.Err, r)
			}
			l.wantNoJob()
		},
	} {
		t.Run(name, test)
	}
}

// A job is preempted while no engine runs. Slurm starts it again, and the next engine finds the result or adopts it.
func TestSlurmRestartsJobsWithoutAnEngine(t *testing.T) {
	l := newLab(t, gated)
	l.site("requeue = true", "partition = \"low\"")
	e := l.engine()
	must.OK(t, e.Start())
	first := l.next()
	e.Process.Kill()
	e.Wait()
	id := l.jobs()[0]
	l.requeue(id, func() bool { return true })
	second := l.next()
	if !ended(first, time.Second) {
		t.Error("the first start is running beside the second")
	}
	e = l.engine()
	var out strings.Builder
	e.Stdout = &out
	must.OK(t, e.Start())
	l.untilState(2, runs.EventStarted)
	l.requeue(id, func() bool { return l.Runs()[0].Nodes[0].State == runs.EventQueued })
	if third := l.next(); !ended(second, time.Second) {
		t.Error("the second start is running beside the third")
	} else {
		third.Pass()
	}
	err := e.Wait()
	if jobs := strings.Fields(l.slurm("squeue", "-h", "-t", "all", "-o", "%i %Z")); err != nil ||
		!strings.Contains(out.String(), "Slurm starts it again") || !slices.Contains(jobs, id) {
		t.Errorf("got %v, jobs %v, want a new start of job %s\n%s", err, jobs, id, out.String())
	}
	l.wantMade(enginetest.Record{}, 3)
}

// requeue puts a job back into the queue, as Slurm does for one of the partition main. It waits until the engine has
// noticed, and shortens Slurm's wait of two minutes.
func (l *lab) requeue(id string, noticed func() bool) {
	l.Helper()
	l.slurm("scontrol", "requeue", id)
	l.until("the engine has noticed", noticed)
	state := func(want string) func() bool {
		return func() bool { return l.field(id, "%T %r") == want }
	}
	l.until("the first start has ended", state("PENDING BeginTime"))
	l.slurm("scontrol", "update", "JobId="+id, "StartTime=now+2") // its node refuses it within the same second
	l.until("the job starts again", state("RUNNING None"))
}
