package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"rcgrpo/engine"
)

// planCommand runs `rcgrpo plan [EXP]`.
func planCommand(args []string, _ io.Reader, stdout, stderr io.Writer) int {
	c := newCall("plan", "[EXP]", stdout, stderr)
	var o engine.PlanOptions
	asJSON := c.Bool("json", false, "print everything for programs")
	detailed := c.Bool("detailed-exitcode", false, "exit with 2 when something would run")
	all := c.Bool("all", false, "also list what is up to date")
	c.planFlags(&o)
	if code, done := c.parse(args); done {
		return code
	}
	plain := !*asJSON && !*all
	if plain {
		if idle := c.unchanged(o); idle != nil {
			writeDisabled(stdout, idle.Disabled, false)
			fmt.Fprintln(stdout, planCounts(idle.Experiment, idle.Counts))
			return exitDone
		}
	}
	p, code := c.plan(o)
	if p == nil {
		return code
	}
	if plain {
		p.Compile()
	}
	if *asJSON {
		if err := writePlanJSON(stdout, p); err != nil {
			return c.fail(err)
		}
	} else {
		writePlan(stdout, p, *all, colored(stdout))
	}
	if *detailed && p.Changes() {
		return exitChanges
	}
	return exitDone
}

// planFlags are the flags that narrow or force a plan.
func (c *call) planFlags(o *engine.PlanOptions) {
	c.Func("target", "only this `ADDRESS` and what it reads; may be repeated", func(s string) error {
		o.Targets = append(o.Targets, s)
		return nil
	})
	c.Func("replace", "run this `ADDRESS` although it is up to date; may be repeated", func(s string) error {
		o.Replace = append(o.Replace, s)
		return nil
	})
}

// planLine is one line of a plan: the nodes of an instance that share verb and cause.
type planLine struct {
	verb   engine.Verb
	stem   string // address without seed
	seeds  []string
	cause  string
	begins string        // what it goes on from
	expect time.Duration // of all of them
	known  bool          // for every one there is a record
}

// planLines joins the seeds of an instance where they have the same fate.
func planLines(p *engine.Plan) []*planLine {
	type identity struct{ verb, stem, cause, begins string }
	lines := map[identity]*planLine{}
	var order []*planLine
	for _, n := range p.Nodes {
		stem, seed, seeded := strings.Cut(n.Address, "@")
		cause := n.Cause.String()
		if seeded {
			cause = strings.NewReplacer("@"+seed+")", ")", "@"+seed+",", ",").Replace(cause)
		}
		id := identity{string(n.Verb), stem, cause, n.Begins}
		l := lines[id]
		if l == nil {
			l = &planLine{verb: n.Verb, stem: stem, cause: cause, begins: n.Begins, known: true}
			lines[id] = l
			order = append(order, l)
		}
		if seeded {
			l.seeds = append(l.seeds, seed)
		}
		l.expect += n.Expect
		l.known = l.known && n.Expect > 0
	}
	return order
}

func (l *planLine) address() string {
	if len(l.seeds) == 0 {
		return l.stem
	}
	return l.stem + "@" + strings.Join(l.seeds, ",")
}

var verbColor = map[engine.Verb]string{engine.Run: "33", engine.RunUnlessUnchanged: "36", engine.Collected: "2", engine.UpToDate: "32"}

// writePlan prints a plan for people. Without all, what is up to date is only counted.
func writePlan(w io.Writer, p *engine.Plan, all, color bool) {
	var shown []*planLine
	width := 0
	for _, l := range planLines(p) {
		if all || l.verb == engine.Run || l.verb == engine.RunUnlessUnchanged {
			shown = append(shown, l)
			width = max(width, len([]rune(l.address())))
		}
	}
	for _, l := range shown {
		verb := fmt.Sprintf("%-20s", l.verb)
		if color {
			verb = "\x1b[" + verbColor[l.verb] + "m" + verb + "\x1b[0m"
		}
		note := l.cause
		if l.begins != "" {
			note += "; " + l.begins
		}
		if l.known && l.expect >= worthTelling && l.verb != engine.UpToDate && l.verb != engine.Collected {
			note = strings.TrimPrefix(note+"  ~"+roundTime(l.expect), "  ")
		}
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%s  %-*s  %s", verb, width, l.address(), note), " "))
	}
	writeDisabled(w, p.Experiment.Disabled, len(shown) > 0)
	fmt.Fprintln(w, planSummary(p))
}

// writeDisabled lists what `enabled` left out, and ends the list of nodes, if anything is in it.
func writeDisabled(w io.Writer, disabled []string, listed bool) {
	for _, a := range disabled {
		fmt.Fprintf(w, "%-20s  %s\n", "disabled", a)
	}
	if listed || len(disabled) > 0 {
		fmt.Fprintln(w)
	}
}

// planCounts says how many nodes of each verb an experiment has.
func planCounts(experiment string, counts map[engine.Verb]int) string {
	var parts []string
	for _, v := range []engine.Verb{engine.UpToDate, engine.Collected, engine.Run, engine.RunUnlessUnchanged} {
		if counts[v] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[v], strings.Replace(string(v), "run", "to run", 1)))
		}
	}
	if len(parts) == 0 {
		parts = []string{"no stages"}
	}
	return experiment + ": " + strings.Join(parts, ", ") + "."
}

// planSummary is the last line: how many nodes of each verb, and what is known of the cost.
func planSummary(p *engine.Plan) string {
	counts := map[engine.Verb]int{}
	var total time.Duration
	var gpu float64
	var unknown int
	for _, n := range p.Nodes {
		counts[n.Verb]++
		if n.Verb != engine.Run && n.Verb != engine.RunUnlessUnchanged {
			continue
		}
		if n.Expect == 0 {
			unknown++
		}
		total += n.Expect
		gpu += n.Expect.Hours() * float64(n.Resources.GPUs)
	}
	text := planCounts(p.Experiment.Name, counts)
	if total >= worthTelling {
		text += " About " + roundTime(total) + " of stage time"
		if gpu > 0 {
			text += fmt.Sprintf(", %.1f GPU hours", gpu)
		}
		if unknown > 0 {
			text += fmt.Sprintf(", without %d never run before", unknown)
		}
		text += "."
	}
	if len(p.Nodes) < len(p.Experiment.Nodes) {
		text += fmt.Sprintf(" %d others are left aside by -target.", len(p.Experiment.Nodes)-len(p.Nodes))
	}
	return text
}

// worthTelling is the expected time below which a plan does not speak of it.
const worthTelling = 100 * time.Millisecond

func roundTime(d time.Duration) string {
	unit := time.Second
	if d < 10*time.Second {
		unit = 100 * time.Millisecond
	}
	return d.Round(unit).String()
}

// planNodeJSON is one node of `plan -json`.
type planNodeJSON struct {
	Address   string            `json:"address"`
	Kind      string            `json:"kind"`
	Seed      *int64            `json:"seed,omitempty"`
	Verb      engine.Verb       `json:"verb"`
	Cause     *engine.Cause     `json:"cause,omitempty"`
	Key       string            `json:"key,omitempty"`
	Inputs    []planInputJSON   `json:"inputs,omitempty"`
	After     []string          `json:"after,omitempty"`
	Outputs   map[string]string `json:"outputs,omitempty"` // port -> artifact type
	Digests   map[string]string `json:"digests,omitempty"` // port -> content, where recorded
	Expect    float64           `json:"expect_seconds,omitempty"`
	Begins    string            `json:"begins,omitempty"`
	Executor  string            `json:"executor,omitempty"`
	GPUs      int               `json:"gpus,omitempty"`
	CPUs      int               `json:"cpus,omitempty"`
	Memory    int64             `json:"memory_bytes,omitempty"`
	GPUMemory int64             `json:"gpu_memory_bytes,omitempty"`
	File      string            `json:"file"`
	Line      int               `json:"line"`
}

type planInputJSON struct {
	Setting string `json:"setting"`
	Address string `json:"address"`
	Port    string `json:"port"`
}

func writePlanJSON(w io.Writer, p *engine.Plan) error {
	out := struct {
		Experiment string         `json:"experiment"`
		Store      string         `json:"store"`
		Seeds      []int64        `json:"seeds"`
		Changes    bool           `json:"changes"`
		Counts     map[string]int `json:"counts"`
		Nodes      []planNodeJSON `json:"nodes"`
		Disabled   []string       `json:"disabled,omitempty"`
	}{p.Experiment.Name, p.Store.Dir(), p.Experiment.Seeds, p.Changes(), map[string]int{}, []planNodeJSON{}, p.Experiment.Disabled}
	for _, n := range p.Nodes {
		out.Counts[string(n.Verb)]++
		j := planNodeJSON{
			Address: n.Address, Kind: n.Kind.Name, Seed: n.Seed, Verb: n.Verb, Key: n.Key, Outputs: n.Outputs,
			Expect: n.Expect.Seconds(), Begins: n.Begins, Executor: n.Executor, GPUs: n.Resources.GPUs, CPUs: n.Resources.CPUs,
			Memory: n.Resources.Memory, GPUMemory: n.Resources.GPUMemory, File: n.Range.Filename, Line: n.Range.Start.Line,
		}
		if n.Cause.Reason != engine.ReasonNone {
			j.Cause = &n.Cause
		}
		for _, in := range n.Inputs {
			j.Inputs = append(j.Inputs, planInputJSON{in.Setting, in.From.Address, in.Ref.Port})
		}
		for _, a := range n.After {
			j.After = append(j.After, a.Address)
		}
		if n.Manifest != nil {
			j.Digests = map[string]string{}
			for port, o := range n.Manifest.Outputs {
				j.Digests[port] = o.Digest
			}
		}
		slices.Sort(j.After)
		out.Nodes = append(out.Nodes, j)
	}
	return printJSON(w, out)
}
