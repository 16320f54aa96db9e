package slurm_test

import (
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
	"rcgrpo/engine/slurm"
	"rcgrpo/internal/must"
)

// Clusters of other variants. Their tests run one after the other, behind those of the box.
var (
	grouped   = &cluster{nodes: 1, port: 16, needs: "slurmctld", variant: "cgroup"}
	accounted = &cluster{nodes: 1, port: 20, needs: "slurmdbd", variant: "accounting"}
	sampled   = &cluster{nodes: 1, port: 24, needs: "slurmctld",
		settings: "JobAcctGatherFrequency=task=1\nJobAcctGatherParams=OverMemoryKill"}
)

// slow skips a test that only `make crash` runs.
func slow(t *testing.T) {
	t.Helper()
	if os.Getenv("SLURM_KILLS") == "" {
		t.Skip("SLURM_KILLS is not set: make crash runs it")
	}
}

// untilReason waits until the status of the run has the reason for which the job waits.
func (l *lab) untilReason(reason string) {
	l.Helper()
	l.until("the status has "+reason, func() bool {
		return len(l.Runs()) == 1 && strings.Contains(l.Runs()[0].Nodes[0].Text(time.Now()), reason)
	})
}

// wantNote checks that the run has reported a note with a text.
func (l *lab) wantNote(r enginetest.Outcome, text string) {
	l.Helper()
	note, _ := r.Find(runs.EventNote, "toy.a")
	must.Contain(l, note.Text, text)
}

// mount mounts on a folder in the namespace of the nodes, until the test ends.
func (l *lab) mount(folder string, args ...string) {
	l.Helper()
	must.OK(l, os.MkdirAll(folder, 0o700))
	l.daemon(append(append([]string{"mount"}, args...), folder)...)
	l.Cleanup(func() { l.command("nsenter", l.inside("umount", folder)...).Run() }) // it may be removed already
}

// hide gives the nodes a copy of a folder of the store, so that the engine does not see what they write.
func (l *lab) hide(folder string) (shadow string) {
	l.Helper()
	shadow = filepath.Join(l.Dir, "shadow")
	l.slurm("cp", "-a", folder, shadow)
	l.mount(folder, "--bind", shadow)
	return shadow
}

// jobFolder returns the folder of the specs of the only stage.
func (l *lab) jobFolder() string {
	l.Helper()
	all := must.Get(filepath.Glob(filepath.Join(l.StoreDir, "jobs", "*")))(l)
	if len(all) != 1 {
		l.Fatalf("got folders of jobs %v, want one", all)
	}
	return all[0]
}

func TestJobsThatCannotStartWait(t *testing.T) {
	box.start(t)
	for name, test := range map[string]func(t *testing.T){
		"for a person who holds it": func(t *testing.T) {
			l := newLab(t, free)
			l.settings.Options = []string{"--hold"}
			done := l.start(t.Context())
			l.untilReason("JobHeldUser")
			l.slurm("scontrol", "release", l.jobs()[0])
			l.wantMade(<-done, 1)
		},
		"for a dependency that cannot be met": func(t *testing.T) {
			l := newLab(t, free)
			other := strings.TrimSpace(l.slurm("sbatch", "--parsable", "--hold", "-o", "/dev/null", "--wrap", "true"))
			l.settings.Options = []string{"--dependency=afterok:" + other}
			done := l.start(t.Context())
			l.until("a job waits", func() bool { return len(l.jobs()) == 1 })
			l.slurm("scancel", other)
			l.untilReason("DependencyNeverSatisfied")
			l.slurm("scontrol", "update", "JobId="+l.jobs()[0], "Dependency=")
			l.wantMade(<-done, 1)
		},
		"for a partition that is down": func(t *testing.T) {
			l := newLab(t, free)
			l.slurm("scontrol", "create", "PartitionName=away", "Nodes=n1,n2", "State=DOWN")
			t.Cleanup(func() { l.slurm("scontrol", "delete", "PartitionName=away") })
			l.settings.Options = []string{"--partition=away"}
			done := l.start(t.Context())
			l.untilReason("PartitionDown")
			l.slurm("scontrol", "update", "PartitionName=away", "State=UP")
			l.wantMade(<-done, 1)
		},
	} {
		t.Run(name, test)
	}
}

func TestFilesThatFailOrComeLate(t *testing.T) {
	box.start(t)
	for name, test := range map[string]func(t *testing.T){
		"a run folder that the node cannot write fails the stage": func(t *testing.T) {
			l := newLab(t, free)
			folder := filepath.Join(l.StoreDir, "runs")
			must.OK(t, os.MkdirAll(folder, 0o700))
			l.mount(folder, "--bind", folder)
			l.daemon("mount", "-o", "remount,bind,ro", folder)
			l.wantFailure(l.run(), "read-only file system")
		},
		"a full disk of the node fails the stage": func(t *testing.T) {
			l := newLab(t, strings.Replace(free, "text", "shell = \"cat /dev/zero >zeros\"\n  text", 1))
			l.mount(filepath.Join(l.StoreDir, "work"), "-t", "tmpfs", "-o", "size=8m", "tmpfs")
			l.wantFailure(l.run(), "No space left on device") // in the log of the program
		},
		"a full store refuses the job": func(t *testing.T) {
			l := newLab(t, free)
			must.OK(t, os.MkdirAll(l.StoreDir, 0o700))
			l.slurm("mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", l.StoreDir)
			l.wantFailure(l.run(), "no space left on device")
			l.until("no process of another test has inherited a file", func() bool {
				return l.command("umount", l.StoreDir).Run() == nil
			})
		},
		"an exit file that is visible late is awaited": func(t *testing.T) {
			l := newLab(t, gated)
			l.settings.Visible = time.Minute
			done := l.start(t.Context())
			v, folder := l.next(), l.jobFolder()
			shadow := l.hide(folder)
			must.OK(t, os.WriteFile(filepath.Join(folder, "1.exit"), nil, 0o600)) // its name is visible first
			v.Pass()
			l.until("the job has ended", func() bool { return len(l.jobs()) == 0 })
			time.Sleep(time.Second)
			l.slurm("cp", filepath.Join(shadow, "1.exit"), folder)
			l.wantMade(<-done, 1)
		},
		"a result without an exit file counts": func(t *testing.T) {
			l := newLab(t, gated)
			done := l.start(t.Context())
			v, folder := l.next(), l.jobFolder()
			l.hide(folder)
			must.OK(t, os.WriteFile(filepath.Join(folder, "1.exit"), nil, 0o600)) // a power cut has torn it
			v.Pass()
			l.wantMade(<-done, 1)
		},
		"a result that is visible late is awaited": func(t *testing.T) {
			l := newLab(t, gated)
			l.settings.Visible = time.Minute
			done := l.start(t.Context())
			v, folder := l.next(), l.jobFolder()
			l.hide(folder)
			must.OK(t, os.WriteFile(filepath.Join(folder, "1.exit"), []byte(`{"Cause": "done"}`), 0o600))
			time.Sleep(time.Second)
			v.Pass()
			l.wantMade(<-done, 1)
		},
	} {
		t.Run(name, test)
	}
}

// onFirstNode is a line of setup that applies sh to the first node on which a job of the lab starts.
func (l *lab) onFirstNode(sh string) {
	first := filepath.Join(l.Dir, "first")
	l.settings.Setup = append(l.settings.Setup, fmt.Sprintf("[ -e %[1]s ] || echo $SLURMD_NODENAME >%[1]s\n"+
		"[ $SLURMD_NODENAME != $(cat %[1]s) ] || { %[2]s; }", first, sh))
}

// inMounts executes the script of the job again in a mount namespace in which sh has changed files of the store.
func (l *lab) inMounts(sh string) string {
	return fmt.Sprintf(`[ "$hidden" ] || hidden=1 exec unshare -m sh -c '%s; exec sh "$0"' "$0"`,
		strings.ReplaceAll(sh, "$store", l.StoreDir))
}

func TestNodesThatCannotRunAJob(t *testing.T) {
	box.start(t)
	const stranger = "#!/bin/sh\ncase $1 in\n*gpu=*) printf '0, GPU-a, 80000, 10\\n1, GPU-b, 80000, 10\\n' ;;\n" +
		"*) printf 'GPU-a, 1, 5000\\nGPU-b, 1, 5000\\n' ;;\nesac\n"
	for name, test := range map[string]struct {
		setup func(l *lab)
		note  string
	}{
		"a missing program is replaced by another node": {func(l *lab) {
			l.onFirstNode(l.inMounts("mount -t tmpfs none $store/bin"))
		}, "not found"},
		"another program of the same name is replaced by another node": {func(l *lab) {
			l.onFirstNode(l.inMounts("for p in $store/bin/*/*; do mount --bind /bin/true $p; done"))
		}, "did not start"},
		"a missing library is replaced by another node": {func(l *lab) {
			l.onFirstNode("export " + loaderVariable + "=1")
		}, "cannot start slurm.test: slurm.test: error while loading shared libraries: libtorch.so"},
		"a damaged copy is replaced by another node": {func(l *lab) {
			l.onFirstNode(l.inMounts(`for p in $store/bin/*/*; do cp $p $store/other; chmod 700 $store/other; ` +
				`echo >>$store/other; mount --bind $store/other $p; done`))
		}, "has the digest"},
		"a GPU in use is replaced by another node": {func(l *lab) {
			must.OK(l, os.Mkdir(filepath.Join(l.Dir, "bin"), 0o700))
			must.OK(l, os.WriteFile(filepath.Join(l.Dir, "bin", "nvidia-smi"), []byte(stranger), 0o700))
			l.onFirstNode("export PATH=" + l.Dir + "/bin:$PATH")
			l.Write(strings.Replace(free, "text", "resources {\n    gpus = 1\n  }\n  text", 1))
		}, "is in use: process 1"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, free)
			l.settings.Exclude = ""
			test.setup(l)
			r := l.run()
			l.wantMade(r, 1)
			l.wantNote(r, "could not run on host "+strings.TrimSpace(l.Read("first")))
			l.wantNote(r, test.note)
		})
	}
	t.Run("three nodes fail the stage", func(t *testing.T) {
		l := newLab(t, free)
		l.settings.Exclude, l.settings.Setup = "", []string{"echo no module; exit 3"}
		l.wantFailure(l.run(), "no module; the hosts of the 2 attempts before could not run it either")
	})
	t.Run("a program that is replaced while its job waits is still used", func(t *testing.T) {
		l := newLab(t, free)
		l.site("extra = [\"--hold\"]")
		own := filepath.Join(l.Dir, "slurm.test")
		l.slurm("cp", must.Get(os.Executable())(t), own)
		e := l.engine()
		e.Path = own
		out := must.Get(e.StdoutPipe())(t)
		must.OK(t, e.Start())
		l.until("a job waits", func() bool { return len(l.jobs()) == 1 })
		l.Put("other", "another program")
		must.OK(t, os.Rename(filepath.Join(l.Dir, "other"), own))
		l.slurm("scontrol", "release", l.jobs()[0])
		text, _ := io.ReadAll(out)
		if err := e.Wait(); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
		l.wantMade(enginetest.Outcome{}, 1)
	})
}

// A prolog that fails drains its node. Slurm cancels the job, or holds it if it may be requeued.
func TestANodeWhosePrologFailsIsLeftOut(t *testing.T) {
	slow(t)
	for option, want := range map[string]string{
		"--no-requeue": "could not run on host n3: Slurm could not launch it",
		"--requeue":    "launch failed requeued held",
	} {
		t.Run(option, func(t *testing.T) {
			l := newLabOn(t, box, free)
			l.settings.Exclude, l.settings.Options = "n1,n2", []string{option}
			fails := filepath.Join(l.dir, "fails-n3")
			must.OK(t, os.WriteFile(fails, nil, 0o600))
			r := l.run()
			must.OK(t, os.Remove(fails))
			l.slurm("scontrol", "update", "NodeName=n3", "State=RESUME")
			l.wantMade(r, 1)
			l.wantNote(r, want)
		})
	}
}

// eater is a stage whose program takes all memory that it gets.
var eater = strings.Replace(free, "text", "shell = \"exec tail /dev/zero\"\n  text", 1)

func (l *lab) wantOOM(r enginetest.Outcome) {
	l.Helper()
	if failed, _ := r.Find(runs.EventFailed, "toy.a"); failed.Failure == nil || failed.Failure.Cause != lang.CauseOOM {
		l.Errorf("got\n%s, want a failure with the cause oom", r)
	}
	l.wantNoJob()
}

func TestAStageThatExceedsItsMemoryFailsWithTheCauseOOM(t *testing.T) {
	slow(t)
	for name, c := range map[string]*cluster{
		"when the kernel ends its program":           grouped,
		"when Slurm samples its memory and kills it": sampled,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLabOn(t, c, eater)
			l.settings.Exclude, l.settings.Memory = "", 300e6
			l.wantOOM(l.run())
		})
	}
}

// Control groups hide the devices of other jobs, and CUDA numbers the others from 0.
func TestAStageSeesOnlyTheDevicesOfItsJob(t *testing.T) {
	slow(t)
	l := newLabOn(t, grouped, "")
	other := strings.TrimSpace(l.slurm("sbatch", "--parsable", "--mem=100", "--gres=gpu:1", "-o", "/dev/null", "--wrap",
		"sleep 600"))
	t.Cleanup(func() { l.slurm("scancel", other) })
	l.until("the other job has a device", func() bool { return l.field(other, "%T") == "RUNNING" })
	shell := fmt.Sprintf("cat %[1]s/gpu0 %[1]s/gpu1 || true", l.dir)
	l.Write(strings.Replace(free, "text", "resources {\n    gpus = 1\n  }\n  shell = \""+shell+"\"\n  text", 1))
	l.settings.Exclude, l.settings.Memory = "", 300e6
	l.wantMade(l.run(), 1)
	log := must.Get(os.ReadFile(l.Runs()[0].Folder.Log("stage.toy.a")))(t)
	must.Contain(t, string(log), "gpu0: Operation not permitted", "gpu1: No such device or address")
	must.Contain(t, l.Read("count"), "gpus=0\n")
}

func TestTheEndOfAccountingChangesNothing(t *testing.T) {
	slow(t)
	l := newLabOn(t, accounted, gated)
	l.settings.Exclude = ""
	check := func(want string) {
		t.Helper()
		all := slurm.NewExecutor(l.executor(l.settings)).Check(t.Context())
		if !slices.ContainsFunc(all, func(f slurm.Finding) bool { return !f.Problem && strings.HasPrefix(f.Text, want) }) {
			t.Errorf("got %v, want %q", all, want)
		}
	}
	check("accounting: slurmdbd on 127.0.0.1")
	done := l.start(t.Context())
	v := l.next()
	l.kill(l.pids("slurmdbd")...)
	v.Pass()
	r := <-done
	l.wantMade(r, 1)
	check("accounting: slurmdbd on 127.0.0.1 does not answer")
	l.Write(strings.ReplaceAll(free, `"a"`, `"b"`))
	second := l.run()
	if notes := append(r.Of(runs.EventNote), second.Of(runs.EventNote)...); second.Err != nil || len(notes) > 0 {
		t.Errorf("got %v and notes of %v, want none\n%s", second.Err, notes, second)
	}
}

// The controller is away while a job ends and the next one is submitted.
func TestARunContinuesWithoutItsController(t *testing.T) {
	slow(t)
	l := newLabOn(t, accounted, gated+"stage \"toy\" \"b\" {\n  from = [stage.toy.a.out]\n  count = \"$dir/count\"\n}\n")
	l.settings.Exclude = ""
	done := l.start(t.Context())
	v := l.next()
	l.slurm("scontrol", "shutdown", "slurmctld")
	time.Sleep(15 * time.Second)
	v.Pass()
	time.Sleep(15 * time.Second)
	l.daemon("slurmctld")
	r := <-done
	l.wantMade(r, 2)
	l.wantNumber("notes that Slurm does not answer", strings.Count(r.String(), "Slurm does not answer"), 1)
}

// staleFS builds the program that imitates a network file system. `bench/slurm.sh install` downloads its library.
func staleFS(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skip("no /dev/fuse here")
	}
	program := filepath.Join(t.TempDir(), "stalefs")
	build := exec.Command("go", "build", "-C", "testdata/stalefs", "-o", program, ".")
	build.Env = append(os.Environ(), "GOPROXY=off", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("stalefs cannot be built: run bench/slurm.sh install\n%s", out)
	}
	return program
}

// One of two nodes sees the store through a file system that keeps names for 30 s and whose times are 10 minutes later.
func TestANodeWithStaleNamesAndAnotherClockCommitsTheSameFiles(t *testing.T) {
	slow(t)
	program := staleFS(t)
	local := newLabOn(t, box, chains(3))
	if r := local.Run(engine.Options{}); r.Err != nil {
		t.Fatal(r.Err)
	}
	for _, later := range []string{"10m", "-10m"} {
		l := newLabOn(t, box, chains(3))
		l.settings.Jobs = 4 // so that both nodes execute stages of each chain
		far := filepath.Join(l.Dir, "far")
		for _, dir := range []string{l.StoreDir, far} {
			must.OK(t, os.MkdirAll(dir, 0o700))
		}
		l.daemon("sh", "-c", fmt.Sprintf("%s %s %s %s >%s/fuse.log 2>&1 &", program, l.StoreDir, far, later, l.Dir))
		l.until("the mount is there", func() bool {
			return l.command("nsenter", l.inside("mountpoint", "-q", far)...).Run() == nil
		})
		t.Cleanup(func() { l.daemon("umount", far) })
		l.settings.Setup = []string{"[ $SLURMD_NODENAME != n1 ] || " + l.inMounts("mount --bind "+far+" $store")}
		r := l.run()
		if got, want := l.Digests(), local.Digests(); r.Err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: got %v, %v, want %v\n%s", later, r.Err, got, want, r)
		}
		if got := l.Starts(); len(got) != 9 || len(slices.Compact(got)) != 9 {
			t.Errorf("%s: got starts %v, want each stage once\n%s", later, got, r)
		}
		l.wantNoJob()
	}
}

// The second of two engines sees the store through such a file system.
func TestAnEngineWithStaleNamesRunsEachStageOnce(t *testing.T) {
	slow(t)
	program := staleFS(t)
	l := newHosts(t)
	far := filepath.Join(l.Dir, "far")
	for _, dir := range []string{l.StoreDir, far} {
		must.OK(t, os.MkdirAll(dir, 0o700))
	}
	l.Put("site.hcl", strings.Replace(l.Read("site.hcl"), `visible = "2s"`, `visible = "40s"`, 1))
	mount := exec.CommandContext(t.Context(), program, l.StoreDir, far, "10m")
	must.OK(t, mount.Start())
	t.Cleanup(func() { l.command("umount", far).Run(); mount.Wait() })
	l.until("the mount is there", func() bool { return l.command("mountpoint", "-q", far).Run() == nil })
	b := l.onHost("b")
	b.Path = must.Get(exec.LookPath("unshare"))(t)
	b.Args = slices.Concat([]string{"unshare", "-m", "sh", "-c", `mount --bind "$0" "$1"; shift; exec "$@"`, far,
		l.StoreDir}, b.Args)
	l.wantOnce(l.onHost("a"), b)
}

// wantFindings checks the findings of a check. A text with the prefix "problem: " is a problem.
func wantFindings(t *testing.T, got []slurm.Finding, want ...string) {
	t.Helper()
	var all strings.Builder
	for _, f := range got {
		if f.Problem {
			all.WriteString("problem: ")
		}
		fmt.Fprintln(&all, f.Text)
	}
	for _, text := range want {
		if !strings.Contains("\n"+all.String(), "\n"+text) {
			t.Errorf("got\n%s\nwant a line that begins with %q", &all, text)
		}
	}
	if problems := strings.Count(all.String(), "problem: "); problems != len(slices.DeleteFunc(slices.Clone(want),
		func(w string) bool { return !strings.HasPrefix(w, "problem: ") })) {
		t.Errorf("got %d problems\n%s", problems, &all)
	}
}

func TestTheCheckOfASite(t *testing.T) {
	box.start(t)
	l := newLab(t, "")
	x := func(change func(s *lang.Slurm)) *slurm.Executor {
		s := l.settings
		change(&s)
		return slurm.NewExecutor(l.executor(s))
	}
	wantFindings(t, x(func(*lang.Slurm) {}).Check(t.Context()), "Slurm 2", "partition low: up",
		"partition main (used): up", "limits: at most 50 jobs", "accounting: none")
	wantFindings(t, x(func(s *lang.Slurm) { s.Options = []string{"--partition=nosuch"} }).Check(t.Context()),
		"problem: partition nosuch is missing")
	wantFindings(t, x(func(s *lang.Slurm) { s.Path = t.TempDir() }).Check(t.Context()),
		"problem: the command scontrol of Slurm is missing")

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
	l.wantMade(enginetest.Outcome{}, 3)
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
