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
	Program *artifact.File    `hcl:"program" doc:"folder of the program: dir(\"agent\", [names left out])"`
	Command []string          `hcl:"command" doc:"words that start the program in a copy of the folder"`
	Lives   string            `hcl:"lives,optional" choices:"stage|episode" doc:"stage, the default: a process plays"`
	_       struct{}          `doc:"episodes one after another, a JSON line for each; episode: a process for each episode"`
	Workers int               `hcl:"workers,optional" key:"-" doc:"processes at once, each with one episode; default 8"`
	Reward  string            `hcl:"reward,optional" choices:"environment|program" doc:"environment, the default: the"`
	_       struct{}          `doc:"verdict on the calls that the program made; program: the number that it answers with"`
	Timeout time.Duration     `hcl:"timeout,optional" doc:"of an episode; default 5m"`
	Env     map[string]string `hcl:"env,optional" doc:"further variables"`
	Secrets []string          `hcl:"secrets,optional" doc:"variables taken from the environment: only their names"`
	_       struct{}          `doc:"enter the key, and the log masks their values"`

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
