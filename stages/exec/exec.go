// Package exec contains the stage kind `exec`: any command as a stage.
//
// The command starts in an empty folder with PATH, HOME, TMPDIR, PWD, RCGRPO_SCRATCH, the device variables, and
// one variable with a path for each input and output. After the command succeeds, the output `out/score.txt` is
// the file or folder at that path; the port holds it under its own name (score.txt) and a copy is published
// beside the experiment. If a stage runs once per seed, the names of the copies contain the seed: score@3.txt.
package exec

import (
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/stages/rl/blocks"
)

// Kind returns the stage kind.
func Kind() *lang.Kind {
	return &lang.Kind{
		Name:    "exec",
		Summary: "Any command: declared inputs, outputs and environment, a fresh folder to work in.",
		Version: 1,
		New:     func() lang.Stage { return &settings{} },
		Outputs: func(s lang.Stage) map[string]string {
			ports := map[string]string{}
			for port := range s.(*settings).Outputs {
				ports[port] = "files"
			}
			return ports
		},
		Stochastic: func(s lang.Stage) bool { return s.(*settings).Draws },
		InProcess:  true,
		MultiGPU:   true,
	}
}

type settings struct {
	// program and arguments, a list of words; a shell command needs the words "sh", "-c" before it
	Command []string `hcl:"command"`
	// file(), dir() or a port for each variable with a path; a port of type files gives the path of its only file or
	// folder, another the path of its folder
	Inputs map[string]artifact.Data `hcl:"inputs,optional"`
	// path of each port below the start folder; the variable of the port's name holds it; a copy is published beside
	// the experiment; a path that ends in / is a folder created before the start
	Outputs map[string]string `hcl:"outputs,optional"`
	// further variables
	Env map[string]string `hcl:"env,optional"`
	// variables taken from the environment: only their names enter the key; the log masks their values, but not
	// another form of them such as base64, and an output whose name contains one is refused
	Secrets []string `hcl:"secrets,optional"`
	// the command uses randomness: it runs once per seed, which RCGRPO_SEED holds
	Draws bool `hcl:"draws,optional"`

	At map[string]hcl.Range `hcl:",ranges"`
}

// given are the variables that the engine sets.
var given = []string{"PATH", "HOME", "TMPDIR", "PWD", "OMP_NUM_THREADS", "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES",
	"RCGRPO_SEED", "RCGRPO_SCRATCH"}

var variableName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) })

func (s *settings) Check() (diags hcl.Diagnostics) {
	bad := blocks.Mistakes(&diags)
	bad(len(s.Command) == 0 || s.Command[0] == "", "Empty command", s.At["command"],
		"The command's first word names a program; here it has none.")
	bad(slices.ContainsFunc(s.Command, hasNUL), "Bad command", s.At["command"],
		"No word of a command can hold the character NUL.")
	bad(len(s.Outputs) == 0, "No output", s.At["command"], "A stage that makes nothing cannot be kept or read: "+
		"declare a file that the command writes, outputs = { log = \"log.txt\" }.")
	owner := map[string]string{}
	name := func(at hcl.Range, setting, variable string, free ...string) {
		switch first := owner[variable]; {
		case !variableName().MatchString(variable):
			bad(true, "Bad variable name", at, "%s: the command finds %q in a variable of that name, so it takes letters, "+
				"digits and _ and does not begin with a digit.", setting, variable)
		case slices.Contains(given, variable) && !slices.Contains(free, variable):
			bad(true, "Reserved variable", at, "%s: %s is set by the engine; choose another name.", setting, variable)
		case first != "":
			bad(true, "Variable twice", at, "%s and %s both set the variable %s.", first, setting, variable)
		}
		owner[variable] = setting
	}
	for _, v := range slices.Sorted(maps.Keys(s.Inputs)) {
		name(s.At["inputs"], "inputs", v)
	}
	at := map[string]string{}
	for _, port := range slices.Sorted(maps.Keys(s.Outputs)) {
		name(s.At["outputs"], "outputs", port)
		to := s.Outputs[port]
		clean := path.Clean(to)
		bad(clean == "." || !filepath.IsLocal(to) || hasNUL(to), "Bad output path", s.At["outputs"],
			"outputs.%s must be a path below the folder that the command starts in; got %q.", port, to)
		bad(strings.HasPrefix(path.Base(clean), "times."), "Bad output path", s.At["outputs"],
			"outputs.%s: files named times.* hold clock times and count for no digest, so they cannot be an output of "+
				"their own; got %q.", port, to)
		bad(at[clean] != "", "Output twice", s.At["outputs"], "outputs.%s and outputs.%s are the same path, %s.", at[clean],
			port, clean)
		at[clean] = port
	}
	for _, v := range slices.Sorted(maps.Keys(s.Env)) {
		name(s.At["env"], "env", v, "PATH", "HOME", "TMPDIR", "OMP_NUM_THREADS")
		bad(hasNUL(s.Env[v]), "Bad variable", s.At["env"], "env.%s holds the character NUL, which no variable can.", v)
	}
	for _, v := range s.Secrets {
		name(s.At["secrets"], "secrets", v)
	}
	return diags
}

func hasNUL(text string) bool { return strings.ContainsRune(text, 0) }

var seedOf = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`@-?\d+$`) })

// Publishes returns the outputs, with the seed in the name if the stage runs once per seed.
func (s *settings) Publishes(_, address string) (all []lang.Published) {
	seed := seedOf().FindString(address)
	for port, to := range s.Outputs {
		to = path.Clean(to)
		ext := path.Ext(to)
		all = append(all, lang.Published{Port: port, File: path.Base(to), Name: strings.TrimSuffix(to, ext) + seed + ext})
	}
	return all
}

// Reach implements lang.Reacher.
func (s *settings) Reach() lang.Reach {
	return lang.Reach{Programs: [][]string{s.Command}, Env: lang.EnvTexts(s.Env), Secrets: s.Secrets}
}
