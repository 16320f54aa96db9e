package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/remote"
)

// Plan is the decision of what a run would do with every node of an experiment, with the reasons.
type Plan struct {
	Experiment *lang.Experiment
	Store      *artifact.Store
	Nodes      []*Planned // topological; with targets only those and their inputs
	Options
}

// Planned is a node with its verb.
type Planned struct {
	*lang.Node
	Verb          Verb
	Cause         Cause
	Causes        []Cause            // every difference from the last committed result; Cause is the first
	Key           string             // "" until all inputs are known
	Manifest      *artifact.Manifest // of UpToDate, NotHere and Fetch
	Absent        []string           // of UpToDate: ports whose bytes are not in the store
	Last          *artifact.Manifest // the last result committed for this address; nil if new
	Force         bool               // --replace: runs even if the store has its key
	DuplicateOf   *Planned           // the earlier node with the same key, which runs
	ContinuesFrom string             // the result from which a run would resume, or why it cannot; may be ""
	FetchPorts    []string           // of Fetch: ports whose bytes a run needs; none: only the manifest

	// Estimates come from the last result of this address, else from the most similar recorded runs, else from the
	// throughput that the site file states; 0: unknown. Times are proportional to the setting of Kind.Length.
	Estimate      time.Duration
	Stated        bool  // Estimate is from the site file
	EstimateBytes int64 // size of its results
	length        int   // by Kind.Length, without the shorter result from which it resumes, at least 1
}

// Verb is what a run would do with a node.
type Verb string

const (
	UpToDate Verb = "up to date"
	MustRun  Verb = "run"
	MayRun   Verb = "run unless unchanged" // an input will be rebuilt
	NotHere  Verb = "not here"             // the bytes are not in the store, and no node that runs reads them
	Fetch    Verb = "fetch"                // the remote store has the result
)

// Cause is the reason for a Verb.
type Cause struct {
	Reason Reason
	Text   string    // `settings.lr 1e-5 → 2e-5`
	Range  hcl.Range // of the current value; may be zero
	From   string    // lang.Setting.From
}

// Reason is the type of a cause, for programs.
type Reason string

const (
	ReasonNone      Reason = ""
	ReasonNew       Reason = "new"       // no result was ever committed for this address
	ReasonSetting   Reason = "setting"   // a value or a file's content differs
	ReasonInput     Reason = "input"     // an input has or may get different content
	ReasonVersion   Reason = "version"   // the kind's version differs
	ReasonSeed      Reason = "seed"      // the seed of a stochastic stage differs
	ReasonMissing   Reason = "missing"   // recorded, but damaged or deleted
	ReasonNotHere   Reason = "not here"  // the bytes are not in the store, and a node that runs reads them
	ReasonRequested Reason = "requested" // --replace
	ReasonDuplicate Reason = "twin"      // another node of the plan has the same key and runs first
)

// Options narrow or force a plan.
type Options struct {
	Targets []string // addresses (Experiment.Find); only these and their inputs
	Replace []string // addresses that run although they are up to date

	// DataOnly excludes stages that targets reach by depends_on only.
	DataOnly bool

	// Paranoid reads and compares every result that is up to date and every published copy. Otherwise time stamps
	// are enough. Source.Paranoid does the same for external inputs.
	Paranoid bool

	Remote *remote.Remote // nil: none
}

// New compares the nodes of an experiment with the store, and asks the remote store for results that are not there. It
// writes nothing. Its time is linear in nodes and edges.
func New(x *lang.Experiment, store *artifact.Store, o Options) (*Plan, error) {
	if x.Invalid {
		return nil, fmt.Errorf("experiment %s has errors and cannot be planned", x.Name)
	}
	wanted, err := targets(x, o.Targets, o.DataOnly)
	if err != nil {
		return nil, err
	}
	forced, err := findAll(x, o.Replace)
	if err != nil {
		return nil, err
	}
	p := &Plan{Experiment: x, Store: store, Options: o}
	nodes := x.Nodes
	if wanted != nil {
		nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *lang.Node) bool { return !wanted[n] })
	}
	planned := make(map[*lang.Node]*Planned, len(nodes))
	for _, level := range levels(nodes) {
		if err := p.decideLevel(level, planned, forced); err != nil {
			return nil, err
		}
	}
	for _, n := range nodes {
		p.Nodes = append(p.Nodes, planned[n])
	}
	p.findDuplicates()
	p.rebuildAbsent(planned)
	p.estimate()
	return p, nil
}

// targets returns the nodes of the addresses and their dependencies, without depends_on if dataOnly. It returns
// nil, for all nodes, if there are no addresses.
func targets(x *lang.Experiment, addresses []string, dataOnly bool) (map[*lang.Node]bool, error) {
	if len(addresses) == 0 {
		return nil, nil
	}
	nodes, err := findAll(x, addresses)
	wanted := map[*lang.Node]bool{}
	for _, n := range nodes {
		wanted[n] = true
	}
	for _, n := range slices.Backward(x.Nodes) {
		if !wanted[n] {
			continue
		}
		for _, in := range n.Inputs {
			wanted[in.From] = true
		}
		if !dataOnly {
			for _, from := range n.DependsOn {
				wanted[from] = true
			}
		}
	}
	return wanted, err
}

// findAll returns the nodes of all addresses.
func findAll(x *lang.Experiment, addresses []string) (all []*lang.Node, err error) {
	for _, address := range addresses {
		nodes, err := x.Find(address)
		if err != nil {
			return nil, err
		}
		all = append(all, nodes...)
	}
	return all, nil
}

// lookup is the answer of the store for a node.
type lookup struct {
	key   string
	parts artifact.Parts
	ok    bool // the key is known
	m     *artifact.Manifest
	err   error
}

// look looks a node up after its inputs are planned.
func (p *Plan) look(n *lang.Node, planned map[*lang.Node]*Planned) (l lookup) {
	l.key, l.parts, l.ok = keyFrom(n, func(from *lang.Node) *artifact.Manifest { return planned[from].Manifest })
	if l.ok {
		l.m, l.err = p.Store.Lookup(l.key)
		if l.err == nil && p.Paranoid {
			l.err = p.Store.Verify(l.m)
		}
	}
	return l
}

// decide plans a node after its inputs. elsewhere is its result in the remote store, or nil.
func (p *Plan) decide(
	n *lang.Node, l lookup, elsewhere *artifact.Manifest, planned map[*lang.Node]*Planned, force bool,
) (*Planned, error) {
	d := &Planned{Node: n, Force: force, length: max(1, lengthOf(n, l.parts))}
	d.Key = l.key
	damage, damaged := errors.AsType[artifact.Problem](l.err)
	switch notHere := errors.Is(l.err, artifact.ErrNotHere); {
	case elsewhere != nil && !force:
		d.fetch(elsewhere)
		return d, nil
	case notHere && !force:
		d.Verb, d.Manifest, d.Last = NotHere, l.m, l.m
		return d, nil
	case l.m != nil && l.err == nil && !force:
		d.Verb, d.Manifest, d.Last, d.Absent = UpToDate, l.m, l.m, p.Store.Absent(l.m)
		return d, nil
	case damaged:
		text := fmt.Sprintf("its file %s is %s", filepath.Base(damage.Path), damage.What)
		d.Verb, d.Last, d.Cause = MustRun, l.m, Cause{Reason: ReasonMissing, Text: text}
		return d, nil
	case l.err != nil && l.m == nil && !errors.Is(l.err, artifact.ErrNotFound):
		return nil, l.err
	}
	last, err := p.Store.Last(p.Experiment.Name, n.Address)
	if err != nil && !errors.Is(err, artifact.ErrNotFound) {
		return nil, err
	}
	d.Last = last
	d.Causes = causes(n, last, l.parts, l.ok)
	d.Verb, d.Cause = MustRun, smallest(d.Causes)
	if l.ok {
		var had int
		if had, d.ContinuesFrom, err = continuesFrom(n, p.Store, l.parts, last); err != nil {
			return nil, err
		}
		d.length -= had
	}
	switch {
	case force:
		d.Cause = Cause{Reason: ReasonRequested, Text: "requested with --replace"}
	case !l.ok && (d.Cause.Reason == ReasonNone || p.keptIfUnchanged(n, planned)):
		d.Verb, d.Cause = MayRun, waitCause(n, planned)
	}
	return d, nil
}

// keptIfUnchanged reports whether the store has a result for n in case its inputs are rebuilt without a change.
func (p *Plan) keptIfUnchanged(n *lang.Node, planned map[*lang.Node]*Planned) bool {
	key, _, ok := keyFrom(n, func(from *lang.Node) *artifact.Manifest {
		return cmp.Or(planned[from].Manifest, planned[from].Last)
	})
	if !ok {
		return false
	}
	_, err := p.Store.Lookup(key)
	return err == nil
}

// NotHere reports whether the bytes are not in the store and no node is certain to need them.
func (d *Planned) NotHere() bool {
	return d.Verb == NotHere || d.Verb == MayRun && d.Cause.Reason == ReasonNotHere
}

// rebuildAbsent schedules the results whose bytes are not here but needed, because a node that runs reads them or the
// experiment publishes them: they are fetched from the remote store, or else their stages run again.
func (p *Plan) rebuildAbsent(planned map[*lang.Node]*Planned) {
	for _, d := range slices.Backward(p.Nodes) {
		p.fetchPublished(d)
		if d.Verb != MustRun && d.Verb != MayRun {
			continue
		}
		for _, in := range d.Inputs {
			up := planned[in.From]
			switch {
			case up.Verb == Fetch || d.Verb == MustRun && up.lacks(in.Ref.Port) && p.fetchable(up):
				if d.Verb == MustRun && up.lacks(in.Ref.Port) {
					up.fetch(up.Manifest, in.Ref.Port)
				}
			case (up.NotHere() || up.lacks(in.Ref.Port)) && up.Verb != d.Verb:
				reads := "reads"
				if d.Verb == MayRun {
					reads = "may read"
				}
				up.Verb = d.Verb
				text := fmt.Sprintf("%v, and %s %s it", artifact.ErrNotHere, d.Address, reads)
				up.Cause = Cause{Reason: ReasonNotHere, Text: text}
			}
		}
	}
}

// findDuplicates finds nodes with the same key that would run: the first runs, the others use its result.
func (p *Plan) findDuplicates() {
	first := map[string]*Planned{}
	for _, d := range p.Nodes {
		if keyKnown := d.Key != ""; !keyKnown || d.Verb != MustRun || d.Force {
			continue
		}
		if twin := first[d.Key]; twin != nil {
			d.DuplicateOf, d.Verb = twin, MayRun
			d.Cause = Cause{Reason: ReasonDuplicate, Text: fmt.Sprintf("same key as %s, which runs", twin.Address)}
			continue
		}
		first[d.Key] = d
	}
}

// waitCause returns the first input that will be rebuilt, as the cause of a node that may run.
func waitCause(n *lang.Node, planned map[*lang.Node]*Planned) Cause {
	for _, in := range n.Inputs {
		if v := planned[in.From].Verb; v != UpToDate && v != NotHere && v != Fetch {
			return Cause{Reason: ReasonInput, Text: fmt.Sprintf("input %s may change (%s)", in.Setting,
				in.From.Address), Range: in.Range}
		}
	}
	return Cause{}
}

// smallest returns the first cause, with the number of the others.
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

// causes returns the differences between the recorded parts of an address and the current ones: version, settings
// in their order, seed, inputs. Unknown inputs are skipped. If nothing differs and all parts are known, the manifest
// is missing.
func causes(n *lang.Node, last *artifact.Manifest, parts artifact.Parts, complete bool) []Cause {
	if last == nil {
		return []Cause{{Reason: ReasonNew, Text: "new", Range: n.Range}}
	}
	var found []Cause
	add := func(c Cause) {
		if c.Range.Filename == "" { // a default has no range
			c.Range = n.Range
		}
		found = append(found, c)
	}
	if had, have := last.Parts["version"], parts["version"]; had != have {
		add(Cause{Reason: ReasonVersion, Text: fmt.Sprintf("version %s → %s", had, have)})
	}
	for _, s := range n.Settings {
		name := "settings." + s.Name
		had, known := last.Parts[name]
		switch {
		case !s.InKey && !known || known && had == s.Value:
		case s.Path != "" && known:
			text := fmt.Sprintf("%s: content of %s changed", name, filepath.Base(s.Path))
			add(Cause{ReasonSetting, text, s.Range, s.From})
		default:
			add(Cause{ReasonSetting, name + " " + formatChange(had, known, s.Value), s.Range, s.From})
		}
	}
	if had, have := last.Parts["seed"], parts["seed"]; had != have {
		add(Cause{Reason: ReasonSeed, Text: fmt.Sprintf("seed %s → %s", cmp.Or(had, "none"), cmp.Or(have, "none"))})
	}
	addInput := func(in lang.Input, format string) {
		add(Cause{Reason: ReasonInput, Text: fmt.Sprintf(format, in.Setting, in.From.Address), Range: in.Range})
	}
	for _, in := range n.Inputs {
		name := inputPart(in.Setting)
		have, settled := parts[name]
		had, known := last.Parts[name]
		switch {
		case !known:
			addInput(in, "input %s is new (%s)")
		case settled && had != have:
			addInput(in, "input %s changed (%s)")
		}
	}
	for _, name := range removedParts(n, last) {
		if setting, ok := strings.CutPrefix(name, "input."); ok {
			add(Cause{Reason: ReasonInput, Text: fmt.Sprintf("input %s was removed", setting)})
		} else {
			add(Cause{Reason: ReasonSetting, Text: name + " " + lang.FormatValue(last.Parts[name], true) + " → (none)"})
		}
	}
	if len(found) == 0 && complete {
		return []Cause{{Reason: ReasonMissing, Text: "its manifest is missing from the store"}}
	}
	return found
}

// removedParts returns the sorted names of recorded parts that the node no longer has.
func removedParts(n *lang.Node, last *artifact.Manifest) []string {
	current := map[string]bool{"kind": true, "version": true, "seed": true}
	for _, s := range n.Settings {
		current["settings."+s.Name] = true
	}
	for _, in := range n.Inputs {
		current[inputPart(in.Setting)] = true
	}
	names := slices.Sorted(maps.Keys(last.Parts))
	return slices.DeleteFunc(names, func(name string) bool { return current[name] })
}

// formatChange formats an old and a new value. Long values lose their common prefix, so that the difference is
// visible.
func formatChange(had string, known bool, have string) string {
	from, to := []rune(had), []rune(have)
	const context = 12
	if n := lang.CommonPrefix(had, have); known && n < len(had) && max(len(from), len(to)) > lang.LongestShown {
		if skip := len([]rune(strings.ToValidUTF8(had[:n], ""))) - context; skip > context {
			return "…" + lang.FormatValue(string(from[skip:]), true) + " → …" + lang.FormatValue(string(to[skip:]), true)
		}
	}
	return lang.FormatValue(had, known) + " → " + lang.FormatValue(have, true)
}

// String returns the cause with its position: `settings.lr 1e-5 → 2e-5 (ablation.hcl:14)`, or
// `… (ablation.hcl:3, defaults "grpo")`.
func (c Cause) String() string {
	if c.Range.Filename == "" || c.Reason == ReasonNew || c.Reason == ReasonInput || c.Reason == ReasonVersion {
		return c.Text
	}
	place := lang.Place(c.Range)
	switch c.From {
	case "":
	case lang.OverridesFile:
		place = c.From
	default:
		place += ", " + c.From
	}
	return fmt.Sprintf("%s (%s)", c.Text, place)
}

// MarshalJSON returns reason, text, file and line.
func (c Cause) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Reason Reason `json:"reason,omitempty"`
		Text   string `json:"text,omitempty"`
		File   string `json:"file,omitempty"`
		Line   int    `json:"line,omitempty"`
		From   string `json:"from,omitempty"`
	}{c.Reason, c.Text, c.Range.Filename, c.Range.Start.Line, c.From})
}

// Changes reports whether a run would do anything.
func (p *Plan) Changes() bool {
	return slices.ContainsFunc(p.Nodes, func(d *Planned) bool { return d.Verb != UpToDate && d.Verb != NotHere })
}

// Before lists the nodes that come before this one.
func (d *Planned) Before() []*lang.Node {
	nodes := slices.Clone(d.DependsOn)
	if d.DuplicateOf != nil {
		nodes = append(nodes, d.DuplicateOf.Node)
	}
	for _, in := range d.Inputs {
		nodes = append(nodes, in.From)
	}
	return nodes
}

// Clone copies a plan with its nodes, because a run changes them.
func (p *Plan) Clone() *Plan {
	c := *p
	c.Nodes = make([]*Planned, len(p.Nodes))
	copied := make(map[*Planned]*Planned, len(p.Nodes))
	for i, n := range p.Nodes {
		d := *n
		if d.DuplicateOf != nil { // it precedes this node
			d.DuplicateOf = copied[d.DuplicateOf]
		}
		c.Nodes[i], copied[n] = &d, &d
	}
	return &c
}

// Current returns the plan, or a new one if gc has removed results since that the plan has found. Its caller keeps gc
// from removing more (Store.Use) until their keys are pinned.
func (p *Plan) Current() (*Plan, error) {
	removed := func(d *Planned) bool {
		return d.Verb == UpToDate && !slices.Equal(d.Absent, p.Store.Absent(d.Manifest))
	}
	if !slices.ContainsFunc(p.Nodes, removed) {
		return p, nil
	}
	return New(p.Experiment, p.Store, p.Options)
}

// Counts returns the numbers of the plan's nodes by verb.
func (p *Plan) Counts() map[string]int {
	counts := map[string]int{}
	for _, n := range p.Nodes {
		counts[string(n.Verb)]++
	}
	return counts
}

// Key returns the hash of everything that determines what a node produces: kind, version, settings with their
// defaults except those documented as "not in the key", the seed if the node is stochastic, and the content digest of
// each input, as returned by digest. ok is false while a digest is unknown; parts then lack that input.
//
// The value of a setting with file() or dir() is the digest of the content, so a change of the content is another key.
// A file that a setting only names, such as a script among the words of a command, is text: a change of its content
// leaves the key, and the stage does not run again. Names, comments, order, formatting and paths of file() are in no
// key, with one exception: a kind that reads all seeds shows the addresses and labels of its inputs and the name,
// question, expectation and overrides of the experiment, so they are in its key.
func Key(n *lang.Node, digest func(from *lang.Node, port string) (string, bool)) (
	key string, parts artifact.Parts, ok bool) {
	parts = artifact.Parts{"kind": lang.JSONText(n.Kind.Name), "version": strconv.Itoa(n.Kind.Version)}
	for _, s := range n.Settings {
		if s.InKey {
			parts["settings."+s.Name] = s.Value
		}
	}
	if n.Stochastic && n.Seed != nil {
		parts["seed"] = strconv.FormatInt(*n.Seed, 10)
	}
	ok = true
	for _, in := range n.Inputs {
		d, known := digest(in.From, in.Ref.Port)
		switch {
		case !known:
			ok = false
		case n.Kind.AcrossSeeds:
			shown := []string{d, in.From.Address, in.Ref.Port}
			if l, ok := in.From.Stage.(lang.Labeled); ok && l.Labels() != (lang.Labels{}) {
				shown = append(shown, lang.JSONText(l.Labels()))
			}
			parts[inputPart(in.Setting)] = lang.JSONText(shown)
		default:
			parts[inputPart(in.Setting)] = lang.JSONText(d)
		}
	}
	if !ok {
		return "", parts, false
	}
	return keyOf(parts), parts, true
}

// keyFrom is Key with the results that manifest returns for the inputs; nil: unknown.
func keyFrom(n *lang.Node, manifest func(*lang.Node) *artifact.Manifest) (key string, parts artifact.Parts, ok bool) {
	return Key(n, func(from *lang.Node, port string) (string, bool) {
		m := manifest(from)
		if m == nil {
			return "", false
		}
		output, ok := m.Outputs[port]
		return output.Digest, ok
	})
}

// keyOf returns the SHA-256 of the canonical JSON of parts, in hexadecimal.
func keyOf(parts artifact.Parts) string {
	sum := sha256.Sum256([]byte(lang.JSONText(parts)))
	return hex.EncodeToString(sum[:])
}

func inputPart(setting string) string { return "input." + setting }
