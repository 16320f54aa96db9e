package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"rcgrpo/engine"
)

// What the three shells read. Each asks `rcgrpo complete WORD...` for what may stand in place of the last word, and offers
// files where the answer is empty.
var completions = map[string]string{
	"bash": `# rcgrpo: eval "$(rcgrpo completion bash)" in ~/.bashrc
_rcgrpo() {
	# bash breaks words at @ and =, which addresses and flags hold: the line is cut at its blanks, and what stands before
	# the last break is taken off what is offered.
	local line=${COMP_LINE:0:COMP_POINT} words word broken=
	read -a words <<<"$line"
	[[ $line == *[[:space:]] ]] && words+=("")
	word=${words[${#words[@]}-1]}
	[[ $word == *[@=]* ]] && broken=${word%"${word##*[@=]}"}
	COMPREPLY=()
	while IFS= read -r word; do COMPREPLY+=("$(printf %q "${word#"$broken"}")"); done < <(rcgrpo complete "${words[@]:1}" 2>/dev/null)
	[[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
	return 0
}
complete -o default -F _rcgrpo rcgrpo
`,
	"zsh": `#compdef rcgrpo
# rcgrpo: source <(rcgrpo completion zsh) in ~/.zshrc, after compinit
_rcgrpo() {
	local -a found
	found=("${(@f)$(rcgrpo complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	if [[ -n "$found" ]]; then compadd -- "${found[@]}"; else _files; fi
}
compdef _rcgrpo rcgrpo
`,
	"fish": `# rcgrpo: rcgrpo completion fish | source in ~/.config/fish/config.fish
function __rcgrpo
	set -l words (commandline -opc) (commandline -ct)
	rcgrpo complete $words[2..-1] 2>/dev/null
end
complete -c rcgrpo -a '(__rcgrpo)'
`,
}

// completionCommand runs "rcgrpo completion SHELL".
func completionCommand(args []string, _ io.Reader, stdout, stderr io.Writer) int {
	c := newCall("completion", "bash|zsh|fish", stdout, stderr)
	if code, done := c.parse(args); done {
		return code
	}
	if len(c.args) != 1 || completions[c.args[0]] == "" {
		return c.misuse("want a shell: bash, zsh or fish")
	}
	fmt.Fprint(stdout, completions[c.args[0]])
	return exitDone
}

// completeCommand runs "rcgrpo complete WORD...": what the last word, perhaps empty, may become, one per line. Nothing is
// printed where only a file can stand, and nothing ever fails.
func completeCommand(args []string, _ io.Reader, stdout, _ io.Writer) int {
	if len(args) == 0 {
		args = []string{""}
	}
	before, word := args[:len(args)-1], args[len(args)-1]
	for _, candidate := range candidates(before, word) {
		if strings.HasPrefix(candidate, word) {
			fmt.Fprintln(stdout, candidate)
		}
	}
	return exitDone
}

// candidates lists what may follow the words before.
func candidates(before []string, word string) []string {
	if len(before) == 0 {
		var names []string
		for _, c := range commands() {
			if c.summary != "" {
				names = append(names, c.name)
			}
		}
		return names
	}
	at := slices.IndexFunc(commands(), func(c command) bool { return c.name == before[0] })
	if at < 0 {
		return nil
	}
	c := commands()[at]
	if flag, _, given := strings.Cut(word, "="); given && strings.HasPrefix(flag, "-") { // -target=ADDRESS
		var joined []string
		for _, value := range candidates(append(slices.Clone(before), flag), "") {
			joined = append(joined, flag+"="+value)
		}
		return joined
	}
	flags := flagsOf(c, before[1:])
	if strings.HasPrefix(word, "-") {
		dashes := word[:len(word)-len(strings.TrimLeft(word, "-"))]
		var names []string
		for name := range flags {
			names = append(names, dashes+name)
		}
		slices.Sort(names)
		return names
	}
	line := readLine(before[1:], flags)
	switch line.awaits {
	case "":
	case "target", "replace":
		return line.addresses(false)
	case "format":
		return []string{"dot", "mermaid"}
	case "sort":
		return slices.Sorted(maps.Keys(storeOrders))
	case "var":
		return line.variables()
	default:
		return nil
	}
	if line.plain > 0 {
		return nil
	}
	switch c.name {
	case "kinds":
		var names []string
		for _, k := range kinds() {
			names = append(names, k.Name)
		}
		return names
	case "logs", "why":
		return line.addresses(false)
	case "show":
		return line.addresses(true)
	}
	if regexp.MustCompile(`^[a-z]+(\|[a-z]+)+$`).MatchString(c.args) { // "ls|check|gc"
		return strings.Split(c.args, "|")
	}
	return nil
}

var flagLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^  -([a-z-]+)( \S)?`) })

// flagsOf reads a command's flags off its own help, and whether each takes a value. Of the words before, only a subcommand
// matters.
func flagsOf(c command, before []string) map[string]bool {
	args := []string{"-h"}
	if len(before) > 0 && strings.Contains(c.args, "|") && !strings.HasPrefix(before[0], "-") {
		args = []string{before[0], "-h"}
	}
	var help bytes.Buffer
	c.run(args, strings.NewReader(""), &help, &help)
	flags := map[string]bool{}
	for _, m := range flagLine().FindAllStringSubmatch(help.String(), -1) {
		flags[m[1]] = m[2] != ""
	}
	return flags
}

// completed is what matters of the words before the one that is completed.
type completed struct {
	awaits string   // flag whose value it is; "" when it is none
	plain  int      // words that are neither flags nor their values
	source []string // flags that say how the experiment is loaded
}

func readLine(words []string, takesValue map[string]bool) (line completed) {
	for i := 0; i < len(words); i++ {
		name, value, given := strings.Cut(strings.TrimLeft(words[i], "-"), "=")
		switch {
		case !strings.HasPrefix(words[i], "-"):
			line.plain++
			continue
		case given || !takesValue[name]:
		case i == len(words)-1:
			line.awaits = name
			return line
		default:
			i++
			value = words[i]
		}
		if slices.Contains([]string{"var", "var-file", "site"}, name) {
			line.source = append(line.source, "-"+name, value)
		}
	}
	return line
}

// experiment loads the only experiment of this folder. err says why it cannot be looked into.
func (l completed) experiment() (x *engine.Experiment, err error) {
	c := newCall("complete", "", io.Discard, io.Discard)
	if err := c.FlagSet.Parse(l.source); err != nil {
		return nil, err
	}
	path, err := engine.FindExperiment(".")
	if err != nil {
		return nil, err
	}
	c.source.Path = filepath.Clean(path)
	x, diags := engine.Load(c.source, kinds())
	if diags.HasErrors() {
		return x, diags
	}
	return x, nil
}

// variables are those of the only experiment of this folder, mistakes or not, each with the = that its value follows.
func (l completed) variables() []string {
	x, _ := l.experiment()
	if x == nil {
		return nil
	}
	var names []string
	for _, name := range x.VariableNames {
		names = append(names, name+"=")
	}
	return names
}

// addresses are those of the only experiment of this folder, as a shell may write them; with ports for those that read
// one. A folder without, or with mistakes, has none.
func (l completed) addresses(ports bool) []string {
	x, err := l.experiment()
	if err != nil {
		return nil
	}
	var names []string
	for _, n := range x.Nodes {
		name := strings.ReplaceAll(strings.TrimPrefix(n.Address, "stage."), `"`, "")
		if !ports {
			names = append(names, name)
			continue
		}
		for port := range n.Outputs {
			names = append(names, name+"."+port)
		}
	}
	slices.Sort(names)
	return names
}
