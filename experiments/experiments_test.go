// Package experiments holds the experiments that come with the project. Its tests load, plan and play all of them.
package experiments

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"rcgrpo/bench/fixtures"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/internal/must"
	"rcgrpo/reports"
	"rcgrpo/stages"
)

func registry() lang.Registry {
	return append(lang.Registry(stages.Kinds()), reports.Kind())
}

// loaded loads an experiment without mistakes.
func loaded(t *testing.T, source lang.Source) *lang.Experiment {
	t.Helper()
	x, diags := lang.Load(source, registry())
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	return x
}

// files returns the experiments of this folder.
func files(t *testing.T) []string {
	t.Helper()
	found := must.Get(filepath.Glob("*.hcl"))(t)
	return slices.DeleteFunc(found, func(name string) bool { return name == "site.hcl" })
}

// variables returns values for the variables of an experiment that name models, which may not be here.
func variables(t *testing.T, path string) map[string]string {
	t.Helper()
	text, vars := read(t, path), map[string]string{}
	if strings.Contains(text, `variable "base"`) {
		vars["base"] = folder(t, "qwen2")
	}
	if strings.Contains(text, `variable "models"`) {
		vars["models"] = fmt.Sprintf("{ qwen = %q, llama = %q }", folder(t, "qwen2"), folder(t, "llama"))
	}
	if strings.Contains(text, `variable "model"`) {
		vars["model"] = folder(t, "llama")
	}
	return vars
}

// folder returns a folder with the part of a model that a plan reads.
func folder(t *testing.T, family string) string {
	t.Helper()
	dir := t.TempDir()
	config := fmt.Sprintf(`{"model_type": %q, "vocab_size": 64, "hidden_size": 8, "intermediate_size": 16,
		"num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 32768}`, family)
	must.OK(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600))
	return dir
}

// shapes are the configurations of published models, as far as memory depends on them.
var shapes = map[string]string{
	"Qwen2.5-7B-Instruct": `{"model_type": "qwen2", "vocab_size": 152064, "hidden_size": 3584,
		"intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
		"num_key_value_heads": 4, "max_position_embeddings": 32768}`,
	"Qwen2.5-3B-Instruct": `{"model_type": "qwen2", "vocab_size": 151936, "hidden_size": 2048,
		"intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16,
		"num_key_value_heads": 2, "max_position_embeddings": 32768, "tie_word_embeddings": true}`,
	"Llama-3.1-8B-Instruct": `{"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096,
		"intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
		"num_key_value_heads": 8, "max_position_embeddings": 131072}`,
	"Llama-3.2-3B-Instruct": `{"model_type": "llama", "vocab_size": 128256, "hidden_size": 3072,
		"intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 24,
		"num_key_value_heads": 8, "max_position_embeddings": 131072, "tie_word_embeddings": true}`,
}

// usable is the memory of an H200 of which stages plan: 143,771 MiB by the driver less the reserve.
const usable = 143771<<20 - lang.DefaultGPUReserve

// memory plans the stages of arms.hcl from a base: each kind's plan on an H200.
func memory(t *testing.T, base, context, host string) map[string]stages.MemoryPlan {
	t.Helper()
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, "config.json"), []byte(shapes[base]), 0o600))
	x := loaded(t, lang.Source{Path: "arms.hcl", Vars: map[string]string{"base": dir, "context": context, "host": host}})
	plans := map[string]stages.MemoryPlan{}
	for _, n := range x.Nodes {
		if plan, ok := stages.Memory(n, usable, 1<<40); ok {
			plans[n.Kind.Name] = plan
		}
	}
	return plans
}

// total is the first number of a plan's text: "72.9 GiB".
func total(p stages.MemoryPlan) string {
	total, _, _ := strings.Cut(p.Text, ":")
	return total
}

// The table of docs/models.md, and the head of arms.hcl.
func TestMemoryOfThePapersFilesIsWhatThePlanSays(t *testing.T) {
	page, rows := read(t, filepath.Join("..", "docs", "models.md")), 0
	head, _, _ := strings.Cut(read(t, "arms.hcl"), "experiment {")
	for line := range strings.Lines(page) {
		var cells []string
		for cell := range strings.SplitSeq(strings.Trim(strings.TrimSpace(line), "|"), "|") {
			cells = append(cells, strings.TrimSpace(cell))
		}
		if shapes[cells[0]] == "" {
			continue
		}
		rows++
		plans := memory(t, cells[0], cells[1], cells[2])
		said := "nothing"
		switch fits := func(kind string) bool { return plans[kind].Unfit == nil }; {
		case fits("eval") && fits("sft") && fits("grpo"):
			said = "everything"
		case fits("eval") && fits("sft"):
			said = "all but RL"
		case fits("eval"):
			said = "rollouts and evaluation"
		}
		_, episodes, _ := strings.Cut(plans["eval"].Text, "KV cache of at most ")
		episodes, _, _ = strings.Cut(episodes, " ")
		want := fmt.Sprintf("| %s | %s | %s | %s | %s | %s | %.1f GiB | %s |", cells[0], cells[1], cells[2], episodes,
			total(plans["sft"]), total(plans["grpo"]), float64(plans["grpo"].Host)/(1<<30), said)
		if got := strings.TrimSpace(line); got != want {
			t.Errorf("docs/models.md: got %s, want %s", got, want)
		}
		for _, same := range [][2]string{{"rollout", "eval"}, {"sft", "rctp-ft"}, {"grpo", "rc-grpo"}} {
			if a, b := plans[same[0]].Text, plans[same[1]].Text; a != b {
				t.Errorf("%s: %s takes %s and %s takes %s, and the table has one number", cells[0], same[0], a, same[1], b)
			}
		}
		if cells[2] == "moments" && !strings.Contains(head, total(plans["grpo"])) {
			t.Errorf("arms.hcl: its head lacks %s, the memory of an arm of %s", total(plans["grpo"]), cells[0])
		}
	}
	if rows != 6 {
		t.Errorf("docs/models.md: %d rows of known models, want 6", rows)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	return string(must.Get(os.ReadFile(file))(t))
}

func TestThePapersFilesMergeTheRequestsOfATask(t *testing.T) {
	for _, file := range []string{"arms.hcl", "paper.hcl", "equal_compute.hcl", "splits.hcl"} {
		x := loaded(t, lang.Source{Path: file, Vars: variables(t, file)})
		prompts := map[string]int{}
		for _, n := range x.Nodes {
			for _, s := range n.Settings {
				if n.Kind.Name == "tasks" && s.Name == "prompt" {
					prompts[s.Value]++
				}
			}
		}
		if len(prompts) != 1 || prompts[`"merged"`] == 0 {
			t.Errorf("%s: prompts %v, want the paper's, \"merged\", alone", file, prompts)
		}
	}
}

// A run refuses a stage that requests more devices than its kind can use, so the defaults must not.
func TestNoStageAsksForMoreDevicesThanItCanUse(t *testing.T) {
	asked := 0
	for _, file := range files(t) {
		x := loaded(t, lang.Source{Path: file, Vars: variables(t, file)})
		for _, n := range x.Nodes {
			asked += n.Resources.GPUs
			if n.Resources.GPUs > 1 && !n.Kind.MultiGPU && (n.Kind.Ranks == nil || n.Kind.Ranks(n.Stage) < n.Resources.GPUs) {
				t.Errorf("%s: %s asks for %d GPUs, and a %s stage cannot use them", file, n.Address, n.Resources.GPUs,
					n.Kind.Name)
				break
			}
		}
		head, _, _ := strings.Cut(read(t, file), "experiment {")
		if strings.Contains(read(t, file), "variable \"gpus\"") && !strings.Contains(strings.ReplaceAll(head, "\n#", ""),
			"has run on") {
			t.Errorf("%s: its head does not say that no stage has run on a GPU", file)
		}
	}
	if asked == 0 {
		t.Error("no experiment asks for a GPU")
	}
}

// Both models of paper.hcl, on a site that declares H200s which this machine lacks.
func TestThePapersFileFitsOnEightCardsAndOnOne(t *testing.T) {
	dir := t.TempDir()
	site := filepath.Join(dir, "site.hcl")
	must.OK(t, os.WriteFile(site, fmt.Appendf(nil, `
		store { path = %q }
		executor "local" {
			gpus                  = [0, 1, 2, 3, 4, 5, 6, 7]
			gpu_memory            = "143771MiB"
			memory                = "1500GiB"
			gpu_tokens_per_second = 1581
		}`, filepath.Join(dir, "store")), 0o600))
	models := "{"
	for name, shape := range map[string]string{"qwen": "Qwen2.5-7B-Instruct", "llama": "Llama-3.1-8B-Instruct"} {
		must.OK(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		must.OK(t, os.WriteFile(filepath.Join(dir, name, "config.json"), []byte(shapes[shape]), 0o600))
		models += fmt.Sprintf(" %s = %q,", name, filepath.Join(dir, name))
	}
	for name, tc := range map[string]struct {
		vars map[string]string
		fits bool
	}{
		"eight cards":                         {map[string]string{"gpus": "8"}, true},
		"one card and the host's memory":      {map[string]string{"host": "all"}, true},
		"one card and an adapter":             {map[string]string{"lora": "16"}, true},
		"one card and all weights on it only": {nil, false},
	} {
		vars := map[string]string{"models": models + " }"}
		maps.Copy(vars, tc.vars)
		x := loaded(t, lang.Source{Path: "paper.hcl", Vars: vars, Site: site})
		p := must.Get(plan.New(x, must.Get(artifact.Open(x.Site.StorePath))(t), plan.Options{}))(t)
		f := p.Forecast(t.Context())
		unfit := 0
		for _, n := range p.Nodes {
			at := f.Placements[n]
			if m, ok := stages.Memory(n.Node, at.Memory, at.HostMemory); at.Unfit != "" || ok && m.Unfit != nil {
				unfit++
				if tc.fits {
					t.Errorf("%s: %s: %s %v", name, n.Address, at.Unfit, m.Unfit)
				}
			}
		}
		if tc.fits != (unfit == 0) {
			t.Errorf("%s: %d stages do not fit", name, unfit)
		}
		// 2 models, 3 seeds, 2 arms each of 350 updates of 64 × 5 and of 256 × 5 episodes of at most 16,384 tokens
		want := 12. * 350 * (64 + 256) * 5 * 16384 / 1581 / 3600
		if math.Abs(f.GPUHours/want-1) > 1e-6 || f.Stated != f.GPUHours {
			t.Errorf("%s: got %v GPU hours, %v of them stated, want %v", name, f.GPUHours, f.Stated, want)
		}
	}
}

// planFile loads an experiment and plans it against an empty store: every stage runs. Warnings count as mistakes.
func planFile(t *testing.T, path string) {
	t.Helper()
	x, diags := lang.Load(lang.Source{Path: path, Vars: variables(t, path)}, registry())
	var said strings.Builder
	lang.WriteDiagnostics(&said, diags, x.Files, false)
	if said.Len() > 0 {
		t.Fatal(said.String())
	}
	store := must.Get(artifact.Open(t.TempDir()))(t)
	p := must.Get(plan.New(x, store, plan.Options{}))(t)
	if len(p.Nodes) == 0 || len(p.Nodes) != len(x.Nodes) {
		t.Errorf("%d of %d nodes are in the plan", len(p.Nodes), len(x.Nodes))
	}
	if x.Question == "" || x.Expect == "" {
		t.Error("an experiment says what it asks and what it expects")
	}
	if head, _, _ := strings.Cut(string(x.Files[x.Paths[0]].Bytes), "experiment {"); !strings.Contains(head, "# Cost: ") {
		t.Error("the head of an experiment says what it costs")
	}
	for _, n := range p.Nodes {
		if n.Verb != plan.MustRun && n.Verb != plan.MayRun {
			t.Errorf("%s: %s with an empty store", n.Address, n.Verb)
		}
	}
}

func TestEveryExperimentPlans(t *testing.T) {
	for _, file := range files(t) {
		t.Run(file, func(t *testing.T) { planFile(t, file) })
	}
}

// The expected cost of the paper's API models: GLM's price is in the site file. The bounds are from another
// count: 80 merged tasks of about 18 tools have 20,000 to 60,000 bytes of documents, requests and results in two calls.
func TestAPIModelsArePlannedWithTheirPrice(t *testing.T) {
	site := filepath.Join(t.TempDir(), "site.hcl")
	must.OK(t, os.WriteFile(site, fmt.Appendf(nil, "data {\n  bfcl = %q\n}\napi \"GLM_API_KEY\" {\n"+
		"  prices = { \"glm-4.7\" = [0.6, 2.2] }\n}\n", fixtures.Benchmark(t)), 0o600))
	x := loaded(t, lang.Source{Path: "api_models.hcl", Site: site})
	cost := map[string]float64{}
	for _, n := range x.Nodes {
		dollars, ok, err := stages.CallCost(n, x.Site)
		must.OK(t, err)
		if ok != (n.Kind.Name == "eval") {
			t.Errorf("%s: got a cost: %v", n.Address, ok)
		}
		if ok {
			cost[n.EachKey] = dollars
		}
	}
	// 80 tasks, two requests of 5,000 to 15,000 tokens and two replies of 300 tokens: at $5 and $25 for a million tokens
	// $5.2 to $13.2.
	if got := cost["Opus-4.5"]; len(cost) != 5 || got < 5.2 || got > 13.2 {
		t.Errorf("got %v, want five costs, and Opus-4.5 between $5.2 and $13.2", cost)
	}
	if got, want := cost["Sonnet-4.5"], cost["Opus-4.5"]*3/5; math.Abs(got-want) > 1e-9 {
		t.Errorf("Sonnet-4.5: got $%v, want 3/5 of Opus-4.5, as its prices are", got)
	}
	site2 := *x.Site
	site2.APIs = nil
	if _, _, err := stages.CallCost(x.Node(`stage.eval.api["GLM-4.7"]@1`), &site2); err == nil {
		t.Error("a model without price was accepted")
	}
}

func node(t *testing.T, file, address string) *lang.Node {
	t.Helper()
	n := loaded(t, lang.Source{Path: file, Vars: variables(t, file)}).Node(address)
	if n == nil {
		t.Fatalf("%s has no node %s", file, address)
	}
	return n
}

// inBase are the modules with the base of each experiment about drills.
var inBase = map[string]string{"drills_base.hcl": "", "drills.hcl": "module.base.",
	"drills_long.hcl": "module.drills.module.base.", "tokens.hcl": "module.base.",
	"temperature.hcl": "module.drills.module.base.", "forecast.hcl": "module.base."}

func TestDrillsHaveABasePerSeedAndOneTestSet(t *testing.T) {
	for _, file := range []string{"drills.hcl", "tokens.hcl", "temperature.hcl", "forecast.hcl"} {
		for _, stage := range []string{"model.random", "sft.copy", "sft.base"} {
			node(t, file, inBase[file]+"stage."+stage+"@2")
		}
	}
	for file, base := range inBase {
		// The test sets are a draw from the pool, so a draw of all of it is the same for every seed.
		values := map[string]string{}
		for _, s := range node(t, file, base+"stage.tasks.drills@1").Settings {
			values[s.Name] = s.Value
		}
		if values["test"] != values["pool"] {
			t.Errorf("%s: each seed draws %s test tasks from a pool of %s, want all of it", file, values["test"], values["pool"])
		}
	}
}

// comparisons returns the pairs of a report, each as "label; outcome; expectation; without; with".
func comparisons(n *lang.Node) (pairs []string) {
	labels := func(setting string) (found []string) {
		for _, in := range n.Inputs {
			if strings.HasPrefix(in.Setting, setting+"[") && !slices.Contains(found, in.From.EachKey) {
				found = append(found, in.From.EachKey)
			}
		}
		return found
	}
	values := map[string]string{}
	for _, s := range n.Settings {
		values[s.Name] = strings.Trim(s.Value, `"`)
	}
	for i := 0; values[fmt.Sprintf("compare[%d].name", i)] != ""; i++ {
		block := fmt.Sprintf("compare[%d].", i)
		without, with := labels(block+"without"), labels(block+"with")
		for j := range max(len(without), len(with)) { // a single arm is compared with all of the other side
			pair := []string{values[block+"name"], values[block+"outcome"], values[block+"expect"],
				without[min(j, len(without)-1)], with[min(j, len(with)-1)]}
			pairs = append(pairs, strings.Join(pair, "; "))
		}
	}
	return pairs
}

// The claims of an experiment's expectation, and the largest effect of its page, each have a comparison.
func TestReportsCompareWhatTheirExperimentsExpect(t *testing.T) {
	method := []string{
		"the paper's method; ; higher; SFT + GRPO; RCTP-FT + RC-GRPO",
		"the paper's method; ; higher; SFT + RC-GRPO; RCTP-FT + RC-GRPO",
		"the paper's method; ; higher; RCTP-FT + GRPO; RCTP-FT + RC-GRPO",
		"the paper's method; zero_variance; lower; SFT + GRPO; RCTP-FT + RC-GRPO",
		"RL; sampled; ; RCTP-FT; RCTP-FT + RC-GRPO",
	}
	for file, claims := range map[string][]string{
		"drills.hcl": method, "drills_long.hcl": method,
		"splits.hcl": {"the paper's split; ; higher; RCTP-FT + RC-GRPO (family); RCTP-FT + RC-GRPO (paper)",
			"the paper's split, without training; ; ; Base (family); Base (paper)"},
		"tokens.hcl": {"balanced groups; sigma2; higher; iid, p = 0.5; stratified, p = 0.5",
			"share far from one half; token_gap; lower; iid, p = 0.5; iid, p = 0.75"},
		"temperature.hcl": {"token against temperature; ; higher; GRPO, T = 1.2; RC-GRPO",
			"temperature; zero_variance; lower; GRPO, T = 1; GRPO, T = 1.5"},
		"forecast.hcl":      {"passes of fine-tuning; forecast_zero_variance; higher; SFT × 1; SFT × 8"},
		"equal_compute.hcl": {"batch; spread_batch_ddof1; higher; RCTP-FT + GRPO (64); RCTP-FT + GRPO (256)"},
	} {
		report := node(t, file, "stage.report.page")
		made := comparisons(report)
		for _, claim := range claims {
			if !slices.Contains(made, claim) {
				t.Errorf("%s: no comparison makes the claim %s", file, claim)
			}
		}
		for _, s := range report.Settings {
			if unpaired := file == "splits.hcl"; strings.HasSuffix(s.Name, ".unpaired") && s.Value != fmt.Sprint(unpaired) {
				t.Errorf("%s: %s is %s, want %v", file, s.Name, s.Value, unpaired)
			}
		}
	}
}

func TestExperimentsAreShortAndFormatted(t *testing.T) {
	for _, file := range files(t) {
		text := read(t, file)
		if formatted, diags := lang.Format([]byte(text), file); diags.HasErrors() || string(formatted) != text {
			t.Errorf("rcgrpo fmt changes %s", file)
		}
		lines := 0
		for line := range strings.Lines(text) {
			lines++
			if utf8.RuneCountInString(line) > 121 {
				t.Errorf("%s has a line of more than 120 columns: %s", file, line)
			}
		}
		if lines > 200 {
			t.Errorf("%s has %d lines, want at most 200; put shared stages into a module", file, lines)
		}
	}
}

// The counts are those that were derived from the paper's percentages by another program.
func TestThePapersFileCarriesTheCountsOfItsTable(t *testing.T) {
	var paper struct {
		Counts []struct {
			Model, Method string
			Counts        map[string]int
		} `json:"corrected_counts"`
	}
	must.OK(t, json.Unmarshal(fixtures.Read(t, "rl/paper_tables.json"), &paper))
	counts, others := map[string]map[string]int{}, map[string]map[string]map[string]int{}
	for _, s := range node(t, "paper.hcl", "stage.report.page").Settings {
		switch s.Name {
		case "reference[0].counts": // of the page's models
			must.OK(t, json.Unmarshal([]byte(s.Value), &counts))
		case "reference[0].others": // of API models
			must.OK(t, json.Unmarshal([]byte(s.Value), &others))
		}
	}
	for group, rows := range others {
		for name, row := range rows {
			counts[group+"/"+name] = row
		}
	}
	if len(counts) != 15 || len(paper.Counts) != 15 {
		t.Fatalf("got %d rows of counts, want %d and 15", len(counts), len(paper.Counts))
	}
	for _, row := range paper.Counts {
		label := "API models/" + row.Model
		if model := map[string]string{"Qwen2.5-7B": "qwen/", "LLaMA-3.1-8B": "llama/"}[row.Model]; model != "" {
			label = model + strings.TrimSuffix(strings.TrimSuffix(row.Method, " (Ours)"), " Model")
		}
		if !maps.Equal(counts[label], row.Counts) {
			t.Errorf("%s: got counts %v, want %v", label, counts[label], row.Counts)
		}
	}
}
