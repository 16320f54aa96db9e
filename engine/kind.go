package engine

import (
	"context"

	"github.com/hashicorp/hcl/v2"
)

// Kind is one sort of stage: its settings, its ports and how the engine treats it. Kinds are values in a literal
// list (stages.Kinds); nothing registers itself.
type Kind struct {
	Name    string // as written after `stage`, for example "rc-grpo"
	Summary string // one sentence for `rcgrpo kinds`
	Version int    // part of every key; raise it when the same settings would now give different bytes

	// New returns a pointer to a struct with hcl tags that already holds the defaults. See the package
	// comment for the tags a settings struct may carry.
	New func() Stage
	// Outputs maps each port to its artifact type ("tasks", "checkpoint", ...), given the decoded settings.
	Outputs func(Stage) map[string]string
	// Draws says whether chance enters, given the decoded settings. A nil Draws means it never does.
	Stochastic func(Stage) bool
	// Extends names the whole-numbered setting that says how long the stage works, where a greater value goes on, byte for
	// byte, from where a smaller one ends (Job.Shorter). why, if not "", says why it does not with these settings.
	Length func(Stage) (setting, why string)

	// Folders lists, slash-separated and sorted, those that Job.Dir has when Run begins and does not resume, given the decoded settings.
	// nil: none.
	Folders func(Stage) []string

	AcrossSeeds   bool // takes the instances of all seeds at once and is one node itself
	AfterFailures bool // runs even when stages above it failed, and is then not cached
	InProcess     bool // runs inside the engine's process
	MultiGPU      bool // can use several GPUs; without it a run refuses more than one
}

// Stage holds the settings of one instance of a kind, decoded from HCL.
type Stage interface {
	// Check reports conflicts between values; called once, after decoding.
	Check() hcl.Diagnostics
}

// Linked is a stage with rules about the stages that it reads. Load calls CheckInputs for every node once all references
// are resolved and nothing is wrong so far.
type Linked interface {
	CheckInputs(n *Node) hcl.Diagnostics
}

// Preset is a stage with a setting (tag preset) whose value names defaults of others. UsePreset puts them in. The decoder
// calls it before it reads any other setting of the stage, so what the file says itself wins.
type Preset interface {
	UsePreset(name string) // one of the setting's choices
}

// Publisher is a stage that knows from its settings which files it will publish, so that Load can find two that want the
// same name, and one that would replace what an experiment is made from.
type Publisher interface {
	Publishes() []string // names below the experiment's folder, as Job.Publish takes them
}

// Starter is a stage that starts a program which its settings name.
type Starter interface {
	// Starts returns the program, for a person to read before it runs: its arguments, the variables that the settings
	// give it as NAME=VALUE, and as NAME alone those that it takes from the caller's environment.
	Starts() (args, env []string)
}

// Runner is a stage this binary can run. Tensor kinds implement it only under the build tag libtorch; a Stage that
// is no Runner is started in the torch binary.
type Runner interface {
	Run(ctx context.Context, job *Job) error
}
