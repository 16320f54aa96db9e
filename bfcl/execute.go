package bfcl

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"rcgrpo/bfcl/internal/api"
	"rcgrpo/bfcl/internal/py"
)

// scene is what all sides of all episodes of one task begin with. It is never changed once made.
type scene struct {
	task      *Task
	today     time.Time
	instances []api.Instance // loaded, one per class of the task
}

// newScene loads the initial state of a task. long may be nil unless the task is of the category long_context.
func newScene(t *Task, long map[string]py.Value, today time.Time) (*scene, error) {
	config := py.NewDict()
	if len(t.InitialConfig) > 0 {
		v, err := py.FromJSON(t.InitialConfig)
		if err != nil {
			return nil, taskError(t, "initial_config: "+err.Error())
		}
		var ok bool
		if config, ok = v.(*py.Dict); !ok {
			return nil, taskError(t, "initial_config is a "+py.TypeName(v)+", want an object of class names")
		}
	}
	s := &scene{task: t, today: today}
	shared := api.NewShared(long, today)
	for _, name := range t.Classes {
		class, ok := api.Lookup(name)
		if !ok {
			return nil, taskError(t, "unknown class "+name)
		}
		instance := class.New()
		var scenario *py.Dict
		if v, ok := config.GetStr(name); ok {
			if scenario, ok = v.(*py.Dict); !ok {
				return nil, taskError(t, "initial_config."+name+" is a "+py.TypeName(v)+", want an object")
			}
		}
		if err := instance.Load(scenario, shared, t.longContext()); err != nil {
			return nil, taskError(t, "initial_config."+name+": "+err.Error())
		}
		s.instances = append(s.instances, instance)
	}
	return s, nil
}

func (t *Task) longContext() bool { return strings.Contains(t.Category, "long_context") }

// side is one of the two sets of instances of an episode: the policy's or the reference's.
type side struct {
	scene     *scene
	name      string // what instance names begin with, without the class
	instances []api.Instance

	// touched tells which instances had a call since the last comparison. Once an expression was evaluated, instances may
	// share values, and all count as touched from then on.
	touched   []bool
	entangled bool

	// Memory that calls use one after the other.
	plain    py.PlainCall
	bound    []py.Value
	args     [2]py.Value
	keywords [8]py.Argument
	room     [8]py.Value
}

func newSide(sc *scene, name string) *side {
	s := &side{scene: sc, name: name, instances: make([]api.Instance, len(sc.instances)), touched: make([]bool, len(sc.instances))}
	s.plain.Args, s.plain.Keywords, s.bound = s.args[:0], s.keywords[:0], s.room[:0]
	return s
}

// side gives fresh instances. The model name only shows in instance names.
func (s *scene) side(model string) *side {
	fresh := newSide(s, model)
	for i, in := range s.instances {
		fresh.instances[i] = in.Clone(nil)
	}
	return fresh
}

func (s *side) clone(m *py.Memo) *side {
	c := newSide(s.scene, s.name)
	for i, in := range s.instances {
		c.instances[i] = in.Clone(m)
	}
	copy(c.touched, s.touched)
	c.entangled = s.entangled
	return c
}

// instanceName is the variable that holds the instance of a class in the official executor.
func (s *side) instanceName(class string) string {
	name := s.name + "_eval_" + s.scene.task.ID + "_" + class + "_instance"
	return strings.Map(func(r rune) rune {
		if r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) {
			return r
		}
		return '_'
	}, name)
}

// find gives the tool of that name and which instance it belongs to; -1 when there is no such tool or its class is not
// involved.
func (s *side) find(name string) (tool, int) {
	t, ok := tools()[name]
	if !ok {
		return t, -1
	}
	return t, slices.Index(s.scene.task.Classes, t.class.Name)
}

// Outcome is the result of one call.
type Outcome struct {
	Text      string // result string, as the policy sees it
	Exception string // Python exception class; "" when the call returned
	Type      string // Python type of the returned value; "" after an exception
}

// Unsupported reports whether the call is valid Python that this package does not evaluate.
func (o Outcome) Unsupported() bool { return o.Exception == py.UnsupportedClass }

// run executes one call string (bfcl/SPEC.md 5). Side effects made before an exception stay.
func (s *side) run(call string) Outcome {
	v, err := s.value(call)
	text := ""
	if err == nil {
		text, err = py.ResultErr(v)
	}
	if err != nil {
		e := py.AsException(err)
		return Outcome{Text: "Error during execution: " + e.Message, Exception: e.Class}
	}
	return Outcome{Text: text, Type: py.TypeName(v)}
}

func (s *side) value(call string) (py.Value, error) {
	if !rewritesText(call) && s.plain.Read(call) {
		if t, i := s.find(s.plain.Name); i >= 0 {
			bound, err := bind(t, s.bound, s.plain.Args, s.plain.Keywords)
			if err != nil {
				return nil, err
			}
			s.bound = bound
			s.touched[i] = true
			return s.instances[i].Call(t.index, bound)
		}
	}
	text := rewrite(call, func(name string) string {
		if t, i := s.find(name); i >= 0 {
			return s.instanceName(t.class.Name)
		}
		return ""
	})
	if name := refused(text); name != "" {
		return nil, py.Raise("Exception", "Function call %s is not allowed.", name)
	}
	e, err := py.Parse(text)
	if err != nil {
		return nil, err
	}
	s.entangled = true
	return py.Eval(e, scope{s})
}
