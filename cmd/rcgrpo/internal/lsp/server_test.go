package lsp_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
	"rcgrpo/reports"
	"rcgrpo/stages"

	"github.com/hashicorp/hcl/v2"
)

func utf16Of(s string) []uint16 { return utf16.Encode([]rune(s)) }

// example is an experiment of commands and trainings without mistakes.
const example = `experiment {
  question = "Is 漢字 🎉 fine?"
  seeds    = [1, 2]
}
variable "rate" {
  type        = number
  default     = 1e-3
  description = "learning rate"
}
locals {
  inits = { warm = stage.sft.warm.checkpoint, base = stage.model.base.checkpoint }
}
stage "tasks" "drills" {
  source = "drills"
  train  = 20
  test   = 5
}
stage "curate" "data" { tasks = stage.tasks.drills.train }
stage "model" "base" {
  corpus = [stage.curate.data.expert]
  architecture {
    family    = "qwen2"
    hidden    = 64
    layers    = 2
    heads     = 2
    kv_heads  = 1
    mlp       = 128
    rope_base = 1000
    context   = 512
  }
}
stage "sft" "warm" {
  policy = stage.model.base.checkpoint
  data   = [stage.curate.data.expert]
  lr     = var.rate
}
stage "eval" "arm" {
  for_each = local.inits
  policy   = each.value
  tasks    = [stage.tasks.drills.test]
}
stage "exec" "count" {
  command = ["sh", "-c", "echo 1 > $n"]
  inputs  = { scores = stage.eval.arm["warm"].scores }
  outputs = { n = "out/n.txt" }
}
stage "report" "page" { scores = stage.eval.arm }
`

type completions struct {
	IsIncomplete bool
	Items        []struct {
		Label, Detail string
		Documentation *struct{ Value string }
		InsertText    string
		TextEdit      edit
	}
}

func labels(c completions) (names []string) {
	for _, it := range c.Items {
		names = append(names, it.Label)
	}
	return names
}

// started returns a client with an open file.
func started(t testing.TB, text string) *file {
	path := experimentFile(t)
	c := newClient(t, filepath.Dir(path))
	c.initialize()
	return c.open(path, text)
}

func TestSessionFromInitializeToExit(t *testing.T) {
	f := started(t, example)
	if found := f.diagnostics(); len(found) > 0 {
		t.Fatalf("got %v, want no diagnostics", found)
	}
	call[any](f.client, "shutdown", nil)
	f.notify("exit", nil)
	if err := f.result(); err != nil {
		t.Errorf("got %v, want no error", err)
	}
}

// Every diagnostic of check arrives with the same texts and the range in UTF-16 units.
func TestDiagnosticsAreThoseOfCheck(t *testing.T) {
	text := strings.Replace(example, "train  = 20", "trian = 20", 1)
	text = strings.Replace(text, "lr     = var.rate", `lr     = /* 漢 */ length("🎉é") + var.rte`, 1)
	f := started(t, example)
	f.diagnostics()
	f.set(text)
	found := f.diagnostics()
	must.OK(t, os.WriteFile(f.path, []byte(text), 0o644))
	var got, want []string
	for _, d := range found {
		got = append(got, d.Message)
	}
	_, diags := lang.Load(lang.Source{Path: f.path}, append(lang.Registry(stages.Kinds()), reports.Kind()))
	for _, d := range diags {
		want = append(want, d.Summary+"\n"+d.Detail)
	}
	if !slices.Equal(got, want) || len(got) < 2 {
		t.Errorf("got %q\nwant %q", got, want)
	}
	last := found[len(got)-1].Range
	line := strings.Split(text, "\n")[last.Start.Line]
	if under := string(utf16.Decode(utf16Of(line)[last.Start.Character:last.End.Character])); under != "var.rte" {
		t.Errorf("got the range of %q, want var.rte", under)
	}
}

// A stranger's file may name all files of a user, which would take hours to hash. A pipe is an error when it is read.
func TestAnEditorReadsNoData(t *testing.T) {
	f := started(t, example+"stage \"exec\" \"e\" {\n command = [\"true\"]\n inputs = { a = dir(\"/proc/self/fd\") }\n "+
		"outputs = { o = \"o\" }\n}\n")
	if found := f.diagnostics(); len(found) > 0 {
		t.Errorf("got %v, want no diagnostics", found)
	}
}

func TestCodeActionsFixMisspeltNames(t *testing.T) {
	for name, tc := range map[string]struct{ right, wrong string }{
		"a setting":      {"lr     = var.rate", "lrr     = var.rate"},
		"a block":        {"architecture {", "architectur {"},
		"a kind":         {`stage "curate"`, `stage "curat"`},
		"a variable":     {"var.rate", "var.rat"},
		"a local":        {"for_each = local.inits", "for_each = local.init"},
		"a stage":        {"= stage.model.base.checkpoint\n  data", "= stage.model.bas.checkpoint\n  data"},
		"a kind in use":  {"tasks = stage.tasks.drills.train", "tasks = stage.task.drills.train"},
		"a port":         {"[stage.tasks.drills.test]", "[stage.tasks.drills.tst]"},
		"a key":          {`arm["warm"]`, `arm["wram"]`},
		"a choice":       {`source = "drills"`, `source = "drill"`},
		"a function":     {`question = "Is 漢字 🎉 fine?"`, `question = uper("漢字 🎉")`},
		"a port by type": {"[stage.tasks.drills.test]", "[stage.tasks.drills.certificate]"},
		"top block":      {`variable "rate"`, `varible "rate"`},
	} {
		t.Run(name, func(t *testing.T) {
			f := started(t, strings.Replace(example, tc.right, tc.wrong, 1))
			diags := f.diagnostics()
			type action struct {
				Title string
				Edit  struct{ Changes map[string][]edit }
			}
			params := f.params()
			params["range"] = diags[0].Range
			params["context"] = map[string]any{"diagnostics": diags}
			actions := call[[]action](f.client, "textDocument/codeAction", params)
			if len(actions) == 0 {
				t.Fatalf("got no action for %v", diags)
			}
			want := example
			if name == "a function" {
				want = strings.Replace(example, tc.right, `question = upper("漢字 🎉")`, 1)
			}
			if got := f.apply(actions[0].Edit.Changes[f.uri]); got != want {
				t.Errorf("%s: got\n%s", actions[0].Title, got)
			}
		})
	}
}

// Each case is the text before the cursor, at the end of a prefix of the example, so nothing after it parses.
func TestCompletion(t *testing.T) {
	const base = "\nmodule \"m\" {\n  source = \"base.hcl\"\n"
	for name, tc := range map[string]struct{ text, want, deny string }{
		"block types":          {"\n", "experiment variable locals stage", "lr"},
		"half a block type":    {"\nsta", "stage", "locals"},
		"kinds":                {"\nstage \"", "sft rc-grpo report", "drills"},
		"kinds without quotes": {"\nstage ", "sft", ""},
		"settings":             {"\nstage \"sft\" \"x\" {\n  ", "policy lr for_each optimizer", "stage"},
		"half a setting":       {"\nstage \"sft\" \"x\" {\n  pol", "policy", "lr"},
		"not those given":      {"\nstage \"sft\" \"x\" {\n  lr = 1\n  ", "policy", "lr"},
		"settings of a block":  {"\nstage \"grpo\" \"x\" {\n  clip {\n    ", "low high", "policy"},
		"of the experiment":    {"\nexperiment {\n", "seeds", ""},
		"of a rule":            {"\nvariable \"v\" {\n  validation {\n", "condition", "type"},
		"ports by type": {"\nstage \"sft\" \"x\" {\n  policy = ",
			"stage.model.base.checkpoint var.rate local.inits merge", "stage.tasks.drills.train each.value"},
		"half a reference": {"\nstage \"sft\" \"x\" {\n  policy = stage.mo",
			"stage.model.base.checkpoint", "stage.sft.warm.checkpoint merge"},
		"ports after a dot": {"\nstage \"eval\" \"x\" {\n  tasks = [stage.tasks.drills.",
			"stage.tasks.drills.train stage.tasks.drills.test", ""},
		"instances": {"\nstage \"report\" \"x\" {\n  scores = ",
			`stage.eval.arm stage.eval.arm["warm"].scores`, "stage.tasks.drills.train"},
		"each": {"\nstage \"eval\" \"x\" {\n  for_each = local.inits\n  policy = each.",
			"each.key each.value", ""},
		"keys":                 {"\nlocals {\n  k = stage.eval.arm[\"", "base warm", ""},
		"any port":             {"\nlocals {\n  k = stage.", "stage.tasks.drills.train stage.exec.count.n", ""},
		"no port":              {"\nstage \"sft\" \"x\" {\n  lr = ", "var.rate max", "stage.model.base.checkpoint"},
		"choices":              {"\nstage \"grpo\" \"x\" {\n  kl {\n    estimator = \"", "exact", "max"},
		"choices, not quoted":  {"\nstage \"grpo\" \"x\" {\n  profile = ", "verl", ""},
		"types":                {"\nvariable \"v\" {\n  type = ", "number", "var.rate"},
		"booleans":             {"\nstage \"exec\" \"x\" {\n  draws = ", "true false", ""},
		"in a template":        {"\nlocals {\n  k = \"a ${var.", "var.rate", ""},
		"after an open string": {"\nstage \"exec\" \"x\" {\n  env = { a = \"b\n}\nstage \"sft\" \"y\" {\n", "policy", ""},
		"after an open bracket": {"\nstage \"sft\" \"x\" {\n  data = [stage.\n  policy = ",
			"stage.model.base.checkpoint", ""},
		"not in comments":   {"\n# sta", "", "stage"},
		"not in strings":    {"\nlocals {\n  a = \"v", "", "var.rate"},
		"not after a block": {"\nlocals { } ", "", "stage"},

		"arguments of a module": {base + "  ", "rate for_each", ""},
		"stages of a module":    {base + "}\nlocals {\n  x = module.", "module.m.stage.sft.warm.checkpoint", ""},
		"instances of a module": {base + "}\nlocals {\n  x = module.m.", `module.m.stage.eval.arm["warm"].scores`, ""},
		"defaults of a kind":    {"\ndefaults \"sft\" {\n  ", "lr optimizer timeout", ""},
		"kinds of defaults":     {"\ndefaults \"", "sft rc-grpo", ""},
		"an object in defaults": {"\ndefaults {\n  optimizer = {\n    ", "beta2", ""},
		"an object for a block": {"\nstage \"sft\" \"x\" {\n  optimizer = { be", "beta2", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := started(t, example)
			f.diagnostics()
			must.OK(t, os.WriteFile(filepath.Join(filepath.Dir(f.path), "base.hcl"), []byte(example), 0o600))
			f.set(example + tc.text)
			got := labels(call[completions](f.client, "textDocument/completion", f.at(example+tc.text)))
			for _, w := range strings.Fields(tc.want) {
				if !slices.Contains(got, w) {
					t.Errorf("got %q, want %q too", got, w)
				}
			}
			for _, w := range strings.Fields(tc.deny) {
				if slices.Contains(got, w) {
					t.Errorf("got %q, want no %q", got, w)
				}
			}
		})
	}
}

// The edit of an item replaces the whole name or reference around the cursor, which is at |.
func TestCompletionReplacesTheWordAtTheCursor(t *testing.T) {
	for before, tc := range map[string]struct{ label, after string }{
		"  policy = stage.mo|del.bas\n}": {"stage.model.base.checkpoint", "  policy = stage.model.base.checkpoint\n}"},
		"  pol|cy = 1\n}":                {"policy", "  policy = 1\n}"},
		"  pol|\n}":                      {"policy", "  policy = \n}"},
		"  executor = \"lo|\"\n}":        {"local", "  executor = \"local\"\n}"},
		"  lr = max(va|":                 {"var.rate", "  lr = max(var.rate"},
		"  tok|\n}":                      {"tokens", "  tokens {\n  $0\n}\n}"},
	} {
		head := example + "stage \"rctp-ft\" \"漢\" {\n"
		text, rest, _ := strings.Cut(before, "|")
		f := started(t, head+text+rest)
		found := false
		for _, it := range call[completions](f.client, "textDocument/completion", f.at(head+text)).Items {
			if it.Label == tc.label {
				found = true
				if got := f.apply([]edit{it.TextEdit}); got != head+tc.after {
					t.Errorf("%q: got\n%s", before, strings.TrimPrefix(got, head))
				}
			}
		}
		if !found {
			t.Errorf("%q: got no %s", before, tc.label)
		}
	}
}

func TestHover(t *testing.T) {
	f := started(t, example)
	f.diagnostics()
	for at, want := range map[string]string{
		"  lr":                          "**lr**: number",
		"  hidden":                      "**architecture.hidden**: whole number",
		"for_each":                      "one instance for each element",
		`stage "sf`:                     "Ports: `checkpoint` (checkpoint), `metrics` (metrics)",
		"lr     = var.ra":               "learning rate",
		"stage.curate.data":             "`expert` (dataset)",
		"for_each = loc":                "inits = { warm =",
		"seeds    ":                     "",
		"policy   = each.v":             "for_each = local.inits",
		"variab":                        "value from outside",
		"command = [\"sh\", \"-c\"":     "",
		"stage.eval.arm[\"warm\"].scor": "Keys: base, warm",
	} {
		type hover struct{ Contents struct{ Value string } }
		got := call[*hover](f.client, "textDocument/hover", f.at(at))
		if want == "" != (got == nil) || got != nil && !strings.Contains(got.Contents.Value, want) {
			t.Errorf("%q: got %+v, want %q", at, got, want)
		}
	}
}

type location struct {
	URI   string
	Range span
}

func TestDefinition(t *testing.T) {
	f := started(t, example)
	for at, want := range map[string]string{
		"policy = stage.mo":    `base" {`,
		"lr     = var.r":       `rate" {`,
		"for_each = local.in":  "inits = {",
		"policy   = each.v":    "for_each = local",
		"[stage.tasks.drills.": `drills" {`,
	} {
		got := call[[]location](f.client, "textDocument/definition", f.at(at))
		if len(got) != 1 {
			t.Errorf("%q: got %v, want one place", at, got)
			continue
		}
		line := strings.Split(f.text, "\n")[got[0].Range.Start.Line]
		if target := line[got[0].Range.Start.Character:]; !strings.HasPrefix(target, want) || got[0].URI != f.uri {
			t.Errorf("%q: got %q, want %q", at, target, want)
		}
	}
}

func TestFormattingIsThatOfFmt(t *testing.T) {
	texts := []string{strings.ReplaceAll(example, "  ", " "), "x=1", "a = 1\r\nbb = 2\r\n", "\n\na =   1", example}
	for _, text := range texts {
		f := started(t, text)
		got := f.apply(call[[]edit](f.client, "textDocument/formatting", f.params()))
		want, _ := lang.Format([]byte(text), "x.hcl")
		if got != string(want) {
			t.Errorf("got\n%q\nwant\n%q", got, want)
		}
	}
}

// A change of an unsaved file of a folder changes the diagnostics of the others.
func TestBuffersOverrideFiles(t *testing.T) {
	dir := t.TempDir()
	c := newClient(t, dir)
	c.initialize()
	main := c.open(filepath.Join(dir, "main.hcl"), "experiment {}\n")
	other := c.open(filepath.Join(dir, "more.hcl"),
		"stage \"exec\" \"a\" {\n  command = [local.x]\n  outputs = { x = \"x\" }\n}\n")
	if got := other.diagnostics(); len(got) != 1 || !strings.Contains(got[0].Message, "local.x") {
		t.Fatalf("got %v, want one about local.x", got)
	}
	main.set("experiment {}\nlocals {\n  x = \"true\"\n}\n")
	count := func(n int) func() bool {
		return func() bool {
			all := c.published[other.uri]
			return len(all[len(all)-1].Diagnostics) == n
		}
	}
	c.wait("an empty list", count(0))
	got := call[[]location](c, "textDocument/definition", other.at("local.x"))
	if len(got) != 1 || got[0].URI != main.uri {
		t.Errorf("got %v, want a place in %s", got, main.uri)
	}
	c.notify("textDocument/didClose", main.params())
	c.wait("the old error", count(1))
}

// Modules in modules multiply; their instances are counted while an editor loads them, too.
func TestInstancesOfModulesAreCountedInAnEditor(t *testing.T) {
	must.Long(t)
	dir := t.TempDir()
	c := newClient(t, dir)
	c.initialize()
	level := func(source string) string {
		return "module \"m\" {\n  source = \"" + source + "\"\n  for_each = range(100)\n}\n"
	}
	must.OK(t, os.Mkdir(filepath.Join(dir, "in"), 0o700))
	for name, text := range map[string]string{"1.hcl": level("2.hcl"), "2.hcl": level("3.hcl"), "3.hcl": ""} {
		must.OK(t, os.WriteFile(filepath.Join(dir, "in", name), []byte(text), 0o600))
	}
	c.open(filepath.Join(dir, "main.hcl"), "experiment {}\n"+level("in/1.hcl"))
	c.wait("too many instances", func() bool {
		return strings.Contains(fmt.Sprint(c.published), "Too many instances")
	})
}

// slowStage is a stage of which a load takes long.
type slowStage struct {
	Text string `hcl:"text"`
}

func (*slowStage) Check() hcl.Diagnostics {
	time.Sleep(200 * time.Millisecond)
	return nil
}

func TestAChangeDuringALoadIsNotLost(t *testing.T) {
	dir := t.TempDir()
	c := newClient(t, dir, &lang.Kind{Name: "slow", Summary: "Slow.", Version: 1,
		New: func() lang.Stage { return &slowStage{} }})
	c.initialize()
	const more = "stage \"slow\" \"a\" {\n  text = local.x\n}\n"
	must.OK(t, os.WriteFile(filepath.Join(dir, "more.hcl"), []byte(more), 0o600))
	main := c.open(filepath.Join(dir, "main.hcl"), "experiment {}\nstage \"slow\" \"s\" {\n  text = \"\"\n}\n")
	other := c.open(filepath.Join(dir, "more.hcl"), more)
	time.Sleep(300 * time.Millisecond) // main is loaded, and its stage takes 200 ms; more is being loaded
	main.set("experiment {}\nlocals {\n  x = \"true\"\n}\n")
	c.wait("no diagnostics of the other file", func() bool {
		all := c.published[other.uri]
		return len(all) > 0 && len(all[len(all)-1].Diagnostics) == 0
	})
}

func TestSiteFile(t *testing.T) {
	dir := t.TempDir()
	c := newClient(t, dir)
	c.initialize()
	f := c.open(filepath.Join(dir, "site.hcl"), "store {\n  pth = \"x\"\n}\n")
	if got := f.diagnostics(); len(got) != 1 || !strings.Contains(got[0].Message, "did you mean path?") {
		t.Errorf("got %v", got)
	}
	f.set("store {\n  path = \"x\"\n  ")
	got := labels(call[completions](c, "textDocument/completion", f.at("\"x\"\n  ")))
	if !slices.Equal(got, []string{"limit", "shared"}) {
		t.Errorf("got %q, want limit and shared", got)
	}
	f.set("")
	if got := labels(call[completions](c, "textDocument/completion", f.at(""))); !slices.Contains(got, "notify") {
		t.Errorf("got %q, want notify", got)
	}
}

// Incremental changes with UTF-16 columns give the text that the client has.
func TestIncrementalChanges(t *testing.T) {
	f := started(t, "experiment {\n  question = \"漢🎉é\"\n}\n")
	for _, e := range []edit{
		{span{place{1, 15}, place{1, 17}}, "x"}, // the emoji
		{span{place{2, 1}, place{2, 1}}, "\nvarible \"a\" {}"},
		{span{place{99, 0}, place{99, 5}}, "# end"},
	} {
		f.change(map[string]any{"range": e.Range, "text": e.NewText})
	}
	f.text = "experiment {\n  question = \"漢xé\"\n}\nvarible \"a\" {}\n# end"
	got := f.diagnostics()
	if len(got) != 1 || got[0].Range != (span{place{3, 0}, place{3, 7}}) {
		t.Errorf("got %v, want one on line 3", got)
	}
	if formatted := f.apply(call[[]edit](f.client, "textDocument/formatting", f.params())); formatted != f.text {
		t.Errorf("got %q, want %q", formatted, f.text)
	}
}

func TestHostileClients(t *testing.T) {
	code := func(t *testing.T, r reply, want int) {
		t.Helper()
		if r.Error == nil || r.Error.Code != want {
			t.Errorf("got %+v, want error %d", r, want)
		}
	}
	t.Run("requests before initialize", func(t *testing.T) {
		c := newClient(t, t.TempDir())
		c.notify("textDocument/didOpen", map[string]any{})
		code(t, c.receiveReply(c.send("textDocument/hover", nil)), -32002)
		c.initialize()
	})
	t.Run("requests after shutdown", func(t *testing.T) {
		f := started(t, example)
		call[any](f.client, "shutdown", nil)
		code(t, f.receiveReply(f.send("textDocument/hover", f.params())), -32600)
	})
	t.Run("wrong messages", func(t *testing.T) {
		f := started(t, example)
		for body, want := range map[string]int{"{": -32700, "[]": -32600, "7": -32600, "{}": -32600, "\xff": -32700} {
			f.mu.Lock()
			delete(f.replies, "null")
			f.mu.Unlock()
			f.raw(body)
			code(t, f.receiveReply("null"), want)
		}
		code(t, f.receiveReply(f.send("textDocument/unknown", f.params())), -32601)
		code(t, f.receiveReply(f.send("textDocument/hover", 7)), -32602)
		closed := map[string]any{"textDocument": map[string]any{"uri": "file:///no"}}
		code(t, f.receiveReply(f.send("textDocument/hover", closed)), -32602)
		code(t, f.receiveReply(f.send("initialize", map[string]any{})), -32600)
		f.notify("textDocument/didChange", "x")
		f.notify("unknown", nil)
		params := f.params()
		params["position"] = place{-5, -5}
		call[any](f.client, "textDocument/hover", params)
		params["position"] = place{1 << 30, 1 << 30}
		call[any](f.client, "textDocument/completion", params)
	})
	for name, header := range map[string]string{
		"huge length":   "Content-Length: 99999999999\r\n\r\n",
		"long header":   strings.Repeat("x", 1<<20),
		"no length":     "Content-Type: x\r\n\r\n",
		"negative":      "Content-Length: -1\r\n\r\n",
		"not a message": "hello\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			f := started(t, example)
			f.in.Write([]byte(header))
			if f.result() == nil {
				t.Error("got no error")
			}
		})
	}
	t.Run("an end in the middle", func(t *testing.T) {
		f := started(t, example)
		f.in.Write([]byte("Content-Length: 1000\r\n\r\n{"))
		f.in.Close()
		if f.result() == nil {
			t.Error("got no error")
		}
	})
}

// A file of a stranger that is opened costs seconds, whatever it contains. Each of these took minutes, gigabytes or the
// process.
func TestHostileTexts(t *testing.T) {
	const value = "experiment {}\nlocals {\n  a = "
	repeat := func(text string, bytes int) string { return strings.Repeat(text, bytes/len(text)) }
	nested := value + repeat("{aaaaaaaa=", 1_000_000)
	for name, tc := range map[string]struct {
		text string
		at   place
		want string // in the first diagnostic
	}{
		"braces in many brackets":  {value + repeat("[", 500_000) + repeat("{}", 500_000), place{2, 999_000}, "Nested too"},
		"objects in objects":       {nested, place{2, len(nested) - len(value) + 6}, "Nested too"},
		"directives in directives": {value + "\"" + repeat("%{if a}", 1_000_000), place{2, 8}, "Nested too"},
		"a heredoc":                {value + "<<E\nE\n}\n", place{2, 8}, ""},
		"4 MB of brackets":         {value + repeat("[", 4<<20), place{2, 8}, "1048576"},
		"2 million labels":         {"stage " + repeat("a ", 4_000_000) + "{\n}\n", place{0, 20}, "1048576"},
		"a key of many digits": {"stage \"exec\" \"s\" {\n for_each = [\"x${1e600000000}\"]\n}\nlocals {\n" +
			" a = stage.exec.s[\"\n}\n", place{4, 19}, ""},
		"modules that are one": {"experiment {}\n" + repeat("module \"m\" {\n source = \"./sub/big.hcl\"\n}\n", 500_000) +
			value, place{40_001, 6}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := experimentFile(t)
			big := []byte(repeat("stage \"a\" \"b\" {\n}\n", 1_000_000))
			sub := filepath.Join(filepath.Dir(path), "sub")
			must.OK(t, os.Mkdir(sub, 0o700))
			must.OK(t, os.WriteFile(filepath.Join(sub, "big.hcl"), big, 0o600))
			c := newClient(t, filepath.Dir(path))
			c.initialize()
			start := time.Now()
			f := c.open(path, tc.text)
			found := f.diagnostics()
			if tc.want != "" && (len(found) == 0 || !strings.Contains(found[0].Message, tc.want)) {
				t.Errorf("got %.300v, want %q", found, tc.want)
			}
			params := f.params()
			params["position"] = tc.at
			for _, method := range []string{"completion", "hover", "definition"} {
				call[any](f.client, "textDocument/"+method, params)
			}
			// 7 s on an idle machine, 55 s with the race detector on two busy cores.
			if took := time.Since(start); took > 5*time.Minute {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// A long name was proposed with each key and port, or compared with each stage of its module: 1 MiB took four minutes
// and 4 GB.
func TestLongNamesAreNotProposed(t *testing.T) {
	name := strings.Repeat("n", 2000)
	const stage = "stage \"exec\" \"%s\" {\n  for_each = [\"a\", \"%s\"]\n  outputs = { %s = \"o\" }\n}\n"
	text := "experiment {}\n" + fmt.Sprintf(stage, "short", name, "o") +
		fmt.Sprintf(stage, name, "b", "o") + fmt.Sprintf(stage, "port", "b", name) + "locals {\n  x = "
	f := started(t, example)
	f.diagnostics()
	f.set(text)
	got := labels(call[completions](f.client, "textDocument/completion", f.at(text)))
	if !slices.Contains(got, `stage.exec.short["a"].o`) {
		t.Errorf("got %q, want the stage with a short name", got)
	}
	for _, label := range got {
		if strings.Contains(label, name) {
			t.Errorf("%.60s… of %d bytes is proposed", label, len(label))
		}
	}
}

// 100,000 changes of one message, as those of a replacement in a long file, are made in seconds.
// With the race detector they take two minutes.
func TestManyChangesInOneMessage(t *testing.T) {
	must.Long(t)
	const n = 100_000
	f := started(t, "experiment {}\n"+strings.Repeat("#\n", n)+"varible \"a\" {}\n")
	f.diagnostics()
	var changes []any
	for i := range n {
		at := place{1 + 2*i, 1}
		changes = append(changes, map[string]any{"range": span{at, at}, "text": "\n#"})
	}
	f.change(changes...)
	start := time.Now()
	got := f.diagnostics()
	if took := time.Since(start); took > 40*time.Second { // 3 s on an idle machine
		t.Errorf("it took %v", took)
	}
	if want := (span{place{1 + 2*n, 0}, place{1 + 2*n, 7}}); len(got) != 1 || got[0].Range != want {
		t.Errorf("got %v, want one at %v", got, want)
	}
}

// Prefixes of every experiment and of nonsense are opened and completed: each prefix of the example above, and of the
// files every 17th (151st under -short), or every RCGRPO_LSP_STEP-th.
func TestEveryPrefixIsServed(t *testing.T) {
	paths := must.Get(filepath.Glob("../../../../experiments/*.hcl"))(t)
	if len(paths) == 0 {
		t.Fatal("no experiments")
	}
	texts := map[string]string{
		"example": example, "nested": strings.Repeat("a {", 600), "lists": "a = " + strings.Repeat("[", 600),
		"templates": "a = " + strings.Repeat("\"${", 600), "quotes": strings.Repeat("\"\n", 300),
		"heredoc": "a = <<E\n" + example, "objects": "a = " + strings.Repeat("{ a = ", 600),
	}
	for _, p := range paths {
		text := must.Get(os.ReadFile(p))(t)
		texts[filepath.Base(p)] = string(text)
	}
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			step := must.Short(t, 151, 17)
			if n, err := strconv.Atoi(os.Getenv("RCGRPO_LSP_STEP")); err == nil && n > 0 {
				step = n
			} else if name == "example" {
				step = must.Short(t, 17, 1)
			}
			f := started(t, "experiment {}\n")
			for n := 0; n <= len(text); n += step {
				f.set(text[:n])
				for _, method := range []string{"completion", "hover", "definition", "formatting"} {
					f.receiveReply(f.send("textDocument/"+method, f.at(text[:n])))
				}
			}
			f.diagnostics()
		})
	}
}
