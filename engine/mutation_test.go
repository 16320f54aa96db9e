package engine_test

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

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

// mutable writes its whole key, so its output changes with its key; a steady one writes only its text and
// its seed.
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
	kind   *lang.Kind
}

func (*mutable) Check() hcl.Diagnostics { return nil }

func (m *mutable) Run(_ context.Context, job *engine.Job) error {
	dir, err := job.Create("out")
	if err != nil {
		return err
	}
	content := []any{m.Text, job.Seed}
	if !m.steady {
		content = append(content, m.File.Digest, m.LR, m.Names, m.Clip.Low, m.kind.Version, m.Draw)
		for _, ref := range m.From {
			a, err := job.Open(ref)
			if err != nil {
				return err
			}
			content = append(content, a.Digest)
		}
	}
	b, err := json.Marshal(content)
	return errors.Join(err, os.WriteFile(filepath.Join(dir, "out.txt"), b, 0o600))
}

// mutableKinds are "follow", whose output changes with its inputs, and "steady".
func mutableKinds() lang.Registry {
	var reg lang.Registry
	for _, name := range []string{"follow", "steady"} {
		k := &lang.Kind{Name: name, Summary: "Mutates.", Version: 1, InProcess: true, Outputs: enginetest.FilesOut}
		k.Stochastic = func(s lang.Stage) bool { return s.(*mutable).Draw }
		k.New = func() lang.Stage {
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

// generated is a random experiment that can be mutated.
type generated struct {
	*testing.T
	dir    string
	reg    lang.Registry
	store  *artifact.Store
	rng    *rand.Rand
	seeds  []int
	stages []*genStage
	had    map[string]bool // addresses of the last plan that ran
	count  int             // for values that are used once
	follow bool            // every stage is of kind follow
}

type genStage struct {
	kind, name string
	from       []string          // short addresses
	set        map[string]string // settings as HCL; "low" is in the block "clip"
}

func (s *genStage) id() string { return s.kind + "." + s.name }

// newGenerated returns an experiment of four to eight stages. With an even seed all are of kind follow.
func newGenerated(t *testing.T, seed uint64) *generated {
	t.Helper()
	g := &generated{T: t, dir: memoryDir(t), reg: mutableKinds(), rng: rand.New(rand.NewPCG(seed, 5)), seeds: []int{1},
		follow: seed%2 == 0}
	g.store = must.Get(artifact.Open(filepath.Join(g.dir, "store")))(t)
	for range 4 + g.rng.IntN(5) {
		g.addStage()
	}
	return g
}

func (g *generated) fresh() int { g.count++; return g.count }

// addStage appends a stage that reads up to three earlier ones.
func (g *generated) addStage() *genStage {
	n := g.fresh()
	s := &genStage{kind: "follow", name: fmt.Sprint("s", n),
		set: map[string]string{"text": fmt.Sprintf(`"text %d"`, n)}}
	if !g.follow && g.rng.IntN(2) == 0 {
		s.kind = "steady"
	}
	for range g.rng.IntN(4) {
		if len(g.stages) > 0 {
			s.from = append(s.from, g.stages[g.rng.IntN(len(g.stages))].id())
		}
	}
	g.put(s.name+".txt", s.name)
	for _, o := range []struct {
		name, value string
		in          int // one of in stages has the setting
	}{
		{"file", fmt.Sprintf("file(%q)", s.name+".txt"), 2},
		{"lr", fmt.Sprintf("0.%d1", n), 2},
		{"low", fmt.Sprintf("0.%d1", n), 2},
		{"names", fmt.Sprintf(`["a", "b%d"]`, n), 2},
		{"draw", "true", 2},
		{"seed", fmt.Sprint(1 + g.rng.IntN(3)), 3},
	} {
		if g.rng.IntN(o.in) == 0 {
			s.set[o.name] = o.value
		}
	}
	g.stages = append(g.stages, s)
	return s
}

func (g *generated) put(name, text string) { enginetest.WriteFile(g, filepath.Join(g.dir, name), text) }

// text returns the experiment, one setting per line.
func (g *generated) text() string {
	var b strings.Builder
	seeds, _ := json.Marshal(g.seeds)
	fmt.Fprintf(&b, "experiment {\n  seeds = %s\n}\n", seeds)
	for _, s := range g.stages {
		fmt.Fprintf(&b, "\nstage %q %q { # %s\n", s.kind, s.name, s.id())
		line := func(name, value string) {
			if value != "" {
				fmt.Fprintf(&b, "  %s = %s # %s.%s\n", name, value, s.id(), name)
			}
		}
		if len(s.from) > 0 {
			line("from", "[stage."+strings.Join(s.from, ".out, stage.")+".out]")
		}
		for _, name := range []string{"text", "file", "lr", "names", "draw", "seed"} {
			line(name, s.set[name])
		}
		b.WriteString("  clip {\n")
		line("low", s.set["low"])
		b.WriteString("  }\n}\n")
	}
	return b.String()
}

func (g *generated) plan(o plan.Options) (*plan.Plan, string) {
	g.Helper()
	text := g.text()
	g.put("x.hcl", text)
	x, diags := lang.Load(lang.Source{Path: filepath.Join(g.dir, "x.hcl")}, g.reg)
	if diags.HasErrors() {
		g.Fatalf("%s\n%s", diags, text)
	}
	return must.Get(plan.New(x, g.store, o))(g), text
}

// run runs the plan and returns the short addresses of the executed nodes, sorted.
func (g *generated) run(p *plan.Plan) (executed []string) {
	g.Helper()
	g.had = map[string]bool{}
	for _, d := range p.Nodes {
		g.had[d.Address] = true
	}
	must.OK(g, engine.Run(g.Context(), p, engine.Options{}, func(e runs.Event) {
		if e.Kind == runs.EventDone {
			executed = append(executed, lang.ShortAddress(e.Address))
		}
	}))
	slices.Sort(executed)
	return executed
}

// injected is the expected cause of a mutation and the nodes that must have it.
type injected struct {
	nodes  func(n *lang.Node) bool
	reason plan.Reason
	text   string // prefix of the cause's text
	at     string // comment on the line of the cause; "" if the cause has no line
	o      plan.Options
	same   bool // rebuilt outputs are identical
}

// of selects the nodes of a stage.
func of(s *genStage) func(*lang.Node) bool {
	return func(n *lang.Node) bool { return n.Kind.Name == s.kind && n.Name == s.name }
}

func setting(s *genStage, text, at string) *injected {
	return &injected{nodes: of(s), reason: plan.ReasonSetting, text: "settings." + text, at: at}
}

func input(s *genStage, text, at string) *injected {
	return &injected{nodes: of(s), reason: plan.ReasonInput, text: "input " + text, at: at}
}

// changed sets a setting to a new value. The cause shows the setting by its path in the stage.
func changed(g *generated, s *genStage, name, path, unset, value string) *injected {
	was := cmp.Or(s.set[name], unset)
	s.set[name] = fmt.Sprintf(value, g.fresh())
	return setting(s, path+" "+was+" → "+s.set[name], s.id()+"."+name)
}

// mutations change an experiment and return the expected cause; nil if this experiment does not allow the
// mutation.
var mutations = []struct {
	name   string
	change func(g *generated, s *genStage) *injected
}{
	{"a setting", func(g *generated, s *genStage) *injected { return changed(g, s, "lr", "lr", "0.5", "1.%d1") }},
	{"a text", func(g *generated, s *genStage) *injected { return changed(g, s, "text", "text", "", `"other %d"`) }},
	{"a setting in a block", func(g *generated, s *genStage) *injected {
		return changed(g, s, "low", "clip.low", "0.25", "1.%d2")
	}},
	{"an element of a list", func(g *generated, s *genStage) *injected {
		s.set["names"] = fmt.Sprintf(`["a", "n%d"]`, g.fresh())
		return setting(s, "names ", s.id()+".names")
	}},
	{"a setting back to its default", func(_ *generated, s *genStage) *injected {
		was := s.set["lr"]
		if was == "" {
			return nil
		}
		delete(s.set, "lr")
		return setting(s, "lr "+was+" → 0.5", s.id())
	}},
	{"the content of a file", func(g *generated, s *genStage) *injected {
		if s.set["file"] == "" {
			return nil
		}
		g.put(s.name+".txt", fmt.Sprint("content ", g.fresh()))
		return setting(s, "file: content of "+s.name+".txt changed", s.id()+".file")
	}},
	{"another input", func(g *generated, s *genStage) *injected {
		at := slices.Index(g.stages, s)
		if len(s.from) == 0 || at < 2 {
			return nil
		}
		i, to := g.rng.IntN(len(s.from)), g.stages[g.rng.IntN(at)].id()
		if s.from[i] == to {
			return nil
		}
		s.from[i] = to
		return input(s, fmt.Sprintf("from[%d] changed (stage.%s", i, to), s.id()+".from")
	}},
	{"one more input", func(g *generated, s *genStage) *injected {
		at := slices.Index(g.stages, s)
		if at == 0 {
			return nil
		}
		s.from = append(s.from, g.stages[g.rng.IntN(at)].id())
		return input(s, fmt.Sprintf("from[%d] is new", len(s.from)-1), s.id()+".from")
	}},
	{"one input less", func(_ *generated, s *genStage) *injected {
		if len(s.from) == 0 {
			return nil
		}
		s.from = s.from[:len(s.from)-1]
		return input(s, fmt.Sprintf("from[%d] was removed", len(s.from)), s.id())
	}},
	{"the seed of a pinned stage", func(g *generated, s *genStage) *injected {
		was := s.set["seed"]
		if was == "" || s.set["draw"] == "" || len(s.from) > 0 {
			return nil
		}
		s.set["seed"] = fmt.Sprint(100 + g.fresh())
		text := "seed " + was + " → " + s.set["seed"]
		return &injected{nodes: of(s), reason: plan.ReasonSeed, text: text, at: s.id()}
	}},
	{"one more seed", func(g *generated, _ *genStage) *injected {
		if len(g.seeds) > 2 {
			return nil
		}
		seed := 100 + g.fresh()
		g.seeds = append(g.seeds, seed)
		ofSeed := func(n *lang.Node) bool { return strings.HasSuffix(n.Address, fmt.Sprint("@", seed)) }
		return &injected{nodes: ofSeed, reason: plan.ReasonNew, text: "new"}
	}},
	{"a new stage", func(g *generated, _ *genStage) *injected {
		s := g.addStage()
		return &injected{nodes: of(s), reason: plan.ReasonNew, text: "new", at: s.id()}
	}},
	{"a new version of a kind", func(g *generated, s *genStage) *injected {
		k := g.reg.Lookup(s.kind)
		k.Version++
		return &injected{nodes: func(n *lang.Node) bool { return n.Kind == k }, reason: plan.ReasonVersion,
			text: fmt.Sprintf("version %d → %d", k.Version-1, k.Version)}
	}},
	{"--replace", func(_ *generated, s *genStage) *injected {
		return &injected{nodes: of(s), reason: plan.ReasonRequested, text: "requested with --replace",
			o: plan.Options{Replace: []string{s.id()}}, same: true}
	}},
	{"a damaged object", func(g *generated, s *genStage) *injected {
		p, _ := g.plan(plan.Options{})
		i := slices.IndexFunc(p.Nodes, func(d *plan.Planned) bool { return of(s)(d.Node) })
		if i < 0 {
			return nil
		}
		a := must.Get(g.store.Open(p.Nodes[i].Manifest, "out"))(g)
		path, damage := a.Path("out.txt"), "missing"
		err := errors.Join(os.Chmod(filepath.Dir(path), 0o700), os.Remove(path))
		if g.rng.IntN(2) == 0 {
			damage = "edited"
			err = errors.Join(err, os.WriteFile(path, []byte("edited by hand"), 0o600))
		}
		must.OK(g, err)
		shares := map[string]bool{} // the object, by address
		for _, d := range p.Nodes {
			shares[d.Address] = d.Manifest.Outputs["out"].Digest == a.Digest
		}
		return &injected{nodes: func(n *lang.Node) bool { return shares[n.Address] }, reason: plan.ReasonMissing,
			text: "its file out.txt is " + damage, same: true}
	}},
}

// After any change, the nodes with verb run are executed, and other executed nodes have verb run unless
// unchanged. The cause is the change, at its line. If every output follows its inputs, all nodes with these
// verbs are executed.
func TestMutationsRunWhatThePlanSaysForTheCauseItNames(t *testing.T) {
	const total = 500
	made := map[string]int{}
	for done, seed := 0, uint64(1); done < total; seed++ {
		g := newGenerated(t, seed)
		p, _ := g.plan(plan.Options{})
		g.run(p)
		for range 20 {
			m := mutations[g.rng.IntN(len(mutations))]
			want := m.change(g, g.stages[g.rng.IntN(len(g.stages))])
			if want == nil {
				continue
			}
			p, text := g.plan(want.o)
			run, may := g.check(want, p, text)
			if len(run) == 0 { // an earlier state
				continue
			}
			executed := g.run(p)
			wantWithin(t, p, executed)
			if g.follow && !want.same {
				wantList(t, "executed", executed, may...)
			}
			if t.Failed() {
				t.Fatalf("mutation %d of seed %d, %s:\n%s\nplanned: %v", done, seed, m.name, text, enginetest.Causes(p))
			}
			made[m.name]++
			done++
		}
	}
	for _, m := range mutations {
		if made[m.name] == 0 {
			t.Errorf("no mutation of type %q", m.name)
		}
	}
	t.Log(made)
}

// check compares verbs and causes with the mutation: the mutated nodes run for its cause, their readers run
// unless they are unchanged, new nodes (for example after a stage starts to draw) have causes of their own,
// and all others are up to date. It returns the nodes that run and those that run or may run.
func (g *generated) check(want *injected, p *plan.Plan, text string) (run, may []string) {
	g.Helper()
	touched := map[*lang.Node]bool{}
	for _, d := range p.Nodes {
		reads := slices.ContainsFunc(d.Inputs, func(in lang.Input) bool { return touched[in.From] })
		switch {
		case !g.had[d.Address] && d.Verb == plan.MustRun:
			touched[d.Node] = true
		case (want.nodes(d.Node) || !g.had[d.Address]) && d.Verb == plan.UpToDate && !reads: // an earlier state
		case want.nodes(d.Node) && (d.Verb == plan.MustRun || d.DuplicateOf != nil || reads):
			touched[d.Node] = true
			if d.DuplicateOf != nil || d.Verb == plan.MayRun {
				break
			}
			if d.Cause.Reason != want.reason || !strings.HasPrefix(d.Cause.Text, want.text) {
				g.Errorf("cause of %s: got %s %q, want %s %q", d.Address, d.Cause.Reason, d.Cause.Text, want.reason, want.text)
			}
			line := 1 + strings.Count(text[:max(0, strings.Index(text, "# "+want.at+"\n"))], "\n")
			if want.at != "" && d.Cause.Range.Start.Line != line {
				g.Errorf("cause of %s: got line %d, want %d", d.Address, d.Cause.Range.Start.Line, line)
			}
		case !want.nodes(d.Node) && reads:
			touched[d.Node] = true
			wantEqual(g, d.Address, d.Verb, plan.MayRun)
		case want.nodes(d.Node) || d.Verb != plan.UpToDate:
			g.Errorf("%s: got %s (%s)", d.Address, d.Verb, d.Cause)
		}
	}
	run, may = plannedWork(p)
	slices.Sort(may)
	return run, may
}

// After gc removed all objects, a change runs the stages that it reaches and rebuilds their inputs. The
// rest stays away.
func TestCollectedResultsAreRebuiltOnlyForStagesThatRun(t *testing.T) {
	rebuilt, spared := 0, 0
	for seed := range uint64(40) {
		g := newGenerated(t, seed+1000)
		p, _ := g.plan(plan.Options{})
		g.run(p)
		must.Get(g.store.Collect(1, nil))(t)
		if p, _ = g.plan(plan.Options{}); p.Changes() {
			t.Fatalf("after gc: got %v, want no work", enginetest.Causes(p))
		}
		s := g.stages[g.rng.IntN(len(g.stages))]
		s.set["text"] = `"changed"`
		p, text := g.plan(plan.Options{})
		needed := map[*lang.Node]bool{} // by nodes that certainly run
		for _, d := range slices.Backward(p.Nodes) {
			needed[d.Node] = needed[d.Node] || of(s)(d.Node)
			for _, in := range d.Inputs {
				needed[in.From] = needed[in.From] || needed[d.Node]
			}
			if (d.Verb == plan.MustRun) != needed[d.Node] {
				t.Errorf("%s: got %s (%s), needed %v", d.Address, d.Verb, d.Cause, needed[d.Node])
			}
			if d.Verb == plan.NotHere {
				spared++
			} else if d.Cause.Reason == plan.ReasonNotHere {
				rebuilt++
			}
		}
		wantWithin(t, p, g.run(p))
		if t.Failed() {
			t.Fatalf("seed %d, %s changed:\n%s", seed, s.id(), text)
		}
	}
	if rebuilt == 0 || spared == 0 {
		t.Errorf("got %d rebuilt and %d spared, want some of both", rebuilt, spared)
	}
}

// memoryDir returns a temporary folder, in memory if the machine has /dev/shm: these tests make thousands
// of files.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "rcgrpo-test-*")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// plannedWork returns the short addresses of the nodes that run, and of those that run or may run.
func plannedWork(p *plan.Plan) (run, may []string) {
	for _, d := range p.Nodes {
		switch d.Verb {
		case plan.MustRun:
			run = append(run, lang.ShortAddress(d.Address))
			fallthrough
		case plan.MayRun:
			may = append(may, lang.ShortAddress(d.Address))
		}
	}
	return run, may
}

// wantWithin checks that every node with verb run was executed, and no node that the plan calls up to date.
func wantWithin(t *testing.T, p *plan.Plan, executed []string) {
	t.Helper()
	run, may := plannedWork(p)
	for _, a := range run {
		if !slices.Contains(executed, a) {
			t.Errorf("%s is planned to run and did not", a)
		}
	}
	for _, a := range executed {
		if !slices.Contains(may, a) {
			t.Errorf("%s ran and is not planned to run", a)
		}
	}
}
