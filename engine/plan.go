package engine

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/artifact"
)

// Plan says for every node of an experiment what a run would do with it and why.
type Plan struct {
	Experiment *Experiment
	Store      *artifact.Store
	Nodes      []*Planned // topological; with targets only those and what they read

	paranoid   bool
	options    PlanOptions
	collection string                        // Store.LastCollection when the plan was begun
	ahead      map[*Node]found               // while planning: what was looked up already
	copies     *copies                       // what is published
	recorded   map[string]*artifact.Finished // by key: what a run of this plan has made in this process
}

// Planned is a node with its verdict.
type Planned struct {
	*Node
	Verb          Verb
	Cause         Cause
	Causes        []Cause            // every difference from what was committed last, Cause being the first
	Key           string             // "" while an input is still to be built
	Manifest      *artifact.Manifest // of UpToDate and Collected
	Last          *artifact.Manifest // what this address committed last, nil when new
	Force         bool               // -replace: runs although the store has its key
	DuplicateOf   *Planned           // the node before it that has the same key and runs, so that this one is kept
	ContinuesFrom string             // what a run would go on from, or why it cannot; "" where there is nothing

	// Expected of a run, from what this address took last, else from the recorded runs most like it; 0: unknown.
	Estimate      time.Duration
	EstimateBytes int64 // of its results

	absent artifact.Parts // of Key, when the store had nothing under it
}

// Verb is what a run would do with a node.
type Verb string

const (
	UpToDate  Verb = "up to date"
	MustRun   Verb = "run"
	MayRun    Verb = "run unless unchanged" // an input is going to be rebuilt
	Collected Verb = "collected"            // manifest known, bytes gone, nobody who runs reads them
)

// Cause is the smallest reason for a Verb.
type Cause struct {
	Reason Reason
	Text   string    // `settings.lr 1e-5 → 2e-5`
	Range  hcl.Range // where the value stands now; zero when no place is to blame
}

// Reason is the closed list of causes, for programs.
type Reason string

const (
	ReasonNone      Reason = ""
	ReasonNew       Reason = "new"       // this address has never been committed
	ReasonSetting   Reason = "setting"   // a value or a file's content differs
	ReasonInput     Reason = "input"     // an input has other content, or may get it
	ReasonVersion   Reason = "version"   // the kind's version differs
	ReasonSeed      Reason = "seed"      // it draws with another seed
	ReasonMissing   Reason = "missing"   // recorded, but its bytes are damaged or gone
	ReasonCollected Reason = "collected" // gc removed the bytes and something that runs reads them
	ReasonRequested Reason = "requested" // -replace
	ReasonDuplicate Reason = "twin"      // another node of the plan has the same key and runs first
)

// PlanOptions narrow or force a plan.
type PlanOptions struct {
	Targets []string // addresses (Experiment.Find); only these and what they read
	Replace []string // addresses that run although they are up to date

	// DataOnly leaves out the stages that no target reads: those that come in by depends_on alone.
	DataOnly bool

	// Paranoid reads every result that is up to date, and every published copy, and compares contents, where otherwise one
	// look at the time stamps is enough. Inputs from outside are the affair of Source.Paranoid.
	Paranoid bool
}

// NewPlan compares the nodes of an experiment with the store. It writes nothing, and its time is linear in nodes and edges.
func NewPlan(x *Experiment, store *artifact.Store, o PlanOptions) (*Plan, error) {
	if x.broken {
		return nil, fmt.Errorf("experiment %s has mistakes and cannot be planned", x.Name)
	}
	wanted, err := x.targets(o.Targets, o.DataOnly)
	if err != nil {
		return nil, err
	}
	forced := map[*Node]bool{}
	for _, address := range o.Replace {
		nodes, err := x.Find(address)
		if err != nil {
			return nil, err
		}
		for _, n := range nodes {
			forced[n] = true
		}
	}
	p := &Plan{Experiment: x, Store: store, paranoid: o.Paranoid, options: o, collection: store.LastCollection(), copies: openCopies(store),
		recorded: map[string]*artifact.Finished{}}
	if err := p.copies.refresh(); err != nil {
		return nil, err
	}
	planned := make(map[*Node]*Planned, len(x.Nodes))
	p.lookAhead(wanted)
	for _, n := range x.Nodes {
		if wanted != nil && !wanted[n] {
			continue
		}
		d, err := p.decide(n, planned, forced[n])
		if err != nil {
			return nil, fmt.Errorf("plan %s: %w", n.Address, err)
		}
		planned[n] = d
		p.Nodes = append(p.Nodes, d)
	}
	p.ahead = nil
	p.findDuplicates()
	p.rebuildCollected(planned)
	p.estimate()
	return p, nil
}

// targets returns the nodes of the addresses with all they need, or with all they read where dataOnly is true; nil, for
// all, without addresses.
func (x *Experiment) targets(addresses []string, dataOnly bool) (map[*Node]bool, error) {
	if len(addresses) == 0 {
		return nil, nil
	}
	wanted := map[*Node]bool{}
	var want func(n *Node)
	want = func(n *Node) {
		if wanted[n] {
			return
		}
		wanted[n] = true
		for _, in := range n.Inputs {
			want(in.From)
		}
		if dataOnly {
			return
		}
		for _, from := range n.DependsOn {
			want(from)
		}
	}
	for _, address := range addresses {
		nodes, err := x.Find(address)
		if err != nil {
			return nil, err
		}
		for _, n := range nodes {
			want(n)
		}
	}
	return wanted, nil
}

// found is what the store says about a node.
type found struct {
	result  *artifact.Manifest // of its key
	err     error
	last    *artifact.Manifest // of its address; looked up where there is no result
	lastErr error
}

// lookAhead looks up the nodes that read no other, several at once; those that do need the results of these first.
func (p *Plan) lookAhead(wanted map[*Node]bool) {
	var nodes []*Node
	for _, n := range p.Experiment.Nodes {
		if len(n.Inputs) == 0 && (wanted == nil || wanted[n]) {
			nodes = append(nodes, n)
		}
	}
	results := make([]found, len(nodes))
	every(len(nodes), manyReads, func(i int) bool {
		key, _, _ := nodes[i].Key(nil)
		f := &results[i]
		if f.result, f.err = p.lookup(nodes[i], key); f.err != nil {
			f.last, f.lastErr = p.last(nodes[i])
		}
		return true
	})
	p.ahead = make(map[*Node]found, len(nodes))
	for i, n := range nodes {
		p.ahead[n] = results[i]
	}
}

// last asks the store what was committed last for a node's address.
func (p *Plan) last(n *Node) (*artifact.Manifest, error) {
	if f, ok := p.ahead[n]; ok && f.err != nil {
		return f.last, f.lastErr
	}
	return p.Store.Last(p.Experiment.Name, n.Address)
}

// lookup asks the store for the result of a node's key.
func (p *Plan) lookup(n *Node, key string) (*artifact.Manifest, error) {
	if f, ok := p.ahead[n]; ok {
		return f.result, f.err
	}
	m, err := p.Store.Lookup(key)
	if err == nil && p.paranoid {
		err = p.Store.Verify(m)
	}
	return m, err
}

// decide gives a node its verb, after those it reads have theirs.
func (p *Plan) decide(n *Node, planned map[*Node]*Planned, force bool) (*Planned, error) {
	d := &Planned{Node: n, Force: force}
	key, parts, ok := n.Key(func(from *Node, port string) (string, bool) {
		up := planned[from]
		if up.Verb != UpToDate && up.Verb != Collected {
			return "", false
		}
		output, ok := up.Manifest.Outputs[port]
		return output.Digest, ok
	})
	var damage *artifact.DamageError
	if ok {
		d.Key = key
		m, err := p.lookup(n, key)
		switch {
		case err == nil && !force:
			d.Verb, d.Manifest = UpToDate, m
			d.remember(m)
			return d, nil
		case errors.Is(err, artifact.ErrCollected) && !force:
			d.Verb, d.Manifest = Collected, m
			d.remember(m)
			return d, nil
		case errors.As(err, &damage):
			d.Verb = MustRun
			d.remember(m)
			d.Cause = Cause{Reason: ReasonMissing, Text: fmt.Sprintf("its file %s is %s", filepath.Base(damage.File), damage.What)}
			return d, nil
		case err != nil && m == nil && !errors.Is(err, artifact.ErrNotFound):
			return nil, err
		}
		if errors.Is(err, artifact.ErrNotFound) {
			d.absent = parts
		}
	}
	last, err := p.last(n)
	if err != nil && !errors.Is(err, artifact.ErrNotFound) {
		return nil, err
	}
	d.remember(last)
	d.Causes = n.causes(last, parts, ok)
	d.Verb, d.Cause = MustRun, smallest(d.Causes)
	if ok {
		if d.ContinuesFrom, err = n.continuesFrom(p.Store, parts, last); err != nil {
			return nil, err
		}
	}
	switch {
	case force:
		d.Cause = Cause{Reason: ReasonRequested, Text: "asked for with -replace"}
	case !ok && (d.Cause.Reason == ReasonNone || p.keptIfUnchanged(n, planned)):
		d.Verb = MayRun
		d.Cause = n.waits(planned)
	}
	return d, nil
}

// keptIfUnchanged says whether the store has a result for n, made earlier, in case its inputs come out as they were.
func (p *Plan) keptIfUnchanged(n *Node, planned map[*Node]*Planned) bool {
	key, _, ok := n.Key(func(from *Node, port string) (string, bool) {
		up := planned[from]
		m := up.Manifest
		if m == nil {
			m = up.Last
		}
		if m == nil {
			return "", false
		}
		output, ok := m.Outputs[port]
		return output.Digest, ok
	})
	if !ok {
		return false
	}
	_, err := p.Store.Lookup(key)
	return err == nil
}

// remember takes over what was committed last, and what that took.
func (d *Planned) remember(m *artifact.Manifest) {
	if d.Last = m; m != nil {
		d.Estimate, d.EstimateBytes = seconds(m), m.Bytes()
	}
}

func seconds(m *artifact.Manifest) time.Duration {
	if m == nil {
		return 0
	}
	return time.Duration(m.Seconds * float64(time.Second))
}

// collected says that gc removed the bytes and that nothing is certain to need them.
func (d *Planned) collected() bool {
	return d.Verb == Collected || d.Verb == MayRun && d.Cause.Reason == ReasonCollected
}

// rebuildCollected turns collected results into work where something that runs reads them.
func (p *Plan) rebuildCollected(planned map[*Node]*Planned) {
	for _, d := range slices.Backward(p.Nodes) {
		if d.Verb != MustRun && d.Verb != MayRun {
			continue
		}
		for _, in := range d.Inputs {
			up := planned[in.From]
			switch {
			case up.Verb == Collected && d.Verb == MayRun:
				up.Verb = MayRun
				up.Cause = Cause{Reason: ReasonCollected, Text: fmt.Sprintf("gc removed its bytes, and %s may read it", d.Address)}
			case up.collected() && d.Verb == MustRun:
				up.Verb = MustRun
				up.Cause = Cause{Reason: ReasonCollected, Text: fmt.Sprintf("%s reads it, and gc removed its bytes", d.Address)}
			}
		}
	}
}

// findDuplicates finds nodes that run under one key: the first does, the others find its result.
func (p *Plan) findDuplicates() {
	first := map[string]*Planned{}
	for _, d := range p.Nodes {
		if d.Verb != MustRun || d.Key == "" || d.Force {
			continue
		}
		if twin := first[d.Key]; twin != nil {
			d.DuplicateOf, d.Verb = twin, MayRun
			d.Cause = Cause{Reason: ReasonDuplicate, Text: fmt.Sprintf("the same as %s, which runs", twin.Address)}
			continue
		}
		first[d.Key] = d
	}
}

// waits is the cause of a node whose inputs may change: the first that is going to be rebuilt.
func (n *Node) waits(planned map[*Node]*Planned) Cause {
	for _, in := range n.Inputs {
		if v := planned[in.From].Verb; v != UpToDate && v != Collected {
			return Cause{Reason: ReasonInput, Text: fmt.Sprintf("input %s may change (%s)", in.Setting, in.From.Address), Range: in.Range}
		}
	}
	return Cause{}
}

// smallest is the first of the causes, with the number of the others.
func smallest(causes []Cause) Cause {
	if len(causes) == 0 {
		return Cause{}
	}
	first := causes[0]
	if len(causes) > 1 {
		first.Text += fmt.Sprintf(" and %d more", len(causes)-1)
	}
	return first
}

// causes names the differences between the parts recorded for an address and those of now: version, settings in their
// order, seed, inputs. Inputs that are not known yet are left out. Without a difference there is none, unless all is
// known and the record itself is gone.
func (n *Node) causes(last *artifact.Manifest, parts artifact.Parts, complete bool) []Cause {
	if last == nil {
		return []Cause{{Reason: ReasonNew, Text: "new", Range: n.Range}}
	}
	var found []Cause
	add := func(c Cause) {
		if c.Range.Filename == "" { // a default, which no line names
			c.Range = n.Range
		}
		found = append(found, c)
	}
	if had, have := last.Parts["version"], parts["version"]; had != have {
		add(Cause{Reason: ReasonVersion, Text: fmt.Sprintf("version %s → %s", had, have)})
	}
	seen := map[string]bool{"kind": true, "version": true, "seed": true}
	for _, s := range n.Settings {
		name := "settings." + s.Name
		seen[name] = true
		had, known := last.Parts[name]
		switch {
		case !s.InKey || known && had == s.Value:
		case s.Path != "" && known:
			add(Cause{ReasonSetting, fmt.Sprintf("%s: content of %s changed", name, filepath.Base(s.Path)), s.Range})
		default:
			add(Cause{ReasonSetting, name + " " + formatChange(had, known, s.Value), s.Range})
		}
	}
	if had, have := last.Parts["seed"], parts["seed"]; had != have {
		add(Cause{ReasonSeed, fmt.Sprintf("seed %s → %s", cmp.Or(had, "none"), cmp.Or(have, "none")), n.Range})
	}
	for _, in := range n.Inputs {
		name := inputPart(in.Setting)
		seen[name] = true
		have, settled := parts[name]
		had, known := last.Parts[name]
		switch {
		case !known:
			add(Cause{ReasonInput, fmt.Sprintf("input %s is new (%s)", in.Setting, in.From.Address), in.Range})
		case settled && had != have:
			add(Cause{ReasonInput, fmt.Sprintf("input %s changed (%s)", in.Setting, in.From.Address), in.Range})
		}
	}
	var gone []string
	for name := range last.Parts {
		if !seen[name] {
			gone = append(gone, name)
		}
	}
	slices.Sort(gone)
	for _, name := range gone {
		if setting, ok := strings.CutPrefix(name, "input."); ok {
			add(Cause{ReasonInput, fmt.Sprintf("input %s is gone", setting), n.Range})
			continue
		}
		add(Cause{ReasonSetting, fmt.Sprintf("%s %s → (none)", name, formatValue(last.Parts[name], true)), n.Range})
	}
	if len(found) == 0 && complete {
		return []Cause{{Reason: ReasonMissing, Text: "its record is gone from the store"}}
	}
	return found
}

// longestShown is how much of a value is shown, in characters.
const longestShown = 48

// change writes an old value and a new one. Of long ones the beginning that they share is left out, so that what differs
// is seen.
func formatChange(had string, known bool, have string) string {
	from, to := []rune(had), []rune(have)
	const context = 12
	if n := commonPrefix(had, have); known && n < len(had) && max(len(from), len(to)) > longestShown {
		if skip := len([]rune(strings.ToValidUTF8(had[:n], ""))) - context; skip > context {
			return "…" + formatValue(string(from[skip:]), true) + " → …" + formatValue(string(to[skip:]), true)
		}
	}
	return formatValue(had, known) + " → " + formatValue(have, true)
}

// shown writes the canonical value of a part as a person would: 1e-5 rather than 0.00001, long texts cut.
func formatValue(value string, known bool) string {
	if !known {
		return "(none)"
	}
	if x, err := strconv.ParseFloat(value, 64); err == nil && x != 0 && (x < 1e-3 && x > -1e-3) {
		mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(x, 'e', -1, 64), "e-")
		return mantissa + "e-" + strings.TrimLeft(exponent, "0")
	}
	if text := []rune(value); len(text) > longestShown {
		return string(text[:longestShown-1]) + "…"
	}
	return value
}

// String is the cause with its place: `settings.lr 1e-5 → 2e-5 (ablation.hcl:14)`.
func (c Cause) String() string {
	if c.Range.Filename == "" || c.Reason == ReasonNew || c.Reason == ReasonInput || c.Reason == ReasonVersion {
		return c.Text
	}
	return fmt.Sprintf("%s (%s)", c.Text, place(c.Range))
}

// MarshalJSON gives reason, text and place.
func (c Cause) MarshalJSON() ([]byte, error) {
	out := struct {
		Reason Reason `json:"reason,omitempty"`
		Text   string `json:"text,omitempty"`
		File   string `json:"file,omitempty"`
		Line   int    `json:"line,omitempty"`
	}{c.Reason, c.Text, c.Range.Filename, c.Range.Start.Line}
	return json.Marshal(out)
}

// Changes says whether a run would do anything.
func (p *Plan) Changes() bool {
	return slices.ContainsFunc(p.Nodes, func(d *Planned) bool { return d.Verb == MustRun || d.Verb == MayRun })
}
