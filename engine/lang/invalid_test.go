package lang_test

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/internal/must"
)

// Each faulty line of testdata/invalid, and of the modules that a file includes, contains "# ERROR: summary", or
// "# ERROR: summary ; part of the detail". Lines "# SET: …" are overrides. A file must give these diagnostics, no
// others, and no plan.
func TestInvalidFilesAreToldAtTheRightLine(t *testing.T) {
	paths, err := filepath.Glob("testdata/invalid/*.hcl")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files: %v", err)
	}
	store := enginetest.NewStore(t)
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".hcl"), func(t *testing.T) {
			file := must.Get(os.ReadFile(path))(t)
			src := lang.Source{Path: path}
			for line := range strings.Lines(string(file)) {
				if set, ok := strings.CutPrefix(line, "# SET: "); ok {
					set, _, _ = strings.Cut(strings.TrimSpace(set), " # ERROR")
					src.Sets = append(src.Sets, set)
				}
			}
			x, diags := lang.Load(src, enginetest.PaperKinds())
			var want, got []string
			details := map[string]string{}
			for name, f := range x.Files {
				number := 0
				for line := range strings.Lines(string(f.Bytes)) {
					number++
					place := name
					if strings.HasPrefix(line, "# SET: ") {
						place = lang.OverridesFile // the files begin with these lines, so the numbers agree
					}
					if _, expected, ok := strings.Cut(line, "# ERROR: "); ok {
						summary, detail, _ := strings.Cut(expected, " ; ")
						at := fmt.Sprintf("%s:%d: %s", place, number, strings.TrimSpace(summary))
						want = append(want, at)
						details[at] = strings.TrimSpace(detail)
					}
				}
			}
			if _, err := plan.New(x, store, plan.Options{}); err == nil || len(x.Nodes) > 0 {
				t.Errorf("plan: got %d nodes, %v, want an error", len(x.Nodes), err)
			}
			for _, d := range diags {
				if d.Severity != hcl.DiagError {
					continue
				}
				at := fmt.Sprintf(":0: %s", d.Summary)
				if d.Subject != nil {
					at = fmt.Sprintf("%s: %s", lang.Place(*d.Subject), d.Summary)
				}
				got = append(got, at)
				if !strings.Contains(d.Detail, details[at]) {
					t.Errorf("%s: got %q, want %q in it", at, d.Detail, details[at])
				}
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("got %q, want %q\n%s", got, want, diags)
			}
			var text strings.Builder
			lang.WriteDiagnostics(&text, diags, x.Files, false)
			if !strings.Contains(text.String(), "^") || strings.Contains(text.String(), "%!") {
				t.Errorf("written as:\n%s", text.String())
			}
		})
	}
}

// misspellings of the paper's experiment, each with the intended name.
var misspellings = []struct{ from, to, want string }{
	// kinds and blocks
	{`stage "rollout"`, `stage "rolout"`, "rollout"},
	{`stage "rc-grpo"`, `stage "rcgrpo"`, "rc-grpo"},
	{`stage "model"`, `stge "model"`, "stage"},
	{"experiment {", "experimnet {", "experiment"},
	// settings of the experiment block
	{"question =", "qestion =", "question"},
	// variables and their settings
	{"updates  = var.updates", "updates  = var.update", "var.updates"},
	{"default = 350", "defualt = 350", "default"},
	{"type    = number", "type    = numbr", "number"},
	{"type    = number", "typ    = number", "type"},
	{"validation {", "validate {", "validation"},
	{"condition = var", "conditon = var", "condition"},
	// locals and each
	{"for_each = local.inits", "for_each = local.init", "local.inits"},
	{"policy   = each.value", "policy   = each.ke", "each.key"},
	{"policy   = each.value", "policy   = eech.value", "each"},
	// references
	{"policy  = stage.model.base.checkpoint\n  tasks", "policy  = stage.modle.base.checkpoint\n  tasks", "model"},
	{"policy  = stage.model.base.checkpoint\n  tasks", "policy  = stage.model.bsae\n  tasks", "stage.model.base"},
	{"policy  = stage.model.base.checkpoint\n  tasks", "policy  = stage.model.base.chekpoint\n  tasks", "checkpoint"},
	{"policy  = stage.model.base.checkpoint\n  tasks", "policy  = stages.model.base.checkpoint\n  tasks", "stage"},
	{"tasks.bfcl.train\n  samples", "tasks.bfcl.tarin\n  samples", "train"},
	{"data    = stage.curate.data.expert", "data    = stage.curate.data.epxert", "expert"},
	{`stage.grpo.arm["rctp"]`, `stage.grpo.arm["rtcp"]`, "rctp"},
	{`stage.rc-grpo.arm["sft"]`, `stage.rc_grpo.arm["sft"]`, "rc-grpo"},
	// settings of a kind and of its blocks
	{"low = 0.1", "lo = 0.1", "low"},
	{`position = "first_user"`, `postion = "first_user"`, "position"},
	// choices
	{`position = "first_user"`, `position = "before_each_acton"`, "before_each_action"},
	// settings of every stage
	{"for_each = local.inits", "foreach = local.inits", "for_each"},
	{"resources {", "resource {", "resources"},
	{"gpu_memory =", "gpu_mem =", "gpu_memory"},
	{"retry {", "retries {", "retry"},
	{`on       = ["oom"`, `on       = ["ooom"`, "oom"},
	{"timeout     =", "time_out     =", "timeout"},
	{"timeout     = \"48h\"", "executor = \"locl\"", "local"},
	{"timeout     = \"48h\"", "enable = true", "enabled"},
	// functions
	{"var.updates > 100", "lenght([var.updates]) > 100", "length"},
}

func TestMisspellingsAreReportedWithTheIntendedNameAtTheirLine(t *testing.T) {
	text := enginetest.PaperText(t, paperFile)
	for _, m := range misspellings {
		t.Run(m.to, func(t *testing.T) {
			at := strings.Index(text, m.from)
			if at < 0 {
				t.Fatalf("the text lacks %q", m.from)
			}
			line := 1 + strings.Count(text[:at], "\n")
			_, diags := enginetest.LoadPaper(t, text[:at]+m.to+text[at+len(m.from):])
			found := slices.ContainsFunc(diags, func(d *hcl.Diagnostic) bool {
				at := cmp.Or(d.Subject, &hcl.Range{}).Start.Line
				return at == line && strings.Contains(d.Detail, "did you mean "+m.want+"?")
			})
			if !found {
				t.Errorf("got %v, want %q at line %d", diags, m.want, line)
			}
		})
	}
}

// Deeper values would overflow the stack of the parser or the evaluator.
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
			x, diags := enginetest.LoadPaper(t, "experiment {}\nlocals {\n  a = "+value+"\n}\n")
			if len(diags) != 1 || diags[0].Summary != "Nested too deeply" {
				t.Errorf("got %v, want one diagnostic", diags)
			}
			_, diags = lang.Eval(x, enginetest.PaperKinds(), value)
			if len(diags) != 1 || diags[0].Summary != "Nested too deeply" {
				t.Errorf("an expression alone: got %v, want one diagnostic", diags)
			}
		})
	}
	quoted := `"` + strings.Repeat("([.+", 6000) + `"` // a string has no depth
	enginetest.MustLoadPaper(t, "experiment {}\nlocals {\n  a = "+quoted+"\n}\n")
}

func TestLongLinesAreShortenedInDiagnostics(t *testing.T) {
	long := strings.Repeat("é", 1<<18)
	x, diags := enginetest.LoadPaper(t, "experiment {}\nstage \"tasks\" \"t\" {\n  source = \""+long+"\"\n}\n")
	var text strings.Builder
	lang.WriteDiagnostics(&text, diags, x.Files, false)
	if len(diags) != 1 || text.Len() > 2000 || !strings.Contains(text.String(), "x.hcl:3") {
		t.Errorf("got %d diagnostics in %d bytes: %.500s", len(diags), text.Len(), text.String())
	}
}
