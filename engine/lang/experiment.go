package lang

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/artifact"
)

// Registry is the list of kinds that an experiment may use.
type Registry []*Kind

// Lookup returns the kind with that name, or nil.
func (r Registry) Lookup(name string) *Kind {
	for _, k := range r {
		if k.Name == name {
			return k
		}
	}
	return nil
}

// Source is where an experiment is and its external inputs. It is plain data: a run folder stores it as JSON, so
// that a child process loads the same experiment as its engine.
type Source struct {
	Path     string            // a file, or a folder with one experiment block, without VarFiles and Site
	Vars     map[string]string `json:",omitempty"` // --var NAME=VALUE
	VarFiles []string          `json:",omitempty"` // --var-file FILE; later files win
	Site     string            `json:",omitempty"` // site file; "": $RCGRPO_SITE, then ./site.hcl
	Env      []string          `json:",omitempty"` // NAME=VALUE; only RCGRPO_* and HOME are read

	// Paranoid reads all files of file() and dir(). Otherwise the digests of large files are cached as long as
	// their time stamps are unchanged.
	Paranoid bool `json:"-"`

	// Base is the folder of relative paths in file() and dir(); "": the folder of the experiment. A run folder
	// contains copies and names the original folder.
	Base string `json:",omitempty"`
	// Name overrides the experiment's name, by default the name of its file or folder.
	Name string `json:",omitempty"`
	// Digests pins the digests of file() and dir() by absolute path, as found by an earlier Load
	// (Experiment.Digests) after Since. Other paths are read.
	Digests map[string]string `json:",omitempty"`
	Since   time.Time         `json:",omitzero"`

	// Sets are overrides of settings, `ADDRESS.SETTING=VALUE` (--set); later ones win.
	Sets []string `json:",omitempty"`
	// Targets are addresses of stages of modules. They are nodes although the experiment does not read them.
	Targets []string `json:",omitempty"`
	// Modules maps the absolute path of a module to the copy that a run folder contains.
	Modules map[string]string `json:",omitempty"`
	// Unsaved has the texts of an editor, which replace those of HCL files, by absolute path.
	Unsaved map[string][]byte `json:"-"`
	// NoData leaves the digests of file() and dir() empty: an editor shows none, and a stranger's file may name a
	// whole disk.
	NoData bool `json:"-"`
}

// Experiment is the result of Load: every instance of every stage, decoded, checked and linked.
type Experiment struct {
	Name             string // of its file or folder, without .hcl
	Question, Expect string
	Seeds            []int64              // as in the file; [1] by default, and then no address contains a seed
	Dir              string               // folder of relative paths in file() and dir()
	Paths            []string             // the experiment's files, sorted
	Files            map[string]*hcl.File // by path, with site and variable files; for diagnostics
	Vars             map[string]string    // final value of each variable as an HCL expression, for the run folder
	Digests          map[string]string    // digest of each file() and dir() by absolute path
	Site             *Site
	Nodes            []*Node  // in topological order, otherwise as in the files
	Disabled         []string // addresses of instances with enabled = false, and of their readers
	Source           Source
	Modules          []ModuleSource
	Overrides        []Override // --set, in their order

	EnvVariables  []string // variables of the environment with the value of a variable, such as RCGRPO_VAR_updates
	VariableNames []string // of all variable blocks, also of an experiment with errors
	Invalid       bool     // Load reported an error; such an experiment cannot be planned
	Reads         []string // absolute paths of the files and folders that Load read
	Unpublished   bool     // the caller wants no copies of outputs beside the experiment

	byAddress map[string]*Node
}

// Node is a unit of work: an instance of a stage, for one seed if it has one node per seed.
type Node struct {
	Address string // `stage.grpo.arm["sft"]@3`
	Kind    *Kind
	Name    string // second label of the stage block
	EachKey string // for_each key; "" without for_each
	Stage   Stage  // decoded settings; shared by the seeds of an instance, so read-only
	// Seed of the random streams; nil if one node stands for all seeds. A pinned stage (`seed = 7`) has a seed but
	// no @ in its address.
	Seed       *int64
	Stochastic bool // uses randomness, so Seed is in the key

	Inputs    []Input // every Ref of the settings, in their order
	DependsOn []*Node // order without content
	Files     []artifact.File
	Outputs   map[string]string // port -> artifact type
	Settings  []Setting         // flattened canonical settings, for keys and causes
	Resources Resources
	Timeout   time.Duration // 0: none
	Retry     Retry
	Executor  string    // "": the site's default
	Doc       string    // description
	Range     hcl.Range // header of the stage block
}

// Input is one edge: a port of another node, bound to a setting.
type Input struct {
	Setting string       // "policy", "scores[3]", "inputs.src"
	Ref     artifact.Ref // with the seed of the node, if it has one node per seed
	From    *Node
	Range   hcl.Range // range of the setting
}

// Setting is one value of the decoded settings, with defaults and flattened blocks.
type Setting struct {
	Name  string    // "clip.low"
	Value string    // canonical JSON; for a File its digest
	Range hcl.Range // zero for a default
	From  string    // where the value is, if not in the stage: `defaults "grpo"`, `--set`
	InKey bool      // false for settings tagged `key:"-"`
	Path  string    // of a file or folder; "" for a plain value

	NoEffect string // why its value has no effect with the other settings; "" if it may have one
}

// Resources are reserved while a node runs.
type Resources struct {
	GPUs      int
	CPUs      int   // 0 counts as 1
	Processes int   // ranks that share the stage; 0 counts as 1
	Memory    int64 // bytes; 0: not set
	GPUMemory int64 // bytes per device; 0: not set
}

// Retry says when a failed node is started again. A retry repeats or resumes and never changes a setting.
type Retry struct {
	Attempts int      // number of starts; 0 and 1 mean no retry
	On       []string // "oom", "nan", "preempted", "timeout", or a pattern; empty: never
	Backoff  time.Duration
}

// SourceFiles returns the texts of the experiment's files and modules, by their paths relative to the experiment's
// folder, with slashes.
func (x *Experiment) SourceFiles() map[string][]byte {
	files := map[string][]byte{}
	add := func(name, path string) {
		if f := x.Files[path]; f != nil {
			files[filepath.ToSlash(name)] = f.Bytes
		}
	}
	for _, path := range x.Paths {
		add(filepath.Base(path), path)
	}
	for _, m := range x.Modules {
		for _, path := range m.Files {
			name := m.Path
			if m.Folder {
				name = filepath.Join(name, filepath.Base(path))
			}
			if rel, err := filepath.Rel(x.Dir, name); err == nil {
				name = rel
			}
			add(name, path)
		}
	}
	return files
}

// Node returns the node with that exact address, or nil.
func (x *Experiment) Node(address string) *Node { return x.byAddress[address] }

// Find returns the nodes of a user's address in topological order. "stage." and quotes in brackets are optional. An
// address without a key or a seed means all keys or seeds, also those of modules. The address of a module means all its
// stages. `*` and `?` are wildcards. The error for an unknown address contains the nearest one.
func (x *Experiment) Find(address string) ([]*Node, error) {
	var found []*Node
	var names []string
	for _, n := range x.Nodes {
		names = append(names, ShortAddress(n.Address))
		if selects(address, n.Address) {
			found = append(found, n)
		}
	}
	if len(found) > 0 {
		return found, nil
	}
	instance, _, _ := strings.Cut(address, "@")
	for _, a := range x.Disabled {
		if selects(instance, a) {
			return nil, fmt.Errorf("%s is disabled in experiment %s", a, x.Name)
		}
	}
	return nil, fmt.Errorf("experiment %s has no stage %s%s", x.Name, address, NearHint(ShortAddress(address), names))
}

var (
	addressKeys  = regexp.MustCompile(`\[[^\]]*\]`)
	addressStep  = regexp.MustCompile(`[^.\[]+(?:\[[^\]]*\])?`)                 // `sft`, `arm[key]`
	modulePrefix = regexp.MustCompile(`^(?:module\.[^.\[]+(?:\[[^\]]*\])?\.)*`) // `module.base[key].module.inner.`
)

// selects reports whether a user's address means the node or instance with that full address.
func selects(wanted, address string) bool {
	if strings.ContainsAny(wanted, "*?") {
		return MatchAddress(address, wanted) ||
			!strings.Contains(wanted, "[") && MatchAddress(addressKeys.ReplaceAllString(address, ""), wanted)
	}
	stem, seed, seeded := strings.Cut(ShortAddress(wanted), "@")
	have, haveSeed, _ := strings.Cut(ShortAddress(address), "@")
	rest, ok := cutSteps(have, stem)
	_, afterModule := cutModule(stem + ".")
	return ok && (len(rest) == 0 || afterModule == "") && (!seeded || seed == haveSeed)
}

// cutSteps returns the steps of an address after those of a user's short address. A step without key matches every
// key.
func cutSteps(address, wanted string) (rest []string, ok bool) {
	rest = addressStep.FindAllString(address, -1)
	for _, step := range addressStep.FindAllString(wanted, -1) {
		if len(rest) == 0 || rest[0] != step && !strings.HasPrefix(rest[0], step+"[") {
			return nil, false
		}
		rest = rest[1:]
	}
	return rest, true
}

// InModule reports whether the node is a stage of a module.
func (n *Node) InModule() bool { return strings.HasPrefix(n.Address, "module.") }

// Input returns the edge of a Ref in the settings of n. A Ref without seed means the node with the seed of n.
func (n *Node) Input(ref artifact.Ref) (Input, bool) {
	for _, in := range n.Inputs {
		r := in.Ref
		if r.Module == ref.Module && r.Kind == ref.Kind && r.Name == ref.Name && r.Key == ref.Key && r.Port == ref.Port &&
			(ref.Seed == nil || r.Seed != nil && *r.Seed == *ref.Seed) {
			return in, true
		}
	}
	return Input{}, false
}

// ShortAddress returns the address without "stage." and quotes, as users write it in a shell.
func ShortAddress(a string) string {
	return TrimStage(strings.ReplaceAll(a, `"`, ""))
}

// TrimStage returns the address without "stage.", as pages show it: `module.base.rc-grpo.arm["sft"]@3`.
func TrimStage(a string) string {
	module, rest := cutModule(a)
	return module + strings.TrimPrefix(rest, "stage.")
}

// StageName returns the address without "stage.", for_each key and seed: `module.base.rc-grpo.arm`.
func StageName(a string) string {
	module, rest := cutModule(a)
	rest, _, _ = strings.Cut(strings.TrimPrefix(rest, "stage."), "@")
	rest, _, _ = strings.Cut(rest, "[")
	return module + rest
}

// cutModule splits the address of a module, with its last dot, from the rest: `module.base.` and `stage.sft.warm`.
func cutModule(a string) (module, rest string) {
	module = modulePrefix.FindString(a)
	return module, a[len(module):]
}

// MatchAddress reports whether an address matches a pattern with the wildcards `*` and `?`. `stage.` and quotes
// are optional in both.
func MatchAddress(address, pattern string) bool {
	wildcards := strings.NewReplacer(`\*`, ".*", `\?`, ".")
	expr := "(?s)^" + wildcards.Replace(regexp.QuoteMeta(ShortAddress(pattern))) + "$"
	return regexp.MustCompile(expr).MatchString(ShortAddress(address))
}
