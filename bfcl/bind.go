package bfcl

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"rcgrpo/bfcl/internal/api"
	"rcgrpo/bfcl/internal/py"
)

// tool is a method and its class.
type tool struct {
	class  *api.Class
	method *api.Method
}

// tools maps the tool names of all classes; they are unique.
var tools = sync.OnceValue(func() map[string]tool {
	m := make(map[string]tool)
	classes := api.Classes()
	for i := range classes {
		for j := range classes[i].Methods {
			m[classes[i].Methods[j].Name] = tool{&classes[i], &classes[i].Methods[j]}
		}
	}
	return m
})

// unset marks a parameter without an argument.
type unset struct{}

// bind returns the arguments in the order of the signature, with the defaults filled in. Errors are
// Python's TypeErrors, checked in Python's order: unknown and repeated keywords, too many positional
// arguments, missing arguments. Python also binds self, which is not in Params.
func bind(t tool, args []py.Value, keywords []py.Argument) ([]py.Value, error) {
	params := t.method.Params
	bound := make([]py.Value, len(params))
	for i := range params {
		bound[i] = unset{}
	}
	copy(bound, args)
	for _, k := range keywords {
		at := slices.IndexFunc(params, func(p api.Param) bool { return p.Name == k.Name })
		switch {
		case at < 0 && k.Name != "self":
			return nil, py.Raise("TypeError", "%s got an unexpected keyword argument '%s'", t.signature(), k.Name)
		case at < 0 || bound[at] != (unset{}):
			return nil, py.Raise("TypeError", "%s got multiple values for argument '%s'", t.signature(), k.Name)
		}
		bound[at] = k.Value
	}
	if len(args) > len(params) {
		return nil, tooManyArguments(t, len(args))
	}
	missing := 0
	for i := range params {
		if bound[i] == (unset{}) {
			if params[i].Required {
				missing++
			} else {
				bound[i] = params[i].Default
			}
		}
	}
	if missing > 0 {
		return nil, missingArguments(t, bound, missing)
	}
	return bound, nil
}

func (t tool) signature() string { return t.class.Name + "." + t.method.Name + "()" }

// tooManyArguments returns the TypeError for given positional arguments. Its numbers include self, as in Python.
func tooManyArguments(t tool, given int) error {
	required := 1
	for _, p := range t.method.Params {
		if p.Required {
			required++
		}
	}
	total := len(t.method.Params) + 1
	takes := strconv.Itoa(total)
	plural := "s"
	if required < total {
		takes = "from " + strconv.Itoa(required) + " to " + takes
	} else if total == 1 {
		plural = ""
	}
	return py.Raise("TypeError", "%s takes %s positional argument%s but %d were given", t.signature(), takes,
		plural, given+1)
}

// missingArguments returns the TypeError for the n parameters of bound that are unset.
func missingArguments(t tool, bound []py.Value, n int) error {
	names := make([]string, 0, n)
	for i, p := range t.method.Params {
		if bound[i] == (unset{}) {
			names = append(names, "'"+p.Name+"'")
		}
	}
	list, plural := names[0], ""
	switch {
	case n == 2:
		list, plural = names[0]+" and "+names[1], "s"
	case n > 2:
		list, plural = strings.Join(names[:n-1], ", ")+", and "+names[n-1], "s"
	}
	return py.Raise("TypeError", "%s missing %d required positional argument%s: %s", t.signature(), n, plural, list)
}
