package engine

import (
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/artifact"
)

// Registry is the list of kinds an experiment may use.
type Registry []*Kind

// Lookup returns the kind of that name, or nil.
func (r Registry) Lookup(name string) *Kind {
	for _, k := range r {
		if k.Name == name {
			return k
		}
	}
	return nil
}

// Source says where an experiment stands and what is known from outside its files. It is plain data: a run folder
// keeps it as JSON, so that a child process loads what its engine loaded.
type Source struct {
	Path     string            // file.hcl, or a folder in which exactly one file has an experiment block; VarFiles and Site are none of its files
	Vars     map[string]string `json:",omitempty"` // -var NAME=VALUE
	VarFiles []string          `json:",omitempty"` // -var-file FILE, later ones win
	Site     string            `json:",omitempty"` // site file; "" looks at $RCGRPO_SITE, then ./site.hcl
	Env      []string          `json:",omitempty"` // NAME=VALUE; only RCGRPO_* and HOME are read

	// Paranoid reads all that file() and dir() name, where the digests of large ones are otherwise remembered as long as
	// their time stamps stay.
	Paranoid bool `json:"-"`

	// Base is the folder that file() and dir() are relative to; "" is the folder of the experiment. A run folder,
	// whose files are copies, names the original one.
	Base string `json:",omitempty"`
	// Name replaces the experiment's name, which otherwise is that of its file or folder.
	Name string `json:",omitempty"`
	// Digests pins the content digests of file() and dir() by absolute path, as an earlier Load found them
	// (Experiment.Digests); paths that are not here are read.
	Digests map[string]string `json:",omitempty"`
}

// Experiment is what Load made of a Source: every instance of every stage, decoded, checked and linked.
type Experiment struct {
	Name             string // of its file or folder, without .hcl
	Question, Expect string
	Seeds            []int64              // as in the file; [1] when it names none, and then no address carries a seed
	Dir              string               // folder that file() and dir() are relative to
	Paths            []string             // the files that belong to it, in the order of their names
	Files            map[string]*hcl.File // by path, with site and variable files; for diagnostics
	Vars             map[string]string    // final value of each variable as an HCL expression, for the run folder
	Digests          map[string]string    // content digest of each file() and dir() by absolute path
	Site             *Site
	Nodes            []*Node  // in topological order, otherwise as in the files
	Disabled         []string // addresses of the instances that `enabled` left out, with those that read them
	Source           Source

	byAddress map[string]*Node
	loader    *loader // for Eval and Compile
	broken    bool    // Load found mistakes, so there is nothing to plan
	warned    bool    // Load had something to tell
}

// Node is one unit of work: an instance of a stage, for one seed where seeds multiply.
type Node struct {
	Address string // `stage.grpo.arm["sft"]@3`
	Kind    *Kind
	Name    string // second label of the stage block
	EachKey string // for_each key, "" without for_each
	Stage   Stage  // decoded settings; shared by the seeds of an instance, so never written to
	// Seed of the random streams: nil where seeds do not multiply, then one node stands for all.
	// A pinned stage (`seed = 7`) has a seed but no @ in its address.
	Seed       *int64
	Stochastic bool // chance enters with these settings, so Seed is in the key

	Inputs    []Input // every Ref of the decoded value, in the order of the settings
	DependsOn []*Node // depends_on: order without content
	Files     []artifact.File
	Outputs   map[string]string // port -> artifact type
	Settings  []Setting         // flattened canonical settings, for keys and causes
	Resources Resources
	Timeout   time.Duration // 0: none
	Retry     Retry
	Executor  string    // "" is the site's default
	Doc       string    // its description
	Range     hcl.Range // header of the stage block

	// parts of the key that do not depend on inputs, and the key where there are none; made once
	own    artifact.Parts
	ownKey string
}

// Input is one edge: a port of another node, bound to a setting of this one.
type Input struct {
	Setting string       // "policy", "scores[3]", "inputs.src"
	Ref     artifact.Ref // with the seed of the node it means, where seeds multiply
	From    *Node
	Range   hcl.Range // where the setting stands
}

// Setting is one value of the decoded settings, defaults included, blocks flattened.
type Setting struct {
	Name  string    // "clip.low"
	Value string    // canonical JSON; for a File its digest
	Range hcl.Range // zero when the file does not name it
	InKey bool      // false for settings tagged `key:"-"`
	Path  string    // of the file or folder it names; "" for a plain value

	NoEffect string // why its value changes nothing while the other settings are as they are; "" where it may
}

// Resources are what a node occupies while it runs.
type Resources struct {
	GPUs      int
	CPUs      int   // 0 counts as 1
	Memory    int64 // bytes; 0: not stated
	GPUMemory int64 // bytes per device; 0: not stated
}

// Retry says when a failed node is started again; it only repeats or resumes and never changes a setting.
type Retry struct {
	Attempts int      // starts in all; 0 and 1 both mean no retry
	On       []string // "oom", "nan", "preempted", "timeout", or a pattern; empty: nothing
	Backoff  time.Duration
}

// Node returns the node with that exact address, or nil.
func (x *Experiment) Node(address string) *Node { return x.byAddress[address] }

// VariableNames lists the variables that the files declare, also of an experiment with mistakes.
func (x *Experiment) VariableNames() []string { return x.loader.variableNames() }

// Find returns the nodes that a user's address means: with or without "stage.", quotes optional in the brackets, a
// missing key or seed standing for all of them. The order is topological. An address that means nothing is an error
// with the nearest one.
func (x *Experiment) Find(address string) ([]*Node, error) {
	want := ShortAddress(address)
	stem, seed, seeded := strings.Cut(want, "@")
	var found []*Node
	for _, n := range x.Nodes {
		have := ShortAddress(n.Address)
		haveStem, haveSeed, _ := strings.Cut(have, "@")
		instance, _, _ := strings.Cut(haveStem, "[")
		if (stem == haveStem || stem == instance) && (!seeded || seed == haveSeed) {
			found = append(found, n)
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	var names []string
	for _, n := range x.Nodes {
		names = append(names, ShortAddress(n.Address))
	}
	for _, a := range x.Disabled {
		if strings.HasPrefix(ShortAddress(a), stem) {
			return nil, fmt.Errorf("%s is disabled in experiment %s", a, x.Name)
		}
	}
	return nil, fmt.Errorf("experiment %s has no stage %s%s", x.Name, address, NearHint(want, names))
}

// Input returns the edge that a Ref of this node's settings stands for. A Ref without seed means the node that the
// seed of n picks.
func (n *Node) Input(ref artifact.Ref) (Input, bool) {
	for _, in := range n.Inputs {
		r := in.Ref
		if r.Kind == ref.Kind && r.Name == ref.Name && r.Key == ref.Key && r.Port == ref.Port &&
			(ref.Seed == nil || r.Seed != nil && *r.Seed == *ref.Seed) {
			return in, true
		}
	}
	return Input{}, false
}

// address writes the address of an instance, with @seed where seeds multiply.
func address(kind, name, key string, keyed bool, seed *int64) string {
	var b strings.Builder
	b.WriteString("stage." + kind + "." + name)
	if keyed {
		fmt.Fprintf(&b, "[%q]", key)
	}
	if seed != nil {
		fmt.Fprintf(&b, "@%d", *seed)
	}
	return b.String()
}

// ShortAddress is the form a shell may write: no "stage.", no quotes.
func ShortAddress(a string) string {
	return strings.ReplaceAll(strings.TrimPrefix(a, "stage."), `"`, "")
}

// MatchAddress reports whether an address fits a pattern, in which `*` stands for any text and `?` for any character;
// `stage.` and quotes may be left out of both.
func MatchAddress(address, pattern string) bool {
	var fits func(a, p []rune) bool
	fits = func(a, p []rune) bool {
		for i, r := range p {
			if r == '*' {
				for from := i; from <= len(a); from++ {
					if fits(a[from:], p[i+1:]) {
						return true
					}
				}
				return false
			}
			if i >= len(a) || r != '?' && r != a[i] {
				return false
			}
		}
		return len(a) == len(p)
	}
	return fits([]rune(ShortAddress(address)), []rune(ShortAddress(pattern)))
}
