package slurm_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/internal/alive"
	"rcgrpo/engine/internal/disk"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
	"rcgrpo/engine/slurm"
	"rcgrpo/internal/must"
)

// hostVariable makes a process one of another host: locks of files do not reach it, and claims have short times.
const hostVariable = "RCGRPO_TEST_HOST"

// loaderVariable makes the process of a stage end as if the dynamic loader found no libtorch.
const loaderVariable = "RCGRPO_TEST_LOADER"

// The test binary is also the program of jobs, and an engine: `cluster EXPERIMENT STORE`.
func TestMain(m *testing.M) {
	if os.Getenv(hostVariable) != "" {
		alive.SetTimes(100*time.Millisecond, 3*time.Second)
		disk.Lack(func(op, path string) error {
			if op == "flock" && (strings.Contains(path, "/claims/") || strings.Contains(path, "/users/")) {
				return unix.EOPNOTSUPP
			}
			return nil
		})
	}
	switch {
	case os.Getenv(loaderVariable) != "" && len(os.Args) > 1 && os.Args[1] == "node":
		fmt.Println("slurm.test: error while loading shared libraries: libtorch.so: cannot open shared object file")
		os.Exit(127)
	case len(os.Args) == 2 && os.Args[1] == "version":
		os.Exit(0)
	case len(os.Args) == 3 && os.Args[1] == "job":
		os.Exit(slurm.Main(os.Args[2], os.Stderr))
	case len(os.Args) == 4 && os.Args[1] == "cluster":
		if err := engineMain(os.Args[2], os.Args[3]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Set("test.parallel", "4") // a flag of the command line wins; the tests wait for Slurm most of the time
	enginetest.Main(m)
}

// engineMain runs an experiment of toys with the executors of the site file beside it.
func engineMain(path, store string) error {
	site := filepath.Join(filepath.Dir(path), "site.hcl")
	x, diags := lang.Load(lang.Source{Path: path, Site: site, Env: []string{"HOME=/nonexistent"}}, enginetest.ToyKinds())
	if diags.HasErrors() {
		return diags
	}
	s, err := artifact.Open(store)
	if err != nil {
		return err
	}
	p, err := plan.New(x, s, plan.Options{})
	if err != nil {
		return err
	}
	return engine.Run(context.Background(), p, engine.Options{Executors: slurm.New(x.Site)}, func(e runs.Event) {
		fmt.Println(e.Kind, e.Address, e.Text)
	})
}

// cluster is a Slurm cluster on this machine. The first test that uses it starts it; it ends with this process.
type cluster struct {
	variant, settings string // of bench/slurm.sh
	nodes, port       int    // port: of the controller, relative to those of this process
	needs             string // program without which it cannot start

	once sync.Once
	dir  string
	err  error
}

// box is the cluster of most tests. Its prolog fails on the nodes whose names are files of its folder.
var box = &cluster{nodes: 4, needs: "slurmctld", settings: "Prolog=$box/prolog"}

// mortal is a cluster whose nodes tests kill.
var mortal = &cluster{nodes: 4, port: 8, needs: "slurmctld"}

func (c *cluster) start(t *testing.T) {
	t.Helper()
	must.OK(t, c.tryStart(t))
}

// tryStart returns the error of the start. It skips the test if Slurm is not installed.
func (c *cluster) tryStart(t *testing.T) error {
	t.Helper()
	if _, err := exec.LookPath(c.needs); err != nil || os.Getuid() != 0 {
		t.Skipf("no %s here: as root, run bench/slurm.sh install accounting", c.needs)
	}
	c.once.Do(func() {
		c.dir = must.Get(os.MkdirTemp("", "box"))(t) // a short path for the sockets
		must.OK(t, os.WriteFile(filepath.Join(c.dir, "prolog"), []byte("#!/bin/sh\n[ ! -e "+c.dir+
			"/fails-$SLURMD_NODENAME ]\n"), 0o755))
		script := must.Get(filepath.Abs("../../bench/slurm.sh"))(t)
		up := exec.Command(script, "up", c.dir, fmt.Sprint(c.nodes))
		up.Env = append(os.Environ(), fmt.Sprintf("BASE_PORT=%d", 16000+os.Getpid()%500*32+c.port),
			fmt.Sprintf("UNTIL=%d", os.Getpid()), "VARIANT="+c.variant,
			"SETTINGS="+strings.ReplaceAll(c.settings, "$box", c.dir))
		if out, err := up.CombinedOutput(); err != nil {
			c.err = fmt.Errorf("%w\n%s", err, out)
		}
	})
	return c.err
}

// A cluster that cannot start ends the wait for it and shows the reason.
func TestAClusterThatCannotStartShowsWhatSlurmctldPrinted(t *testing.T) {
	broken := &cluster{nodes: 1, port: 30, needs: "slurmctld", settings: "Missing=1"}
	err := broken.tryStart(t)
	must.Match(t, err, "the cluster has not started, since a daemon could not start", "start")
	must.Match(t, err, "unrecognized key: Missing", "start")
}

// conf is the variable that selects the cluster.
func (c *cluster) conf() string { return "SLURM_CONF=" + filepath.Join(c.dir, "slurm.conf") }

// command runs a command of Slurm.
func (c *cluster) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), c.conf())
	return cmd
}

// settings are those of a test: short times, since nodes and files are on one machine.
func settings() lang.Slurm {
	return lang.Slurm{Name: "slurm", GRES: "gpu", CPUs: 1, Memory: 100e6, Time: 5 * time.Minute, Factor: 2,
		Exclude: "n3,n4", Continues: 5, FreeAttempts: 3, Jobs: 50, Poll: time.Second, Deadline: 20 * time.Second,
		Grace: 6 * time.Second, Visible: 2 * time.Second, Lost: 4 * time.Second}
}

func TestSlurmExecutor(t *testing.T) {
	box.start(t)
	enginetest.Executor(t, slurm.NewExecutor(box.executor(settings())))
}

// executor selects the cluster in the settings of an executor.
func (c *cluster) executor(s lang.Slurm) lang.Slurm {
	name, value, _ := strings.Cut(c.conf(), "=")
	env := map[string]string{name: value}
	maps.Copy(env, s.Env)
	s.Env = env
	return s
}

// ended waits for the end of a toy at the gate. Its process id is one of the cluster's namespace.
func ended(v enginetest.Visitor, within time.Duration) bool {
	v.SetReadDeadline(time.Now().Add(within))
	_, err := v.Read(make([]byte, 1))
	return err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
}

// lab is an experiment of toys that run on the cluster.
type lab struct {
	*enginetest.Lab
	*cluster
	settings lang.Slurm
	gate     *enginetest.Gate
	visitors []enginetest.Visitor // so that no connection is closed as garbage
}

// next waits for a toy at the gate.
func (l *lab) next() enginetest.Visitor {
	l.Helper()
	l.visitors = append(l.visitors, l.gate.Next())
	return l.visitors[len(l.visitors)-1]
}

// newLab returns an experiment on the box, beside those of other tests.
func newLab(t *testing.T, stages string) *lab {
	t.Helper()
	t.Parallel()
	return newLabOn(t, box, stages)
}

func newLabOn(t *testing.T, c *cluster, stages string) *lab {
	t.Helper()
	c.start(t)
	l := &lab{Lab: enginetest.NewLab(t), cluster: c, settings: settings()}
	l.gate = l.Gate()
	l.Write(stages)
	return l
}

// gated is a toy that waits for the test, and free one that does not.
const gated = "stage \"toy\" \"a\" {\n  text = \"made\"\n  gate = \"$dir/gate\"\n  count = \"$dir/count\"\n}\n"

var free = strings.Replace(gated, "gate", "#", 1)

// start runs the experiment in the background.
func (l *lab) start(ctx context.Context) <-chan enginetest.Outcome {
	l.Helper()
	p, done := l.Plan(), make(chan enginetest.Outcome, 1)
	o := engine.Options{Executor: slurm.NewExecutor(l.executor(l.settings))}
	go func() { done <- l.RunPlan(ctx, p, o) }()
	return done
}

// run runs the experiment to its end.
func (l *lab) run() enginetest.Outcome {
	l.Helper()
	return <-l.start(l.Context())
}

// wantMade checks that the stage has its result, and how often it has started.
func (l *lab) wantMade(r enginetest.Outcome, starts int) {
	l.Helper()
	if r.Err != nil || l.Text("toy.a") != "made\n" || len(l.Starts()) != starts {
		l.Errorf("got %v, %d starts, want the result after %d\n%s", r.Err, len(l.Starts()), starts, r)
	}
	l.wantNoJob()
}

func (l *lab) wantFailure(r enginetest.Outcome, text string) {
	l.Helper()
	if failed, ok := r.Find(runs.EventFailed, "toy.a"); !ok ||
		!strings.Contains(failed.Text+strings.Join(failed.Failure.Lines, "\n"), text) {
		l.Errorf("got %v\n%s, want a failure with %q", r.Err, r, text)
	}
	l.wantNoJob()
}

func (l *lab) wantNumber(of string, got, want int) {
	l.Helper()
	if got != want {
		l.Errorf("%s: got %d, want %d", of, got, want)
	}
}

// wantInterrupted checks that a run was interrupted and has left no job.
func (l *lab) wantInterrupted(r enginetest.Outcome) {
	l.Helper()
	if !errors.Is(r.Err, engine.ErrInterrupted) {
		l.Errorf("got %v, want ErrInterrupted", r.Err)
	}
	l.wantNoJob()
}

// wantNoJob checks that no job of the lab is in the queue, and that no file of one is left.
func (l *lab) wantNoJob() {
	l.Helper()
	l.until("no job is left", func() bool { return len(l.jobs()) == 0 }) // one that has ended may be completing
	if left, _ := filepath.Glob(filepath.Join(l.StoreDir, "jobs", "*", "*")); len(left) > 0 {
		l.Errorf("files left: %v", left)
	}
}

// jobs returns the ids of the lab's jobs that have not ended, by the folder in which they start.
func (l *lab) jobs() (ids []string) {
	l.Helper()
	out := l.slurm("squeue", "-h", "-o", "%i %Z")
	for line := range strings.Lines(out) {
		if id, dir, _ := strings.Cut(strings.TrimSpace(line), " "); dir == l.StoreDir {
			ids = append(ids, id)
		}
	}
	return ids
}

// slurm runs a command of Slurm.
func (l *lab) slurm(name string, args ...string) string {
	l.Helper()
	out, err := l.command(name, args...).CombinedOutput()
	if err != nil {
		l.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// until waits for a condition.
func (l *lab) until(what string, ok func() bool) {
	l.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			l.Fatalf("not within a minute: %s", what)
		}
	}
}

// wrap puts a script before a command of Slurm, which it can call as $real.
func (l *lab) wrap(name, script string) {
	l.Helper()
	dir := filepath.Join(l.Dir, "commands")
	if l.settings.Path == "" {
		must.OK(l, os.Mkdir(dir, 0o700))
		for _, c := range []string{"sbatch", "squeue", "scancel", "sinfo", "scontrol"} {
			must.OK(l, os.Symlink(must.Get(exec.LookPath(c))(l), filepath.Join(dir, c)))
		}
		l.settings.Path = dir
	}
	must.OK(l, os.Remove(filepath.Join(dir, name)))
	real := must.Get(exec.LookPath(name))(l)
	text := "#!/bin/sh\nreal=" + real + "\ncd " + l.Dir + "\n" + script + "\n"
	must.OK(l, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700))
}

func TestStagesOfSlurmFailures(t *testing.T) {
	box.start(t)
	for name, test := range map[string]func(t *testing.T){
		"an answer of sbatch that is lost leads to one job": func(t *testing.T) {
			l := newLab(t, gated)
			l.wrap("sbatch", `$real "$@" >/dev/null
echo "sbatch: error: Batch job submission failed: Socket timed out" >&2; exit 1`)
			done := l.start(t.Context())
			v := l.next()
			l.wantNumber("jobs", len(l.jobs()), 1)
			v.Pass()
			l.wantMade(<-done, 1)
		},
		"a stage that runs longer than its timeout fails": func(t *testing.T) {
			l := newLab(t, strings.Replace(gated, "text", "timeout = \"1s\"\n  text", 1))
			r := l.run()
			l.wantFailure(r, "ran longer than its timeout of 1s")
			if failed, _ := r.Find(runs.EventFailed, ""); failed.Failure.Cause != lang.CauseTimeout {
				t.Errorf("got the cause %q, want timeout", failed.Failure.Cause)
			}
		},
		"a job that Slurm refuses for good fails with its words": func(t *testing.T) {
			l := newLab(t, gated)
			l.settings.Options = []string{"--partition=nosuch"}
			l.wantFailure(l.run(), "Invalid partition")
		},
		"a job that Slurm refuses for now is submitted again": func(t *testing.T) {
			l := newLab(t, free)
			l.wrap("sbatch", `[ -e refused ] && exec $real "$@"
touch refused; echo "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying" >&2; exit 1`)
			l.wantMade(l.run(), 1)
		},
		"an sbatch that hangs is stopped, and the job submitted again": func(t *testing.T) {
			l := newLab(t, free)
			l.settings.Deadline = time.Second
			l.wrap("sbatch", `[ -e hung ] && exec $real "$@"; touch hung; exec sleep 60`)
			l.wantMade(l.run(), 1)
		},
		"a squeue that fails does not stop the run": func(t *testing.T) {
			l := newLab(t, gated)
			l.wrap("squeue", `echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1`)
			done := l.start(t.Context())
			v := l.next()
			time.Sleep(2 * time.Second)
			v.Pass()
			r := <-done
			l.wantMade(r, 1)
			l.wantNumber("notes", len(r.Of(runs.EventNote)), 1)
		},
		"a job cancelled by hand fails": func(t *testing.T) {
			l := newLab(t, gated)
			done := l.start(t.Context())
			l.next()
			l.slurm("scancel", l.jobs()[0])
			l.wantFailure(<-done, "cancelled outside")
		},
		"a preempted stage continues in a new job": func(t *testing.T) {
			l := newLab(t, gated)
			l.settings.Exclude = "n1,n2,n4"
			l.preempt("low", "n3")
		},
		"a stage that is preempted without grace continues in a new job": func(t *testing.T) {
			l := newLab(t, gated)
			l.settings.Exclude = "n1,n2,n3"
			l.slurm("scontrol", "create", "PartitionName=abrupt", "Nodes=n4", "PriorityTier=1",
				"PreemptMode=REQUEUE", "GraceTime=0")
			t.Cleanup(func() { l.slurm("scontrol", "delete", "PartitionName=abrupt") })
			l.preempt("abrupt", "n4")
		},
		"a job in the queue is cancelled with the run": func(t *testing.T) {
			l := newLab(t, gated)
			l.settings.Options = []string{"--hold"}
			ctx, cancel := context.WithCancel(t.Context())
			done := l.start(ctx)
			l.until("a job waits", func() bool { return len(l.jobs()) == 1 })
			cancel()
			l.wantInterrupted(<-done)
		},
		"a stage that Slurm asks to stop before its limit continues in a new job": func(t *testing.T) {
			l := newLab(t, gated)
			done := l.start(t.Context())
			l.next()
			l.slurm("scancel", "--batch", "--signal=USR1", l.jobs()[0])
			l.next().Pass()
			l.wantMade(<-done, 2)
			log := must.Get(os.ReadFile(l.Runs()[0].Folder.Log("stage.toy.a")))(t)
			must.Contain(t, string(log), "resumed from 1")
		},
		"a stage that reaches its limit twice without progress fails": func(t *testing.T) {
			l := newLab(t, gated)
			done := l.start(t.Context())
			for range 2 {
				l.next()
				l.slurm("scancel", "--batch", "--signal=USR1", l.jobs()[0])
			}
			l.wantFailure(<-done, "raise `time`")
		},
		"an engine killed between its intent and the id adopts the job": func(t *testing.T) {
			l := newLab(t, gated)
			l.wrap("sbatch", `$real "$@"; [ -e killed ] || { touch killed; kill -9 $PPID; }`)
			l.site("path = \"commands\"")
			if out, err := l.engine().CombinedOutput(); err == nil {
				t.Fatalf("the engine was not killed\n%s", out)
			}
			v := l.next()
			go func() {
				l.untilState(2, runs.EventStarted)
				v.Pass()
			}()
			out, err := l.engine().CombinedOutput()
			if err != nil || !strings.Contains(string(out), "adopted stage.toy.a") {
				t.Errorf("got %v, want the adoption\n%s", err, out)
			}
			l.wantMade(enginetest.Outcome{}, 1)
		},
		"the variables of the job in which the engine runs have no effect": func(t *testing.T) {
			l := newLab(t, free)
			l.settings.Env = map[string]string{"SBATCH_PARTITION_": "x"}
			l.wrap("sbatch", `env | grep -q '^SLURM_JOB\|^SBATCH_PARTITION=' && exit 1; exec $real "$@"`)
			l.wrap("squeue", `env | grep -q ^SQUEUE_ && exit 1; echo "Welcome to the cluster"; exec $real "$@"`)
			os.Setenv("SBATCH_PARTITION", "nosuch") // the same for all tests
			os.Setenv("SQUEUE_FORMAT", "%i")
			os.Setenv("SLURM_JOB_ID", "1")
			l.wantMade(l.run(), 1)
		},
		"a stage has the GPUs of its job, and the files of jobs are private": func(t *testing.T) {
			l := newLab(t, strings.Replace(gated, "text", "resources {\n    gpus = 2\n  }\n  text", 1))
			done := l.start(t.Context())
			v := l.next()
			err := filepath.WalkDir(filepath.Join(l.StoreDir, "jobs"), func(path string, e fs.DirEntry, err error) error {
				if info, statErr := os.Stat(path); err != nil || statErr != nil || info.Mode()&0o077 != 0 {
					t.Errorf("%s: got %v, %v, %v, want a private file", path, info.Mode(), err, statErr)
				}
				return nil
			})
			v.Pass()
			l.wantMade(<-done, 1)
			must.OK(t, err)
			must.Contain(t, l.Read("count"), "gpus=0,1")
		},
		"a folder without Slurm's commands is reported": func(t *testing.T) {
			l := newLab(t, gated)
			l.settings.Path = t.TempDir()
			l.wantFailure(l.run(), "the command sbatch of Slurm is missing")
		},
	} {
		t.Run(name, test)
	}
}

// preempt runs the stage in a partition and gives its node to another job for a while.
func (l *lab) preempt(partition, node string) {
	l.Helper()
	l.settings.Options = []string{"--partition=" + partition, "--exclusive"}
	done := l.start(l.Context())
	l.next()
	id := strings.TrimSpace(l.slurm("sbatch", "--parsable", "-p", "main", "--exclusive", "-w", node, "-o", "/dev/null",
		"--wrap", "sleep 600"))
	l.Cleanup(func() { l.slurm("scancel", id) })
	l.until("the other job has the node", func() bool { return l.field(id, "%T") == "RUNNING" })
	l.slurm("scancel", id)
	l.next().Pass()
	r := <-done
	l.wantMade(r, 2)
	l.wantNote(r, "was preempted")
}

// field returns a field of a job in the output of squeue.
func (l *lab) field(id, format string) string {
	l.Helper()
	return strings.TrimSpace(l.slurm("squeue", "-h", "-o", format, "-j", id))
}

// pids returns the processes of the cluster whose command line contains all words, by their ids in its namespace.
func (l *lab) pids(words ...string) (pids []string) {
	l.Helper()
	for line := range strings.Lines(l.slurm("nsenter", l.inside("ps", "-eo", "pid=,args=")...)) {
		pid, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// kill kills processes of the cluster. Some may end before: a stage ends with its slurmstepd.
func (l *lab) kill(pids ...string) {
	l.Helper()
	l.daemon(append([]string{"sh", "-c", "kill -9 $* || true", "kill"}, pids...)...)
}

// restart starts the daemon of a node again.
func (l *lab) restart(node string) { l.Helper(); l.daemon("slurmd", "-N", node) }

// daemon runs a command in the namespaces of the cluster.
func (l *lab) daemon(args ...string) { l.Helper(); l.slurm("nsenter", l.inside(args...)...) }

// inside returns the arguments of nsenter that run a command in the namespaces of the cluster.
func (l *lab) inside(args ...string) []string {
	l.Helper()
	pid := strings.TrimSpace(string(must.Get(os.ReadFile(filepath.Join(l.dir, "pid")))(l)))
	child := strings.TrimSpace(l.slurm("ps", "-o", "pid=", "--ppid", pid))
	return append([]string{"-t", child, "-p", "-m"}, args...)
}

// These tests kill the daemons of a node, so they have a cluster of their own and different nodes of it.
func TestStagesOutliveNodes(t *testing.T) {
	for name, test := range map[string]struct {
		exclude string
		kill    func(l *lab, node string)
	}{
		"after the death of its node a stage runs on another": {"n1,n2", func(l *lab, node string) {
			l.kill(slices.Concat(l.pids("slurmd -N "+node), l.pids("slurmstepd: ["+l.jobs()[0]), l.pids(l.StoreDir))...)
		}},
		"a stage on a node that Slurm has lost ends before its successor starts": {"n3,n4", func(l *lab, node string) {
			l.kill(l.pids("slurmd -N " + node)...)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLabOn(t, mortal, gated)
			l.settings.Exclude = test.exclude
			done := l.start(t.Context())
			first := l.next()
			node := l.field(l.jobs()[0], "%N")
			test.kill(l, node)
			second := l.next()
			if !ended(first, time.Second) {
				t.Error("the first attempt is running beside the second")
			}
			second.Pass()
			l.wantMade(<-done, 2)
			l.restart(node)
			l.until("the node is back", func() bool {
				return strings.TrimSpace(l.slurm("sinfo", "-h", "-n", node, "-p", "main", "-o", "%t")) == "idle"
			})
		})
	}
}

// site writes a site file with settings of the executor, and times those of most tests.
func (l *lab) site(settings ...string) {
	l.Helper()
	l.Put("site.hcl", "default_executor = \"slurm\"\nexecutor \"slurm\" {\n"+strings.Join(settings, "\n")+times)
}

const times = "\n  poll = \"1s\"\n  exclude = \"n3,n4\"\n  memory = \"100MB\"\n  lost = \"4s\"\n  visible = \"2s\"\n" +
	"  grace = \"6s\"\n}\n"

// shared makes the store one of several hosts.
func (l *lab) shared() {
	l.Helper()
	l.site()
	l.Put("site.hcl", l.Read("site.hcl")+"store {\n  shared = true\n}\n")
}

// untilState waits until there are n runs, and the first stage of the newest has a state.
func (l *lab) untilState(n int, state runs.EventKind) {
	l.Helper()
	l.until(fmt.Sprintf("the stage is %s in run %d", state, n), func() bool {
		return len(l.Runs()) == n && l.Runs()[0].Nodes[0].State == state
	})
}

// engine returns an engine in a process of its own.
func (l *lab) engine(env ...string) *exec.Cmd {
	c := exec.Command(must.Get(os.Executable())(l), "cluster", l.File, l.StoreDir)
	c.Env = append(append(os.Environ(), l.conf()), env...)
	return c
}

// newHosts returns a lab whose plan has jobs, stages on the host of the engine, and programs.
func newHosts(t *testing.T) *lab {
	t.Helper()
	var stages strings.Builder
	for i := range 4 {
		fmt.Fprintf(&stages, "stage \"toy\" \"a%d\" {\n  text = \"%d\"\n  count = \"$dir/count\"\n}\n", i, i)
		fmt.Fprintf(&stages, "stage \"light\" \"b%d\" {\n  from = [stage.toy.a%d.out]\n  count = \"$dir/count\"\n"+
			"  shell = \"sleep 0.3\"\n}\n", i, i)
		fmt.Fprintf(&stages, "stage \"toy\" \"c%d\" {\n  from = [stage.light.b%d.out]\n  count = \"$dir/count\"\n"+
			"  executor = \"local\"\n}\n", i, i)
	}
	l := newLab(t, stages.String())
	l.shared()
	return l
}

// wantOnce runs engines at once and checks that each stage of newHosts starts once.
func (l *lab) wantOnce(engines ...*exec.Cmd) {
	l.Helper()
	var wait sync.WaitGroup
	for i, c := range engines {
		wait.Go(func() {
			if out, err := c.CombinedOutput(); err != nil {
				l.Errorf("engine %d: %v\n%s", i, err, out)
			}
		})
	}
	wait.Wait()
	if got := l.Starts(); len(got) != 12 || len(slices.Compact(got)) != 12 {
		l.Errorf("got starts %v, want each stage once", got)
	}
	l.wantNoJob()
}

// onHost returns an engine that runs on another host: locks of files do not reach it.
func (l *lab) onHost(name string) *exec.Cmd {
	l.Helper()
	return l.engine(hostVariable+"="+name, "RCGRPO_LEASES="+filepath.Join(l.Dir, "leases-"+name))
}

func TestEnginesOnTwoHostsRunEachStageOnce(t *testing.T) {
	l := newHosts(t)
	l.wantOnce(l.onHost("a"), l.onHost("b"))
}

// The engine of a host dies with its host: the engine of another host adopts the job and ends the stages.
func TestAnotherHostAdoptsJobs(t *testing.T) {
	l := newLab(t, gated)
	l.shared()
	first := l.engine(hostVariable + "=a")
	must.OK(t, first.Start())
	v := l.next()
	second := l.engine(hostVariable + "=b")
	var out strings.Builder
	second.Stdout = &out
	must.OK(t, second.Start())
	l.until("the second engine waits", func() bool { return len(l.Runs()) == 2 && l.Runs()[0].Nodes[0].Note != "" })
	first.Process.Kill()
	first.Wait()
	l.untilState(2, runs.EventStarted)
	v.Pass()
	if err := second.Wait(); err != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	l.wantMade(enginetest.Outcome{}, 1)
}
