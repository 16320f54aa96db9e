package bfcl

import (
	"slices"

	"rcgrpo/bfcl/internal/py"
)

// action is a parsed call for the paper's R_action: tool name and arguments by parameter name.
type action struct {
	name string // name of the tool
	args []actionArg
}

// actionArg is one argument of an action.
type actionArg struct {
	name  string   // name of the parameter; "" for a positional argument beyond the signature
	value py.Value // value of a literal
	expr  string   // canonical text (py.Dump) of any other expression; "" for a literal
}

// readAction parses a call string; it returns false if Python cannot compile the text, or if the text is not a call by
// name. Positional arguments get their names from the tool's signature. Those beyond it have no name, and serve no
// argument of the ground truth.
func readAction(call string) (action, bool) {
	c := callByName(call)
	if c == nil {
		return action{}, false
	}
	a := action{name: c.Func.(*py.Name).ID}
	for i, x := range c.Args {
		a.args = append(a.args, newActionArg(positionalName(a.name, i), x))
	}
	for _, k := range c.Keywords {
		a.args = append(a.args, newActionArg(k.Name, k.Value))
	}
	return a, true
}

// callByName parses a call of a tool by its name. It returns nil if Python cannot compile the
// text, or if the text is another expression.
func callByName(call string) *py.Call {
	e, err := py.Parse(call)
	if err != nil {
		return nil
	}
	if c, ok := e.(*py.Call); ok {
		if _, named := c.Func.(*py.Name); named {
			return c
		}
	}
	return nil
}

func newActionArg(name string, e py.Expr) actionArg {
	if v, ok := py.Literal(e); ok {
		return actionArg{name: name, value: v}
	}
	return actionArg{name: name, expr: py.Dump(e)}
}

// positionalName returns the name of parameter i of a tool, "" beyond its signature and for an unknown tool.
func positionalName(tool string, i int) string {
	if t, ok := tools()[tool]; ok && i < len(t.method.Params) {
		return t.method.Params[i].Name
	}
	return ""
}

// actionReward returns R_action and its injective form (bfcl/SPEC.md 11), each 0 or 1. made has all calls of the
// policy.
func actionReward(t *Task, made []string) (plain, injective float64) {
	m := matcher{made: made}
	for _, turn := range t.Turns {
		m.truth = append(m.truth, turn.GroundTruth...)
	}
	if !m.all() {
		return 0, 0
	}
	if m.distinct() {
		return 1, 1
	}
	return 1, 0
}

// matcher pairs ground-truth calls with the policy's calls. It parses only calls whose texts differ.
type matcher struct {
	truth, made []string                 // calls of the ground truth, and of the policy
	parsed      map[string]*comparedCall // by the text of the call, nil for a text that is no call; nil before the first
	unpaired    []int                    // indices in truth of the calls without a call of equal text; set by all
}

// comparedCall is an action whose arguments are compared by digests, which equal ones have: the work must not depend on
// what strangers write into the ground truth and into calls.
type comparedCall struct {
	name    string
	args    map[comparedArg]bool
	unnamed bool // an argument has no name, so no call has the same
}

type comparedArg struct {
	name       string
	expression bool
	value      py.Digest
}

// action is readAction, once per text.
func (m *matcher) action(call string) *comparedCall {
	if c, ok := m.parsed[call]; ok {
		return c
	}
	if m.parsed == nil {
		m.parsed = make(map[string]*comparedCall)
	}
	m.parsed[call] = nil
	if a, ok := readAction(call); ok {
		c := &comparedCall{name: a.name, args: map[comparedArg]bool{}}
		for _, arg := range a.args {
			value := arg.value
			if arg.expr != "" {
				value = arg.expr
			}
			c.args[comparedArg{arg.name, arg.expr != "", py.Key(value)}] = true
			c.unnamed = c.unnamed || arg.name == ""
		}
		m.parsed[call] = c
	}
	return m.parsed[call]
}

// serves reports whether the call made serves the ground-truth call truth: it has every argument with an equal value.
func (m *matcher) serves(made, truth string) bool {
	if made == truth {
		return true
	}
	want, got := m.action(truth), m.action(made)
	if want == nil || got == nil || want.name != got.name || want.unnamed {
		return false
	}
	for arg := range want.args {
		if !got.args[arg] {
			return false
		}
	}
	return true
}

// all reports whether every ground-truth call is served by some call.
func (m *matcher) all() bool {
	free := slices.Clone(m.made) // calls not yet matched by an equal text
	for i, call := range m.truth {
		if at := slices.Index(free, call); at >= 0 {
			free = slices.Delete(free, at, at+1)
		} else {
			m.unpaired = append(m.unpaired, i)
		}
	}
	for _, i := range m.unpaired {
		if !slices.ContainsFunc(m.made, func(call string) bool { return m.serves(call, m.truth[i]) }) {
			return false
		}
	}
	return true
}

// distinct reports whether different calls can serve all ground-truth calls: bipartite matching by
// augmenting paths. It requires that all has returned true.
func (m *matcher) distinct() bool {
	if len(m.unpaired) == 0 {
		return true
	}
	owner := make([]int, len(m.made))      // index + 1 of the ground-truth call that a call serves; 0 if none
	serving := make([][]int, len(m.truth)) // indices of calls that can serve it; of as many as m.truth one is free
	for i, truth := range m.truth {
		for j, call := range m.made {
			if len(serving[i]) < len(m.truth) && m.serves(call, truth) {
				serving[i] = append(serving[i], j)
			}
		}
	}
	var seen []bool // calls that the current search has tried
	var assign func(i int) bool
	assign = func(i int) bool {
		for _, j := range serving[i] {
			if seen[j] {
				continue
			}
			seen[j] = true
			if owner[j] == 0 || assign(owner[j]-1) {
				owner[j] = i + 1
				return true
			}
		}
		return false
	}
	for i := range m.truth {
		seen = make([]bool, len(m.made))
		if !assign(i) {
			return false
		}
	}
	return true
}
