package lang_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
)

// doubled is a locals block in which each of n values contains the previous value twice.
func doubled(n int, first, next string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "locals {\n  d0 = %s\n", first)
	for i := range n {
		fmt.Fprintf(&b, "  d%d = %s\n", i+1, strings.ReplaceAll(next, "LAST", fmt.Sprintf("local.d%d", i)))
	}
	return b.String() + "}\n"
}

// hostile are short files whose values do not fit into memory, with the expected diagnostics.
var hostile = map[string]struct{ file, want string }{
	"indent":                 {use(`indent(2000000000, "a\nb")`), "more than the 8 MiB"},
	"indent without lines":   {use(`indent(2000000000, "a")`), "more than the 8 MiB"},
	"negative indent":        {use(`indent(-1, "a\nb")`), "cannot be indented by -1 spaces"},
	"number of many digits":  {use(`"${1e100000000}"`), "308 digits"},
	"digits in a text":       {use(`"a${1e100000000}"`), "308 digits"},
	"digits after the point": {use(`"a${1e-100000000}"`), "308 digits"},
	"product of many digits": {doubled(40, "1e300", "LAST * LAST") + use(`"a${local.d40}"`), "308 digits"},
	"digits from a text":     {use(`"a${"1e100000000" * 1}"`), "308 digits"},
	"digits from JSON":       {use(`"a${jsondecode("1e100000000")}"`), "308 digits"},
	"strings that double":    {doubled(60, `"abcdefgh"`, `"${LAST}${LAST}"`) + use(`local.d60`), "may take 8 MiB"},
	"lists that double": {doubled(60, `[1, 2]`, `concat(LAST, LAST)`) + use(`jsonencode(local.d60)`),
		"may have 10000 elements"},
	"lists shared": {doubled(60, `[1, 2]`, `[LAST, LAST]`) + use(`jsonencode(local.d60)`),
		"may take 8 MiB"},
	"deep lists":              {doubled(300, `[1]`, `[LAST]`) + use(`jsonencode(local.d300)`), "200 deep"},
	"JSON of 10^9 elements":   {use(`jsonencode([for a in range(1000) : [for b in range(1000) : [for c in range(1000) : c]]])`), "may take"},
	"nothing, 10^9 times":     {use(`jsonencode([for a in range(1000) : [for b in range(1000) : [for c in range(1000) : c if false]]])`), "may take"},
	"objects, 10^9 times":     {use(`jsonencode({for a in range(1000) : a => {for b in range(1000) : b => {for c in range(1000) : c => c}}})`), "may take"},
	"text, 10^9 times":        {use(`"%{for a in range(1000)}%{for b in range(1000)}%{for c in range(1000)}x%{endfor}%{endfor}%{endfor}"`), "may take"},
	"loops without functions": {use(`[for a in ` + tuple(200) + ` : [for b in ` + tuple(200) + ` : [for c in ` + tuple(200) + ` : [for d in ` + tuple(200) + ` : d]]]]`), "may take"},
	"setproduct": {use(`jsonencode(setproduct(range(1000), range(1000), range(1000)))`),
		"more than the 8 MiB"},
	"format": {use(`format("%1000000000d", 1)`), "more than the 8 MiB"},
	"format of many": {doubled(19, `"abcdefgh"`,
		`"${LAST}${LAST}"`) + use(`format("%[1]s%[1]s%[1]s%[1]s", local.d19)`), "more than the 8 MiB"},
	"formatlist": {doubled(14, `"abcdefgh"`,
		`"${LAST}${LAST}"`) + use(`join(",", formatlist("%s%d", local.d14, range(1000)))`), "more than the 8 MiB"},
	"join": {doubled(16, `"abcdefgh"`,
		`"${LAST}${LAST}"`) + use(`join(local.d16, formatlist("%d", range(1000)))`), "more than the 8 MiB"},
	"replace": {doubled(12, `"abcdefgh"`,
		`"${LAST}${LAST}"`) + use(`replace(local.d12, "a", local.d12)`), "more than the 8 MiB"},
	"split": {doubled(19, `"abcdefgh"`, `"${LAST}${LAST}"`) + use(`split("", local.d19)`),
		"more than the 8 MiB"},
	"regexall": {doubled(19, `"abcdefgh"`, `"${LAST}${LAST}"`) + use(`regexall(".", local.d19)`),
		"more than the 8 MiB"},
	"distinct": {doubled(12, `[1, 2]`, `concat(LAST, LAST)`) + use(`distinct(local.d12)`),
		"more than the 8 MiB"},
	"list of one type": {doubled(13, `[1, 2]`,
		`concat(LAST, LAST)`) + use(`length(tolist(local.d13)) > 0 ? "a" : "b"`), "may have 10000 elements"},
	"parseint": {doubled(16, `"12345678"`, `"${LAST}${LAST}"`) + use(`parseint(local.d16, 10)`),
		"more than the 8 MiB"},
	"csvdecode": {doubled(17, `",,,,"`,
		`"${LAST}${LAST}"`) + use(`jsonencode(csvdecode(local.d17))`), "more than the 8 MiB"},
	"jsondecode": {doubled(17, `",,,,"`, `"${LAST}${LAST}"`) + use(`jsondecode("[${local.d17}]")`),
		"more than the 8 MiB"},
	"deep JSON": {doubled(19, `"[[[["`, `"${LAST}${LAST}"`) + use(`jsondecode(local.d19)`),
		"200 deep"},
	"splat": {doubled(12, `[{ a = 1 }]`,
		`concat(LAST, LAST)`) + use(`[`+strings.Repeat("local.d12, ", 1000)+`][*][*].a`), "may take 8 MiB"},
	"hidden by try": {use(`try(jsonencode([for a in range(1000) : [for b in range(1000) : [for c in range(1000) : c]]]), "small")`), "Value too large"},
	"nodes":         {doubled(0, "1", "") + "experiment2", "Too many stages"},
}

// use is a stage with an expression as its only setting.
func use(expr string) string { return "stage \"toy\" \"a\" {\n  text = " + expr + "\n}\n" }

func tuple(n int) string { return "[" + strings.Repeat("1, ", n) + "]" }

// Loading any file ends soon, in little memory, with a diagnostic.
func TestHostileSizesAreRejected(t *testing.T) {
	for name, tc := range hostile {
		t.Run(name, func(t *testing.T) {
			text := "experiment {\n}\n" + tc.file
			if name == "nodes" {
				var seeds strings.Builder
				for i := range 60_000 {
					fmt.Fprintf(&seeds, "%d, ", i+1)
				}
				text = "experiment {\n  seeds = [" + seeds.String() + "]\n}\nstage \"toy\" \"a\" {\n  " +
					"for_each = toset([\"1\", \"2\", \"3\", \"4\", \"5\", \"6\", \"7\", \"8\", \"9\"])\n  " +
					"draw = true\n}\n"
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begun := time.Now()
			_, diags := loadToys(t, text)
			took := time.Since(begun)
			runtime.ReadMemStats(&after)
			if name != "nodes" && len(diags) != 1 {
				t.Errorf("got %d diagnostics, want one", len(diags))
			}
			if !strings.Contains(diags.Error(), tc.want) {
				t.Errorf("got %v, want %q", diags, tc.want)
			}
			if made := after.TotalAlloc - before.TotalAlloc; made > 4<<30 {
				t.Errorf("allocated %d MiB", made>>20)
			}
			t.Logf("%v, %d MiB, %v", took, (after.TotalAlloc-before.TotalAlloc)>>20, diags)
		})
	}
}

// Within the limits the values are the same as without limits.
func TestLargeValuesWithinTheLimits(t *testing.T) {
	for expr, want := range map[string]string{
		`strlen(join("", [for a in range(1000) : "0123456789"]))`:                        "10000",
		`length([for a in range(500) : [for b in range(500) : b]])`:                      "500",
		`length(setproduct(range(99), range(99)))`:                                       "9801",
		`strlen(indent(1000, "a\nb"))`:                                                   "1003",
		`strlen(format("%-1000s|%05d", "a", 7))`:                                         "1006",
		`1e-308 > 0`:                                                                     "true",
		`length(distinct([for a in range(1000) : 7]))`:                                   "1",
		`try(one([1, 2]), "several")`:                                                    `"several"`,
		`length(split(",", replace("a;b;c", ";", ",")))`:                                 "3",
		`sum([for a in range(500) : sum([for b in range(500) : b])])`:                    "62375000",
		`jsondecode("{\"a\": [[[1]]]}").a[0][0][0]`:                                      "1",
		`length(regexall("[0-9]", join("", [for a in range(1000) : "0123456789"])))`:     "10000",
		`strlen(jsonencode({ for a in range(1000) : "key${a}" => [a, "value", null] }))`: "27781",
	} {
		x := emptyExperiment(t)
		if got, diags := x.Eval(expr); diags.HasErrors() || got != want {
			t.Errorf("%s: got %s, %v, want %s", expr, got, diags, want)
		}
	}
}

// After an excess in the console, the next expression has the full allowance.
func TestConsoleContinuesAfterAnExcess(t *testing.T) {
	x := emptyExperiment(t)
	if _, diags := x.Eval(`indent(10, join("", [for a in range(1000) : [for b in range(1000) : [for c in range(1000) : c]]]))`); !diags.HasErrors() {
		t.Error("no diagnostic")
	}
	if got, diags := x.Eval(`1 + 1`); diags.HasErrors() || got != "2" {
		t.Errorf("afterwards: got %s, %v, want 2", got, diags)
	}
}

// Limits do not apply to types.
func TestLimitsDoNotApplyToTypes(t *testing.T) {
	x, diags := loadToys(t, `
experiment {
}
variable "nested" {
  type    = map(object({ names = list(string), n = number }))
  default = { a = { names = ["x"], n = 1 } }
}
stage "toy" "a" {
  text = var.nested.a.names[0]
}
`)
	if diags.HasErrors() {
		t.Fatal(diags)
	}
	for _, s := range x.Nodes[0].Settings {
		if s.Name == "text" && s.Value != `"x"` {
			t.Errorf("got the text %s, want x", s.Value)
		}
	}
}

// External values have the same limits.
func TestHostileVariablesAreRejected(t *testing.T) {
	dir := t.TempDir()
	file, values := filepath.Join(dir, "x.hcl"), filepath.Join(dir, "values")
	const text = "experiment {\n}\nvariable \"n\" {\n  type = number\n}\nstage \"toy\" \"a\" {\n  text = " +
		"\"a${var.n}\"\n}\n"
	enginetest.WriteFile(t, file, text)
	enginetest.WriteFile(t, values, "n = 1e100000000\n")
	for name, src := range map[string]lang.Source{
		"-var":             {Vars: map[string]string{"n": "1e100000000"}},
		"-var, computed":   {Vars: map[string]string{"n": `length([for a in range(1000) : [for b in range(1000) : [for c in range(1000) : c]]])`}},
		"-var-file":        {VarFiles: []string{values}},
		"the environment":  {Env: []string{"RCGRPO_VAR_n=1e100000000"}},
		"-var, as a text":  {Vars: map[string]string{"n": `"1e100000000"`}},
		"-var, unreadable": {Vars: map[string]string{"n": `1e-100000000`}},
	} {
		src.Path, src.Env = file, append(src.Env, "HOME="+dir)
		_, diags := lang.Load(src, enginetest.ToyKinds())
		if !strings.Contains(enginetest.Mistakes(diags), "Value too large: ") {
			t.Errorf("%s: got %v, want that the value is too large", name, diags)
		}
	}
}

func loadToys(t *testing.T, text string) (*lang.Experiment, hcl.Diagnostics) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.hcl")
	enginetest.WriteFile(t, path, text)
	return lang.Load(lang.Source{Path: path}, enginetest.ToyKinds())
}

func emptyExperiment(t *testing.T) *lang.Experiment {
	t.Helper()
	return enginetest.MustLoadPaper(t, "experiment {\n}\n")
}
