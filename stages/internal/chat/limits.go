package chat

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/builtins"
	controls "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
)

// A template comes with a model's files, from anywhere. These limits end one that would take all memory, time or stack.
const (
	maxSource    = 256 << 10   // bytes of a template
	maxBrackets  = 100         // in each other
	maxValueSize = 16 << 20    // of a value: bytes of its texts, and perItem for each of its parts
	maxWork      = 32 << 20    // of a rendering: perCall for each operation and pass of a loop, and the bytes of all texts it makes
	maxMacros    = 100         // calls of macros in each other
	maxItemDepth = 100         // lists and dicts in each other
	maxWidth     = 10_000      // of padding and indentation
	maxTime      = time.Minute // of a rendering, should work be no measure of it
	perItem      = 16
	perCall      = 100
)

// rendering is the state of one rendering of a template.
type rendering struct {
	err    error // the first
	work   int64
	macros int // that are being called
	begun  time.Time
}

func (r *rendering) set(err error) {
	if r.err == nil {
		r.err = err
	}
}

// renderingOf is the one that an environment belongs to; nil while a template is compiled.
func renderingOf(e *exec.Environment) *rendering {
	r, _ := e.Context.Get(renderingName)
	state, _ := r.(*rendering)
	return state
}

// charge counts an operation that makes size bytes. After too many the error stays.
func (r *rendering) charge(size int64) error {
	if r == nil {
		return nil
	}
	if r.work += perCall + size; r.work > maxWork {
		r.set(fmt.Errorf("the template does too much: %d units of work, where every operation and pass of a loop "+
			"counts %d and every byte of a text one", maxWork, perCall))
		return r.err
	}
	if r.work%(1<<10) < perCall+size && time.Since(r.begun) > maxTime {
		r.set(fmt.Errorf("the template takes more than %v", maxTime))
		return r.err
	}
	return nil
}

// sized returns the size of a value, and an error where that is more than a value may have. It looks at no
// more than that, so a list that holds itself is an error.
func sized(v any) (int64, error) {
	n := int64(0)
	if !addSize(v, &n, 0) {
		return 0, fmt.Errorf("a value is larger than %d MiB, or has more than %d lists in each other",
			maxValueSize>>20, maxItemDepth)
	}
	return n, nil
}

func addSize(v any, n *int64, depth int) bool {
	if *n += perItem; *n > maxValueSize || depth > maxItemDepth {
		return false
	}
	switch v := v.(type) {
	case string:
		*n += int64(len(v))
	case *exec.Value:
		return addSize(v.Interface(), n, depth)
	case list:
		for _, item := range v {
			if !addSize(item, n, depth+1) {
				return false
			}
		}
	case []any:
		return addSize(list(v), n, depth)
	case exec.ValuesList:
		for _, item := range v {
			if !addSize(item, n, depth+1) {
				return false
			}
		}
	case *exec.Dict:
		for _, p := range v.Pairs {
			if !addSize(p.Key, n, depth+1) || !addSize(p.Value, n, depth+1) {
				return false
			}
		}
	case object:
		for key, m := range v {
			*n += int64(len(key))
			if !addSize(m.value, n, depth+1) {
				return false
			}
		}
	case map[string]any:
		for key, value := range v {
			*n += int64(len(key))
			if !addSize(value, n, depth+1) {
				return false
			}
		}
	}
	return *n <= maxValueSize
}

// shallow are the filters that look at a value without going through it.
var shallow = map[string]bool{
	filterName: true, "length": true, "count": true, "default": true, "d": true, "first": true, "last": true, "safe": true,
}

// limited is a filter within the limits: its input is checked before, its work charged after.
func limited(name string, f filter) filter {
	return func(e *exec.Evaluator, in *exec.Value, p *exec.VarArgs) *exec.Value {
		if in.IsError() { // the library would hand it to the filter as a value
			return in
		}
		state := renderingOf(e.Environment)
		out, err := (*exec.Value)(nil), error(nil)
		if !shallow[name] {
			_, err = sized(in)
			for _, a := range p.Args {
				if err == nil {
					_, err = sized(a)
				}
			}
		}
		if err == nil {
			err = expands(name, in, p)
		}
		if err == nil {
			out = f(e, in, p)
			if out.IsError() {
				err = errors.New(out.Error())
			} else {
				size := int64(0)
				if out.IsString() {
					size = int64(out.Len())
				}
				err = state.charge(size)
			}
		}
		if err != nil {
			if state != nil {
				state.set(err)
			}
			return exec.AsValue(err)
		}
		return out
	}
}

// expands refuses the filters and methods whose result can be much larger than what they are given. in and p are that.
func expands(name string, in *exec.Value, p *exec.VarArgs) error {
	arguments := append([]*exec.Value{}, p.Args...)
	for _, a := range p.KwArgs {
		arguments = append(arguments, a)
	}
	switch name {
	case "replace":
		if len(p.Args) > 1 {
			return fits(int64(strings.Count(in.String(), p.Args[0].String())), int64(len(p.Args[1].String())))
		}
	case "join":
		if in.IsString() { // as a method; its argument is the list
			return fits(int64(len(in.String())), int64(p.First().Len()))
		}
		return fits(int64(in.Len()), int64(len(p.First().String())))
	case "indent", "tojson", "center", "ljust", "rjust", "zfill", "expandtabs", "round":
		for _, a := range arguments {
			if a.IsInteger() && a.Integer() > maxWidth || a.IsFloat() && a.Float() > maxWidth || a.IsString() && a.Len() > maxWidth {
				return fmt.Errorf("%s: a width may be %d", name, maxWidth)
			}
		}
		if name == "indent" || name == "tojson" {
			size, _ := sized(in)
			for _, a := range arguments {
				if a.IsInteger() {
					if err := fits(size/perItem+int64(strings.Count(in.String(), "\n")), int64(max(a.Integer(), 0))); err != nil {
						return err
					}
				}
			}
		}
	case "format":
		for i, digits := 0, 0; i < len(in.String()); i++ {
			if c := in.String()[i]; c < '0' || c > '9' {
				digits = 0
			} else if digits++; digits > 4 {
				return fmt.Errorf("format: a width may be %d", maxWidth)
			}
		}
	}
	return nil
}

func fits(n, size int64) error {
	if size > 0 && n > maxValueSize/size {
		return fmt.Errorf("a value would be larger than %d MiB", maxValueSize>>20)
	}
	return nil
}

// textMethods are those of Python's str, where they can make large values within the limits.
func textMethods() map[string]exec.Method[string] {
	all := map[string]exec.Method[string]{}
	for _, name := range []string{"capitalize", "capwords", "casefold", "center", "count", "encode", "endswith", "expandtabs", "find", "format",
		"isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "islower", "isnumeric", "isprintable", "isspace", "istitle", "isupper", "join",
		"ljust", "lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace", "rfind", "rjust", "rpartition", "rsplit", "rstrip",
		"split", "splitlines", "startswith", "strip", "swapcase", "title", "upper", "zfill"} {
		f, ok := builtins.Methods.Str.Get(name)
		if !ok {
			continue
		}
		all[name] = func(self string, value *exec.Value, p *exec.VarArgs) (any, error) {
			for _, a := range p.Args {
				if _, err := sized(a); err != nil {
					return nil, err
				}
			}
			if err := expands(name, exec.AsValue(self), p); err != nil {
				return nil, err
			}
			return f(self, value, p)
		}
	}
	return all
}

// times is x * y.
func times(a, b *exec.Value) *exec.Value {
	switch {
	case a.IsString() && b.IsInteger():
		if err := fits(int64(a.Len()), int64(max(b.Integer(), 0))); err != nil {
			return exec.AsValue(err)
		}
		return exec.AsValue(strings.Repeat(a.String(), max(b.Integer(), 0)))
	case a.IsInteger() && b.IsString():
		return times(b, a)
	case a.IsFloat() && b.IsNumber() || a.IsNumber() && b.IsFloat():
		return exec.AsValue(a.Float() * b.Float())
	case a.IsInteger() && b.IsInteger():
		return exec.AsValue(a.Integer() * b.Integer())
	}
	return fail("%s * %s: this is not supported", typeName(plain(a.Interface())), typeName(plain(b.Interface())))
}

// macro is the library's, with a limit on calls in each other and every call charged with the text of its body.
type macro struct {
	*controls.MacroControlStructure
	text int64
}

func parseMacro(p, args *parser.Parser) (nodes.ControlStructure, error) {
	parse, _ := builtins.ControlStructures.Get("macro")
	s, err := parse(p, args)
	if err != nil {
		return nil, err
	}
	of, ok := s.(*controls.MacroControlStructure)
	if !ok {
		return nil, args.Error("the library has other macros than it had", args.Current())
	}
	return &macro{MacroControlStructure: of}, nil
}

// Execute implements exec.ControlStructure.
func (m *macro) Execute(r *exec.Renderer, tag *nodes.ControlStructureBlock) error {
	if err := m.MacroControlStructure.Execute(r, tag); err != nil {
		return err
	}
	state := renderingOf(r.Environment)
	defined, _ := r.Environment.Context.Get(m.Name)
	call, ok := defined.(exec.Macro)
	if !ok || state == nil {
		return fmt.Errorf("macro %s is not defined by its definition", m.Name)
	}
	r.Environment.Context.Set(m.Name, exec.Macro(func(p *exec.VarArgs) *exec.Value {
		if state.macros++; state.macros > maxMacros {
			state.set(fmt.Errorf("macro %s: more than %d calls in each other", m.Name, maxMacros))
			return exec.AsValue(state.err)
		}
		defer func() { state.macros-- }()
		err := state.charge(m.text)
		for _, a := range p.Args {
			if _, wrong := sized(a); err == nil {
				err = wrong
			}
		}
		if err != nil {
			state.set(err)
			return exec.AsValue(err)
		}
		return call(p)
	}))
	return nil
}

// literalText is how many bytes of text stand in bodies, outside of tags.
func literalText(bodies ...*nodes.Wrapper) int64 {
	n := int64(0)
	for _, b := range bodies {
		if b == nil {
			continue
		}
		for _, node := range b.Nodes {
			switch node := node.(type) {
			case *nodes.Data:
				n += int64(len(node.Data.Val))
			case *nodes.ControlStructureBlock:
				n += literalText(bodiesOf(node.ControlStructure)...)
			}
		}
	}
	return n
}

// checkSource refuses a template whose parsing could take too much stack.
func checkSource(source string) error {
	if len(source) > maxSource {
		return fmt.Errorf("the template has %d bytes; %d are allowed", len(source), maxSource)
	}
	depth := 0
	for i := range len(source) {
		switch source[i] {
		case '(', '[', '{':
			if depth++; depth > maxBrackets {
				return fmt.Errorf("more than %d brackets stand in each other", maxBrackets)
			}
		case ')', ']', '}':
			depth = max(0, depth-1)
		}
	}
	return nil
}
