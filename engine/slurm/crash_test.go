package slurm_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

// chains is an experiment of toys: n chains of three jobs, the last of which reads all chains before it.
func chains(n int) string {
	var text strings.Builder
	for i := range n {
		for step, from := range []string{"", fmt.Sprintf("stage.toy.s0_%d.out", i), fmt.Sprintf("stage.toy.s1_%d.out", i)} {
			fmt.Fprintf(&text, "stage \"toy\" \"s%d_%d\" {\n  from = [%s]\n  text = \"%d\"\n  count = \"$dir/count\"\n"+
				"  shell = \"sleep 0.%d\"\n}\n", step, i, from, i, (i+step)%9)
		}
	}
	return text.String()
}

// SLURM_STAGES is the number of jobs. With the default settings Slurm is asked at most once in 10 s.
func TestManyStages(t *testing.T) {
	stages := 0
	if fmt.Sscan(os.Getenv("SLURM_STAGES"), &stages); stages == 0 {
		t.Skip("SLURM_STAGES is not set")
	}
	l := newLab(t, chains((stages+2)/3))
	l.Put("x.hcl", strings.ReplaceAll(l.Read("x.hcl"), "sleep", "true"))
	l.settings.Exclude, l.settings.Poll, l.settings.Jobs = "", 10*time.Second, 200
	l.wrap("squeue", `echo >>polls; exec $real "$@"`)
	began := time.Now()
	r := l.run()
	took := time.Since(began)
	polls := strings.Count(l.Read("polls"), "\n")
	if starts := l.Starts(); r.Err != nil || len(starts) != (stages+2)/3*3 || float64(polls) > took.Seconds()/10+1 {
		first, _ := r.Find(runs.EventFailed, "")
		t.Errorf("got %v, %d starts, %d status calls, first failure: %v", r.Err, len(starts), polls, first)
	}
	l.wantNoJob()
	t.Logf("%d stages in %v with %d status calls", stages, took, polls)
}

// SLURM_KILLS=N kills engines, processes of jobs, daemons of nodes and the controller at random moments, N times, in
// experiments of 18 and 60 stages. The results are those of the local executor, no committed stage runs again, and no
// job, process or spec is left.
func TestKilledClustersConverge(t *testing.T) {
	kills, seed := 0, uint64(time.Now().UnixNano())
	if fmt.Sscan(os.Getenv("SLURM_KILLS"), &kills); kills == 0 {
		t.Skip("SLURM_KILLS is not set")
	}
	fmt.Sscan(os.Getenv("RCGRPO_SEED"), &seed)
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	local := newLab(t, chains(6))
	wants, counts := map[int]map[string]string{}, map[string]int{}
	for n, l := range map[int]*lab{6: local, 20: newLabOn(t, box, chains(20))} {
		if r := l.Run(engine.Options{}); r.Err != nil {
			t.Fatal(r.Err)
		}
		wants[n] = l.Digests()
	}
	go local.resumeNodes()
	for killed := 0; killed < kills && !t.Failed(); {
		n := []int{6, 20}[rng.IntN(2)]
		l, want := newLabOn(t, box, chains(n)), wants[n]
		l.site()
		l.Put("site.hcl", strings.Replace(l.Read("site.hcl"), "exclude", "#", 1))
		made := map[string]int{}
		for range 1 + rng.IntN(4) {
			killed++
			counts[killOne(l, rng, made)]++
		}
		for n := 0; ; n++ {
			out, err := l.engine().CombinedOutput()
			if err == nil {
				break
			}
			if n == 8 {
				t.Fatalf("no convergence: %v\n%s", err, out)
			}
		}
		wantNoRepeats(l, made)
		if got := l.Digests(); !maps.Equal(got, want) {
			t.Errorf("got %v, want those of the local executor, %v", got, want)
		}
		l.wantNoJob()
		l.until("no process is left", func() bool { return len(l.pids(l.Dir)) == 0 })
	}
	t.Logf("kills: %v", counts)
}

// resumeNodes resumes drained nodes, as an administrator does, until the test ends. Slurm drains a node that already
// runs the job that it gets ("Duplicate jobid"), which happens after kills of the controller.
func (l *lab) resumeNodes() {
	for l.Context().Err() == nil {
		time.Sleep(time.Second)
		out, _ := l.command("sinfo", "-h", "-N", "-p", "main", "-t", "drain", "-o", "%N").Output()
		if nodes := strings.Fields(string(out)); len(nodes) > 0 {
			l.command("scontrol", "update", "NodeName="+strings.Join(nodes, ","), "State=RESUME").Run()
		}
	}
}

// killOne runs an engine and kills something at a random moment. The cluster is whole again when it returns.
func killOne(l *lab, rng *rand.Rand, made map[string]int) (target string) {
	l.Helper()
	e := l.engine()
	must.OK(l, e.Start())
	time.Sleep(time.Duration(rng.Int64N(int64(5 * time.Second))))
	target = []string{"engine", "job", "stage", "node", "controller"}[rng.IntN(5)]
	kill := func(pids []string) {
		if len(pids) > 0 {
			exec.Command("nsenter", l.inside("kill", "-9", pids[rng.IntN(len(pids))])...).Run() // it may have ended
		}
	}
	switch target {
	case "job":
		kill(l.pids(" job "+l.StoreDir, "slurm.test"))
	case "stage":
		kill(l.pids(" node --run "+l.StoreDir, "slurm.test"))
	case "node":
		node := fmt.Sprintf("n%d", 1+rng.IntN(4))
		kill(l.pids("slurmd -N " + node))
		time.Sleep(time.Duration(rng.Int64N(int64(8 * time.Second))))
		l.restart(node)
	case "controller":
		kill(l.pids("slurmctld"))
		time.Sleep(time.Duration(rng.Int64N(int64(4 * time.Second))))
		l.daemon("slurmctld")
	}
	if target == "engine" || rng.IntN(2) == 0 {
		e.Process.Signal(syscall.SIGKILL)
	}
	e.Wait()
	wantNoRepeats(l, made)
	return target
}

// wantNoRepeats checks that no stage with a result has started again, and updates made, the starts of those stages.
// Jobs may run meanwhile, so it counts the starts after it has read the results.
func wantNoRepeats(l *lab, made map[string]int) {
	l.Helper()
	manifests, _, err := l.Store().Manifests()
	must.OK(l, err)
	starts := map[string]int{}
	for _, address := range l.Starts() {
		starts[address]++
	}
	for address, n := range made {
		if starts[address] > n {
			l.Errorf("%s was committed and started again", address)
		}
	}
	for _, m := range manifests {
		made[m.Address] = starts[m.Address]
	}
}

// A job that Slurm ends at its limit, and one that is asked to stop before it, continue in new jobs.
func TestTimeLimits(t *testing.T) {
	slow(t)
	for name, checkpoint := range map[string]time.Duration{"ended": 0, "asked to stop": 20 * time.Second} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, gated)
			l.settings.Time, l.settings.Checkpoint = time.Minute, checkpoint
			done := l.start(t.Context())
			if !ended(l.next(), 5*time.Minute) {
				t.Fatal("the job did not end at its limit")
			}
			l.next().Pass()
			l.wantMade(<-done, 2)
		})
	}
}
