package bfcl

import (
	"slices"

	"rcgrpo/bfcl/internal/py"
)

// action is a parsed call for the paper's R_action: tool name and arguments by parameter name.
type action struct {
	name string
	args []actionArg
}

// actionArg is one argument: its value, or the expression as text if it is not a literal.
type actionArg struct {
	name  string
	value py.Value
	expr  string
}

// readAction parses a call string; false if Python cannot compile it or it is not a call by name.
// Positional arguments are bound by the tool's signature; those beyond it get names that no ground
// truth has.
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

// callByName parses a call of a function by its name. It returns nil if Python cannot compile the
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

func positionalName(tool string, i int) string {
	if t, ok := tools()[tool]; ok && i < len(t.method.Params) {
		return t.method.Params[i].Name
	}
	return ""
}

// serves reports whether the call has every argument of the ground-truth call with an equal value.
func (a action) serves(golden action) bool {
	if a.name != golden.name {
		return false
	}
	for _, want := range golden.args {
		if !slices.ContainsFunc(a.args, func(got actionArg) bool {
			return got.name == want.name && want.name != "" && got.expr == want.expr &&
				(want.expr != "" || py.Equal(got.value, want.value))
		}) {
			return false
		}
	}
	return true
}

// actionReward returns R_action and its injective form (bfcl/SPEC.md 11).
func actionReward(t *Task, made []string) (plain, injective float64) {
	var golden []string
	for _, turn := range t.Turns {
		golden = append(golden, turn.GroundTruth...)
	}
	m := matcher{golden: golden, made: made}
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
	golden, made []string
	parsed       map[string]parsedAction
	open         []int // ground-truth calls without an equal text
}

type parsedAction struct {
	action action
	ok     bool
}

func (m *matcher) action(call string) (action, bool) {
	if p, ok := m.parsed[call]; ok {
		return p.action, p.ok
	}
	if m.parsed == nil {
		m.parsed = make(map[string]parsedAction)
	}
	a, ok := readAction(call)
	m.parsed[call] = parsedAction{a, ok}
	return a, ok
}

func (m *matcher) serves(made, golden string) bool {
	if made == golden {
		return true
	}
	g, ok := m.action(golden)
	if !ok {
		return false
	}
	a, ok := m.action(made)
	return ok && a.serves(g)
}

// all reports whether every ground-truth call is served by some call.
func (m *matcher) all() bool {
	free := slices.Clone(m.made) // calls not yet matched by an equal text
	for i, g := range m.golden {
		if at := slices.Index(free, g); at >= 0 {
			free = slices.Delete(free, at, at+1)
		} else {
			m.open = append(m.open, i)
		}
	}
	for _, i := range m.open {
		if !slices.ContainsFunc(m.made, func(call string) bool { return m.serves(call, m.golden[i]) }) {
			return false
		}
	}
	return true
}

// distinct reports whether different calls can serve all ground-truth calls: bipartite matching by
// augmenting paths.
func (m *matcher) distinct() bool {
	if len(m.open) == 0 {
		return true
	}
	owner := make([]int, len(m.made)) // ground-truth call + 1 that it serves
	var seen []bool
	var place func(i int) bool
	place = func(i int) bool {
		for j, call := range m.made {
			if seen[j] || !m.serves(call, m.golden[i]) {
				continue
			}
			seen[j] = true
			if owner[j] == 0 || place(owner[j]-1) {
				owner[j] = i + 1
				return true
			}
		}
		return false
	}
	for i := range m.golden {
		seen = make([]bool, len(m.made))
		if !place(i) {
			return false
		}
	}
	return true
}
