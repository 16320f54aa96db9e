package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/artifact"
)

// mutable is a stage whose output contains everything in its key, so that the output changes with the key. A
// steady stage writes only its text and its seed.
type mutable struct {
	From  []artifact.Ref `hcl:"from,optional" port:"files"`
	File  artifact.File  `hcl:"file,optional"`
	Text  string         `hcl:"text,optional"`
	LR    float64        `hcl:"lr,optional"`
	Names []string       `hcl:"names,optional"`
	Draw  bool           `hcl:"draw,optional"`
	Clip  *struct {
		Low float64 `hcl:"low,optional"`
	} `hcl:"clip,block"`
	steady bool
	kind   *Kind
}

func (*mutable) Check() hcl.Diagnostics { return nil }

func (m *mutable) Run(_ context.Context, job *Job) error {
	dir, err := job.Create("out")
	if err != nil {
		return err
	}
	said := []any{m.Text, job.Seed}
	if !m.steady {
		said = append(said, m.File.Digest, m.LR, m.Names, m.Clip.Low, m.kind.Version, m.Draw)
		for _, ref := range m.From {
			a, err := job.Open(ref)
			if err != nil {
				return err
			}
			said = append(said, a.Digest)
		}
	}
	b, err := json.Marshal(said)
	return errors.Join(err, os.WriteFile(filepath.Join(dir, "out.txt"), b, 0o600))
}

// mutableKinds are "follow", whose output changes with every input, and "steady".
func mutableKinds() Registry {
	var reg Registry
	for _, name := range []string{"follow", "steady"} {
		k := &Kind{Name: name, Summary: "for mutations", Version: 1, InProcess: true, Outputs: toyOutputs}
		k.Stochastic = func(s Stage) bool { return s.(*mutable).Draw }
		k.New = func() Stage {
			m := &mutable{LR: 0.5, steady: name == "steady", kind: k}
			m.Clip = &struct {
				Low float64 `hcl:"low,optional"`
			}{0.25}
			return m
		}
		reg = append(reg, k)
	}
	return reg
}

// generated is an experiment that can be changed and formatted.
type generated struct {
	dir    string
	reg    Registry
	store  *artifact.Store
	rng    *rand.Rand
	seeds  []int
	stages []*genStage
	had    map[string]bool // addresses of the last run
	count  int             // for values that never come again
	follow bool            // every stage is of kind follow
}

type genStage struct {
	kind, name, text, lr, low string
	names, from               []string // from: addresses without "stage."
	file                      string
	seed                      int // 0: not pinned
	draw                      bool
}

func (s *genStage) id() string { return s.kind + "." + s.name }

// newGenerated returns an experiment of four to eight stages; with an even seed all stages follow their inputs.
func newGenerated(t *testing.T, seed uint64) *generated {
	t.Helper()
	g := &generated{dir: memoryDir(t), reg: mutableKinds(), rng: rand.New(rand.NewPCG(seed, 5)), seeds: []int{1},
		follow: seed%2 == 0}
	store, err := artifact.Open(filepath.Join(g.dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	g.store = store
	for range 4 + g.rng.IntN(5) {
		g.addStage()
	}
	return g
}

func (g *generated) fresh() int { g.count++; return g.count }

// addStage appends a stage that reads up to three earlier stages.
func (g *generated) addStage() *genStage {
	n := g.fresh()
	s := &genStage{kind: "follow", name: fmt.Sprintf("s%d", n), text: fmt.Sprintf("text %d", n),
		draw: g.rng.IntN(3) == 0}
	if !g.follow && g.rng.IntN(2) == 0 {
		s.kind = "steady"
	}
	for range g.rng.IntN(4) {
		if len(g.stages) > 0 {
			s.from = append(s.from, g.stages[g.rng.IntN(len(g.stages))].id())
		}
	}
	if g.rng.IntN(2) == 0 {
		s.file = s.name + ".txt"
		g.put(s.file, s.text)
	}
	if g.rng.IntN(2) == 0 {
		s.lr = fmt.Sprintf("0.%d1", n)
	}
	if g.rng.IntN(2) == 0 {
		s.low = fmt.Sprintf("0.%d1", n)
	}
	if g.rng.IntN(2) == 0 {
		s.names = []string{"a", fmt.Sprintf("b%d", n)}
	}
	if g.rng.IntN(4) == 0 {
		s.seed = 1 + g.rng.IntN(3)
	}
	g.stages = append(g.stages, s)
	return s
}

func (g *generated) put(name, text string) {
	if err := os.WriteFile(filepath.Join(g.dir, name), []byte(text), 0o600); err != nil {
		panic(err)
	}
}

// text formats the experiment, one setting per line.
func (g *generated) text() string {
	var b strings.Builder
	seeds, _ := json.Marshal(g.seeds)
	fmt.Fprintf(&b, "experiment {\n  seeds = %s\n}\n", seeds)
	for _, s := range g.stages {
		fmt.Fprintf(&b, "\nstage %q %q { # %s\n  text = %q\n", s.kind, s.name, s.id(), s.text)
		line := func(name, value string, given bool) {
			if given {
				fmt.Fprintf(&b, "  %s = %s # %s.%s\n", name, value, s.id(), name)
			}
		}
		var refs []string
		for _, from := range s.from {
			refs = append(refs, "stage."+from+".out")
		}
		names, _ := json.Marshal(s.names)
		line("from", "["+strings.Join(refs, ", ")+"]", len(refs) > 0)
		line("file", fmt.Sprintf("file(%q)", s.file), s.file != "")
		line("lr", s.lr, s.lr != "")
		line("names", string(names), s.names != nil)
		line("draw", "true", s.draw)
		line("seed", fmt.Sprint(s.seed), s.seed != 0)
		if s.low != "" {
			b.WriteString("  clip {\n")
			line("  low", s.low, true)
			b.WriteString("  }\n")
		}
		b.WriteString("}\n")
	}
	return b.String()
}

func (g *generated) plan(t *testing.T, o PlanOptions) (*Plan, string) {
	t.Helper()
	path, text := filepath.Join(g.dir, "x.hcl"), g.text()
	writeFile(t, path, text)
	x, diags := Load(Source{Path: path}, g.reg)
	if diags.HasErrors() {
		t.Fatalf("%s\n%s", diags, text)
	}
	p, err := NewPlan(x, g.store, o)
	if err != nil {
		t.Fatal(err)
	}
	return p, text
}

// run executes the plan and returns the executed addresses.
func (g *generated) run(t *testing.T, p *Plan) []string {
	t.Helper()
	g.had = map[string]bool{}
	for _, d := range p.Nodes {
		g.had[d.Address] = true
	}
	r := record{}
	err := p.Run(t.Context(), RunOptions{}, func(e Event) {
		if e.Kind == EventDone {
			r.events = append(r.events, e)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return r.of(EventDone)
}

// injected is the expected report of a mutation: the cause, the mutated nodes and the line.
type injected struct {
	nodes  func(n *Node) bool
	reason Reason
	text   string // of the cause; a prefix
	at     string // comment on the line to blame; "" when a cause has no place
	o      PlanOptions
	same   bool // what is rebuilt has the bytes it had
}

// of returns the nodes of a stage.
func of(s *genStage) func(*Node) bool {
	return func(n *Node) bool { return n.Kind.Name == s.kind && n.Name == s.name }
}

func shownJSON(v any) string { b, _ := json.Marshal(v); return string(b) }

// mutations change g and return the expected report; nil if this experiment cannot be changed so.
var mutations = []struct {
	name   string
	change func(t *testing.T, g *generated, s *genStage) *injected
}{
	{"a setting", func(_ *testing.T, g *generated, s *genStage) *injected {
		was := cmp.Or(s.lr, "0.5")
		s.lr = fmt.Sprintf("1.%d1", g.fresh())
		return &injected{nodes: of(s), reason: ReasonSetting, text: "settings.lr " + was + " → " + s.lr,
			at: s.id() + ".lr"}
	}},
	{"a text", func(_ *testing.T, g *generated, s *genStage) *injected {
		was := s.text
		s.text = fmt.Sprintf("other %d", g.fresh())
		return &injected{nodes: of(s), reason: ReasonSetting,
			text: fmt.Sprintf("settings.text %q → %q", was, s.text)}
	}},
	{"a setting in a block", func(_ *testing.T, g *generated, s *genStage) *injected {
		was := cmp.Or(s.low, "0.25")
		s.low = fmt.Sprintf("1.%d2", g.fresh())
		return &injected{nodes: of(s), reason: ReasonSetting, text: "settings.clip.low " + was + " → " + s.low,
			at: s.id() + ".  low"}
	}},
	{"an element of a list", func(_ *testing.T, g *generated, s *genStage) *injected {
		was := shownJSON(s.names)
		if s.names == nil {
			was = "[]"
		}
		s.names = append(slices.Clone(s.names), fmt.Sprint("n", g.fresh()))
		if len(s.names) > 5 {
			s.names = s.names[4:]
		}
		return &injected{nodes: of(s), reason: ReasonSetting,
			text: "settings.names " + formatValue(was, true) + " → ", at: s.id() + ".names"}
	}},
	{"a setting taken back to its default", func(_ *testing.T, _ *generated, s *genStage) *injected {
		if s.lr == "" {
			return nil
		}
		was := s.lr
		s.lr = ""
		return &injected{nodes: of(s), reason: ReasonSetting, text: "settings.lr " + was + " → 0.5", at: s.id()}
	}},
	{"the content of a file", func(_ *testing.T, g *generated, s *genStage) *injected {
		if s.file == "" {
			return nil
		}
		g.put(s.file, fmt.Sprint("content ", g.fresh()))
		return &injected{nodes: of(s), reason: ReasonSetting,
			text: "settings.file: content of " + s.file + " changed", at: s.id() + ".file"}
	}},
	{"another input", func(_ *testing.T, g *generated, s *genStage) *injected {
		at := slices.Index(g.stages, s)
		if len(s.from) == 0 || at < 2 {
			return nil
		}
		i, to := g.rng.IntN(len(s.from)), g.stages[g.rng.IntN(at)].id()
		if s.from[i] == to {
			return nil
		}
		s.from[i] = to
		return &injected{nodes: of(s), reason: ReasonInput, text: fmt.Sprintf("input from[%d] changed (stage.%s",
			i, to), at: s.id() + ".from"}
	}},
	{"one more input", func(_ *testing.T, g *generated, s *genStage) *injected {
		at := slices.Index(g.stages, s)
		if at == 0 {
			return nil
		}
		s.from = append(s.from, g.stages[g.rng.IntN(at)].id())
		return &injected{nodes: of(s), reason: ReasonInput, text: fmt.Sprintf("input from[%d] is new",
			len(s.from)-1), at: s.id() + ".from"}
	}},
	{"one input less", func(_ *testing.T, _ *generated, s *genStage) *injected {
		if len(s.from) == 0 {
			return nil
		}
		s.from = s.from[:len(s.from)-1]
		return &injected{nodes: of(s), reason: ReasonInput, text: fmt.Sprintf("input from[%d] was removed",
			len(s.from)), at: s.id()}
	}},
	{"the seed of a pinned stage", func(_ *testing.T, g *generated, s *genStage) *injected {
		if s.seed == 0 || !s.draw || len(s.from) > 0 {
			return nil
		}
		was := s.seed
		s.seed = 100 + g.fresh()
		return &injected{nodes: of(s), reason: ReasonSeed, text: fmt.Sprintf("seed %d → %d", was, s.seed),
			at: s.id()}
	}},
	{"one more seed", func(_ *testing.T, g *generated, _ *genStage) *injected {
		if len(g.seeds) > 2 {
			return nil
		}
		seed := 100 + g.fresh()
		g.seeds = append(g.seeds, seed)
		return &injected{nodes: func(n *Node) bool { return strings.HasSuffix(n.Address, fmt.Sprint("@", seed)) },
			reason: ReasonNew, text: "new"}
	}},
	{"a new stage", func(_ *testing.T, g *generated, _ *genStage) *injected {
		s := g.addStage()
		return &injected{nodes: of(s), reason: ReasonNew, text: "new", at: s.id()}
	}},
	{"a new version of a kind", func(_ *testing.T, g *generated, s *genStage) *injected {
		k := g.reg.Lookup(s.kind)
		k.Version++
		return &injected{nodes: func(n *Node) bool { return n.Kind == k }, reason: ReasonVersion,
			text: fmt.Sprintf("version %d → %d", k.Version-1, k.Version)}
	}},
	{"-replace", func(_ *testing.T, _ *generated, s *genStage) *injected {
		return &injected{nodes: of(s), reason: ReasonRequested, text: "requested with -replace",
			o: PlanOptions{Replace: []string{s.id()}}, same: true}
	}},
	{"a damaged object", func(t *testing.T, g *generated, s *genStage) *injected {
		digest, what := "", "missing"
		p, _ := g.plan(t, PlanOptions{})
		for _, d := range p.Nodes {
			if !of(s)(d.Node) {
				continue
			}
			digest = d.Manifest.Outputs["out"].Digest
			a, err := g.store.Open(d.Manifest, "out")
			if err != nil {
				t.Fatal(err)
			}
			path := a.Path("out.txt")
			err = errors.Join(os.Chmod(filepath.Dir(path), 0o700), os.Remove(path))
			if g.rng.IntN(2) == 0 {
				what = "edited"
				err = errors.Join(err, os.WriteFile(path, []byte("edited by hand"), 0o600))
			}
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if digest == "" {
			return nil // it has no node: a seed list that only others need
		}
		shares := map[string]bool{}
		for _, d := range p.Nodes {
			shares[d.Address] = d.Manifest.Outputs["out"].Digest == digest
		}
		return &injected{nodes: func(n *Node) bool { return shares[n.Address] }, reason: ReasonMissing,
			text: "its file out.txt is " + what, same: true}
	}},
}

// After any mutation, nodes with the verb run are executed, executed nodes have the verb run or run unless
// unchanged, and the named cause is the mutation, at its line. If every output follows its inputs, nothing with
// run unless unchanged is kept.
func TestMutationsRunWhatThePlanSaysForTheCauseItNames(t *testing.T) {
	const total = 500
	made := map[string]int{}
	executedIn, plannedIn, equal := 0, 0, 0
	for done, seed := 0, uint64(1); done < total; seed++ {
		g := newGenerated(t, seed)
		p, _ := g.plan(t, PlanOptions{})
		g.run(t, p)
		for range 20 {
			m := mutations[g.rng.IntN(len(mutations))]
			want := m.change(t, g, g.stages[g.rng.IntN(len(g.stages))])
			if want == nil {
				continue
			}
			p, text := g.plan(t, want.o)
			run, may := g.check(t, m.name, want, p, text)
			if len(run) == 0 { // back where it was once
				continue
			}
			executed := g.within(t, m.name, p, run, may)
			if g.follow && !want.same {
				equal++
				if !slices.Equal(executed, may) {
					t.Errorf("%s: executed %v, planned %v", m.name, executed, may)
				}
			}
			if t.Failed() {
				t.Fatalf("mutation %d of seed %d, %s:\n%s\nplanned: %v", done, seed, m.name, text, verdicts(p))
			}
			made[m.name]++
			done, executedIn, plannedIn = done+1, executedIn+len(executed), plannedIn+len(may)
		}
	}
	for _, m := range mutations {
		if made[m.name] == 0 {
			t.Errorf("no mutation was %s", m.name)
		}
	}
	t.Logf("%d mutations, %d with equality; %d nodes executed of %d planned: %v", total, equal, executedIn,
		plannedIn, made)
}

// within runs the plan and compares the executed nodes with the verbs.
func (g *generated) within(t *testing.T, name string, p *Plan, run, may []string) (executed []string) {
	t.Helper()
	executed = g.run(t, p)
	for _, a := range run {
		if !slices.Contains(executed, a) {
			t.Errorf("%s: %s was to run and did not", name, a)
		}
	}
	for _, a := range executed {
		if !slices.Contains(may, a) {
			t.Errorf("%s: %s ran and was not planned to", name, a)
		}
	}
	return executed
}

// check compares verbs and causes with the mutation: mutated nodes run for that cause, their readers run unless
// unchanged, new nodes run for their own causes, and everything else is up to date. It returns the nodes that run,
// and those that may.
func (g *generated) check(t *testing.T, name string, want *injected, p *Plan, text string) (run, may []string) {
	t.Helper()
	touched := map[*Node]bool{}
	for _, d := range p.Nodes {
		reads := slices.ContainsFunc(d.Inputs, func(in Input) bool { return touched[in.From] })
		switch {
		case !g.had[d.Address] && d.Verb == MustRun:
			touched[d.Node] = true
		case (want.nodes(d.Node) || !g.had[d.Address]) && d.Verb == UpToDate && !reads: // the store has had this before
		case want.nodes(d.Node) && (d.Verb == MustRun || d.DuplicateOf != nil || reads):
			touched[d.Node] = true
			if d.DuplicateOf != nil || d.Verb == MayRun {
				break
			}
			if d.Cause.Reason != want.reason || !strings.HasPrefix(d.Cause.Text, want.text) {
				t.Errorf("%s: the cause of %s is %s %q, want %s %q", name, d.Address, d.Cause.Reason,
					d.Cause.Text, want.reason, want.text)
			}
			line := 1 + strings.Count(text[:max(0, strings.Index(text, "# "+want.at+"\n"))], "\n")
			if want.at != "" && d.Cause.Range.Start.Line != line {
				t.Errorf("%s: the cause of %s is at line %d, want %d", name, d.Address, d.Cause.Range.Start.Line,
					line)
			}
		case !want.nodes(d.Node) && reads:
			touched[d.Node] = true
			if d.Verb != MayRun {
				t.Errorf("%s: %s is %s, want it to wait for what it reads", name, d.Address, d.Verb)
			}
		case want.nodes(d.Node) || d.Verb != UpToDate:
			t.Errorf("%s: %s is %s (%s)", name, d.Address, d.Verb, d.Cause)
		}
	}
	return work(p)
}

// work returns the nodes of a plan that run, and those that run or may run.
func work(p *Plan) (run, may []string) {
	for _, d := range p.Nodes {
		switch d.Verb {
		case MustRun:
			run = append(run, ShortAddress(d.Address))
			fallthrough
		case MayRun:
			may = append(may, ShortAddress(d.Address))
		}
	}
	slices.Sort(may)
	return run, may
}

// After gc has collected all results, a change runs the nodes that it reaches and rebuilds their inputs; all other
// nodes stay collected.
func TestCollectedResultsAreRebuiltOnlyForNodesThatRun(t *testing.T) {
	rebuilt, spared := 0, 0
	for seed := range uint64(40) {
		g := newGenerated(t, seed+1000)
		p, _ := g.plan(t, PlanOptions{})
		g.run(t, p)
		if _, err := g.store.Collect(1); err != nil {
			t.Fatal(err)
		}
		if p, _ = g.plan(t, PlanOptions{}); p.Changes() {
			t.Fatalf("collected alone: %v", verdicts(p))
		}
		s := g.stages[g.rng.IntN(len(g.stages))]
		s.text = "changed"
		p, text := g.plan(t, PlanOptions{})
		run, may := work(p)
		needed := map[*Node]bool{} // by what certainly runs
		for _, d := range slices.Backward(p.Nodes) {
			needed[d.Node] = needed[d.Node] || of(s)(d.Node)
			for _, in := range d.Inputs {
				needed[in.From] = needed[in.From] || needed[d.Node]
			}
			if (d.Verb == MustRun) != needed[d.Node] {
				t.Errorf("%s is %s (%s), needed %v\n%s", d.Address, d.Verb, d.Cause, needed[d.Node], text)
			}
			if d.Verb == Collected {
				spared++
			} else if d.Cause.Reason == ReasonCollected {
				rebuilt++
			}
		}
		g.within(t, fmt.Sprintf("seed %d, %s changed in\n%s", seed, s.id(), text), p, run, may)
	}
	if rebuilt == 0 || spared == 0 {
		t.Errorf("%d rebuilt, %d spared: the experiments show nothing", rebuilt, spared)
	}
}

// Nodes with equal keys are executed once.
func TestDuplicatesRunOnce(t *testing.T) {
	const text = "experiment {}\n" +
		"stage \"follow\" \"a\" {\n  text = \"same\"\n}\nstage \"follow\" \"b\" {\n  text = \"same\"\n}\n"
	for range 5 {
		g := newGenerated(t, 1)
		path := filepath.Join(g.dir, "x.hcl")
		writeFile(t, path, text)
		x, diags := Load(Source{Path: path}, g.reg)
		if diags.HasErrors() {
			t.Fatal(diags)
		}
		p, err := NewPlan(x, g.store, PlanOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := verdicts(p); got["follow.a"] != "run: new" || got["follow.b"] != "run unless unchanged: "+
			"same key as stage.follow.a, which runs" {
			t.Errorf("planned: %v", got)
		}
		if got := g.run(t, p); !slices.Equal(got, []string{"follow.a"}) {
			t.Errorf("executed: %v", got)
		}
	}
}

// memoryDir is a temporary folder in memory, if the machine has one: nothing here must survive a power cut.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "rcgrpo-test-*")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
