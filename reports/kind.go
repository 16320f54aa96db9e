package reports

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/remote"
	"rcgrpo/engine/runs"
	"rcgrpo/reports/page"
	"rcgrpo/stages/rl/blocks"
	"rcgrpo/stages/rl/objective"
)

// Files of the port page.
const (
	HTMLFile     = "page.html"
	MarkdownFile = "page.md"
	TextFile     = "page.txt"  // for a terminal of TextWidth columns
	LaTeXFile    = "page.tex"  // the tables
	JSONFile     = "page.json" // the whole page as data
	CSVFolder    = "csv"       // a file for each table and figure, named by its id
)

// TextWidth is the width of TextFile.
const TextWidth = 120

// Kind returns the stage kind `report`, which makes a page of the scores, curves and data of all seeds. It also runs
// after failures of other stages, and the page lists them.
func Kind() *lang.Kind {
	return &lang.Kind{
		Name: "report",
		Summary: "A page of scores and curves: tables, tests, figures, evidence; as HTML, Markdown, text, LaTeX, CSV " +
			"and JSON.",
		Version:     EvidenceFormat,
		New:         func() lang.Stage { return new(settings) },
		Outputs:     func(lang.Stage) map[string]string { return map[string]string{"page": "page"} },
		AcrossSeeds: true, AfterFailures: true, Light: true,
	}
}

type settings struct {
	// evaluations; the for_each key is the label of an arm, and evaluations with equal keys are one arm
	Scores []artifact.Ref `hcl:"scores,optional" port:"scores"`
	// trainings; a curve has the label of the arm whose policy it trained
	Curves []artifact.Ref `hcl:"curves,optional" port:"metrics"`
	// task sets for the table of the split and its certificate, and data sets for the table of their composition
	Data []artifact.Ref `hcl:"data,optional" port:"tasks|dataset"`
	// episodes to show in full, at most 40 for each label, selected by hash among failures and successes
	Transcripts []artifact.Ref `hcl:"transcripts,optional" port:"trajectories"`
	// pairs to compare. Blocks with an expectation come first and answer the question; if there are none, the first
	// block does. Without blocks every arm is compared with the first
	Compare []Comparison `hcl:"compare,block"`
	// maps of comparisons with several pairs, before the other results: a mark per pair at two metrics of training,
	// coloured by the difference, and a table
	Maps []Map `hcl:"map,block"`
	// results that others published, shown beside those of the page
	References []Reference `hcl:"reference,block"`
	// sections of the page instead of the usual ones, in this order
	Sections []Section `hcl:"section,block"`
	// updates summarized at the start and the end of a training; without it the paper's 70 and 70 if a training is
	// long enough, else none
	Windows *Windows `hcl:"windows,block"`
	// arms in the order of the page; others follow. Without it, the arms of compare blocks come first
	Arms []artifact.Ref `hcl:"arms,optional" port:"scores"`
	// sentences for the head of the page, such as the scope of the experiment
	Notes []string `hcl:"notes,optional"`
	// path of the published HTML page, relative to the experiment; EXPERIMENT.html unless set
	Path string `hcl:"path,optional"`

	At map[string]hcl.Range `hcl:",ranges"`
}

// WithoutEffect returns the settings without effect in combination with the others.
func (s *settings) WithoutEffect() map[string]string {
	e := blocks.Effects{}
	e.Add(len(s.Curves) == 0, "no curves are shown, so no updates are summarized", "windows.early", "windows.late")
	return e
}

// Comparison is a compare block: pairs of arms, and the outcome to compare.
type Comparison struct {
	// the property that only the second arm of each pair has
	Label string `json:"label" hcl:"name,label"`
	// evaluations of the first arms
	Without []artifact.Ref `json:"-" hcl:"without,optional" port:"scores"`
	// evaluations of the second arms, paired by equal for_each keys, else in their order; a single arm is paired with
	// each of the other side
	With  []artifact.Ref `json:"-" hcl:"with,optional" port:"scores"`
	Pairs [][]string     `json:"pairs"` // labels, from without and with
	// success by greedy decoding (of API models by their own sampling), sampled for success of sampled episodes, or a
	// metric of training such as zero_variance: its mean over the late window, paired by seed
	Outcome string `json:"outcome,omitempty" hcl:"outcome,optional"`
	// expected outcome of the second arm of each pair. The claim is one line of the first screen, Yes, No, Not
	// decided or The opposite, and Yes only if every pair is Yes
	Expect string `json:"expect,omitempty" hcl:"expect,optional" choices:"higher|lower"`
	// smallest difference that matters, in percentage points or in the unit of the metric; without it the page never
	// says that there is no difference
	Matters float64 `json:"matters,omitempty" hcl:"matters,optional"`
	// compare arms that were evaluated on different tasks; otherwise outcomes are paired by task, and a pair that
	// loses more than a tenth of either side's tasks is an error
	Unpaired bool `json:"unpaired,omitempty" hcl:"unpaired,optional"`

	At map[string]hcl.Range `json:"-" hcl:",ranges"`
}

// Outcomes of a Comparison that come from evaluations; "" is OutcomeSuccess. Every other outcome is a metric of
// training in its late window.
const (
	OutcomeSuccess = "success" // by greedy decoding; of API models by their own sampling
	OutcomeSampled = "sampled" // success of sampled episodes
)

func (c *Comparison) ofTraining() bool {
	return c.Outcome != "" && c.Outcome != OutcomeSuccess && c.Outcome != OutcomeSampled
}

// Section is a section block.
type Section struct {
	// heading
	Title string `json:"title" hcl:"title,label"`
	// tables and figures in their order: map, main, reference, ablation, calls, seeds, replies, fig-categories,
	// pass-at-k, fig-pass-at-k, fig-outcomes, fig-effects, compare, gap, gap-training, fig-reward, fig-zero-variance,
	// fig-zero-variance-split, fig-spread, fig-tokens-gap, fig-entropy, fig-kl, fig-grad-norm, fig-spread-reward,
	// fig-forecast, entropy, late, signal, forecast, efficiency, fig-tokens-reward, fig-variance, fig-spread-batch,
	// fig-kl-estimators, fig-clip, fig-log-ratio, fig-turns, fig-calls, fig-tool-errors, fig-malformed, fig-stops,
	// fig-length, fig-tuning, fig-successes, values, transcripts, data, certificate, statistics, mixtures, examples,
	// versions, departures, settings, runs, fig-timeline, evidence
	Show []string `json:"show" hcl:"show"`
	// a sentence below the heading
	Lead string `json:"lead,omitempty" hcl:"text,optional"`

	At map[string]hcl.Range `json:"-" hcl:",ranges"`
}

// trainedMetrics returns the names of the metrics that trainings log, without families of names.
func trainedMetrics() []string {
	var names []string
	for _, m := range objective.Metrics {
		if !strings.HasSuffix(m.Name, "_") {
			names = append(names, m.Name)
		}
	}
	return names
}

func (s *settings) Check() hcl.Diagnostics {
	var diags hcl.Diagnostics
	bad := blocks.Mistakes(&diags)
	outcomes := append([]string{OutcomeSuccess, OutcomeSampled}, trainedMetrics()...)
	for _, c := range s.Compare {
		switch {
		case c.Outcome != "" && !slices.Contains(outcomes, c.Outcome):
			bad(true, "Unknown outcome", c.At["outcome"], "No outcome is called %q%s The outcome is success, sampled, or a "+
				"metric of training (rcgrpo kinds report).", c.Outcome, cmp.Or(lang.NearHint(c.Outcome, outcomes), "."))
		case c.Unpaired && c.ofTraining():
			bad(true, "Setting without effect", c.At["unpaired"],
				"unpaired concerns tasks, but trainings log %s, and they are paired by seed. Remove unpaired.", c.Outcome)
		}
		bad(c.Matters < 0, "Negative difference", c.At["matters"],
			"matters is the size of a difference in either direction; got %v.", c.Matters)
		bad(len(c.Without) == 0 || len(c.With) == 0, "Nothing to compare", c.At[""],
			"A comparison needs evaluations on both sides: without = … and with = ….")
	}
	for i := range s.Maps {
		diags = append(diags, s.Maps[i].check(s)...)
	}
	for i := range s.References {
		diags = append(diags, s.References[i].faults()...)
	}
	names := itemNames()
	for _, one := range s.Sections {
		for _, name := range one.Show {
			bad(!slices.Contains(names, name), "Unknown table or figure", one.At["show"],
				"No table or figure is called %q%s There are %s.", name, cmp.Or(lang.NearHint(name, names), "."),
				strings.Join(names, ", "))
		}
	}
	window := func(at hcl.Range, name string, updates int) {
		bad(updates < shortestWindow, "Window too short", at, "A window of fewer than %d updates says little about a "+
			"phase of training; got %s = %d. Without a windows block the page leaves out its tables if trainings are short.",
			shortestWindow, name, updates)
	}
	if w := s.Windows; w != nil {
		window(w.At["early"], "early", w.Early)
		window(w.At["late"], "late", w.Late)
	}
	bad(s.Path != "" && !filepath.IsLocal(s.Path), "Path outside the experiment", s.At["path"],
		"The path of a page is below the experiment's folder; got %q.", s.Path)
	return diags
}

// CheckInputs checks pairs, maps, references, arms and windows against the inputs.
func (s *settings) CheckInputs(n *lang.Node) hcl.Diagnostics {
	var diags hcl.Diagnostics
	bad := blocks.Mistakes(&diags)
	known := labels(n, s.Scores)
	check := func(at hcl.Range, names ...string) {
		for _, name := range names {
			bad(len(known) > 0 && !slices.Contains(known, name), "Unknown arm", at,
				"No evaluation in scores is called %q; there are %s.", name, strings.Join(known, ", "))
		}
	}
	paired := slices.Clone(s.Compare)
	for i, c := range s.Compare {
		pairs, err := c.pairs(n)
		paired[i].Pairs = pairs
		bad(err != nil, "Arms without a partner", c.At[""], "%s.", err)
		for _, pair := range pairs {
			check(c.At[""], pair...)
		}
	}
	for i := range s.Maps {
		diags = append(diags, s.Maps[i].checkPairs(paired)...)
	}
	check(s.At["arms"], labels(n, s.Arms)...)
	for i := range s.References {
		diags = append(diags, s.References[i].armFaults(known)...)
	}
	return append(diags, s.checkWindows(n)...)
}

// checkWindows checks that the windows of the report fit into the trainings.
func (s *settings) checkWindows(n *lang.Node) (diags hcl.Diagnostics) {
	if s.Windows == nil {
		return nil
	}
	for _, in := range n.Inputs {
		if updates, ok := plannedUpdates(in); ok && !s.Windows.fit(updates) {
			shorter := ""
			if updates >= 2*shortestWindow {
				shorter = fmt.Sprintf("shorten the windows to %d updates together, ", updates)
			}
			blocks.Mistakes(&diags)(true, "Windows overlap", s.Windows.At["early"], "The first %d and the last %d updates "+
				"overlap in %s, which makes %d updates. Raise its updates to %d, %sor remove the windows: the page then has "+
				"no tables of early and late training.", s.Windows.Early, s.Windows.Late, in.From.Address, updates,
				s.Windows.Early+s.Windows.Late, shorter)
			return diags
		}
	}
	return nil
}

// plannedUpdates returns the updates of a training by RL whose curve the report reads.
func plannedUpdates(in lang.Input) (updates int, ok bool) {
	if !strings.HasPrefix(in.Setting, "curves") || in.From.Kind.Name != "grpo" && in.From.Kind.Name != "rc-grpo" {
		return 0, false
	}
	for _, setting := range in.From.Settings {
		if setting.Name == "updates" {
			err := json.Unmarshal([]byte(setting.Value), &updates)
			return updates, err == nil
		}
	}
	return 0, false
}

// label returns the label of an evaluation on the page of a node: its own, its for_each key, or its name. In a module
// with for_each the module's key is part of it: "qwen/sft". That of an endpoint begins with its group:
// "API models/GPT".
func label(n *lang.Node, ref artifact.Ref) string {
	name := cmp.Or(ref.Key, ref.Name)
	if in, ok := n.Input(ref); ok {
		if l, ok := in.From.Stage.(lang.Labeled); ok && l.Labels().Arm != "" {
			name = l.Labels().Arm
		}
		if d := designOf(in.From, ref); d.Model == apiModels {
			name = apiModels + "/" + name
		}
	}
	return moduleKeys(ref) + name
}

// moduleKeys returns the for_each keys of the modules of an evaluation, each with a slash: "qwen/".
func moduleKeys(ref artifact.Ref) (keys string) {
	for _, m := range moduleKey.FindAllStringSubmatch(ref.Module, -1) {
		keys += m[1] + "/"
	}
	return keys
}

var moduleKey = regexp.MustCompile(`\["([^"]*)"\]`)

// labels returns the labels of evaluations; the seeds of an arm share a label.
func labels(n *lang.Node, refs []artifact.Ref) (names []string) {
	for _, ref := range refs {
		page.IndexOrAppend(&names, label(n, ref))
	}
	return names
}

// pairs returns the labels of each pair of a comparison: those of a key if both sides have the same keys, else in the
// order of both sides. A single arm is paired with each of the other side.
func (c *Comparison) pairs(n *lang.Node) (pairs [][]string, err error) {
	without, with := labels(n, c.Without), labels(n, c.With)
	switch {
	case len(without) == 1:
		without = slices.Repeat(without, len(with))
	case len(with) == 1:
		with = slices.Repeat(with, len(without))
	case len(without) != len(with):
		return nil, fmt.Errorf("compare %q has %d arms in without and %d in with", c.Label, len(without), len(with))
	default:
		if sorted := c.withByKey(n); len(sorted) == len(with) {
			with = sorted
		}
	}
	for i := range without {
		pairs = append(pairs, []string{without[i], with[i]})
	}
	return pairs, nil
}

// withByKey returns the labels of the second arms in the order of the first arms with the same keys; fewer labels if
// the keys of both sides differ.
func (c *Comparison) withByKey(n *lang.Node) (sorted []string) {
	key := func(ref artifact.Ref) string { return moduleKeys(ref) + ref.Key }
	byKey := map[string]string{}
	for _, ref := range c.With {
		byKey[key(ref)] = label(n, ref)
	}
	for _, ref := range c.Without {
		if b := byKey[key(ref)]; b != "" {
			page.IndexOrAppend(&sorted, b)
		}
	}
	return sorted
}

// Run collects the study, computes its page and writes it in every format.
func (s *settings) Run(_ context.Context, job *engine.Job) error {
	ev, store, err := s.newEvidence(job)
	if err != nil {
		return err
	}
	study, err := gather(ev, func(in *Input) (*artifact.Artifact, error) {
		if in.Role == roleCalls || in.Role == roleReplay { // an input of a stage that the report does not name
			return opener(store)(in)
		}
		return job.Open(in.Ref)
	}, store)
	if err != nil {
		return err
	}
	if err := study.check(); err != nil {
		return err
	}
	study.Compare = study.comparisons()
	study.groupArms()
	if s.Windows == nil && PaperWindows.fit(study.longest()) {
		study.Windows = PaperWindows
	}
	// stored: reproduce reads a part of the artifacts, from which these would differ
	ev.Arms, ev.Compare, ev.Windows = study.labels(), study.Compare, study.Windows
	document := study.Page()
	if document.Evidence, err = ev.Packed(document); err != nil {
		return err
	}
	dir, err := job.Create("page")
	if err != nil {
		return err
	}
	for name, write := range map[string]func(io.Writer) error{
		HTMLFile:     document.HTML,
		MarkdownFile: document.Markdown,
		TextFile:     func(w io.Writer) error { return document.Text(w, TextWidth) },
		LaTeXFile:    document.LaTeX,
		JSONFile:     document.JSON,
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return document.WriteCSV(filepath.Join(dir, CSVFolder))
}

// Publishes returns the HTML page.
func (s *settings) Publishes(experiment, _ string) []lang.Published {
	return []lang.Published{{Port: "page", File: HTMLFile, Name: cmp.Or(s.Path, experiment+".html")}}
}

// declared returns the evidence of a report without any result: what its experiment says, and all inputs.
func (s *settings) declared(x *lang.Experiment, node *lang.Node) (*Evidence, error) {
	ev := &Evidence{
		Format: EvidenceFormat, Name: x.Name, Question: x.Question, Expect: x.Expect, Notes: s.Notes, Sections: s.Sections,
		Overrides: x.Source.Sets, References: s.References, Maps: s.Maps, Arms: labels(node, s.Arms),
	}
	texts := x.SourceFiles()
	for _, name := range sortedKeys(texts) {
		ev.Files = append(ev.Files, SourceFile{name, hexSum(texts[name])})
	}
	if s.Windows != nil {
		ev.Windows = *s.Windows
	}
	for _, c := range s.Compare {
		var err error
		if c.Pairs, err = c.pairs(node); err != nil {
			return nil, err
		}
		ev.Compare = append(ev.Compare, c)
	}
	trained := map[*lang.Node]string{} // label of the last arm with the policy of a training; scores precede curves
	for _, list := range []struct {
		role string
		refs []artifact.Ref
	}{{roleScores, s.Scores}, {roleCurves, s.Curves}, {roleData, s.Data}, {roleTranscripts, s.Transcripts}} {
		for _, ref := range list.refs {
			edge, ok := node.Input(ref)
			if !ok {
				return nil, fmt.Errorf("%s reads %s.%s, which is not an input of it", node.Address, ref.Kind, ref.Name)
			}
			input := Input{Role: list.role, Ref: edge.Ref, Address: edge.From.Address}
			switch list.role {
			case roleScores, roleTranscripts:
				input.Label = label(node, ref)
				for _, in := range edge.From.Inputs {
					if in.Setting == "policy" && in.Ref.Port == "checkpoint" {
						trained[in.From] = input.Label
					}
				}
			case roleCurves:
				name := edge.Ref.Name
				if edge.Ref.Key != "" {
					name = instanceName(edge.Ref)
				}
				input.Label = cmp.Or(trained[edge.From], name)
			}
			if list.role == roleScores || list.role == roleCurves {
				input.Design = designOf(edge.From, edge.Ref)
			}
			ev.Inputs = append(ev.Inputs, input)
		}
	}
	return ev, nil
}

// newEvidence lists the inputs of the page that exist, and all stages behind them that have results; it returns the
// store too.
func (s *settings) newEvidence(job *engine.Job) (*Evidence, *artifact.Store, error) {
	node := job.Experiment.Node(job.Address)
	ev, err := s.declared(job.Experiment, node)
	if err != nil {
		return nil, nil, err
	}
	for _, m := range job.Missing() {
		ev.Failures = append(ev.Failures, page.Failure{Address: m.Address, Cause: m.Why, Log: m.Lines})
	}
	made := map[string]*artifact.Manifest{} // by address
	inputs := ev.Inputs
	ev.Inputs = nil
	for _, in := range inputs {
		a, err := job.Open(in.Ref)
		if missing := (*runs.MissingError)(nil); errors.As(err, &missing) {
			continue // in ev.Failures
		}
		if err != nil {
			return nil, nil, err
		}
		in.Key, in.Digest = a.Manifest.Key, a.Digest
		ev.Inputs = append(ev.Inputs, in)
		made[in.Address] = a.Manifest
	}
	store, err := artifact.Open(job.Site.StorePath)
	if err != nil {
		return nil, nil, err
	}
	p, err := plan.New(job.Experiment, store, plan.Options{})
	if err != nil {
		return nil, nil, err
	}
	planned := map[string]*artifact.Manifest{}
	for _, n := range p.Nodes {
		planned[n.Address] = n.Manifest
	}
	a := ancestry{ev: ev, store: store, remote: remote.Open(job.Site, store), logf: job.Logf, made: made,
		planned: planned, seen: map[string]bool{}}
	a.remote.Report(func(address, text string) { job.Logf("%s: %s", address, text) })
	return ev, store, a.addStages(node)
}

// ancestry adds the stages behind a page to its evidence.
type ancestry struct {
	ev            *Evidence
	store         *artifact.Store
	remote        *remote.Remote // may be nil
	logf          func(format string, args ...any)
	made, planned map[string]*artifact.Manifest // by address: what stages have read; the present result of each
	seen          map[string]bool               // addresses
}

// addStages adds the stages above a node in the order of their dependencies.
func (a *ancestry) addStages(n *lang.Node) error {
	for _, in := range n.Inputs {
		address := in.From.Address
		if a.seen[address] {
			continue
		}
		a.seen[address] = true
		if a.made[address] == nil && a.made[n.Address] != nil {
			a.made[address] = ancestor(a.planned[address], a.made[n.Address], in)
		}
		a.fetchCalls(in)
		if err := a.addStages(in.From); err != nil {
			return err
		}
		if m := a.made[address]; m != nil {
			stage, err := stageRef(in.From, a.store, m)
			if err != nil {
				return err
			}
			a.ev.Stages = append(a.ev.Stages, stage)
		}
		a.addCalls(in)
	}
	return nil
}

// ancestor returns the manifest of an input, or nil if it has none or the node read another result.
func ancestor(m, reader *artifact.Manifest, in lang.Input) *artifact.Manifest {
	if m == nil || reader.Parts["input."+in.Setting] != quoted(m.Outputs[in.Ref.Port].Digest) {
		return nil
	}
	return m
}

// stageRef names a node and its manifest.
func stageRef(n *lang.Node, store *artifact.Store, m *artifact.Manifest) (stage StageRef, err error) {
	stage = StageRef{Address: n.Address, Kind: n.Kind.Name, Key: m.Key}
	stage.Manifest, _ = fingerprint(m, nil)
	for _, setting := range n.Settings {
		if setting.NoEffect != "" {
			stage.NoEffect = append(stage.NoEffect, setting.Name)
		}
	}
	stage.Card, err = readCard(store, m)
	return stage, err
}
