package lang

import (
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"
)

// Kind is a type of stage: its settings, its ports and how the engine treats it. Kinds are elements of a literal
// list (stages.Kinds).
type Kind struct {
	Name    string // the first label of a stage block, for example "rc-grpo"
	Summary string // one sentence for `rcgrpo kinds`
	Version int    // part of every key; raise it when equal settings would produce different bytes

	// New returns a pointer to a struct with hcl tags that contains the defaults. The package comment lists the tags.
	New func() Stage
	// Outputs maps each port to its artifact type ("tasks", "checkpoint", ...), given the decoded settings.
	Outputs func(Stage) map[string]string
	// Stochastic reports whether the stage uses randomness, given the decoded settings. nil: never.
	Stochastic func(Stage) bool
	// Length names the integer setting that determines how long the stage works. A larger value resumes from the
	// result of a smaller one and produces identical bytes (Job.Shorter). why is not "" if it cannot with these
	// settings.
	Length func(Stage) (setting, why string)

	// Ranks returns the largest number of processes, and so of GPUs, that can share the stage; 0: one with these settings.
	// nil: one.
	Ranks func(Stage) int

	AcrossSeeds   bool // reads the instances of all seeds and has one node itself
	AfterFailures bool // runs in the engine, even if its inputs failed; its result is then not cached
	InProcess     bool // runs in the engine's process
	MultiGPU      bool // its process may use several GPUs; without it and Ranks a run rejects more than one
}

// Stage contains the settings of one instance of a kind, decoded from HCL.
type Stage interface {
	// Check reports conflicts between settings. It is called once, after decoding.
	Check() hcl.Diagnostics
}

// Linked is a stage with rules about its inputs. Load calls CheckInputs for every node after all references are
// resolved, if there is no error so far.
type Linked interface {
	CheckInputs(n *Node) hcl.Diagnostics
}

// Preset is a stage with a setting (tag preset) whose value selects defaults of other settings. The decoder calls
// UsePreset before it decodes other settings of the stage, so explicit values win.
type Preset interface {
	UsePreset(name string) // one of the setting's choices
}

// Publisher is a stage whose settings determine the files it publishes. Load reports two stages that publish the
// same file, and a stage that would replace a source of the experiment.
type Publisher interface {
	Publishes() []string // relative to the experiment's folder, as in Job.Publish
}

// Labeled is a stage with a label for people. The label is in no key of the stage, but in those of the kinds that read
// all seeds, because they show it.
type Labeled interface{ Label() string }

// Starter is a stage that starts a program named by its settings.
type Starter interface {
	// Starts returns the program for review: its arguments, the variables that the settings define as NAME=VALUE,
	// and those taken from the caller's environment as NAME.
	Starts() (args, env []string)
}

// Program returns the program that the settings of a node start, as Starter describes it; no arguments without one.
func (n *Node) Program() (args, env []string) {
	if s, ok := n.Stage.(Starter); ok {
		return s.Starts()
	}
	return nil, nil
}

// InEngine reports whether a node needs neither tensors nor a program, so that it runs in the engine's process whatever
// its executor.
func (n *Node) InEngine() bool {
	args, _ := n.Program()
	return n.Kind.InProcess && len(args) == 0
}

// EnvTexts returns variables as NAME=VALUE, sorted by name.
func EnvTexts(env map[string]string) (texts []string) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		texts = append(texts, name+"="+env[name])
	}
	return texts
}

const (
	CauseOOM       = "oom"       // out of memory, on host or device
	CauseNaN       = "nan"       // not a number where a number is required
	CausePreempted = "preempted" // stopped from outside
	CauseTimeout   = "timeout"   // exceeded its timeout
	CauseKilled    = "killed"    // SIGKILL from an unknown sender; a retry does not name it
)

// FailureCauses are the causes that a retry may name.
var FailureCauses = []string{CauseOOM, CauseNaN, CausePreempted, CauseTimeout}
