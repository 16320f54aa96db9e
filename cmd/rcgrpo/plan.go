package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize/english"
	"github.com/mitchellh/go-wordwrap"
	"github.com/spf13/cobra"

	"rcgrpo/cmd/rcgrpo/internal/output"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
	"rcgrpo/engine/slurm"
	"rcgrpo/stages"
)

func planCommand() *cobra.Command {
	c := newExperimentCommand("plan [EXP]", "Show which stages would run, why, and how long they take", oneExperiment)
	var o plan.Options
	asJSON := c.Flags().Bool("json", false, "print JSON")
	detailed := c.Flags().Bool("detailed-exitcode", false, "exit with 2 if a stage would run")
	all := c.Flags().Bool("all", false, "also list stages that are up to date")
	queue := c.Flags().Bool("queue", false, "ask Slurm when the jobs would start, with sbatch --test-only")
	c.MarkFlagsMutuallyExclusive("json", "queue")
	c.planFlags(&o)
	return c.does(func(args []string) error {
		if !*asJSON {
			c.writeOverrides(c.source.Sets)
		}
		p, err := c.newPlan(args, o)
		if err != nil {
			return err
		}
		forecast := p.Forecast(context.Background())
		if *asJSON {
			if err := writePlanJSON(c.stdout(), p, forecast); err != nil {
				return err
			}
		} else {
			width, _ := output.TerminalSize(c.stdout())
			writePlan(c.stdout(), p, forecast, planLayout{*all, output.Colored(c.stdout()), cmp.Or(width, math.MaxInt)})
		}
		if *queue {
			writeQueue(c.stdout(), p)
		}
		if *detailed && p.Changes() {
			return exitCode(exitChanges)
		}
		return nil
	})
}

// writeQueue prints when Slurm would start the jobs of a plan.
func writeQueue(w io.Writer, p *plan.Plan) {
	expected := map[*lang.Node]time.Duration{}
	nodes := map[string][]*lang.Node{}
	for _, n := range p.Nodes {
		if name := p.Experiment.Site.ExecutorOf(n.Node); executes(n.Verb) && n.Submitted() {
			nodes[name], expected[n.Node] = append(nodes[name], n.Node), n.Estimate
		}
	}
	estimate := func(n *lang.Node) time.Duration { return expected[n] }
	for _, name := range slices.Sorted(maps.Keys(p.Experiment.Site.Slurm)) {
		x := slurm.NewExecutor(p.Experiment.Site.Slurm[name])
		for _, s := range x.Starts(context.Background(), nodes[name], estimate) {
			stages := lang.TrimStage(s.Nodes[0].Address)
			if more := len(s.Nodes) - 1; more > 0 {
				stages += fmt.Sprintf(" and %s of equal jobs", english.Plural(more, "stage", ""))
			}
			if s.Err != nil {
				fmt.Fprintf(w, "Queue of executor %q, %s: %v\n", name, stages, s.Err)
				continue
			}
			fmt.Fprintf(w, "Queue of executor %q, %s: a job submitted now starts %s at the latest.\n", name, stages,
				s.At.Format("Mon 2 Jan 15:04"))
		}
	}
}

// planLine is one line of a plan: the nodes of an instance with the same verb and cause.
type planLine struct {
	verb   plan.Verb
	stem   string // address without seed
	seeds  []string
	cause  string        // why the nodes run, and the shorter result that they continue
	expect time.Duration // sum of the estimates
	known  bool          // every node has an estimate
	start  time.Duration // when the first node starts
	gpus   []string      // GPUs of all nodes
}

// planLines groups the nodes of a plan: seeds of an instance with the same verb and cause share a line.
func planLines(p *plan.Plan, f plan.Forecast) (lines []*planLine) {
	type identity struct{ verb, stem, cause string }
	index := map[identity]*planLine{}
	for _, n := range p.Nodes {
		stem, seed, seeded := strings.Cut(n.Address, "@")
		cause := n.Cause.String()
		if seeded {
			cause = strings.NewReplacer("@"+seed+")", ")", "@"+seed+",", ",").Replace(cause)
		}
		if n.ContinuesFrom != "" {
			cause += "; " + n.ContinuesFrom
		}
		if n.Verb == plan.Fetch {
			cause = fetchText(p, n)
		}
		id := identity{string(n.Verb), stem, cause}
		l := index[id]
		if l == nil {
			l = &planLine{verb: n.Verb, stem: stem, cause: cause, known: true, start: math.MaxInt64}
			index[id] = l
			lines = append(lines, l)
		}
		if at, ok := f.Placements[n]; ok && at.Unfit == "" {
			l.start = min(l.start, at.Start)
			l.gpus = slices.Compact(slices.Sorted(slices.Values(append(l.gpus, at.GPUs...))))
		}
		if seeded {
			l.seeds = append(l.seeds, seed)
		}
		l.expect += n.Estimate
		l.known = l.known && n.Estimate > 0
	}
	return lines
}

func (l *planLine) address() string {
	if len(l.seeds) == 0 {
		return l.stem
	}
	return l.stem + "@" + strings.Join(l.seeds, ",")
}

// executes reports whether a run executes, or may execute, a stage with the verb.
func executes(v plan.Verb) bool { return v == plan.MustRun || v == plan.MayRun }

// fetchText returns the size of what a run fetches for a node, and the expected time.
func fetchText(p *plan.Plan, n *plan.Planned) string {
	from := "from " + p.Remote.Name + ": "
	if len(n.FetchPorts) == 0 {
		return from + "the manifest; no stage that runs reads its bytes"
	}
	return from + strings.Join(n.FetchPorts, ", ") + ", " + lang.BytesText(n.FetchBytes())
}

// minDuration is the shortest expected time that a plan mentions.
const minDuration = 100 * time.Millisecond

// cost returns the time, GPUs and start of a line that runs; "" if they are unknown.
func (l *planLine) cost() string {
	if !l.known || l.expect < minDuration || !executes(l.verb) {
		return ""
	}
	text := "~" + runs.DurationText(l.expect.Seconds())
	if len(l.gpus) > 0 {
		text += " on GPU " + strings.Join(l.gpus, ",")
	}
	if l.start >= minDuration && l.start < math.MaxInt64 {
		text += " from " + runs.DurationText(l.start.Seconds())
	}
	return text
}

// note returns the text after the address: cause and cost.
func (l *planLine) note() string { return strings.TrimSpace(l.cause + "  " + l.cost()) }

// planLayout configures the text of a plan.
type planLayout struct {
	all, color bool
	width      int // of the terminal
}

const verbWidth = len(plan.MayRun) + 2

var verbColor = map[plan.Verb]string{
	plan.MustRun: "33", plan.Fetch: "34", plan.MayRun: "36", plan.NotHere: "2", plan.UpToDate: "32",
}

// writePlan prints a plan for people. Without all, it only counts the stages that are up to date.
func writePlan(w io.Writer, p *plan.Plan, f plan.Forecast, o planLayout) {
	var shown []*planLine
	width := 0
	for _, l := range planLines(p, f) {
		if !o.all && !executes(l.verb) && l.verb != plan.Fetch {
			continue
		}
		shown = append(shown, l)
		n := utf8.RuneCountInString(l.address())
		if verbWidth+n+10 <= o.width { // a long address does not widen the column
			width = max(width, n)
		}
	}
	for _, l := range shown {
		o.writeLine(w, l, width)
	}
	writeDisabled(w, p.Experiment.Disabled, len(shown) > 0)
	lines := []string{planSummary(p, f)}
	if line := costLine(p); line != "" {
		lines = append(lines, line)
	}
	if names := p.Unlike(); len(names) > 0 {
		if more := len(names) - 3; more > 0 {
			names = append(names[:3:3], english.Plural(more, "other", ""))
		}
		lines = append(lines, "Missing, edited or outdated: "+english.WordSeries(names, "and")+
			". A run publishes these files again, except for edited ones.")
	}
	for _, line := range append(lines, limitLines(p, f)...) {
		fmt.Fprintln(w, wordwrap.WrapString(line, uint(o.width)))
	}
}

// writeLine prints a line with its address in a column of the given width. A note that does not fit goes below.
func (o planLayout) writeLine(w io.Writer, l *planLine, width int) {
	verb := fmt.Sprintf("%-*s", verbWidth, l.verb)
	if o.color {
		verb = "\x1b[" + verbColor[l.verb] + "m" + verb + "\x1b[0m"
	}
	line := strings.TrimRight(fmt.Sprintf("%-*s  %s", width, l.address(), l.note()), " ")
	if verbWidth+utf8.RuneCountInString(line) <= o.width {
		fmt.Fprintln(w, verb+line)
		return
	}
	fmt.Fprintln(w, verb+l.address())
	fmt.Fprintln(w, "    "+strings.ReplaceAll(wordwrap.WrapString(l.note(), uint(o.width-4)), "\n", "\n    "))
}

// writeDisabled lists the instances that `enabled` excludes. A blank line ends a list of nodes.
func writeDisabled(w io.Writer, disabled []string, listed bool) {
	for _, a := range disabled {
		fmt.Fprintf(w, "%-*s%s\n", verbWidth, "disabled", a)
	}
	if listed || len(disabled) > 0 {
		fmt.Fprintln(w)
	}
}

func planCounts(experiment string, counts map[string]int) string {
	var parts []string
	for _, v := range []plan.Verb{plan.UpToDate, plan.NotHere, plan.Fetch, plan.MustRun, plan.MayRun} {
		if n := counts[string(v)]; n > 0 {
			word := strings.NewReplacer("run", "to run", "fetch", "to fetch").Replace(string(v))
			parts = append(parts, fmt.Sprintf("%d %s", n, word))
		}
	}
	if len(parts) == 0 {
		parts = []string{"no stages"}
	}
	return experiment + ": " + strings.Join(parts, ", ") + "."
}

// planSummary returns the last line: nodes per verb, and the estimated cost.
func planSummary(p *plan.Plan, f plan.Forecast) string {
	text := planCounts(p.Experiment.Name, p.Counts())
	if f.Work >= minDuration {
		text += " About " + runs.DurationText(f.Work.Seconds()) + " of stage time"
		if f.Wall < f.Work-f.Work/20 {
			text += ", finished after " + runs.DurationText(f.Wall.Seconds())
		}
		if f.GPUHours >= 0.005 {
			text += fmt.Sprintf(", %.3g GPU hours (%s)", f.GPUHours, hoursFrom(f))
		}
		if f.Bytes > 0 {
			text += ", " + lang.BytesText(f.Bytes) + " of disk"
		}
		if f.Unknown > 0 {
			text += fmt.Sprintf(", without %d never run before", f.Unknown)
		}
		text += "."
	}
	if f.FetchBytes > 0 {
		text += " " + lang.BytesText(f.FetchBytes) + " to fetch."
	}
	if n := len(p.Experiment.Nodes) - len(p.Nodes); n > 0 {
		text += fmt.Sprintf(" --target excludes %s.", english.Plural(n, "other", ""))
	}
	return text
}

// hoursFrom names the sources of the forecast GPU hours.
func hoursFrom(f plan.Forecast) string {
	const measured, stated = "measured in earlier runs", "at most, by gpu_tokens_per_second of the site file, with " +
		"episodes of the maximal length"
	switch rest := f.GPUHours - f.Stated; {
	case f.Stated == 0:
		return measured
	case rest < 0.005:
		return stated
	default:
		return fmt.Sprintf("%.3g %s and %.3g %s", rest, measured, f.Stated, stated)
	}
}

// callCost returns the expected dollars of the calls of a node that runs: those of its recorded run, else an estimate.
// ok is false if they are unknown; the error is that of an unknown price.
func callCost(p *plan.Plan, n *plan.Planned) (dollars float64, ok bool, err error) {
	if !executes(n.Verb) {
		return 0, false, nil
	}
	if n.Last != nil && n.Last.Outputs["calls"].Type != "" {
		if a, err := p.Store.Open(n.Last, "calls"); err == nil {
			if dollars, ok := stages.RecordedCost(a.ReadJSON); ok {
				return dollars, true, nil
			}
		}
	}
	return stages.CallCost(n.Node, p.Experiment.Site)
}

// costLine returns the line about the expected cost of API calls; "" without calls.
func costLine(p *plan.Plan) string {
	var parts, unknown []string
	total := 0.0
	for _, n := range p.Nodes {
		dollars, ok, err := callCost(p, n)
		switch {
		case err != nil:
			unknown = append(unknown, fmt.Sprintf("%s: %v.", lang.TrimStage(n.Address), err))
		case ok:
			total += dollars
			parts = append(parts, fmt.Sprintf("%s $%.2f", lang.TrimStage(n.Address), dollars))
		}
	}
	line := ""
	if len(parts) > 0 {
		line = fmt.Sprintf("API calls: about $%.2f (%s), by recorded runs, else by 4 bytes per token and 300 tokens per "+
			"reply.", total, strings.Join(parts, ", "))
	}
	if len(unknown) > 0 {
		line = strings.TrimSpace(line + " Unknown cost: " + strings.Join(unknown, " "))
	}
	return line
}

// memoryWarningThreshold: plan mentions memory only when a stage needs at least this much.
const memoryWarningThreshold = 1 << 30

// limitLines returns a line for the stage that needs most memory, one for each advised setting, and one for each reason
// why stages cannot run here.
func limitLines(p *plan.Plan, f plan.Forecast) (lines []string) {
	var most stages.MemoryPlan
	var of string
	var reasons, advised []string
	unfit, open := map[string][]string{}, map[string][]string{} // addresses without seeds, by reason and by advice
	for _, n := range p.Nodes {
		stem, _, _ := strings.Cut(n.Address, "@")
		if advice := adviceOf(n); advice != "" {
			advised = append(advised, advice)
			open[advice] = append(open[advice], stem)
		}
		why := f.Placements[n].Unfit
		if m, ok := memoryOf(n, f); ok && m.Unfit != nil {
			stem, why = stem+":", m.Unfit.Error()
		} else if ok && m.Bytes > most.Bytes {
			most, of = m, stem
		}
		if why != "" {
			reasons = append(reasons, why)
			unfit[why] = append(unfit[why], stem)
		}
	}
	if most.Bytes >= memoryWarningThreshold {
		where := ""
		switch {
		case most.GPUs == 1:
			where = " on its device"
		case most.GPUs > 1:
			where = fmt.Sprintf(" on each of %d devices", most.GPUs)
		case most.Ranks > 1:
			where = fmt.Sprintf(" in each of %d processes", most.Ranks)
		}
		total, parts, _ := strings.Cut(most.Text, ":")
		lines = append(lines, fmt.Sprintf("Most memory: %s takes %s%s:%s.", of, total, where, parts))
	}
	for _, advice := range unique(advised) {
		lines = append(lines, "Advice: "+withOthers(unique(open[advice]), ": "+advice))
	}
	for _, why := range unique(reasons) {
		lines = append(lines, "Cannot run here: "+withOthers(unique(unfit[why]), " "+why))
	}
	return lines
}

// withOthers returns a sentence about the first of several stages, which holds for the others too.
func withOthers(stems []string, what string) string {
	line := stems[0] + what
	if len(stems) > 1 {
		line += "; " + english.Plural(len(stems)-1, "other stage", "") + " too"
	}
	return line + "."
}

// adviceOf returns the advice for a stage that runs or may run.
func adviceOf(n *plan.Planned) string {
	if !executes(n.Verb) {
		return ""
	}
	return stages.Advice(n.Node)
}

// unfitMemory returns an error for a stage whose model does not fit into the memory of its device.
func unfitMemory(p *plan.Plan) error {
	f := p.Forecast(context.Background())
	for _, n := range p.Nodes {
		if memory, ok := memoryOf(n, f); ok && memory.Unfit != nil {
			return fmt.Errorf("%s: %w", n.Address, memory.Unfit)
		}
	}
	return nil
}

func memoryOf(n *plan.Planned, f plan.Forecast) (stages.MemoryPlan, bool) {
	at, ok := f.Placements[n]
	if !ok || at.Unfit != "" {
		return stages.MemoryPlan{}, false
	}
	return stages.Memory(n.Node, at.Memory, at.HostMemory)
}

// planJSON is the output of `plan --json`. Fields may be added; their meaning does not change while format is 1.
type planJSON struct {
	Format     int            `json:"format"`
	Experiment string         `json:"experiment"`
	Store      string         `json:"store"`
	Seeds      []int64        `json:"seeds"`
	Changes    bool           `json:"changes"`
	Counts     map[string]int `json:"counts"`
	Nodes      []planNodeJSON `json:"nodes"`
	Overrides  []string       `json:"overrides,omitempty"` // --set
	Disabled   []string       `json:"disabled,omitempty"`
	Unlike     []string       `json:"unlike,omitempty"` // published copies that are missing, edited or outdated
	Forecast   forecastJSON   `json:"forecast"`
}

type planNodeJSON struct {
	Address   string            `json:"address"`
	Kind      string            `json:"kind"`
	Seed      *int64            `json:"seed,omitempty"`
	Verb      plan.Verb         `json:"verb"`
	Cause     *plan.Cause       `json:"cause,omitempty"`
	Key       string            `json:"key,omitempty"`
	Inputs    []planInputJSON   `json:"inputs,omitempty"`
	After     []string          `json:"after,omitempty"`
	Outputs   map[string]string `json:"outputs,omitempty"` // port -> artifact type
	Digests   map[string]string `json:"digests,omitempty"` // port -> SHA-256, if recorded
	Expect    float64           `json:"expect_seconds,omitempty"`
	Bytes     int64             `json:"expect_bytes,omitempty"`
	Fetch     *fetchJSON        `json:"fetch,omitempty"`          // of nodes with the verb fetch
	Dollars   float64           `json:"expect_dollars,omitempty"` // of API calls
	Placement *placementJSON    `json:"placement,omitempty"`      // of nodes that run or may run
	Begins    string            `json:"begins,omitempty"`
	Advice    string            `json:"advice,omitempty"`      // a setting that the stage is advised to change
	Needs     *memoryJSON       `json:"memory_plan,omitempty"` // of nodes that run a model of known shape
	Executor  string            `json:"executor,omitempty"`
	GPUs      int               `json:"gpus,omitempty"`
	CPUs      int               `json:"cpus,omitempty"`
	Memory    int64             `json:"memory_bytes,omitempty"`
	GPUMemory int64             `json:"gpu_memory_bytes,omitempty"`
	File      string            `json:"file"`
	Line      int               `json:"line"`
}

// fetchJSON is what a run fetches from the remote store.
type fetchJSON struct {
	Remote string   `json:"remote"`
	Ports  []string `json:"ports"` // whose bytes a run needs; none: only the manifest
	Bytes  int64    `json:"fetch_bytes"`
}

// memoryJSON is the memory that a node needs on its device.
type memoryJSON struct {
	Bytes int64  `json:"bytes"`               // on each device
	Has   int64  `json:"has_bytes,omitempty"` // absent if unknown
	Host  int64  `json:"host_bytes,omitempty"`
	Text  string `json:"text"`
	Unfit string `json:"unfit,omitempty"`
}

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
	Stated   float64 `json:"stated_gpu_hours,omitempty"` // of these, from the throughput that the site file states
	Bytes    int64   `json:"disk_bytes"`
	Unknown  int     `json:"unknown"` // nodes without an estimate; not part of the sums

	FetchBytes int64 `json:"fetch_bytes,omitempty"`
}

type planInputJSON struct {
	Setting string `json:"setting"`
	Address string `json:"address"`
	Port    string `json:"port"`
}

func digests(m *artifact.Manifest) map[string]string {
	byPort := map[string]string{}
	for port, o := range m.Outputs {
		byPort[port] = o.Digest
	}
	return byPort
}

func writePlanJSON(w io.Writer, p *plan.Plan, f plan.Forecast) error {
	out := planJSON{
		1, p.Experiment.Name, p.Store.Dir(), p.Experiment.Seeds, p.Changes(), p.Counts(), []planNodeJSON{},
		p.Experiment.Source.Sets, p.Experiment.Disabled, p.Unlike(),
		forecastJSON{f.Wall.Seconds(), f.Work.Seconds(), f.GPUHours, f.Stated, f.Bytes, f.Unknown, f.FetchBytes},
	}
	for _, n := range p.Nodes {
		j := planNodeJSON{
			Address: n.Address, Kind: n.Kind.Name, Seed: n.Seed, Verb: n.Verb, Key: n.Key, Outputs: n.Outputs,
			Expect: n.Estimate.Seconds(), Bytes: n.EstimateBytes, Begins: n.ContinuesFrom, Advice: adviceOf(n),
			Executor: n.Executor, GPUs: n.Resources.GPUs, CPUs: n.Resources.CPUs, Memory: n.Resources.Memory,
			GPUMemory: n.Resources.GPUMemory, File: n.Range.Filename, Line: n.Range.Start.Line,
		}
		j.Dollars, _, _ = callCost(p, n)
		if n.Cause.Reason != plan.ReasonNone {
			j.Cause = &n.Cause
		}
		if n.Verb == plan.Fetch {
			j.Fetch = &fetchJSON{p.Remote.Name, append([]string{}, n.FetchPorts...), n.FetchBytes()}
		}
		if at, ok := f.Placements[n]; ok {
			j.Placement = &placementJSON{at.Executor, at.CPUs, at.GPUs, at.Start.Seconds(), at.Unfit}
		}
		if memory, ok := memoryOf(n, f); ok {
			j.Needs = &memoryJSON{Bytes: memory.Bytes, Has: f.Placements[n].Memory, Host: memory.Host, Text: memory.Text}
			if memory.Unfit != nil {
				j.Needs.Unfit = memory.Unfit.Error()
			}
		}
		for _, in := range n.Inputs {
			j.Inputs = append(j.Inputs, planInputJSON{in.Setting, in.From.Address, in.Ref.Port})
		}
		for _, a := range n.DependsOn {
			j.After = append(j.After, a.Address)
		}
		if n.Manifest != nil {
			j.Digests = digests(n.Manifest)
		}
		slices.Sort(j.After)
		out.Nodes = append(out.Nodes, j)
	}
	return output.JSON(w, out)
}
