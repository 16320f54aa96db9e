package engine

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
)

// Every file of testdata/invalid contains its errors with the expected summary on the faulty line, after "#
// ERROR:"; a text after a semicolon must occur in the detail. There must be no other diagnostics, and none of the
// files can be planned, so nothing in them can run.
func TestInvalidFilesAreToldAtTheRightLine(t *testing.T) {
	paths, err := filepath.Glob("testdata/invalid/*.hcl")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files: %v", err)
	}
	store := newStore(t)
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".hcl"), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var want, got []string
			said := map[string]string{}
			for i, line := range strings.Split(string(text), "\n") {
				if _, expected, ok := strings.Cut(line, "# ERROR: "); ok {
					summary, detail, _ := strings.Cut(expected, " ; ")
					at := fmt.Sprintf("%d: %s", i+1, strings.TrimSpace(summary))
					want = append(want, at)
					said[at] = strings.TrimSpace(detail)
				}
			}
			x, diags := Load(Source{Path: path}, paperKinds())
			if _, err := NewPlan(x, store, PlanOptions{}); err == nil || len(x.Nodes) > 0 {
				t.Errorf("it reaches a plan: %d nodes, %v", len(x.Nodes), err)
			}
			for _, d := range diags {
				if d.Severity != hcl.DiagError {
					continue
				}
				line := 0
				if d.Subject != nil {
					line = d.Subject.Start.Line
				}
				at := fmt.Sprintf("%d: %s", line, d.Summary)
				got = append(got, at)
				if !strings.Contains(d.Detail, said[at]) {
					t.Errorf("%s: got %q, want %q in it", at, d.Detail, said[at])
				}
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q\n%s", got, want, diags)
			}
			var shown strings.Builder
			WriteDiagnostics(&shown, diags, x.Files, false)
			if !strings.Contains(shown.String(), "^") || strings.Contains(shown.String(), "%!") {
				t.Errorf("told as:\n%s", shown.String())
			}
		})
	}
}

// misspellings are changes of the paper's experiment, each with the correct name.
var misspellings = []struct{ from, to, want string }{
	// kinds, blocks of files
	{`stage "rollout"`, `stage "rolout"`, "rollout"},
	{`stage "curate"`, `stage "currate"`, "curate"},
	{`stage "rc-grpo"`, `stage "rcgrpo"`, "rc-grpo"},
	{`stage "rctp-ft"`, `stage "rctp-tf"`, "rctp-ft"},
	{`stage "report"`, `stage "repport"`, "report"},
	{`stage "exec"`, `stage "exce"`, "exec"},
	{`stage "model"`, `stge "model"`, "stage"},
	{"experiment {", "experimnet {", "experiment"},
	{"locals {", "local {", "locals"},
	{`variable "updates"`, `varible "updates"`, "variable"},
	// the experiment's own settings
	{"question =", "qestion =", "question"},
	{"expect   =", "expects   =", "expect"},
	{"seeds    =", "seed    =", "seeds"},
	// variables and their settings
	{"updates  = var.updates", "updates  = var.update", "var.updates"},
	{"var.updates > 100", "var.updaets > 100", "var.updates"},
	{"default = 350", "defualt = 350", "default"},
	{"type    = number", "type    = numbr", "number"},
	{"type    = number", "typ    = number", "type"},
	{"validation {", "validate {", "validation"},
	{"condition = var", "conditon = var", "condition"},
	{"message   =", "mesage   =", "message"},
	// locals, each
	{"for_each = local.inits", "for_each = local.init", "local.inits"},
	{"policy   = each.value", "policy   = each.vale", "each.value"},
	{"policy   = each.value", "policy   = each.ke", "each.key"},
	{"policy   = each.value", "policy   = eech.value", "each"},
	// references
	{"policy  = stage.model.base.checkpoint\n  tasks", "policy  = stage.modle.base.checkpoint\n  tasks", "model"},
	{"policy  = stage.model.base.checkpoint\n  tasks", "policy  = stage.model.bsae.checkpoint\n  tasks",
		"stage.model.base"},
	{"policy  = stage.model.base.checkpoint\n  tasks", "policy  = stage.model.base.chekpoint\n  tasks",
		"checkpoint"},
	{"policy  = stage.model.base.checkpoint\n  tasks", "policy  = stages.model.base.checkpoint\n  tasks", "stage"},
	{"tasks.bfcl.train\n  samples", "tasks.bfcl.tarin\n  samples", "train"},
	{"data    = stage.curate.data.expert", "data    = stage.curate.data.epxert", "expert"},
	{`stage.grpo.arm["rctp"]`, `stage.grpo.arm["rtcp"]`, "rctp"},
	{`stage.rc-grpo.arm["sft"]`, `stage.rc_grpo.arm["sft"]`, "rc-grpo"},
	// settings of a kind and of its blocks
	{"samples = 4", "sample = 4", "samples"},
	{"ratio    = 1", "rato    = 1", "ratio"},
	{"failures =", "failure =", "failures"},
	{"epochs  = 2", "epoch  = 2", "epochs"},
	{"weights =", "wieghts =", "weights"},
	{"low = 0.1", "lo = 0.1", "low"},
	{"clip {", "clp {", "clip"},
	{"split {", "splits {", "split"},
	{"tokens {", "token {", "tokens"},
	{`compare "init`, `compares "init`, "compare"},
	{`position = "first_user"`, `postion = "first_user"`, "position"},
	{"pairs = [[\"SFT + RC", "pair = [[\"SFT + RC", "pairs"},
	{"command    =", "comand    =", "command"},
	{"inputs     =", "input     =", "inputs"},
	// choices
	{`source = "bfcl"`, `source = "bfc"`, "bfcl"},
	{`position = "first_user"`, `position = "fist_user"`, "first_user"},
	{`position = "first_user"`, `position = "before_each_acton"`, "before_each_action"},
	// settings of every stage
	{"for_each = local.inits", "foreach = local.inits", "for_each"},
	{"resources {", "resource {", "resources"},
	{"gpus       =", "gpu       =", "gpus"},
	{"gpu_memory =", "gpu_mem =", "gpu_memory"},
	{"memory     =", "memroy     =", "memory"},
	{"retry {", "retries {", "retry"},
	{"attempts =", "atempts =", "attempts"},
	{"backoff  =", "backof  =", "backoff"},
	{`on       = ["oom"`, `on       = ["ooom"`, "oom"},
	{"timeout     =", "time_out     =", "timeout"},
	{"description =", "descripton =", "description"},
	{"depends_on =", "depend_on =", "depends_on"},
	{"timeout     = \"48h\"", "executor = \"locl\"", "local"},
	{"timeout     = \"48h\"", "enable = true", "enabled"},
	// functions
	{"range(2)", "rang(2)", "range"},
	{`file("raw.csv"), page`, `fil("raw.csv"), page`, "file"},
	{"var.updates > 100", "lenght([var.updates]) > 100", "length"},
	{"local.inits", "merg(local.inits)", "merge"},
}

// Every misspelling is reported with the correct name, at its line.
func TestMisspellingsAreReportedWithTheNearestName(t *testing.T) {
	text := paperText(t)
	for _, m := range misspellings {
		t.Run(m.to, func(t *testing.T) {
			at := strings.Index(text, m.from)
			if at < 0 {
				t.Fatalf("the text lacks %q", m.from)
			}
			line := 1 + strings.Count(text[:at], "\n")
			_, diags := loadText(t, text[:at]+m.to+text[at+len(m.from):])
			right := slices.ContainsFunc(diags, func(d *hcl.Diagnostic) bool {
				return cmp.Or(d.Subject, &hcl.Range{}).Start.Line == line && strings.Contains(d.Detail,
					"did you mean "+m.want+"?")
			})
			if !right {
				t.Errorf("got %v, want %q at line %d", diags, m.want, line)
			}
		})
	}
}

// Text that would overflow the stack of the parser or the evaluator is reported instead.
func TestDeepNestingIsReported(t *testing.T) {
	for name, value := range map[string]string{
		"brackets":     strings.Repeat("[", 6000),
		"parentheses":  strings.Repeat("(", 6000) + "1" + strings.Repeat(")", 6000),
		"maps":         strings.Repeat("{a=", 6000) + "1" + strings.Repeat("}", 6000),
		"templates":    strings.Repeat(`"${`, 6000) + "1" + strings.Repeat(`}"`, 6000),
		"a sum":        "1" + strings.Repeat("+1", 6000),
		"minus signs":  strings.Repeat("- ", 6000) + "1",
		"negations":    strings.Repeat("!", 6000) + "true",
		"conditionals": strings.Repeat("true?1:", 6000) + "1",
		"splats":       "[]" + strings.Repeat("[*]", 6000),
		"over lines":   "(1" + strings.Repeat("\n+1", 6000) + ")",
	} {
		t.Run(name, func(t *testing.T) {
			x, diags := loadText(t, "experiment {}\nlocals {\n  a = "+value+"\n}\n")
			if len(diags) != 1 || diags[0].Summary != "Nested too deeply" {
				t.Errorf("got %v", diags)
			}
			if _, diags := x.Eval(value); len(diags) != 1 || diags[0].Summary != "Nested too deeply" {
				t.Errorf("in the console: got %v", diags)
			}
		})
	}
	mustLoad(t, "experiment {}\nlocals {\n  a = \""+strings.Repeat("([.+", 6000)+"\"\n}\n") // only a text
}

func TestLongLinesAreTruncated(t *testing.T) {
	x, diags := loadText(t, "experiment {}\nstage \"tasks\" \"t\" {\n  source = \""+strings.Repeat("é",
		1<<18)+"\"\n}\n")
	var told strings.Builder
	WriteDiagnostics(&told, diags, x.Files, false)
	if len(diags) != 1 || told.Len() > 2000 || !strings.Contains(told.String(), "x.hcl:3") {
		t.Errorf("got %d diagnostics in %d bytes: %.500s", len(diags), told.Len(), told.String())
	}
}

// Files from other editors are equal: a byte order mark, CR LF line ends, tabs.
func TestEditorsChangeNoKey(t *testing.T) {
	text := paperText(t)
	want := keysOf(mustLoad(t, text))
	for name, other := range map[string]string{
		"byte order mark": "\ufeff" + text,
		"CR LF":           strings.ReplaceAll(text, "\n", "\r\n"),
		"tabs":            strings.ReplaceAll(text, "  ", "\t"),
	} {
		if got := keysOf(mustLoad(t, other)); !equalMaps(got, want) {
			t.Errorf("%s changes keys", name)
		}
	}
}
