package agent

import (
	"time"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/stages/rl/blocks"
)

// Settings are the block agent of a stage that samples.
type Settings struct {
	// folder of the program: dir("agent", [names left out])
	Program *artifact.File `hcl:"program"`
	// words that start the program in a copy of the folder
	Command []string `hcl:"command"`
	// stage, the default: a process plays episodes one after another, a JSON line for each; episode: a process for
	// each episode
	Lives string `hcl:"lives,optional" choices:"stage|episode"`
	// how many processes the program has at once, each with one episode; 8 by default
	Workers int `hcl:"workers,optional" key:"-"`
	// environment, the default: the verdict on the calls that the program made; program: the number that it answers
	// with
	Reward string `hcl:"reward,optional" choices:"environment|program"`
	// the time that an episode may take; 5m by default
	Timeout time.Duration `hcl:"timeout,optional"`
	// further environment variables of the program
	Env map[string]string `hcl:"env,optional"`
	// variables taken from the environment: only their names enter the key, and the log masks their values
	Secrets []string `hcl:"secrets,optional"`

	At map[string]hcl.Range `hcl:",ranges"`
}

// Defaults of the block: without it, its settings are zero.
const (
	defaultWorkers = 8
	defaultTimeout = 5 * time.Minute
)

// Check checks the block; s may be nil.
func (s *Settings) Check() (diags hcl.Diagnostics) {
	if s == nil {
		return nil
	}
	bad := blocks.Mistakes(&diags)
	bad(!s.Program.Dir, "Not a folder", s.At["program"], "program is the folder of the agent: program = dir(\"agent\").")
	bad(len(s.Command) == 0 || s.Command[0] == "", "Empty command", s.At["command"],
		"command lists the words that start the agent, such as [\"python3\", \"agent.py\"]; here it has none.")
	bad(s.Workers < 0, "Too few workers", s.At["workers"], "The episodes need a process; got %d.", s.Workers)
	bad(s.Timeout < 0, "Limit out of range", s.At["timeout"], "A limit of time is above 0; got %v.", s.Timeout)
	return diags
}

// Reach implements lang.Reacher for a stage with the block; s may be nil.
func (s *Settings) Reach() lang.Reach {
	if s == nil {
		return lang.Reach{}
	}
	return lang.Reach{Programs: [][]string{s.Command}, Env: lang.EnvTexts(s.Env), Secrets: s.Secrets}
}
