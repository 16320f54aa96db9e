package lang

import (
	"maps"
	"slices"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/artifact"
)

// Kind is a type of stage: its settings, its ports and how the engine treats it. Kinds are elements of a literal list
// (stages.Kinds); a Stage has the settings of one instance.
type Kind struct {
	// Name is the first label of a stage block, for example "rc-grpo". It is part of every key.
	Name string

	// Summary is one sentence for `rcgrpo kinds` and docs/language.md.
	Summary string

	// Version is part of every key. Raise it in the change after which equal settings and inputs produce other bytes: a
	// corrected formula, another format of a port, a renamed metric. All cached results of the kind are then made again.
	// Results of readers stay cached where the new bytes are equal to the old ones, because keys contain digests.
	Version int

	// New returns a pointer to a new struct with hcl tags that contains the defaults. It is the only place of defaults.
	// The decoder fills the struct with the layers of settings, and the package comment lists the tags. The struct may
	// implement further interfaces of this package, such as Linked, Preset, Sizer or Reacher, and engine.Runner.
	New func() Stage

	// Outputs maps each port of a stage to its artifact type ("tasks", "checkpoint", ...). It gets the decoded settings,
	// because a setting may add a port: evaluate adds best to grpo. A reference to another port, or to a port of another
	// type than its setting wants, is reported before anything runs.
	Outputs func(Stage) map[string]string

	// Stochastic reports whether a stage uses randomness with its settings. Such a stage has a node for each seed of the
	// experiment and the seed in its key, and so has everything that reads it. nil means never: the stage has one node,
	// unless it reads another that has several.
	Stochastic func(Stage) bool

	// Length names the integer setting that determines how long a stage works, such as updates. A stage whose key differs
	// from that of a cached result only by a larger value of it continues from that result (Job.Shorter), and must end in
	// the bytes of a stage that was never interrupted. why is the reason if it cannot with these settings, else "": a
	// schedule that falls until the last update depends on their number. nil means that no stage of the kind continues.
	Length func(Stage) (setting, why string)

	// Ranks returns the largest number of processes, and so of GPUs, that can share a stage, such as the number of its
	// partial gradients; 0 means one with these settings. nil means that no stage of the kind can be shared. The number
	// of processes is in no key, so ranks must produce the bytes of one process.
	Ranks func(Stage) int

	// AcrossSeeds is set for a kind that reads the instances of all seeds and has one node itself, such as report. Its key
	// contains what it shows of them: addresses, labels, the experiment's name and question.
	AcrossSeeds bool

	// AfterFailures is set for a kind that runs although its inputs have failed, such as a report about what is there
	// (Job.Missing lists the rest). Its output is published, and cached only if no input is missing.
	AfterFailures bool

	// Light is set for a kind that needs no tensors and little memory. Its stages run on this machine, whatever their
	// executor, unless their settings name programs (Node.Submitted). A stage of the kind that needs more memory
	// than a command may use and than its resources.memory ends with an error.
	Light bool

	// InProcess is set for a kind whose stages only wait for a program: the engine starts it without a process of the
	// stage between them. Tests set it to run any kind in their own process.
	InProcess bool

	// MultiGPU is set for a kind whose single process may use several GPUs, such as exec with a user's program. Without it
	// and without Ranks, a stage that reserves more than one GPU is refused.
	MultiGPU bool
}

// Stage contains the settings of one instance of a kind, decoded from HCL.
type Stage interface {
	// Check reports conflicts between settings. It changes nothing and may be called several times for an instance: the
	// decoder decodes again without the defaults that would have no effect.
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

// Advised is a stage with advice about a setting. Advice returns a clause, which plan shows, for a stage on this number
// of GPUs; "" for none.
type Advised interface{ Advice(gpus int) string }

// EpisodeSampler is a stage that samples equally many episodes of each of its tasks. Prices and the check of curate
// count with it.
type EpisodeSampler interface{ EpisodesPerTask() int }

// Selector is a stage whose port best has the policy with the highest reward on some tasks. An evaluation on the same
// tasks is warned. SelectsOn returns nil if the settings select none.
type Selector interface{ SelectsOn() []artifact.Ref }

// Reach is what a stage reaches outside its process, its inputs and its store. A user reviews it before a foreign
// experiment runs.
type Reach struct {
	Programs  [][]string // words of each program that it starts
	Env       []string   // NAME=VALUE for the programs, from the settings
	Secrets   []string   // variables of the caller's environment whose values programs or servers get
	Addresses []string   // of servers that it calls, or that the stages that read it call
	Paid      bool       // it calls models that may cost money
	Budget    float64    // dollars after which a node makes no further call; 0: it calls free models only
	Parallel  int        // calls of a node at once, which may still be in progress then
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

// Submitted reports whether an executor that is a cluster gets the node, as a job.
func (n *Node) Submitted() bool { return !n.Kind.Light || len(n.Reach().Programs) > 0 }

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
