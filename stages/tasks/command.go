package tasks

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/stages/internal/environment"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

type timeouts struct {
	// the time that the program may take to start and to list its tasks
	Start time.Duration `hcl:"start,optional"`
	// the time that the program may take to start an episode, and for each step of it
	Step time.Duration `hcl:"step,optional"`
	// the time that the program may take for the reward of an episode
	Score time.Duration `hcl:"score,optional"`

	At map[string]hcl.Range `hcl:",ranges"`
}

// ProgramProcesses returns how many processes of the program a stage that plays the tasks starts.
func (s *settings) ProgramProcesses() int { return s.Processes }

// Reach implements lang.Reacher.
func (s *settings) Reach() (r lang.Reach) {
	if !s.own() {
		return r
	}
	for _, command := range [][]string{s.Command, s.Score} {
		if len(command) > 0 {
			r.Programs = append(r.Programs, command)
		}
	}
	if len(r.Programs) > 0 {
		r.Env, r.Secrets = lang.EnvTexts(s.Env), slices.Clone(s.Secrets)
	}
	if s.URL != "" {
		r.Addresses = []string{s.URL}
		r.Secrets = append(r.Secrets, slices.Sorted(maps.Values(s.Headers))...)
	}
	return r
}

func (s *settings) checkProgram(bad func(bool, string, hcl.Range, string, ...any)) {
	own, t := s.Source == "command", s.Timeouts
	bad(own && (s.Program == nil || !s.Program.Dir), "No program", s.At["program"],
		"Tasks of a program need its folder: program = dir(\"shop\").")
	bad(own && (len(s.Command) == 0 || s.Command[0] == ""), "Empty command", s.At["command"],
		"command lists the words that start the program, such as [\"python3\", \"shop.py\"]; here it has none.")
	bad(own && s.Train == 0, "No training task", s.At["train"], "The program makes at least one task; train is 0.")
	bad(s.Processes < 1, "Too few processes", s.At["processes"], "The episodes need a process; got %d.", s.Processes)
	bad(t.Start <= 0 || t.Step <= 0 || t.Score <= 0, "Limit out of range", t.At[""],
		"A limit of time is above 0; got start %v, step %v and score %v.", t.Start, t.Step, t.Score)
	s.checkServer(bad)
}

// programEffects adds the settings without effect for, or without, a program.
func (s *settings) programEffects(e blocks.Effects) {
	const server = "it is about the tools of an MCP server (source = \"mcp\")"
	e.Add(!s.own(), "it is about your own tasks (source = \"command\" or \"mcp\")", "program", "command", "processes",
		"env", "secrets", "timeouts.start", "timeouts.step", "timeouts.score")
	e.Add(s.Source != "mcp", server, "file", "test_file", "url", "headers", "score")
	e.Add(s.own(), "the program writes the requests itself", "prompt")
	if s.Source != "mcp" {
		return
	}
	e.Add(s.URL == "", "command starts the server", "headers")
	e.Add(len(s.Score) == 0, "no command scores", "timeouts.score")
	e.Add(s.URL != "" && len(s.Score) == 0, "no process starts", "program", "env", "secrets")
}

// OwnProgram returns the program of the tasks, and its folder, which may be nil; no program if the tasks have none.
func (s *settings) OwnProgram() (*environment.Description, *artifact.File) {
	if !s.own() {
		return nil, nil
	}
	p := &environment.Description{Command: s.Command, Env: s.Env, Secrets: s.Secrets, Start: s.Timeouts.Start,
		Step: s.Timeouts.Step, Score: s.Timeouts.Score}
	if s.Source == "mcp" {
		p.Server = &environment.Server{URL: s.URL, Headers: s.Headers, Score: s.Score}
	}
	return p, s.Program
}

// store writes the program into the folder of each set.
func (s *settings) store(job *engine.Job) (p *environment.Description, dirs map[string]string, err error) {
	p, _ = s.OwnProgram()
	dirs = map[string]string{}
	for _, port := range s.setPorts() {
		dirs[port], err = job.Create(port)
		if err == nil && s.Program != nil {
			err = p.Write(dirs[port], s.Program.Path, s.Program.Left)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	return p, dirs, nil
}

// runProgram asks the program for its tasks, tries it, and stores it beside them.
func (s *settings) runProgram(ctx context.Context, job *engine.Job) error {
	_, dirs, err := s.store(job)
	if err != nil {
		return err
	}
	program, err := environment.OpenProgram(ctx, bfcl.ProgramRef{Dir: dirs["train"], Processes: s.Processes},
		environment.Options{Scratch: job.Dir, Log: job.Logf})
	if err != nil {
		return err
	}
	defer program.Close()
	sets := map[string][]*bfcl.Task{}
	for _, port := range s.setPorts() {
		want := map[string]int{"train": s.Train, "test": s.Test}[port]
		if sets[port], err = program.Tasks(ctx, port, want, job.Seed); err != nil {
			return err
		}
		if n := len(sets[port]); n < want {
			job.Logf("the program has %d tasks for the set %s, fewer than the %d of the settings", n, port, want)
		}
	}
	return s.finish(ctx, job, program, dirs, sets)
}

// finish writes the sets of a program and tries its experts.
func (s *settings) finish(ctx context.Context, job *engine.Job, e rl.Environment, dirs map[string]string,
	sets map[string][]*bfcl.Task) error {
	seen := map[string]bool{}
	for _, port := range s.setPorts() {
		for _, t := range sets[port] {
			if seen[t.ID] {
				return fmt.Errorf("there are two tasks with the id %s; an id names one task of all sets", t.ID)
			}
			seen[t.ID] = true
		}
		if err := artifact.WriteRows(dirs[port], bfcl.TasksFile, sets[port]); err != nil {
			return err
		}
	}
	s.reportFamilies(job, sets)
	if err := try(ctx, job, e, sets["train"]); err != nil {
		return err
	}
	return s.certify(job, sets)
}

// reportFamilies logs tasks whose family is in both sets, or unknown.
func (s *settings) reportFamilies(job *engine.Job, sets map[string][]*bfcl.Task) {
	if c := bfcl.Certify(sets["train"], sets["test"]); c.Families.TestTasks > 0 {
		job.Logf("warning: %d test tasks have a family of the training set, so their success says little about new "+
			"tasks; give tasks that share a solution one \"family\", and each family to one set", c.Families.TestTasks)
	}
	if slices.ContainsFunc(sets["train"], func(t *bfcl.Task) bool { return t.Family == t.ID }) {
		job.Logf("tasks without \"family\" are families of their own: intervals on pages treat them as independent; give " +
			"tasks that share a solution one \"family\"")
	}
}

// trials is the number of experts that the stage plays twice.
const trials = 3

// try plays experts twice, the second time in a fresh process, and reports differences and rewards below 1.
func try(ctx context.Context, job *engine.Job, program rl.Environment, tasks []*bfcl.Task) error {
	tried, sound := 0, true
	for _, t := range tasks {
		if !environment.HasExpert(t) || tried == trials {
			continue
		}
		tried++
		var text [2]string
		for i := range text {
			e, err := environment.Expert(ctx, program, t, i == 1)
			if err != nil {
				return fmt.Errorf("trial of the expert: %w", err)
			}
			if e.Reward < 1 && i == 0 {
				sound = false
				job.Logf("warning: the expert of task %s has the reward %v; curate needs 1", t.ID, e.Reward)
			}
			row, err := json.Marshal(e)
			if err != nil {
				return err
			}
			text[i] = string(row)
		}
		if text[0] != text[1] {
			sound = false
			job.Logf("warning: the expert of task %s played twice differs, so equal seeds do not give equal results: %s",
				t.ID, difference(text[0], text[1]))
		}
	}
	switch {
	case tried == 0:
		job.Logf("the tasks have no expert calls (\"expert\", or \"expected\" in a file), so nothing was tried, and curate " +
			"cannot make data from these tasks; start from a checkpoint that solves some of them")
	case sound:
		job.Logf("trial: %d experts played twice, with equal results and reward 1", tried)
	}
	return nil
}

// difference quotes two texts from shortly before their first difference.
func difference(a, b string) string {
	n := lang.CommonPrefix(a, b)
	part := func(s string) string { return strings.ToValidUTF8(s[max(0, n-40):min(len(s), n+80)], "?") }
	return fmt.Sprintf("…%s… and …%s…", part(a), part(b))
}
