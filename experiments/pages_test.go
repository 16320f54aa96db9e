//go:build !race

package experiments

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/plan"
	"rcgrpo/internal/browser"
	"rcgrpo/internal/must"
	"rcgrpo/reports"
	"rcgrpo/stages/rl"
)

// page is a report of an experiment file at pretended scale.
type page struct {
	name string // of its file, with the for_each key of its stage
	html []byte
	json []byte // tables and figures
}

// report reports the findings of a check.
func report(t *testing.T, check string, findings ...string) {
	t.Helper()
	for _, finding := range findings {
		t.Errorf("%s: %s", check, finding)
	}
}

// The page of every experiment file, at pretended scale: the numbers on it, its tables and figures, and a reader's use
// of it in a browser. The folder $RCGRPO_PAGES keeps the pages, and their page.json, so that the documents before and
// after a change of reports can be compared.
func TestPagesOfEveryExperiment(t *testing.T) {
	t.Setenv("RCGRPO_LEASES", filepath.Join(t.TempDir(), "leases"))
	dir := t.TempDir() // files share stages, and so a store
	var pages []page
	for _, file := range files(t) {
		t.Run(file, func(t *testing.T) {
			if !strings.Contains(read(t, file), `stage "report"`) {
				checkIsModule(t, file)
				return
			}
			if file != "drills.hcl" && file != "paper.hcl" {
				must.Long(t)
			}
			pages = append(pages, pagesOf(t, dir, file)...)
		})
	}
	t.Run("in a browser", func(t *testing.T) {
		openPages(t, cmp.Or(os.Getenv("RCGRPO_PAGES"), dir), pages)
	})
}

// pagesOf plays a file in a folder and returns its pages, whose contents it checks.
func pagesOf(t *testing.T, dir, file string) (pages []page) {
	t.Helper()
	p := playPretended(t, dir, file)
	checkSuccesses(t, p)
	for _, n := range p.Nodes {
		if n.Kind.Name != "report" {
			continue
		}
		made := folderOf(t, p, n, "page")
		one := page{strings.TrimSuffix(file, ".hcl") + n.EachKey,
			must.Get(os.ReadFile(filepath.Join(made, reports.HTMLFile)))(t),
			must.Get(os.ReadFile(filepath.Join(made, reports.JSONFile)))(t)}
		if kept := os.Getenv("RCGRPO_PAGES"); kept != "" {
			must.OK(t, os.WriteFile(filepath.Join(kept, one.name+".json"), one.json, 0o600))
		}
		one.checkContents(t, file, p.Store)
		must.OK(t, must.Get(reports.ReadEvidence(one.html))(t).CheckExperiment(p.Experiment))
		pages = append(pages, one)
	}
	return pages
}

// checkIsModule checks that another file shows the results of a file without a page.
func checkIsModule(t *testing.T, file string) {
	t.Helper()
	for _, other := range files(t) {
		if strings.Contains(strings.Join(strings.Fields(read(t, other)), " "), fmt.Sprintf("source = %q", file)) {
			return
		}
	}
	t.Errorf("%s has no page, and no other file shows its results", file)
}

func folderOf(t *testing.T, p *plan.Plan, n *plan.Planned, port string) string {
	t.Helper()
	m := must.Get(p.Store.Lookup(n.Key))(t)
	if m == nil {
		t.Fatalf("%s has no result", n.Address)
	}
	return must.Get(p.Store.Open(m, port))(t).Dir
}

// checkSuccesses checks that episodes succeed and fail: in every training, and in every evaluation but those of random
// weights. Pages of zeros alone would hide errors.
func checkSuccesses(t *testing.T, p *plan.Plan) {
	t.Helper()
	for _, n := range p.Nodes {
		var rewards []float64
		switch n.Kind.Name {
		case "grpo", "rc-grpo":
			for row, err := range artifact.ReadRows[rl.Metric](filepath.Join(folderOf(t, p, n, "metrics"), rl.MetricsFile)) {
				must.OK(t, err)
				rewards = append(rewards, row.Values["reward"])
			}
		case "eval":
			for row, err := range artifact.ReadRows[rl.Score](filepath.Join(folderOf(t, p, n, "scores"), rl.ScoresFile)) {
				must.OK(t, err)
				rewards = append(rewards, row.Reward)
			}
		default:
			continue
		}
		if slices.Max(rewards) == 0 && n.EachKey != "Random weights" || slices.Min(rewards) == 1 {
			t.Errorf("%s has rewards from %v to %v, want successes and failures", n.Address, slices.Min(rewards),
				slices.Max(rewards))
		}
	}
}

// papersItems are the tables and figures of the paper, and those of our pages that show the same: the beginnings of
// their ids, and some rows of the first.
var papersItems = []struct {
	of    string
	files string // "" for every file about the benchmark
	ids   []string
	rows  []string
}{
	{"main results of two models and five API models", "paper.hcl",
		[]string{"reference-rc-grpo-paper", "main-test-merged"},
		[]string{"GPT-5.2", "Gemini-3-Pro", "Sonnet-4.5", "GLM-4.7", "Opus-4.5", "qwen/Base", "qwen/RCTP-FT + RC-GRPO",
			"llama/Base", "llama/SFT + GRPO"}},
	{"versions, dates and cost of API models", "api_models.hcl", []string{"calls", "main-test-merged", "versions"},
		[]string{"API models/GPT-5.2", "$30.30", "gpt-5.2-2025-12-11, gpt-5.2-2025-12-12"}},
	{"ablations of conditioning", "paper.hcl", []string{"ablation-reward-conditioning"}, []string{"qwen", "llama"}},
	{"ablations of initialisation", "paper.hcl", []string{"ablation-initialisation"}, []string{"qwen", "llama"}},
	{"entropy", "", []string{"entropy", "fig-entropy"}, nil},
	{"late dynamics", "", []string{"late"}, nil},
	{"data statistics", "paper.hcl equal_compute.hcl", []string{"statistics", "mixtures"}, nil},
	{"RL split", "", []string{"data", "certificate"}, []string{"total"}},
	{"versions of the models", "", []string{"versions"}, nil},
	{"settings of all methods", "", []string{"settings", "departures"}, nil},
	{"advantage spread and reward", "", []string{"fig-spread-reward"}, nil},
	{"examples of the appendix", "paper.hcl", []string{"example-expert", "example-failed", "transcripts"}, nil},
}

// content is a table or a figure of a page.
type content struct {
	rows int
	text string // of all rows
}

// checkContents checks that the page shows the tables and figures of the paper, none of them empty, and that every
// number is recomputed from the artifacts.
func (p *page) checkContents(t *testing.T, file string, store *artifact.Store) {
	t.Helper()
	shown := p.contents(t)
	for id, c := range shown {
		if c.rows == 0 {
			t.Errorf("%s: %s has no rows", p.name, id)
		}
	}
	about := bytes.Contains(p.html, []byte("as in paper.hcl")) || file == "paper.hcl"
	for _, item := range papersItems {
		if !about && item.files != file || !strings.Contains(cmp.Or(item.files, file), file) {
			continue
		}
		for i, id := range item.ids {
			names := slices.Sorted(maps.Keys(shown))
			at := slices.IndexFunc(names, func(name string) bool { return strings.HasPrefix(name, id) })
			if at < 0 {
				t.Errorf("%s: no %s (%s of the paper); it has %s", p.name, id, item.of, names)
				continue
			}
			for _, row := range item.rows {
				if i == 0 && !strings.Contains(shown[names[at]].text, row) {
					t.Errorf("%s: %s has no row of %s (%s of the paper)", p.name, names[at], row, item.of)
				}
			}
		}
	}
	p.checkDesigns(t)
	for _, r := range must.Get(reports.ReadEvidence(p.html))(t).Stages {
		if r.Key == "" {
			t.Errorf("%s: the evidence lacks the result of %s", p.name, r.Address)
		}
	}
	v, err := reports.Verify(p.html, store, nil, nil)
	if must.OK(t, err); !v.OK() {
		report(t, "verify", fmt.Sprintf("%s: %+v", p.name, v))
	}
}

// designs are those of some arms, by page and label.
var designs = map[string]map[string]reports.Design{
	"drills": {"RCTP-FT + RC-GRPO": {Init: "RCTP-FT", Method: "RC-GRPO"}, "SFT": {Init: "SFT"},
		"Random weights": {}},
	"paper":         {"qwen/SFT + GRPO": {Model: "qwen", Init: "SFT", Method: "GRPO"}, "llama/Base": {Model: "llama"}},
	"api_models":    {"API models/GPT-5.2": {Model: "API models"}},
	"equal_compute": {"SFT, equal updates + GRPO (64)": {Init: "SFT, equal updates", Method: "GRPO (64)"}},
	"when": {"GRPO, wide gap/8 passes": {Init: "RCTP-FT", Method: "GRPO"}, "SFT + RC-GRPO, 2 passes": {Init: "SFT",
		Method: "RC-GRPO"}, "RCTP-FT, no gap/2 passes": {Init: "RCTP-FT"}},
}

// checkDesigns checks that model, initialisation and method follow from the stages and not from the label.
func (p *page) checkDesigns(t *testing.T) {
	t.Helper()
	found := map[string]reports.Design{}
	for _, in := range must.Get(reports.ReadEvidence(p.html))(t).Inputs {
		if in.Role == "scores" {
			found[in.Label] = in.Design
		}
	}
	for label, want := range designs[p.name] {
		if got, ok := found[label]; !ok || got != want {
			t.Errorf("%s: %s has the design %+v (%v), want %+v", p.name, label, got, ok, want)
		}
	}
}

// contents returns the tables and figures of the page by their ids.
func (p *page) contents(t *testing.T) map[string]content {
	t.Helper()
	type section struct {
		Parts []struct {
			Table *struct {
				ID   string
				Rows []struct{ Cells []struct{ Text string } }
			}
			Figure *struct {
				ID   string
				Data [][]string
			}
		}
	}
	var in struct {
		First    section
		Sections []section
	}
	must.OK(t, json.Unmarshal(p.json, &in))
	shown := map[string]content{}
	for _, s := range append(in.Sections, in.First) {
		for _, part := range s.Parts {
			switch {
			case part.Table != nil:
				shown[part.Table.ID] = content{len(part.Table.Rows), fmt.Sprint(part.Table.Rows)}
			case part.Figure != nil:
				shown[part.Figure.ID] = content{rows: len(part.Figure.Data) - 1}
			}
		}
	}
	if bytes.Contains(p.html, []byte(`class="talks"`)) {
		shown["transcripts"] = content{rows: 1}
	}
	return shown
}

// openPages opens the pages as readers do.
func openPages(t *testing.T, dir string, pages []page) {
	chromium := browser.Open(t)
	for _, one := range pages {
		t.Run(one.name, func(t *testing.T) {
			file := filepath.Join(dir, "pretended_"+one.name+".html")
			must.OK(t, os.WriteFile(file, one.html, 0o600))
			at := (&url.URL{Scheme: "file", Path: file}).String()
			phone := openReader(t, chromium, at, browser.Light(360, 800))
			phone.check("phone", "wide()", "long(15)")
			phone.Close()
			r := openReader(t, chromium, at, browser.Light(1280, 900))
			r.useKeyboard()
			r.lookAround()
			r.print()
			report(t, "console", r.Faults()...)
			r.Close()
		})
	}
}

// reader is a tab with the checks of testdata/checks.js.
type reader struct {
	*browser.Tab
	t *testing.T
}

func openReader(t *testing.T, chromium *browser.Browser, address string, v browser.View) *reader {
	t.Helper()
	r := &reader{chromium.Open(t, address, v, ""), t}
	r.Eval(read(t, filepath.Join("testdata", "checks.js")), nil)
	return r
}

// axe reports the rules of axe-core that the page breaks. Without axe-core it is skipped.
func (r *reader) axe(view string, rules ...string) {
	check := view + ", axe"
	r.t.Run(check, func(t *testing.T) { report(t, check, r.Violations(t, rules...)...) })
}

// check runs some checks in the page.
func (r *reader) check(view string, calls ...string) {
	for _, call := range calls {
		var findings []string
		r.Eval("(async () => await checks."+call+")()", &findings)
		name, _, _ := strings.Cut(call, "(")
		report(r.t, view+", "+name, findings...)
	}
}

// useKeyboard goes through the page as it is loaded with Tab, follows the link past the contents, and opens folds with
// Enter.
func (r *reader) useKeyboard() {
	var elements int
	r.Eval("checks.record()", &elements)
	r.Press(slices.Repeat([]string{"Tab"}, elements)...)
	r.check("keyboard", fmt.Sprintf("keyboard(%d)", elements))
	var folds []string // one of each sort
	r.Eval(`Object.values(Object.fromEntries([...document.querySelectorAll("details:not([open]) > summary")]
		.filter(e => e.checkVisibility()).map((e, i) => [e.parentElement.className, (e.id ||= "fold" + i)])))`, &folds)
	for _, id := range folds {
		r.Eval(fmt.Sprintf("document.getElementById(%q).focus()", id), nil)
		r.Press("Enter")
		var opened bool
		if r.Eval(fmt.Sprintf("document.getElementById(%q).parentElement.open", id), &opened); !opened {
			r.t.Errorf("keyboard: Enter does not open %s", id)
		}
		r.Eval(fmt.Sprintf("document.getElementById(%q).parentElement.open = false", id), nil)
	}
	var main bool
	r.Eval(`document.querySelector(".skip").focus()`, nil)
	r.Press("Enter")
	if r.Eval(`!!document.querySelector("main :target, main:target")`, &main); !main {
		r.t.Error("keyboard: the first link does not lead past the contents")
	}
}

// lookAround looks at the page with all folds open, on a wide screen and a narrow one, by day and at night.
func (r *reader) lookAround() {
	r.Eval("checks.open()", nil)
	r.check("light", "blank()", "empty()", "legends()", "wide()", "burst()", "data()", "cut()", "tooltips()")
	r.axe("light")
	r.Show(browser.Dark(1280, 900))
	r.check("dark", "blank()")
	r.axe("dark", "color-contrast")
	r.Show(browser.Light(360, 800))
	r.check("360 pixels", "blank()", "wide()", "burst()", "data()", "verdicts()")
	r.axe("360 pixels", "target-size", "scrollable-region-focusable")
}

// print looks at the page on letter paper with Chromium's margins of 0.4 inches, and prints it.
func (r *reader) print() {
	r.Eval(`dispatchEvent(new Event("beforeprint"))`, nil)
	r.Show(browser.View{Width: 739, Height: 979, Paper: true})
	r.check("paper", "wide()", "burst()", "cut()", "paper(979)")
	r.Show(browser.Light(1280, 900))
	r.Eval(`dispatchEvent(new Event("afterprint"))`, nil)
	if pdf := r.PDF(); !bytes.HasPrefix(pdf, []byte("%PDF")) || len(pdf) < 50_000 {
		r.t.Errorf("paper: a PDF of %d bytes", len(pdf))
	}
}
