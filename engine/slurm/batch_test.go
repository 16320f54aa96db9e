package slurm_test

import (
	"context"
	"errors"
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
	return l.RunPlan(ctx, p, engine.Options{Executor: slurm.NewExecutor(l.settings), KeepGoing: true})
}

// calls returns what sbatch was given for the jobs of the lab: its options and its script.
func (l *lab) calls() []string {
	l.Helper()
	return strings.SplitAfter(strings.TrimSuffix(l.Read("calls"), "END\n"), "END\n")
}

// recorded makes sbatch record its calls.
const recorded = `{ echo "$@"; tee script.$$; echo END; } >call.$$; cat call.$$ >>calls; $real "$@" <script.$$`

func TestBatches(t *testing.T) {
	box(t)
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
			done, failed := len(r.Of(runs.EventDone)), len(r.Of(runs.EventFailed))
			if done != 35 || failed != 5 || len(l.Starts()) != 40 {
				t.Errorf("got %d done, %d failed, %d starts, want 35, 5, 40\n%s", done, failed, len(l.Starts()), r)
			}
			sizes := regexp.MustCompile(`--array=0-\d`).FindAllString(l.Read("calls"), -1)
			if slices.Sort(sizes); strings.Join(sizes, " ") != "--array=0-3"+strings.Repeat(" --array=0-8", 4) {
				t.Errorf("got arrays %v, want four of 9 and one of 4", sizes)
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
			if n := len(l.Starts()); n != 4 {
				t.Errorf("got %d starts, want 4", n)
			}
			cancel()
			if r := <-done; !errors.Is(r.Err, engine.ErrInterrupted) {
				t.Errorf("got %v, want ErrInterrupted", r.Err)
			}
			l.wantNoJob()
		},
		"short stages share jobs, each with its own end": func(t *testing.T) {
			l := newLab(t, toys(36, func(i int) string { return map[bool]string{true: `fail = "no luck"`}[i == 3] }))
			l.settings.Pack = 15 * time.Minute
			l.settings.Array = true
			l.wrap("sbatch", recorded)
			r := l.runAll(t.Context(), 5*time.Second)
			if done, failed := r.Of(runs.EventDone), r.Of(runs.EventFailed); len(done) != 35 || len(failed) != 1 ||
				len(l.Starts()) != 36 {
				t.Errorf("got %d done, %d failed, %d starts, want 35, 1, 36\n%s", len(done), len(failed), len(l.Starts()), r)
			}
			if calls := l.calls(); len(calls) != 2 || !strings.Contains(calls[0], "--array=0-8") ||
				!strings.Contains(calls[0], "--time=1 ") || strings.Count(calls[0], "/jobs/") < 18 {
				t.Errorf("got %d calls, want an array of 9 packs and one of 7; the first is %s", len(calls), calls[0])
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
