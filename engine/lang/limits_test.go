package lang_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
)

// The last local of a doubled file is LAST, which contains the previous local twice.
const (
	text   = `"${LAST}${LAST}"`
	list   = `concat(LAST, LAST)`
	tooBig = "more than the 8 MiB"
	cubes  = `[for a in range(1000) : [for b in range(1000) : [for c in range(1000) : c]]]`
)

// use returns a stage with an expression as its only setting.
func use(expr string) string { return "stage \"toy\" \"a\" {\n  text = " + expr + "\n}\n" }

// doubled returns a stage that uses LAST, the last of n locals after first; next defines each by its predecessor.
func doubled(n int, first, next, expr string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "locals {\n  d0 = %s\n", first)
	for i := range n {
		fmt.Fprintf(&b, "  d%d = %s\n", i+1, strings.ReplaceAll(next, "LAST", fmt.Sprint("local.d", i)))
	}
	return b.String() + "}\n" + use(strings.ReplaceAll(expr, "LAST", fmt.Sprint("local.d", n)))
}

// hostile are short files whose values do not fit into memory, with the expected diagnostics.
var hostile = map[string]struct{ file, want string }{
	"indent":                 {use(`indent(2000000000, "a\nb")`), tooBig},
	"indent without lines":   {use(`indent(2000000000, "a")`), tooBig},
	"negative indent":        {use(`indent(-1, "a\nb")`), "cannot be indented by -1 spaces"},
	"number of many digits":  {use(`"${1e100000000}"`), "308 digits"},
	"digits in a text":       {use(`"a${1e100000000}"`), "308 digits"},
	"digits after the point": {use(`"a${1e-100000000}"`), "308 digits"},
	"product of many digits": {doubled(40, "1e300", "LAST * LAST", `"a${LAST}"`), "308 digits"},
	"digits from a text":     {use(`"a${"1e100000000" * 1}"`), "308 digits"},
	"digits from JSON":       {use(`"a${jsondecode("1e100000000")}"`), "308 digits"},
	"strings that double":    {doubled(60, `"abcdefgh"`, text, `LAST`), "may take 8 MiB"},
	"lists that double":      {doubled(60, `[1, 2]`, list, `jsonencode(LAST)`), "may have 10000 elements"},
	"lists shared":           {doubled(60, `[1, 2]`, `[LAST, LAST]`, `jsonencode(LAST)`), "may take 8 MiB"},
	"deep lists":             {doubled(300, `[1]`, `[LAST]`, `jsonencode(LAST)`), "200 deep"},
	"JSON of 10^9 elements":  {use(`jsonencode(` + cubes + `)`), "may take"},
	"nothing, 10^9 times":    {use(`jsonencode(` + strings.Replace(cubes, ": c]", ": c if false]", 1) + `)`), "may take"},
	"objects, 10^9 times": {use(`jsonencode({for a in range(1000) : a =>` +
		` {for b in range(1000) : b => {for c in range(1000) : c => c}}})`), "may take"},
	"text, 10^9 times": {use(`"` + strings.Repeat(`%{for a in range(1000)}`, 3) + "x" +
		strings.Repeat(`%{endfor}`, 3) + `"`), "may take"},
	"loops without functions": {use(strings.Repeat(`[for a in [`+strings.Repeat("1, ", 200)+`] : `, 4) + "a" +
		strings.Repeat("]", 4)), "may take"},
	"setproduct":       {use(`jsonencode(setproduct(range(1000), range(1000), range(1000)))`), tooBig},
	"format":           {use(`format("%1000000000d", 1)`), tooBig},
	"format of many":   {doubled(19, `"abcdefgh"`, text, `format("%[1]s%[1]s%[1]s%[1]s", LAST)`), tooBig},
	"formatlist":       {doubled(14, `"abcdefgh"`, text, `join(",", formatlist("%s%d", LAST, range(1000)))`), tooBig},
	"join":             {doubled(16, `"abcdefgh"`, text, `join(LAST, formatlist("%d", range(1000)))`), tooBig},
	"replace":          {doubled(12, `"abcdefgh"`, text, `replace(LAST, "a", LAST)`), tooBig},
	"split":            {doubled(19, `"abcdefgh"`, text, `split("", LAST)`), tooBig},
	"regexall":         {doubled(19, `"abcdefgh"`, text, `regexall(".", LAST)`), tooBig},
	"distinct":         {doubled(12, `[1, 2]`, list, `distinct(LAST)`), tooBig},
	"list of one type": {doubled(13, `[1, 2]`, list, `length(tolist(LAST)) > 0 ? "a" : "b"`), "may have 10000 elements"},
	"parseint":         {doubled(16, `"12345678"`, text, `parseint(LAST, 10)`), tooBig},
	"csvdecode":        {doubled(17, `",,,,"`, text, `jsonencode(csvdecode(LAST))`), tooBig},
	"jsondecode":       {doubled(17, `",,,,"`, text, `jsondecode("[${LAST}]")`), tooBig},
	"deep JSON":        {doubled(19, `"[[[["`, text, `jsondecode(LAST)`), "200 deep"},
	"splat": {doubled(12, `[{ a = 1 }]`, list, `[`+strings.Repeat("LAST, ", 1000)+`][*][*].a`),
		"may take 8 MiB"},
	"hidden by try": {use(`try(jsonencode(` + cubes + `), "small")`), "Value too large"},
}

// Loading any file ends soon, in little memory, with a diagnostic.
func TestHostileSizesAreRejected(t *testing.T) {
	for name, tc := range hostile {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, diags := enginetest.Load(t, enginetest.ToyKinds(), tc.file)
			runtime.ReadMemStats(&after)
			if len(diags) != 1 || !strings.Contains(diags.Error(), tc.want) {
				t.Errorf("got %v, want one diagnostic with %q", diags, tc.want)
			}
			if allocated := (after.TotalAlloc - before.TotalAlloc) >> 20; allocated > 4<<10 {
				t.Errorf("allocated %d MiB", allocated)
			}
		})
	}
}

func TestTooManyNodesAreRejected(t *testing.T) {
	_, diags := enginetest.LoadPaper(t, `
experiment {
  seeds = [for n in setproduct(range(300), range(200)) : n[0] * 200 + n[1]]
}
stage "tasks" "t" {
  for_each = range(9)
  source   = "drills"
}
`)
	must.Contain(t, diags.Error(), "Too many stages")
}

// Within the limits the values are the same as without limits, also after an excess. Types have no limits.
func TestLargeValuesWithinTheLimits(t *testing.T) {
	x := enginetest.MustLoadPaper(t, `
experiment {
}
variable "nested" {
  type    = map(object({ names = list(string), n = number }))
  default = { a = { names = ["x"], n = 1 } }
}
`)
	if _, diags := x.Eval(`indent(10, join("", ` + cubes + `))`); !diags.HasErrors() {
		t.Error("no diagnostic")
	}
	for expr, want := range map[string]string{
		`var.nested.a.names[0]`:                                                          `"x"`,
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
		if got, diags := x.Eval(expr); diags.HasErrors() || got != want {
			t.Errorf("%s: got %s, %v, want %s", expr, got, diags, want)
		}
	}
}

// External values have the same limits.
func TestHostileVariablesAreRejected(t *testing.T) {
	values := filepath.Join(t.TempDir(), "values")
	enginetest.WriteFile(t, values, "n = 1e100000000\n")
	for name, given := range map[string]lang.Source{
		"-var":             {Vars: map[string]string{"n": "1e100000000"}},
		"-var, computed":   {Vars: map[string]string{"n": `length(` + cubes + `)`}},
		"-var-file":        {VarFiles: []string{values}},
		"the environment":  {Env: []string{"RCGRPO_VAR_n=1e100000000"}},
		"-var, as a text":  {Vars: map[string]string{"n": `"1e100000000"`}},
		"-var, unreadable": {Vars: map[string]string{"n": `1e-100000000`}},
	} {
		_, diags := enginetest.LoadPaper(t, "experiment {}\nvariable \"n\" {\n  type = number\n}\n"+
			"locals {\n  text = \"a${var.n}\"\n}\n", func(src *lang.Source) {
			src.Vars, src.VarFiles, src.Env = given.Vars, given.VarFiles, given.Env
		})
		if !strings.Contains(enginetest.Mistakes(diags), "Value too large: ") {
			t.Errorf("%s: got %v, want that the value is too large", name, diags)
		}
	}
}
