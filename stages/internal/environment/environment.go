package environment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"rcgrpo/bfcl"
	"rcgrpo/engine/proc"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

// Options describe the episodes of a stage.
type Options struct {
	Tasks     []*bfcl.Task // to play
	Benchmark string       // folder of the benchmark's data; needed for its tasks only
	Steps     int          // steps per turn; one more is executed and ends the episode; 0: unlimited
	Scratch   string       // scratch folder of the stage
	Rank      int          // rank of this process of the stage
	Name      string       // name of the folder below Scratch in which the programs start; "": programs
	Log       func(format string, args ...any)
}

// environments dispatches tasks to their environments.
type environments struct {
	benchmark rl.Environment
	programs  map[string]rl.Environment // by the folder of the tasks artifact
}

// Open starts the first process of each program of the tasks. It first removes processes and copies of an earlier
// attempt that was killed. Close the environment.
func Open(ctx context.Context, o Options) (rl.Environment, error) {
	settings, err := bfcl.SettingsFor(o.Tasks, o.Benchmark)
	if err != nil {
		return nil, err
	}
	m := &environments{benchmark: rl.Benchmark(settings, blocks.Limits{Steps: o.Steps}),
		programs: map[string]rl.Environment{}}
	if slices.ContainsFunc(o.Tasks, func(t *bfcl.Task) bool { return t.Spec != nil }) {
		if err := o.clear(); err != nil {
			return nil, err
		}
	}
	for _, t := range o.Tasks {
		if t.Spec == nil || m.programs[t.Program.Dir] != nil {
			continue
		}
		program, err := o.open(ctx, t.Program)
		if err != nil {
			return nil, errors.Join(err, m.Close())
		}
		m.programs[t.Program.Dir] = program
	}
	return m, nil
}

// folder returns the folder with the copies of the programs.
func (o Options) folder() string {
	return filepath.Join(o.Scratch, fmt.Sprintf("%s-%d", cmp.Or(o.Name, "programs"), o.Rank))
}

// clear ends the processes and removes the copies that an earlier, killed attempt of the stage left.
func (o Options) clear() error {
	if left := proc.KillMarked(programMark(o.folder())); left != "" {
		o.Log("an earlier attempt of this stage was killed: %s", left)
	}
	return errors.Join(os.RemoveAll(o.folder()), os.MkdirAll(o.folder(), 0o700))
}

// OpenProgram is Open for one program that speaks the protocol of Processes.
func OpenProgram(ctx context.Context, at bfcl.ProgramRef, o Options) (*Processes, error) {
	if err := o.clear(); err != nil {
		return nil, err
	}
	p, err := ReadDescription(at.Dir)
	if err != nil {
		return nil, err
	}
	return newProcesses(ctx, p, at, o)
}

// OpenServer is Open for one server, whose tools it stores in p.
func OpenServer(ctx context.Context, p *Description, at bfcl.ProgramRef, o Options) (*Servers, error) {
	if err := o.clear(); err != nil {
		return nil, err
	}
	s := newServers(p, at, o)
	return s, s.check(ctx)
}

// open starts the program of tasks.
func (o Options) open(ctx context.Context, at bfcl.ProgramRef) (rl.Environment, error) {
	p, err := ReadDescription(at.Dir)
	if err != nil {
		return nil, err
	}
	if p.Server == nil {
		return newProcesses(ctx, p, at, o)
	}
	s := newServers(p, at, o)
	return s, s.check(ctx)
}

// Start implements rl.Environment.
func (m *environments) Start(ctx context.Context, t *bfcl.Task, o rl.StartOptions) (rl.Env, error) {
	if t.Spec == nil {
		return m.benchmark.Start(ctx, t, o)
	}
	program := m.programs[t.Program.Dir]
	if program == nil {
		return nil, fmt.Errorf("task %s: its program was not opened", t.ID)
	}
	return program.Start(ctx, t, o)
}

// Close implements rl.Environment. It ends all programs.
func (m *environments) Close() (err error) {
	for _, p := range m.programs {
		err = errors.Join(err, p.Close())
	}
	return err
}

// Expert plays the expert calls of a program's task. It returns nil without an error if the task has none.
func Expert(ctx context.Context, e rl.Environment, t *bfcl.Task, alone bool) (*rl.Trajectory, error) {
	turns, err := expertCalls(t)
	if err != nil || turns == nil {
		return nil, err
	}
	env, err := e.Start(ctx, t, rl.StartOptions{Seed: rl.EnvironmentSeed(0, 0, t.ID), Alone: alone})
	if err != nil {
		return nil, err
	}
	defer env.Close()
	trajectory, err := rl.Play(ctx, env, t, turns, nil)
	if err != nil {
		return nil, err
	}
	trajectory.Origin = rl.OriginExpert
	return trajectory, nil
}

// NoExpert names the way out for tasks without expert calls.
const NoExpert = "it has no expert calls: give \"expert\", a list of calls for each turn (\"expected\" in the " +
	"file of a server's tasks), or start without curate from a checkpoint that solves some of the tasks"

// HasExpert reports whether a task of a program has expert calls. A task that cannot be read counts as one that has:
// its error is reported where the calls are used.
func HasExpert(t *bfcl.Task) bool {
	turns, err := expertCalls(t)
	return err != nil || turns != nil
}

// expertCalls returns the calls of the expert as text, by turn.
func expertCalls(t *bfcl.Task) ([][]string, error) {
	var spec taskSpec
	if err := decode(t.Spec, &spec); err != nil {
		return nil, fmt.Errorf("task %s: %w", t.ID, err)
	}
	var turns [][]string
	for _, calls := range spec.Expert {
		texts := []string{}
		for _, c := range calls {
			if c.Name == "" || len(c.Arguments) == 0 {
				return nil, fmt.Errorf("task %s: a call of its expert has no name or no arguments; want {\"name\": TEXT, "+
					"\"arguments\": OBJECT}", t.ID)
			}
			text, err := bfcl.CallText(c.Name, c.Arguments)
			if err != nil {
				return nil, fmt.Errorf("task %s: expert: %w", t.ID, err)
			}
			if _, _, err := bfcl.CallJSON(text); err != nil {
				return nil, fmt.Errorf("task %s: expert: %w; names of tools and arguments are identifiers of Python", t.ID, err)
			}
			texts = append(texts, text)
		}
		turns = append(turns, texts)
	}
	return slices.Clip(turns), nil
}
