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

// Publisher is a stage with outputs that a run copies to the experiment's folder. The copies follow from the settings,
// the name of the experiment and the address of the node, never from a result: a store may be shared. Load reports two
// nodes that publish the same file, and a node that would replace a source of the experiment.
type Publisher interface {
	Publishes(experiment, address string) []Published
}

// Published is a file or folder of an output that a run copies to the experiment's folder.
type Published struct {
	Port string
	File string // below the port's folder
	Name string // of the copy, below the experiment's folder
}

// Labeled is a stage with labels for people. They are in no key of the stage, but in those of the kinds that read all
// seeds, because they show them.
type Labeled interface{ Labels() Labels }

// Labels name an arm on pages. An empty field follows from the graph of the stages.
type Labels struct{ Arm, Model, Init, Method string }

// Size is an estimated number of rows, and of the tokens in all of them.
type Size struct{ Rows, Tokens float64 }

// Times returns the size of n copies.
func (s Size) Times(n float64) Size { return Size{n * s.Rows, n * s.Tokens} }

// PerRow returns the mean number of tokens of a row.
func (s Size) PerRow() float64 {
	if s.Rows == 0 {
		return 0
	}
	return s.Tokens / s.Rows
}

// Sizer is a stage that estimates its data and its computation from its settings, before any stage has run. A run that
// knows how long one of its trainings takes per token estimates the time of all others by it.
type Sizer interface {
	// Size returns the sizes of the ports, and the computation in tokens that pass forward through a policy. inputs
	// has the size of the artifacts that each setting names, added up; unknown ones are missing.
	Size(inputs map[string]Size) (ports map[string]Size, passes float64)
}

// Reach is what a stage reaches outside its process, its inputs and its store. A user reviews it before a foreign
// experiment runs.
type Reach struct {
	Programs  [][]string // words of each program that it starts
	Env       []string   // NAME=VALUE for the programs, from the settings
	Secrets   []string   // variables of the caller's environment whose values programs or servers get
	Addresses []string   // of servers that it calls, or that the stages that read it call
	Paid      bool       // it calls models that may cost money
	Budget    float64    // most dollars of these calls, per node; 0: it calls free models only
	Files     []string   // files and folders of the user that it reads
}

// Reacher is a stage whose settings name programs, servers or variables of the environment. Reach leaves Files out,
// because those of all stages are known.
type Reacher interface{ Reach() Reach }

// Reach returns everything that a node reaches outside.
func (n *Node) Reach() (r Reach) {
	if s, ok := n.Stage.(Reacher); ok {
		r = s.Reach()
	}
	for _, f := range n.Files {
		r.Files = append(r.Files, f.Path)
	}
	return r
}

// InEngine reports whether a node needs neither tensors nor a program, so that it runs in the engine's process whatever
// its executor.
func (n *Node) InEngine() bool { return n.Kind.InProcess && len(n.Reach().Programs) == 0 }

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
