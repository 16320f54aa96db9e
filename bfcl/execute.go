package bfcl

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"rcgrpo/bfcl/internal/api"
	"rcgrpo/bfcl/internal/py"
)

// world is the loaded initial state of a task. It is immutable; every episode starts from clones.
type world struct {
	task      *Task
	today     time.Time
	instances []api.Instance      // one per class of the task
	weights   []int               // of their states
	bytes     int                 // it counts for in the cache
	parsed    map[string]*py.Call // text of a ground-truth call -> the parsed call; nil if it is not a call by name
}

// Every episode has copies of the initial state and of the values of ground-truth calls, in far more memory than they
// have bytes: 16 MiB took 8 GB in eight episodes. To match 3,000 equal calls took minutes. Official tasks have 4 kB of
// the state, and two dozen calls.
const (
	maxInitial = 256 << 10 // limit of the initial state, as JSON and as py.Weigh counts it
	maxTruth   = 128 << 10 // limit of the text of a ground truth
	maxParts   = 256       // limit of turns, ground-truth calls and revealed tools together
	maxID      = 256       // limit of the id, which an evaluated text contains before each call
)

// newWorld loads the initial state of a task. long has the constants of long_context.json by name, and may be nil
// unless the task is of the category long_context. The error names the task and the class.
func newWorld(t *Task, long map[string]py.Value, today time.Time) (*world, error) {
	config := py.NewDict()
	truth, err := t.size()
	if err != nil {
		return nil, err
	}
	if len(t.InitialConfig) > 0 {
		v, err := py.FromJSON(t.InitialConfig)
		if err != nil {
			return nil, taskError(t, "initial_config: "+err.Error())
		}
		var ok bool
		if config, ok = v.(*py.Dict); !ok {
			return nil, taskError(t, "initial_config is "+py.TypeName(v)+", want an object of class names")
		}
		if py.Weigh(maxInitial, config) > maxInitial {
			return nil, t.tooLarge()
		}
	}
	w := &world{task: t, today: today, bytes: smallWorld + truth, parsed: map[string]*py.Call{}}
	shared, state := api.NewShared(long, today), 0
	for i, name := range t.Classes {
		class, ok := api.Lookup(name)
		if !ok {
			return nil, taskError(t, "unknown class "+name)
		}
		if slices.Contains(t.Classes[:i], name) { // each would have a copy of its state, which may be large
			return nil, taskError(t, "it names the class "+name+" twice")
		}
		instance := class.New()
		var scenario *py.Dict
		if v, ok := config.Get(name); ok {
			if scenario, ok = v.(*py.Dict); !ok {
				return nil, taskError(t, "initial_config."+name+" is "+py.TypeName(v)+", want an object")
			}
		}
		if err := instance.Load(scenario, shared, t.longContext()); err != nil {
			return nil, taskError(t, "initial_config."+name+": "+err.Error())
		}
		w.weights = append(w.weights, stateBytes(instance))
		if state += w.weights[i]; state > maxState { // each file of a long context has more text than the row
			return nil, taskError(t, fmt.Sprintf("its classes have more than %d bytes of state", maxState))
		}
		w.instances = append(w.instances, instance)
	}
	w.bytes += state
	for _, turn := range t.Turns {
		for _, call := range turn.GroundTruth {
			w.parsed[call] = callByName(call)
		}
	}
	return w, nil
}

// size returns the bytes of the ground truth. It returns an error if the task exceeds a limit.
func (t *Task) size() (int, error) {
	parts, truth := len(t.Turns), 0
	for _, turn := range t.Turns {
		parts += len(turn.GroundTruth) + len(turn.Revealed)
		for _, call := range turn.GroundTruth {
			truth += len(call)
		}
	}
	switch {
	case len(t.ID) > maxID:
		return 0, fmt.Errorf("the id of a task has more than %d bytes: %.40s…", maxID, t.ID)
	case len(t.InitialConfig) > maxInitial:
		return 0, t.tooLarge()
	case parts > maxParts:
		return 0, taskError(t, fmt.Sprintf("it has more than %d turns, calls and revealed tools", maxParts))
	case truth > maxTruth:
		return 0, taskError(t, fmt.Sprintf("its ground truth has more than %d bytes", maxTruth))
	}
	return truth, nil
}

func (t *Task) tooLarge() error {
	return taskError(t, fmt.Sprintf("initial_config has more than %d bytes, with 24 for each value and 256 more for each "+
		"list or object", maxInitial))
}

func (t *Task) longContext() bool { return strings.Contains(t.Category, "long_context") }

// instances are the simulated objects of one side of an episode: the policy's or the truth's.
type instances struct {
	world *world
	name  string         // prefix of instance names, without the class
	list  []api.Instance // one per class of the task

	// touched marks instances with a call since the last comparison. An evaluated expression may
	// make instances share values; from then on all count as touched.
	touched   []bool
	entangled bool
	weights   []int // of the state of each instance after its last call

	work      int           // bytes that calls and comparisons so far have read and written, plus callWork for each call
	spent     time.Duration // that they have taken, until counted
	counted   time.Time
	exhausted bool // a call exceeded one of the limits below
}

// A model writes the calls, so an episode must not take the memory or the hours of the machine that trains. Each call
// can double a text of the state, and a directory that is copied into two others takes no memory until it is printed.
// The limits, as py.Weigh counts, are far above any official task: values take several times as much memory, in
// hundreds of episodes at once. A call beyond a limit raises a MemoryError, and the episode is abandoned.
const (
	maxValue  = api.MaxReply // limit of the arguments of a call, and of its result
	maxState  = 512 << 10    // limit of the state of all instances, after each call
	maxWork   = 128 << 20    // limit of the work of all calls of one side of an episode
	textWork  = 16           // work of a byte of a result, as a value and as text: memory has several results at once
	parseWork = 4            // work of a byte that is parsed
	timeWork  = 75           // nanoseconds that are a byte of work: ten seconds are maxWork
	callWork  = 1 << 10      // work of a text that is run, and of each call of a tool in it, besides the bytes
)

// weigh adds the bytes of values to the work of the episode. It returns a MemoryError that begins with what if the
// values have more than limit bytes, or if the work exceeds maxWork.
func (in *instances) weigh(what string, limit int, values ...py.Value) error {
	w := py.Weigh(limit, values...)
	in.work += w
	return in.check(what, w, limit)
}

// spend counts the time of a call, of which a second at most, because a process may be stopped for a while.
func (in *instances) spend() {
	now := time.Now()
	in.spent += min(now.Sub(in.counted), time.Second)
	in.counted = now
}

// total returns the work in bytes, or the time if that is more: work that nothing else counts has an end. In honest
// episodes the bytes are far more, so that no result depends on time.
func (in *instances) total() int { return max(in.work, int(in.spent/timeWork)) }

// check is weigh for a size that the work already contains.
func (in *instances) check(what string, size, limit int) error {
	switch {
	case size > limit:
		return py.Raise("MemoryError", "%s: more than %d bytes", what, limit)
	case in.total() > maxWork:
		return py.Raise("MemoryError", "the calls of the episode take more than %d bytes", maxWork)
	}
	return nil
}

// stateBytes returns the bytes of the state of an instance as py.Weigh counts them, up to some number above maxState.
func stateBytes(instance api.Instance) int {
	w := 0
	if h, ok := instance.(api.Hider); ok {
		w = py.Weigh(maxState, h.Hidden()...)
	}
	for _, a := range instance.State() {
		w += py.Weigh(maxState-w, a.Value)
	}
	return w
}

// weighState is weigh of the state of all instances, after a call of one. It weighs only the states that the call may
// have changed.
func (in *instances) weighState(called int) error {
	all := 0
	for i, instance := range in.list {
		if i == called || in.entangled {
			in.weights[i] = stateBytes(instance)
			in.work += in.weights[i]
		}
		all += in.weights[i]
	}
	return in.check("the state", all, maxState)
}

// call executes a tool on instance i, with the arguments in the order of the signature. The error is the tool's, or a
// MemoryError. The call has changed the instance even if its result or the new state exceeds a limit.
func (in *instances) call(t tool, i int, args []py.Value) (v py.Value, err error) {
	in.work += callWork + api.DigitsWork(t.method.Name, args)
	if err := in.weigh("the arguments", maxValue, args...); err != nil {
		return nil, err
	}
	v, err = t.method.Call(in.list[i], args)
	in.spend()
	w := py.Weigh(maxValue, v)
	in.work += textWork * w
	if e := in.check("the texts of a result", w, maxValue); e != nil {
		err = e
	}
	if e := in.weighState(i); e != nil {
		err = e
	}
	return v, err
}

// start returns the instances of one side in the initial state. The name is part of instance names only.
func (w *world) start(name string) *instances {
	fresh := newInstances(w, name)
	copy(fresh.weights, w.weights)
	for i, instance := range w.instances {
		fresh.list[i] = instance.Clone(nil)
	}
	return fresh
}

func newInstances(w *world, name string) *instances {
	n := len(w.instances)
	return &instances{world: w, name: name, list: make([]api.Instance, n), touched: make([]bool, n),
		weights: make([]int, n), counted: time.Now()}
}

func (in *instances) clone(m *py.Memo) *instances {
	c := newInstances(in.world, in.name)
	for i, instance := range in.list {
		c.list[i] = instance.Clone(m)
	}
	copy(c.touched, in.touched)
	copy(c.weights, in.weights)
	c.entangled = in.entangled
	c.work, c.spent, c.exhausted = in.work, in.spent, in.exhausted
	return c
}

// instanceName returns the official executor's variable name for the instance of a class.
func (in *instances) instanceName(class string) string {
	name := in.name + "_eval_" + in.world.task.ID + "_" + class + "_instance"
	return strings.Map(func(r rune) rune {
		if r == '_' || unicode.IsLetter(r) || unicode.IsNumber(r) {
			return r
		}
		return '_'
	}, name)
}

// untouched reports whether instance i is unchanged since the last comparison.
func (in *instances) untouched(i int) bool { return !in.touched[i] && !in.entangled }

// find returns a tool and the index of its instance, or -1 if the tool is unknown or its class is
// not part of the task.
func (in *instances) find(name string) (tool, int) {
	t, ok := tools()[name]
	if !ok {
		return t, -1
	}
	return t, slices.Index(in.world.task.Classes, t.class.Name)
}

// Outcome is the result of one call.
type Outcome struct {
	Text      string // result string, as the policy receives it
	Exception string // Python exception class; "" if the call returned
	Type      string // Python type of the returned value; "" after an exception
}

// Unsupported reports whether the call is valid Python that this package does not evaluate.
func (o Outcome) Unsupported() bool { return o.Exception == py.UnsupportedClass }

// run executes one call string (bfcl/SPEC.md 5). Side effects before an exception persist.
func (in *instances) run(call string) Outcome {
	in.counted = time.Now()
	defer in.spend()
	v, err := in.value(call)
	text := ""
	if err == nil {
		err = in.weigh("the texts of a result", maxValue, v)
	}
	if err == nil {
		text, err = py.Result(v)
	}
	o := Outcome{Text: text, Type: py.TypeName(v)}
	if err != nil {
		o = failed(err)
	}
	in.work += textWork * len(o.Text)
	if err := in.check("the text of an error", len(o.Text), maxValue); err != nil && o.Exception != "" {
		o = failed(err) // errors quote names of the state
	}
	in.exhausted = in.exhausted || o.Exception == "MemoryError"
	return o
}

// failed returns the outcome of an exception.
func failed(err error) Outcome {
	e := py.AsException(err)
	return Outcome{Text: "Error during execution: " + e.Message, Exception: e.Class}
}

// value returns the value of a call string. A tool called with literals is called directly; any
// other text is rewritten and evaluated.
func (in *instances) value(call string) (py.Value, error) {
	if in.work += callWork + len(call); in.exhausted || in.total() > maxWork { // a ground truth is not abandoned
		return nil, py.Raise("MemoryError", "the calls before it exceed a limit")
	}
	if t, i, args, keywords := in.literalCall(call); i >= 0 {
		bound, err := bind(t, args, keywords)
		if err != nil {
			return nil, err
		}
		in.touched[i] = true
		return in.call(t, i, bound)
	}
	return in.evaluate(call)
}

// evaluate rewrites a call string like the official executor and evaluates it.
func (in *instances) evaluate(call string) (py.Value, error) {
	text := rewrite(call, func(name string) string {
		if t, i := in.find(name); i >= 0 {
			return in.instanceName(t.class.Name)
		}
		return ""
	})
	in.work += parseWork * len(text) // each name of a tool becomes one with the id of the task
	if name := bannedName(text); name != "" {
		return nil, py.Raise("Exception", "Function call %s is not allowed.", name)
	}
	e, err := py.Parse(text)
	if err != nil {
		return nil, err
	}
	in.entangled = true
	return py.Eval(e, scope{in})
}

// literalCall reads a call of a tool with literals, which rewriting does not change except for the
// tool's name. The index of the instance is -1 for any other text.
func (in *instances) literalCall(call string) (t tool, i int, args []py.Value, keywords []py.Argument) {
	before, _, _ := strings.Cut(call, "(")
	t, i = in.find(strings.TrimSpace(before))
	if i < 0 || rewritesText(call) {
		return t, -1, nil, nil
	}
	c := in.world.parsed[call]
	if c == nil {
		c = callByName(call)
	}
	if c == nil || c.Func.(*py.Name).ID != t.method.Name {
		return t, -1, nil, nil
	}
	args, keywords, err := c.Arguments(nil)
	if err != nil {
		return t, -1, nil, nil
	}
	return t, i, args, keywords
}
