//go:build libtorch

package stages

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
	"rcgrpo/reports"
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// The paper's experiments of experiments/ at reduced scale, paper.hcl with two ranks in each stage too: a tiny model of
// the same family and one task of each set, through the same files with other variables, up to the page. The model has
// memorized the expert episodes of these tasks well enough to succeed in some of its rollouts, so groups have variance
// and gradients are not 0.
func TestPaperExperimentsRunAtReducedScale(t *testing.T) {
	benchmark := fixtures.Benchmark(t)
	data := must.Get(bfcl.LoadData(benchmark))(t)
	t.Setenv("RCGRPO_LEASES", filepath.Join(t.TempDir(), "leases"))
	qwen, llama := tinyFolder(t, data, benchmark, "qwen2"), ""
	if fixtures.Llama(t) && !testing.Short() { // whose case is long
		llama = tinyFolder(t, data, benchmark, "llama")
	}
	paper := []string{"compare", "reference-rc-grpo-paper--main-table", "ablation-", "statistics", "mixtures", "versions",
		"example-expert-", "example-failed-"}
	for _, tc := range []struct {
		name, seeds string // of the file, and of a case
		vars        map[string]string
		tables      []string // of the page, beside those that every page has
	}{
		{"paper.hcl qwen", "[1, 2]", map[string]string{"models": fmt.Sprintf("{ qwen = %q }", qwen),
			"batches": "{ grpo = 1, rc = 2 }", "parts": "1"}, append([]string{"seeds"}, paper...)},
		{"paper.hcl qwen with two ranks", "[1]", map[string]string{"models": fmt.Sprintf("{ qwen = %q }", qwen),
			"batches": "{ grpo = 2, rc = 2 }", "parts": "2", "processes": "2"}, paper},
		{"paper.hcl llama", "[1]", map[string]string{"models": fmt.Sprintf("{ qwen = %q, llama = %q }", qwen, llama),
			"batches": "{ grpo = 1, rc = 2 }", "parts": "1"}, paper},
		{"equal_compute.hcl", "[1]", map[string]string{"base": qwen, "batches": "{ small = 1, large = 2 }"},
			[]string{"compare", "mixtures"}},
		{"splits.hcl", "[1]", map[string]string{"base": qwen, "batch": "2"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.name != "paper.hcl qwen" {
				must.Long(t)
			}
			if strings.Contains(tc.name, "llama") && llama == "" {
				t.Skip(fixtures.NoLlama)
			}
			for name, value := range map[string]string{"gpus": "0", "updates": "1", "take": "1", "reply": "160",
				"context": "32768"} {
				tc.vars[name] = value
			}
			file, _, _ := strings.Cut(tc.name, " ")
			p := playFile(t, file, tc.seeds, tc.vars, benchmark)
			p.checkRewardsAndGradients(t)
			p.checkPage(t, tc.tables)
		})
	}
}

// pretended is a run of one of the paper's files.
type pretended struct {
	*plan.Plan
}

// playFile runs a file of experiments/ to its end, with other seeds, into a store of its own: in this process, or with
// several ranks in those that the engine starts.
func playFile(t *testing.T, file, seeds string, vars map[string]string, benchmark string) pretended {
	t.Helper()
	dir := t.TempDir()
	text := must.Get(os.ReadFile(filepath.Join(fixtures.Root(t), "experiments", file)))(t)
	list := regexp.MustCompile(`(?m)^  seeds +=.*`)
	if !list.Match(text) {
		t.Fatalf("%s has no seeds", file)
	}
	path, site := filepath.Join(dir, file), filepath.Join(dir, "site.hcl")
	must.OK(t, errors.Join(os.CopyFS(dir, os.DirFS(filepath.Join(fixtures.Root(t), "experiments"))), // with its modules
		os.WriteFile(path, list.ReplaceAll(text, []byte("  seeds = "+seeds)), 0o600),
		os.WriteFile(site, fmt.Appendf(nil, "store {\n  path = %q\n}\ndata {\n  bfcl = %q\n}\nexecutor \"local\" {\n  "+
			"cpus = %s\n}\n", filepath.Join(dir, "store"), benchmark, cmp.Or(vars["processes"], "1")), 0o600)))
	x, diags := lang.Load(lang.Source{Path: path, Vars: vars, Site: site},
		append(lang.Registry(Kinds()), reports.Kind()))
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	store := must.Get(artifact.Open(x.Site.StorePath))(t)
	p := must.Get(plan.New(x, store, plan.Options{}))(t)
	var o engine.Options
	if vars["processes"] == "" {
		o.Executor = here{}
	}
	must.OK(t, engine.Run(t.Context(), p, o, func(e runs.Event) {
		if e.Failure != nil {
			t.Log(e.Address, e.Failure.Text)
		}
	}))
	return pretended{must.Get(plan.New(x, store, plan.Options{}))(t)} // with the results
}

// here runs every stage in this process.
type here struct{}

func (here) Execute(ctx context.Context, w *engine.Work, observe func(runs.Event)) error {
	return w.ExecuteHere(ctx, observe)
}

// folder returns the folder of a port of a node.
func (p pretended) folder(t *testing.T, n *plan.Planned, port string) string {
	t.Helper()
	m, err := p.Store.Lookup(n.Key)
	if err != nil || m == nil {
		t.Fatalf("%s has no result (%v)", n.Address, err)
	}
	a := must.Get(p.Store.Open(m, port))(t)
	return a.Dir
}

// checkRewardsAndGradients fails if all advantages and gradients are 0, which would hide errors.
func (p pretended) checkRewardsAndGradients(t *testing.T) {
	arms, learning := 0, 0
	for _, n := range p.Nodes {
		switch n.Kind.Name {
		case "rollout":
			earned := map[float64]int{}
			for _, e := range rows[*rl.Trajectory](t, p.folder(t, n, "trajectories"), rl.TrajectoriesFile) {
				earned[float64(e.Reward)]++
			}
			if earned[0] == 0 || earned[0]+earned[1] != 4 {
				t.Errorf("%s: rewards %v, want four, failures among them", n.Address, earned)
			}
		case "grpo", "rc-grpo":
			reward, learns := 0.0, false
			for _, m := range rows[rl.Metric](t, p.folder(t, n, "metrics"), rl.MetricsFile) {
				v := m.Values
				reward = max(reward, v["reward"])
				learns = learns || v["mean_abs_advantage"] > 0.1 && v["grad_norm"] > 1e-6
				if math.IsNaN(v["loss"]) || math.IsNaN(v["grad_norm"]) || v["skipped"] != 0 {
					t.Errorf("%s: update %d is skipped or no number: %v", n.Address, m.Update, v)
				}
			}
			if strings.Contains(n.Address, "family") { // whose tasks the model does not know
				continue
			}
			arms++
			if learns && reward > 0 {
				learning++
			}
		case "rctp-ft":
			if m := rows[rl.Metric](t, p.folder(t, n, "metrics"), rl.MetricsFile); len(m) != 5 ||
				!(m[0].Values["grad_norm"] > 0) {
				t.Errorf("%s: got %v, want five updates with gradients", n.Address, m)
			}
		}
	}
	if arms == 0 || 2*learning < arms { // a group of five may fail or succeed as a whole
		t.Errorf("%d of %d arms have successes, advantages and a gradient, want half of them at least", learning, arms)
	}
	t.Logf("%d of %d arms learn", learning, arms)
}

// checkPage checks that the page exists in every form, with every table that the file's stages can fill. A training of
// one update has no windows and so no tables of them.
func (p pretended) checkPage(t *testing.T, more []string) {
	last := p.Nodes[len(p.Nodes)-1]
	if last.Kind.Name != "report" {
		t.Fatalf("the last stage is %s, want the report", last.Address)
	}
	dir := p.folder(t, last, "page")
	for _, name := range []string{reports.HTMLFile, reports.MarkdownFile, reports.TextFile, reports.LaTeXFile} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		// its scripts know NaN
		if err != nil || len(text) < 2000 || name != reports.HTMLFile && strings.Contains(string(text), "NaN") {
			t.Errorf("%s: %d bytes, %v; want a page without NaN", name, len(text), err)
		}
	}
	type section struct {
		Parts []struct {
			Table struct {
				ID   string
				Rows []any
			}
		}
	}
	var page struct {
		First    section
		Sections []section
	}
	text, err := os.ReadFile(filepath.Join(dir, reports.JSONFile))
	if err == nil {
		err = json.Unmarshal(text, &page)
	}
	must.OK(t, err)
	var tables []string
	for _, s := range append(page.Sections, page.First) {
		for _, part := range s.Parts {
			if len(part.Table.Rows) > 0 {
				tables = append(tables, part.Table.ID)
			}
		}
	}
	for _, want := range append([]string{"main", "data", "certificate", "departures", "settings", "runs",
		"evidence"}, more...) {
		if !slices.ContainsFunc(tables, func(id string) bool { return strings.HasPrefix(id, want) }) {
			t.Errorf("no table %s; there are %v", want, tables)
		}
	}
}

// tinyFolder is a model folder of a family: a tiny model that knows the expert episodes of the tasks that take =
// 1 keeps of the paper's split, a vocabulary trained on the documents of the benchmark's tools and these
// episodes, and the family's template.
func tinyFolder(t *testing.T, data *bfcl.Data, benchmark, family string) string {
	t.Helper()
	layout, special, template := "qwen2.5", []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>",
		"</tool_call>"}, "hf/chat/qwen2_5.jinja"
	if family == "llama" {
		layout, template = "llama3.1", "hf/chat/llama3_1.jinja"
		special = []string{"<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
			"<|eom_id|>", "<|eot_id|>"}
	}
	functions := must.Get(chat.FunctionsOf(data))(t)
	experts := keptExperts(t, data)
	var texts []string
	for _, f := range functions {
		texts = append(texts, string(f))
	}
	for _, e := range experts {
		for _, m := range e.Messages {
			texts = append(texts, m.Text)
		}
	}
	slices.Sort(texts)
	tokens := must.Get(token.Train(texts, 4000, special))(t)
	dir := t.TempDir()
	for name, text := range map[string][]byte{checkpoint.TokenizerFile: tokens.JSON(),
		chat.TemplateFile:       fixtures.Read(t, template),
		"tokenizer_config.json": fmt.Appendf(nil, `{"bos_token": %q}`, special[0])} {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	if err := (checkpoint.Meta{Layout: layout}).Write(dir); err != nil { // for the codec; a folder from the hub has none
		t.Fatal(err)
	}
	codec, err := checkpoint.OpenCodec(dir, benchmark)
	must.OK(t, errors.Join(err, os.Remove(filepath.Join(dir, checkpoint.MetaFile))))
	var lessons [][]lm.Sequence // the same episodes, as they are and with something in the place of a reward token
	for _, goal := range []string{"", "\n[Reward Goal: high]", "\n[Reward Goal: low]"} {
		var variant []lm.Sequence
		for _, e := range experts {
			told := *e
			told.Messages = slices.Clone(e.Messages)
			told.Messages[0].Text += goal
			ids, learn, err := chat.Encode(codec, &told, rl.TokenNone)
			must.OK(t, err)
			variant = append(variant, lm.Sequence{IDs: ids, Mask: learn})
		}
		lessons = append(lessons, variant)
	}
	m := must.Get(lm.New(lm.Config{Decoder: family, Vocab: tokens.Size(), Hidden: 48, Layers: 1, Heads: 4, KVHeads: 2,
		HeadDim: 16, MLP: 192, RopeBase: 10000,
		NormEps: 1e-6, MaxPosition: 32768}, engine.Rand(1, family)))(t)
	defer m.Close()
	memorise(t, m, lessons)
	must.OK(t, m.Save(dir))
	return dir
}

// keptExperts are the expert episodes of the tasks that take = 1 keeps of the paper's split.
func keptExperts(t *testing.T, data *bfcl.Data) (experts []*rl.Trajectory) {
	t.Helper()
	paper := must.Get(bfcl.PaperSplit(data.Tasks(), "file"))(t)
	for _, task := range []*bfcl.Task{paper.Train[0], paper.Test[0]} {
		e, err := rl.Expert(task.Merged(), bfcl.Settings{Data: data, Today: bfcl.ReleaseDate})
		if err != nil || e.Reward != 1 {
			t.Fatalf("expert of %s: %v, %v", task.ID, e, err)
		}
		experts = append(experts, e)
	}
	return experts
}

// memorise trains a model on one variant of the lessons after another, until it gives each lesson a probability
// of more than an eighth as a whole.
func memorise(t *testing.T, m *lm.Model, lessons [][]lm.Sequence) {
	t.Helper()
	trainer := must.Get(lm.NewTrainer(m, lm.OptimizerConfig{Beta1: 0.9, Beta2: 0.98, Eps: 1e-8, Clip: 1,
		MicroTokens: lm.DefaultMicroTokens}, lm.Peers{}))(t)
	defer trainer.Close()
	const enough = 2 // nats of a lesson
	known := 0       // variants in a row
	for u := 0; known < len(lessons); u++ {
		if u == 300 {
			t.Fatal("the model does not learn its lessons")
		}
		variant, worst := lessons[u%len(lessons)], 0.0
		must.Get(trainer.Accumulate(t.Context(), variant, nil, 1, func(first, n int, s lm.TokenStats) (lm.Weights, error) {
			w := lm.Weights{Logp: make([]float64, len(s.Logp))}
			from := 0
			for _, lesson := range variant[first : first+n] {
				nats := 0.0
				for _, learned := range lesson.Mask {
					if learned {
						nats -= s.Logp[from]
						w.Logp[from] = -1e-2
						from++
					}
				}
				worst = max(worst, nats)
			}
			return w, nil
		}))(t)
		if worst <= enough {
			known++
			must.OK(t, trainer.Drop())
			continue
		}
		known = 0
		_, _, err := trainer.Update(1e-2)
		must.OK(t, err)
	}
}
