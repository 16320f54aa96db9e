package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
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
	if strings.HasPrefix(word, "-") {
		return flagsOf(c, before[1:], strings.HasPrefix(word, "--"))
	}
	if last := strings.TrimLeft(before[len(before)-1], "-"); len(before) > 1 && last != before[len(before)-1] {
		switch last {
		case "target", "replace":
			return addresses(false)
		case "format":
			return []string{"dot", "mermaid"}
		case "var":
			return variables()
		case "var-file", "site":
			return nil
		}
	}
	plain := slices.DeleteFunc(slices.Clone(before[1:]), func(w string) bool { return strings.HasPrefix(w, "-") })
	if len(plain) > 0 {
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
		return addresses(false)
	case "show":
		return addresses(true)
	}
	if regexp.MustCompile(`^[a-z]+(\|[a-z]+)+$`).MatchString(c.args) { // "ls|check|gc"
		return strings.Split(c.args, "|")
	}
	return nil
}

var flagLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?m)^  -([a-z-]+)`) })

// flagsOf reads a command's flags off its own help. Of the words before, only a subcommand matters.
func flagsOf(c command, before []string, double bool) []string {
	args := []string{"-h"}
	if len(before) > 0 && strings.Contains(c.args, "|") && !strings.HasPrefix(before[0], "-") {
		args = []string{before[0], "-h"}
	}
	var help bytes.Buffer
	c.run(args, strings.NewReader(""), &help, &help)
	var flags []string
	for _, m := range flagLine().FindAllStringSubmatch(help.String(), -1) {
		name := "-" + m[1]
		if double {
			name = "-" + name
		}
		flags = append(flags, name)
	}
	return flags
}

// variables are those of the only experiment of this folder, each with the = that its value follows.
func variables() []string {
	path, err := engine.FindExperiment(".")
	if err != nil {
		return nil
	}
	x, _ := engine.Load(engine.Source{Path: path, Env: os.Environ()}, kinds())
	var names []string
	for _, name := range x.VariableNames() {
		names = append(names, name+"=")
	}
	return names
}

// addresses are those of the only experiment of this folder, as a shell may write them; with ports for those that read
// one. A folder without, or with mistakes, has none.
func addresses(ports bool) []string {
	c := newCall("complete", "", io.Discard, io.Discard)
	path, err := engine.FindExperiment(".")
	if err != nil {
		return nil
	}
	c.source.Path = filepath.Clean(path)
	x, diags := engine.Load(c.source, kinds())
	if diags.HasErrors() {
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
