package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"rcgrpo/engine"
	"rcgrpo/stages"
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
		p.SaveVerdict()
	}
	forecast := p.Forecast(context.Background())
	if *asJSON {
		if err := writePlanJSON(stdout, p, forecast); err != nil {
			return c.fail(err)
		}
	} else {
		writePlan(stdout, p, forecast, planLayout{all: *all, color: colored(stdout), width: widthOf(stdout)})
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
	c.BoolFunc("paranoid", "read every file that time stamps vouch for: inputs, results, published copies", func(string) error {
		o.Paranoid, c.source.Paranoid = true, true
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
	start  time.Duration // of the first
	gpus   []string      // of all of them
}

// planLines joins the seeds of an instance where they have the same fate.
func planLines(p *engine.Plan, f engine.Forecast) []*planLine {
	type identity struct{ verb, stem, cause, begins string }
	lines := map[identity]*planLine{}
	var order []*planLine
	for _, n := range p.Nodes {
		stem, seed, seeded := strings.Cut(n.Address, "@")
		cause := n.Cause.String()
		if seeded {
			cause = strings.NewReplacer("@"+seed+")", ")", "@"+seed+",", ",").Replace(cause)
		}
		id := identity{string(n.Verb), stem, cause, n.ContinuesFrom}
		l := lines[id]
		if l == nil {
			l = &planLine{verb: n.Verb, stem: stem, cause: cause, begins: n.ContinuesFrom, known: true, start: math.MaxInt64}
			lines[id] = l
			order = append(order, l)
		}
		if at, ok := f.Placements[n]; ok && at.Unfit == "" {
			l.start = min(l.start, at.Start)
			l.gpus = append(l.gpus, at.GPUs...)
			slices.Sort(l.gpus)
			l.gpus = slices.Compact(l.gpus)
		}
		if seeded {
			l.seeds = append(l.seeds, seed)
		}
		l.expect += n.Estimate
		l.known = l.known && n.Estimate > 0
	}
	return order
}

func (l *planLine) address() string {
	if len(l.seeds) == 0 {
		return l.stem
	}
	return l.stem + "@" + strings.Join(l.seeds, ",")
}

var verbColor = map[engine.Verb]string{engine.MustRun: "33", engine.MayRun: "36", engine.Collected: "2", engine.UpToDate: "32"}

// cost is what is known of a line that runs: how long, on which devices, and from when.
func (l *planLine) cost() string {
	if !l.known || l.expect < worthTelling || l.verb != engine.MustRun && l.verb != engine.MayRun {
		return ""
	}
	text := "~" + roundTime(l.expect)
	if len(l.gpus) > 0 {
		text += " on GPU " + strings.Join(l.gpus, ",")
	}
	if l.start >= worthTelling && l.start < math.MaxInt64 {
		text += " from " + roundTime(l.start)
	}
	return text
}

// note is what stands behind the address: the cause, and the cost.
func (l *planLine) note() string {
	note := l.cause
	if l.begins != "" {
		note += "; " + l.begins
	}
	return strings.TrimPrefix(strings.TrimSuffix(note+"  "+l.cost(), "  "), "  ")
}

// planLayout says how a plan is printed.
type planLayout struct {
	all, color bool
	width      int // of the terminal; 0: lines may have any length
}

const verbWidth = len(engine.MayRun) + 2

// writePlan prints a plan for people. Without all, what is up to date is only counted. A line too long for
// the terminal has its cause below.
func writePlan(w io.Writer, p *engine.Plan, f engine.Forecast, o planLayout) {
	var shown []*planLine
	width := 0
	for _, l := range planLines(p, f) {
		if o.all || l.verb == engine.MustRun || l.verb == engine.MayRun {
			shown = append(shown, l)
			if n := len([]rune(l.address())); o.width == 0 || verbWidth+n+10 <= o.width { // one long address moves no column
				width = max(width, n)
			}
		}
	}
	fits := func(address, note int) bool { return o.width == 0 || verbWidth+address+2+note <= o.width }
	for _, l := range shown {
		verb := fmt.Sprintf("%-*s", verbWidth, l.verb)
		if o.color {
			verb = "\x1b[" + verbColor[l.verb] + "m" + verb + "\x1b[0m"
		}
		address, note := l.address(), l.note()
		switch long := len([]rune(address)); {
		case fits(width, len([]rune(note))):
			fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%s%-*s  %s", verb, width, address, note), " "))
		case fits(long, len([]rune(note))):
			fmt.Fprintln(w, verb+address+"  "+note)
		default:
			fmt.Fprintln(w, verb+address)
			fmt.Fprintln(w, "    "+strings.ReplaceAll(wrapped(note, o.width-4), "\n", "\n    "))
		}
	}
	writeDisabled(w, p.Experiment.Disabled, len(shown) > 0)
	fmt.Fprintln(w, wrapped(planSummary(p, f), o.width))
	if names := p.Unlike(); len(names) > 0 {
		more := ""
		if len(names) > 3 {
			more = " and " + engine.Plural(len(names)-3, "other")
		}
		fmt.Fprintln(w, wrapped("Missing, edited, or of another result: "+strings.Join(names[:min(3, len(names))], ", ")+more+". A run copies them from the store and keeps edited ones aside.", o.width))
	}
	for _, line := range append(memoryLines(p, f), unfitLines(p, f)...) {
		fmt.Fprintln(w, wrapped(line, o.width))
	}
}

// worthMemory is what no stage must take before a plan speaks of memory.
const worthMemory = 1 << 30

// memoryLines tell of the stage that takes most memory of what would run, when that is much, and of each whose device has less.
func memoryLines(p *engine.Plan, f engine.Forecast) (lines []string) {
	var most stages.MemoryPlan
	of := ""
	refused := map[string]bool{}
	for _, n := range p.Nodes {
		plan, ok := memoryOf(n, f)
		stem, _, _ := strings.Cut(n.Address, "@")
		switch {
		case !ok:
		case plan.Unfit != nil && !refused[stem]:
			refused[stem] = true
			lines = append(lines, fmt.Sprintf("Cannot run here: %s: %v.", stem, plan.Unfit))
		case plan.Unfit == nil && plan.Bytes > most.Bytes:
			most, of = plan, stem
		}
	}
	if most.Bytes >= worthMemory {
		lines = append([]string{fmt.Sprintf("Most memory: %s takes %s.", of, most.Text)}, lines...)
	}
	return lines
}

// unfitMemory is the error of the first stage that would run and whose device has too little memory.
func unfitMemory(p *engine.Plan) error {
	hasModel := func(n *engine.Planned) bool {
		_, ok := stages.Memory(n.Node, 0)
		return ok
	}
	if !slices.ContainsFunc(p.Nodes, hasModel) { // nothing depends on who gets which device
		return nil
	}
	f := p.Forecast(context.Background())
	for _, n := range p.Nodes {
		if plan, ok := memoryOf(n, f); ok && plan.Unfit != nil {
			return fmt.Errorf("%s: %w", n.Address, plan.Unfit)
		}
	}
	return nil
}

// memoryOf is the memory plan of a node that would run.
func memoryOf(n *engine.Planned, f engine.Forecast) (stages.MemoryPlan, bool) {
	at, ok := f.Placements[n]
	if !ok || at.Unfit != "" {
		return stages.MemoryPlan{}, false
	}
	return stages.Memory(n.Node, at.Memory)
}

// writeDisabled lists what `enabled` left out, and ends the list of nodes, if anything is in it.
func writeDisabled(w io.Writer, disabled []string, listed bool) {
	for _, a := range disabled {
		fmt.Fprintf(w, "%-*s%s\n", verbWidth, "disabled", a)
	}
	if listed || len(disabled) > 0 {
		fmt.Fprintln(w)
	}
}

// planCounts says how many nodes of each verb an experiment has.
func planCounts(experiment string, counts map[engine.Verb]int) string {
	var parts []string
	for _, v := range []engine.Verb{engine.UpToDate, engine.Collected, engine.MustRun, engine.MayRun} {
		if counts[v] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[v], strings.Replace(string(v), "run", "to run", 1)))
		}
	}
	if len(parts) == 0 {
		parts = []string{"no stages"}
	}
	return experiment + ": " + strings.Join(parts, ", ") + "."
}

// unfitLines tell what cannot run on this machine, one line for each reason.
func unfitLines(p *engine.Plan, f engine.Forecast) []string {
	var reasons []string
	unfit := map[string][]string{} // addresses without seeds, by reason
	for _, n := range p.Nodes {
		why := f.Placements[n].Unfit
		if why == "" {
			continue
		}
		if unfit[why] == nil {
			reasons = append(reasons, why)
		}
		if stem, _, _ := strings.Cut(n.Address, "@"); !slices.Contains(unfit[why], stem) {
			unfit[why] = append(unfit[why], stem)
		}
	}
	var lines []string
	for _, why := range reasons {
		line := "Cannot run here: " + unfit[why][0] + " " + why
		switch n := len(unfit[why]) - 1; {
		case n == 1:
			line += "; so does 1 other"
		case n > 1:
			line += "; so do " + engine.Plural(n, "other")
		}
		lines = append(lines, line+".")
	}
	return lines
}

// planSummary is the last line: how many nodes of each verb, and what is known of the cost.
func planSummary(p *engine.Plan, f engine.Forecast) string {
	counts := map[engine.Verb]int{}
	for _, n := range p.Nodes {
		counts[n.Verb]++
	}
	text := planCounts(p.Experiment.Name, counts)
	if f.Work >= worthTelling {
		text += " About " + roundTime(f.Work) + " of stage time"
		if f.Wall < f.Work-f.Work/20 {
			text += ", over after " + roundTime(f.Wall)
		}
		if f.GPUHours >= 0.005 {
			text += fmt.Sprintf(", %.3g GPU hours", f.GPUHours)
		}
		if f.Bytes > 0 {
			text += ", " + engine.BytesText(f.Bytes) + " of disk"
		}
		if f.Unknown > 0 {
			text += fmt.Sprintf(", without %d never run before", f.Unknown)
		}
		text += "."
	}
	if len(p.Nodes) < len(p.Experiment.Nodes) {
		text += fmt.Sprintf(" -target leaves %s aside.", engine.Plural(len(p.Experiment.Nodes)-len(p.Nodes), "other"))
	}
	return text
}

// wrapped breaks a text between words so that no line is longer than width; 0 leaves it alone.
func wrapped(text string, width int) string {
	if width <= 0 {
		return text
	}
	var b strings.Builder
	at := 0
	for i, word := range strings.Split(text, " ") {
		n := len([]rune(word))
		switch {
		case i == 0:
		case at+1+n > width:
			b.WriteByte('\n')
			at = 0
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}

// widthOf is the width of the terminal that w is; 0 when it is none.
func widthOf(w io.Writer) int {
	f, ok := w.(descriptor)
	if !ok || !isTerminal(w) {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width < 20 { // a terminal that does not know its size
		return 80
	}
	return width
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
	Bytes     int64             `json:"expect_bytes,omitempty"`
	Placement *placementJSON    `json:"placement,omitempty"` // of what runs or may run
	Begins    string            `json:"begins,omitempty"`
	Needs     *memoryJSON       `json:"memory_plan,omitempty"` // of what runs a model whose shape is known
	Executor  string            `json:"executor,omitempty"`
	GPUs      int               `json:"gpus,omitempty"`
	CPUs      int               `json:"cpus,omitempty"`
	Memory    int64             `json:"memory_bytes,omitempty"`
	GPUMemory int64             `json:"gpu_memory_bytes,omitempty"`
	File      string            `json:"file"`
	Line      int               `json:"line"`
}

// memoryJSON is what a node takes of its device's memory.
type memoryJSON struct {
	Bytes int64  `json:"bytes"`
	Has   int64  `json:"has_bytes,omitempty"` // absent where nobody says
	Text  string `json:"text"`
	Unfit string `json:"unfit,omitempty"`
}

// placementJSON is where and when a node would run, or why it cannot.
type placementJSON struct {
	Executor string   `json:"executor,omitempty"`
	CPUs     int      `json:"cpus,omitempty"`
	GPUs     []string `json:"gpus,omitempty"`
	Start    float64  `json:"start_seconds"`
	Unfit    string   `json:"unfit,omitempty"`
}

type forecastJSON struct {
	Wall     float64 `json:"wall_seconds"`
	Work     float64 `json:"stage_seconds"`
	GPUHours float64 `json:"gpu_hours"`
	Bytes    int64   `json:"disk_bytes"`
	Unknown  int     `json:"unknown"` // nodes without record, counted as nothing
}

type planInputJSON struct {
	Setting string `json:"setting"`
	Address string `json:"address"`
	Port    string `json:"port"`
}

// writePlanJSON prints a plan for programs. Fields may be added; what a field means does not change while format is 1.
func writePlanJSON(w io.Writer, p *engine.Plan, f engine.Forecast) error {
	out := struct {
		Format     int            `json:"format"`
		Experiment string         `json:"experiment"`
		Store      string         `json:"store"`
		Seeds      []int64        `json:"seeds"`
		Changes    bool           `json:"changes"`
		Counts     map[string]int `json:"counts"`
		Nodes      []planNodeJSON `json:"nodes"`
		Disabled   []string       `json:"disabled,omitempty"`
		Unlike     []string       `json:"unlike,omitempty"` // published copies that are missing, edited, or of another result
		Forecast   forecastJSON   `json:"forecast"`
	}{1, p.Experiment.Name, p.Store.Dir(), p.Experiment.Seeds, p.Changes(), map[string]int{}, []planNodeJSON{}, p.Experiment.Disabled, p.Unlike(),
		forecastJSON{f.Wall.Seconds(), f.Work.Seconds(), f.GPUHours, f.Bytes, f.Unknown}}
	for _, n := range p.Nodes {
		out.Counts[string(n.Verb)]++
		j := planNodeJSON{
			Address: n.Address, Kind: n.Kind.Name, Seed: n.Seed, Verb: n.Verb, Key: n.Key, Outputs: n.Outputs,
			Expect: n.Estimate.Seconds(), Bytes: n.EstimateBytes, Begins: n.ContinuesFrom, Executor: n.Executor, GPUs: n.Resources.GPUs, CPUs: n.Resources.CPUs,
			Memory: n.Resources.Memory, GPUMemory: n.Resources.GPUMemory, File: n.Range.Filename, Line: n.Range.Start.Line,
		}
		if n.Cause.Reason != engine.ReasonNone {
			j.Cause = &n.Cause
		}
		if at, ok := f.Placements[n]; ok {
			j.Placement = &placementJSON{at.Executor, at.CPUs, at.GPUs, at.Start.Seconds(), at.Unfit}
		}
		if plan, ok := memoryOf(n, f); ok {
			j.Needs = &memoryJSON{Bytes: plan.Bytes, Has: f.Placements[n].Memory, Text: plan.Text}
			if plan.Unfit != nil {
				j.Needs.Unfit = plan.Unfit.Error()
			}
		}
		for _, in := range n.Inputs {
			j.Inputs = append(j.Inputs, planInputJSON{in.Setting, in.From.Address, in.Ref.Port})
		}
		for _, a := range n.DependsOn {
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
