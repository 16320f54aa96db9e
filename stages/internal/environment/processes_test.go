package environment

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"rcgrpo/bfcl"
	"rcgrpo/engine/proc"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/environment/faults"
	"rcgrpo/stages/rl"
)

// opened holds the processes of shops with their log.
type opened struct {
	*Processes
	marks string
	printed
}

// printed is a log.
type printed struct {
	mu  sync.Mutex
	log strings.Builder
}

func (p *printed) print(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(&p.log, format+"\n", args...)
}

func (p *printed) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// open starts shops whose requests have that fault; "" leaves the faults to the tasks.
func open(t *testing.T, fault string, processes int) (*opened, error) {
	t.Helper()
	o := &opened{marks: t.TempDir()}
	port := t.TempDir()
	start := time.Minute // a busy machine may need long for other faults
	if strings.HasSuffix(fault, "silence") {
		start = 10 * time.Second
	}
	p := &Description{Command: []string{must.Get(os.Executable())(t)}, Env: map[string]string{"SHOP": "1", "FAULT": fault,
		faults.Marks: o.marks}, Start: start, Step: 4 * time.Second, Score: 4 * time.Second}
	must.OK(t, p.Write(port, filepath.Join("testdata", "notes"), nil))
	var err error
	o.Processes, err = OpenProgram(t.Context(), bfcl.ProgramRef{Dir: port, Processes: processes}, Options{Steps: 3,
		Scratch: o.marks, Log: o.print})
	if err == nil {
		t.Cleanup(func() { must.OK(t, o.Close()); wantNoProcess(t, Options{Scratch: o.marks}) })
	} else {
		wantNoProcess(t, Options{Scratch: o.marks})
	}
	return o, err
}

// wantNoProcess reports processes of programs, and those that a fault has left.
func wantNoProcess(t *testing.T, o Options) {
	t.Helper()
	if left := proc.KillMarked(programMark(o.folder())); left != "" {
		t.Errorf("at the end: %s", left)
	}
	if left := faults.Orphans(o.Scratch); len(left) > 0 {
		t.Errorf("processes %v, which a program left, go on", left)
	}
}

// buyer is a policy that puts in the wanted items one by one, then yields.
type buyer struct{ width int }

func (b buyer) Width() int     { return b.width }
func (b buyer) Release() error { return nil }
func (b buyer) Open(_ context.Context, ask rl.Rollout) (rl.Dialogue, error) {
	return &purchase{task: ask.Task}, nil
}

type purchase struct {
	task *bfcl.Task
	made int
}

func (p *purchase) Close() {}
func (p *purchase) Reply(_ context.Context, news []rl.Message, tools []rl.Tool) (rl.Reply, error) {
	var want int
	fmt.Sscanf(p.task.Prompt, "%d", &want)
	if p.made++; p.made <= want {
		return rl.Reply{Text: "add", Calls: []rl.Call{{Text: "add(n=1)"}}}, nil
	}
	return rl.Reply{Text: "Done."}, nil
}

func taskNamed(id string, want int) *bfcl.Task {
	spec, _ := json.Marshal(map[string]any{"id": id, "want": want})
	return &bfcl.Task{ID: id, Family: id, Category: "own", Spec: spec, Prompt: fmt.Sprint(want)}
}

func (o *opened) collect(t *testing.T, tasks []*bfcl.Task) []*rl.Trajectory {
	t.Helper()
	return collect(t, buyer{32}, o, tasks)
}

// errorsOf are the faults of one request and the text of their error.
var errorsOf = map[string]string{"garbage": `bad answer "Hello, world!"`, "silence": "within 4s", "twice": "",
	"other": "no open request has the id 1000", "sibling": "no open request has the id",
	"flood": "a line has more than 16777216 bytes", "fork": "exited with code 0", "death": "exited with code 3",
	"killed": "signal", "nan": "invalid character 'N'", "null": "", "error": "sold out", "list": "neither an object",
	"half": "", "stderr": ""}

// 1,000 episodes have every fault at every method, always or the first time only. No other episode is lost: it gets its
// reward. An episode whose fault persists has no reward, and none has the reward 0.
func TestFaultsOfAProgramLoseNoOtherEpisode(t *testing.T) {
	o := must.Get(open(t, "", 2))(t)
	o.most = 1 << 30 // these faults are on purpose
	var tasks []*bfcl.Task
	persist := map[string]bool{}
	for _, method := range []string{"reset", "step", "score", "close"} {
		for kind := range errorsOf {
			if kind == "flood" || kind == "stderr" {
				continue // below
			}
			always := fmt.Sprintf("%s-%s always", method, kind)
			tasks = append(tasks, taskNamed(always, 2), taskNamed(fmt.Sprintf("%s-%s once", method, kind), 1))
			persist[always] = method != "close" && kind != "twice"
		}
	}
	for i := 0; len(tasks) < 1000; i++ {
		tasks = append(tasks, taskNamed(fmt.Sprint("plain ", i), i%3))
	}
	got, missing, recovered := o.collect(t, tasks), 0, 0
	for i, e := range got {
		id := tasks[i].ID
		kind, _, _ := strings.Cut(id[strings.Index(id, "-")+1:], " ")
		plain := strings.HasPrefix(id, "plain") || strings.HasPrefix(id, "close")
		switch {
		case e.Reward.Missing():
			missing++
			if plain || !strings.Contains(e.Failure, errorsOf[kind]) || !strings.Contains(e.Failure, id) {
				t.Errorf("%s: got the failure %q, want it to name the task and %q", id, e.Failure, errorsOf[kind])
			}
		case e.Reward != 1 || persist[id]:
			t.Errorf("%s: got the reward %v (%s)", id, e.Reward, e.Failure)
		case strings.HasSuffix(id, " once"): // without a reward, its first try ended by the fault of another episode
			recovered++
		}
		if e.Stop == rl.StopDone && !strings.Contains(e.Messages[len(e.Messages)-2].Text, "Anything else?") {
			t.Errorf("%s: it ended without its second turn", id)
		}
	}
	if recovered < len(persist)/2 {
		t.Errorf("%d of %d episodes with one fault got their reward in the second try", recovered, len(persist))
	}
	if said := o.said(); !strings.Contains(said, "the shelf broke") ||
		!strings.Contains(said, "step of task step-death always") || !strings.Contains(said, "has no reward") {
		t.Errorf("the log names no method, task and standard error: %.2000s", said)
	}
	t.Logf("%d episodes: %d with reward 1, %d without a reward, %d of %d recovered from one fault", len(got),
		len(got)-missing, missing, recovered, len(persist))
}

func TestLargeOutputEndsTheEpisodeOrIsLeftOut(t *testing.T) {
	o := must.Get(open(t, "", 1))(t)
	begun := time.Now()
	got := o.collect(t, []*bfcl.Task{taskNamed("step-flood always", 1), taskNamed("step-stderr always", 1)})
	if !strings.Contains(got[0].Failure, errorsOf["flood"]) || got[1].Reward != 1 {
		t.Errorf("got %q and the reward %v", got[0].Failure, got[1].Reward)
	}
	if n := len(o.said()); n > 4*mostLog || time.Since(begun) > time.Minute {
		t.Errorf("%d bytes in the log after %v", n, time.Since(begun))
	}
}

// A program that fails in the first request of its process, or in that for its tasks, is refused.
func TestProgramsThatFailAtTheStartAreRefused(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"hello", "tasks"} {
		for kind, want := range errorsOf {
			if kind == "twice" || kind == "null" || kind == "stderr" || kind == "nan" {
				continue // of other methods
			}
			if kind == "silence" && method == "tasks" && must.Short(t, 0, 1) == 0 { // ten seconds, as for hello
				continue
			}
			o, err := open(t, method+"-"+kind, 1)
			if method == "tasks" {
				must.OK(t, err)
				_, err = o.Tasks(t.Context(), "train", 5, 1)
			}
			must.Match(t, err, "the program failed in "+method+": ")
			if kind == "silence" {
				want = "no answer to " + method + " within 10s"
			}
			if !strings.Contains(err.Error(), want) || kind == "death" && !strings.Contains(err.Error(), "the shelf broke") {
				t.Errorf("%s in %s: got %v, want it to say %q", kind, method, err, want)
			}
		}
	}
}

// Errors quote the beginning of an answer, so its secrets are masked before it is cut.
func TestSecretsAreInNoErrorOfAProgram(t *testing.T) {
	const token = "tok-0123456789abcdef"
	t.Setenv("LOOK_TOKEN", token)
	for name, answer := range map[string]string{
		"error":            `{"jsonrpc":"2.0","id":1,"error":{"message":"denied: $LOOK_TOKEN"}}`,
		"long error":       `{"jsonrpc":"2.0","id":1,"error":{"message":"` + strings.Repeat("x", 990) + `$LOOK_TOKEN"}}`,
		"error without id": `{"jsonrpc":"2.0","error":{"message":"` + strings.Repeat("x", 190) + `$LOOK_TOKEN"}}`,
		"garbage":          strings.Repeat("x", 190) + "$LOOK_TOKEN",
	} {
		port := t.TempDir()
		p := &Description{Command: []string{"sh", "-c", "read line; cat <<E\n" + answer + "\nE\nread line"},
			Secrets: []string{"LOOK_TOKEN"}, Start: 10 * time.Second, Step: time.Second, Score: time.Second}
		must.OK(t, p.Write(port, filepath.Join("testdata", "notes"), nil))
		_, err := OpenProgram(t.Context(), bfcl.ProgramRef{Dir: port, Processes: 1},
			Options{Scratch: t.TempDir(), Log: t.Logf})
		if err == nil || strings.Contains(err.Error(), token[:5]) || !strings.Contains(err.Error(), "***") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestProgramThatAlwaysFailsCountsAsBroken(t *testing.T) {
	o := must.Get(open(t, "", 2))(t)
	var tasks []*bfcl.Task
	for i := range 200 {
		tasks = append(tasks, taskNamed(fmt.Sprint("step-death always ", i), 1))
	}
	got := o.collect(t, tasks)
	if _, err := rl.Rewarded(got); err == nil || !strings.Contains(got[199].Failure, "is not started again") {
		t.Errorf("the last episode failed with %q, and the collection with %v", got[199].Failure, err)
	}
}

func TestTasksExpertsAndTools(t *testing.T) {
	o := must.Get(open(t, "", 1))(t)
	tasks := must.Get(o.Tasks(t.Context(), "train", 5, 1))(t)
	for _, task := range tasks {
		e := must.Get(Expert(t.Context(), o, task, false))(t)
		if e.Reward != 1 || len(e.Messages) != 6 || e.System != "A shop." || len(e.Offered()) != 1 ||
			!json.Valid(e.Offered()[0].JSON) || e.Calls != 1 || !e.Official {
			t.Errorf("task %s: %+v", task.ID, e)
		}
	}
	if len(tasks) != 5 || tasks[0].Family != "t0" || !HasExpert(tasks[0]) || HasExpert(taskNamed("a", 1)) {
		t.Errorf("got %+v", tasks)
	}
	_, err := o.Tasks(t.Context(), "train", 0, 1)
	must.Match(t, err, "want 1 to 0")
}

// Calls that have no JSON form, and results that are objects with an error, are tool errors.
func TestUnreadableCallsAreToolErrors(t *testing.T) {
	o := must.Get(open(t, "", 1))(t)
	env := must.Get(o.Start(t.Context(), taskNamed("a", 2), rl.StartOptions{}))(t)
	defer env.Close()
	for _, tc := range []struct {
		calls []string
		errs  int
		want  string
	}{
		{[]string{"add(n=1)", "add(1 +", "add(n=1)"}, 1, "2 in the cart of a"},
		{[]string{"nothing to see"}, 1, "error"},
		{[]string{"remove(n=1)"}, 1, "no such tool"},
	} {
		var r rl.Reply
		for _, c := range tc.calls {
			r.Calls = append(r.Calls, rl.Call{Text: c})
		}
		results, errs, err := env.Step(t.Context(), r)
		must.OK(t, err)
		if errs != tc.errs || len(results) != len(tc.calls) || !strings.Contains(results[len(results)-1], tc.want) {
			t.Errorf("%q: got %q and %d errors", tc.calls, results, errs)
		}
	}
	_, _, err := env.Step(t.Context(), rl.Reply{Calls: []rl.Call{{Text: "add(n=0)"}}})
	must.OK(t, err)
	if !env.Done() || env.Stop() != rl.StopTurnLimit {
		t.Errorf("after four steps of at most three the episode has stopped with %q", env.Stop())
	}
	if v := must.Get(env.Verdict(t.Context()))(t); v.Reward != 1 {
		t.Errorf("got %+v", v)
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	o := must.Get(open(t, "", 1))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := o.Start(ctx, taskNamed("reset-silence always", 1), rl.StartOptions{})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if got := o.collect(t, []*bfcl.Task{taskNamed("plain", 1)}); got[0].Reward != 1 {
		t.Errorf("the next episode: %+v", got[0])
	}
}

func TestCopyKeepsExecutableFilesAndLeavesNamesOut(t *testing.T) {
	from, port, scratch := t.TempDir(), t.TempDir(), t.TempDir()
	for name, mode := range map[string]os.FileMode{"run": 0o755, "lib/a.py": 0o644, "lib/__pycache__/a.pyc": 0o644} {
		must.OK(t, os.MkdirAll(filepath.Dir(filepath.Join(from, name)), 0o700))
		must.OK(t, os.WriteFile(filepath.Join(from, name), []byte(name), mode))
	}
	p := &Description{Command: []string{"./run"}, Start: time.Second}
	must.OK(t, p.Write(port, from, []string{"__pycache__"}))
	read := must.Get(ReadDescription(port))(t)
	to := must.Get(read.Copy(port, scratch))(t)
	run, err := os.Stat(filepath.Join(to, "run"))
	lib := must.Get(os.Stat(filepath.Join(to, "lib/a.py")))(t)
	if err != nil || run.Mode() != 0o555 || lib.Mode() != 0o444 {
		t.Errorf("modes %v and %v, want 0555 and 0444", run.Mode(), lib.Mode())
	}
	if _, err := os.Stat(filepath.Join(to, "lib/__pycache__")); err == nil {
		t.Error("a name that is left out was copied")
	}
}

// A stranger's manifest can record a file of any size.
func TestALargeDescriptionOfAProgramIsNotRead(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, ProgramFile)
	must.OK(t, os.WriteFile(file, nil, 0o600))
	must.OK(t, os.Truncate(file, 1<<40))
	_, err := ReadDescription(dir)
	must.Match(t, err, "1099511627776 bytes; at most")
}

func FuzzAnswers(f *testing.F) {
	for _, line := range []string{`{"jsonrpc":"2.0","id":1,"result":{}}`,
		`{"jsonrpc":"2.0","id":1,"error":{"message":"x"}}`,
		`{"id":1}`, "\xff", `{"jsonrpc":"2.0","id":1e3,"result":[]}`, "a\r\nb\n\n"} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, total := bufio.NewReaderSize(bytes.NewReader(text), 16), 0
		for {
			line, err := readLine(r, 64)
			if len(line) > 64+1 || bytes.ContainsRune(line, '\n') {
				t.Fatalf("a line of %d bytes", len(line))
			}
			total += len(line)
			if a, bad := parseAnswer(line); bad == nil && a.Result != nil && (a.Result[0] != '{' || a.Error != "") {
				t.Errorf("%q has %+v", line, a)
			}
			if err != nil {
				if err == io.EOF && total > len(text) {
					t.Errorf("%d bytes read of %d", total, len(text))
				}
				return
			}
		}
	})
}

// A line of stderr is cut after its secrets are masked: the first half of a secret would not be recognized.
func TestASecretAtTheCutOfALineIsMasked(t *testing.T) {
	read, write, err := os.Pipe()
	must.OK(t, err)
	var log printed
	c := &process{launcher: &launcher{secrets: proc.NewSecrets("sk-0123456789"), log: log.print}}
	must.Get(io.WriteString(write, strings.Repeat("x", tailWidth-5)+"sk-0123456789\n"))(t)
	must.OK(t, write.Close())
	c.readLog(read)
	if got := log.said(); strings.Contains(got, "sk-") || !strings.Contains(got, "x***") {
		t.Errorf("the log has %q", got)
	}
}
