package lang_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
)

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
	must.Contain(t, diags.Error(), "Too many instances")
}

// Modules in modules multiply, so their instances are counted while they are made: by Load and thus in an editor, and
// in bundles, which are loaded by it too.
func TestInstancesOfModulesAreCountedWhileTheyAreMade(t *testing.T) {
	must.Long(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, diags := enginetest.LoadPaper(t, "experiment {}\n"+level("1.hcl"), func(src *lang.Source) {
		dir := filepath.Dir(src.Path)
		for i, next := range []string{"2.hcl", "3.hcl", "4.hcl"} {
			enginetest.WriteFile(t, filepath.Join(dir, string(rune('1'+i))+".hcl"), level(next))
		}
		enginetest.WriteFile(t, filepath.Join(dir, "4.hcl"), "")
	})
	runtime.ReadMemStats(&after)
	if len(diags) != 1 || diags[0].Summary != "Too many instances" {
		t.Errorf("got %.300v, want one diagnostic about the number of instances", diags)
	}
	if allocated := (after.TotalAlloc - before.TotalAlloc) >> 20; allocated > 4<<10 {
		t.Errorf("allocated %d MiB", allocated)
	} else {
		t.Logf("allocated %d MiB", allocated)
	}
}

// level is a file with 100 instances of a module.
func level(source string) string {
	return "module \"m\" {\n  source   = \"" + source + "\"\n  for_each = range(100)\n}\n"
}

// mostCPUTime is the limit of one case, with the race detector too. Other processes do not count.
const mostCPUTime = 30 * time.Second

// cpuTime returns the time that the processors have worked for this process.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	must.OK(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Each of these took minutes, gigabytes or the process, in an editor too.
func TestExpressionsNeedFewSteps(t *testing.T) {
	squares := "x0 = 1e999\n"
	for i := range 13 {
		squares += fmt.Sprintf("x%d = local.x%d * local.x%d\n", i+1, i, i)
	}
	const loop = `[for i in range(1000) : [for j in range(1000) : [for k in range(300) : 1]]]`
	for name, tc := range map[string]struct{ text, want string }{
		"loops in loops":     {`a = length(` + loop + `)`, "Too many steps"},
		"strings of strings": {doubled(8), "Too many steps"},
		"try in try":         {`a = ` + strings.Repeat("try(", 26) + "1" + strings.Repeat(")", 26), "too many steps"},
		"join":               {`a = join(join(local.s, range(1000)), range(1000))` + long, "too many steps"},
		"replace":            {`a = replace(local.s, "b", local.s)` + long, "too many steps"},
		"replace by pattern": {`a = replace(local.s, "/x*/", local.s)` + long, "too many steps"},
		"setproduct":         {`a = length(setproduct(range(1000), range(1000), range(100)))`, "may have 1000000 elements"},
		"format":             {`a = format("%999999999s", "x")`, "at most 9999"},
		"precision":          {`a = formatlist("%.99999999f", [1])`, "at most 9999"},
		"indent":             {`a = indent(1000000000, "\n")`, "at most 10000"},
		"jsondecode": {`a = jsondecode("` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `")`,
			"deeper than 100"},
		"number":                      {`a = tostring(1e9999999)`, "exponent of at most three"},
		"number in a key":             {`a = { (1e9999999) = 1 }`, "exponent of at most three"},
		"number in JSON":              {`a = jsondecode("[1e9999999]")`, "exponent of at most three"},
		"number of text":              {`a = tostring(tonumber("1e9999999"))`, "exponent of at most three"},
		"range of text":               {`a = range("1e9999999")`, "exponent of at most three"},
		"product":                     {squares + `b = tostring(local.x13)`, "exponent of at most three"},
		"product in text":             {squares + `b = "x${local.x13}"`, "exponent of at most three"},
		"product in key":              {squares + `b = { (local.x13) = 1 }`, "exponent of at most three"},
		"product in a list in a list": {squares + `b = jsonencode([[local.x13]])`, "exponent of at most three"},
		"product in a map":            {squares + `b = jsonencode({ a = { b = [local.x13] } })`, "exponent of at most three"},
		"long list in a loop": {"b = setproduct(range(700), range(700))\n" +
			`a = [for i in range(100) : [for j in range(100) : length(local.b)]]`, "oo many steps"},
		"product in list":      {squares + `b = jsonencode([local.x13])`, "exponent of at most three"},
		"template in template": {"a = \"" + strings.Repeat("%{if a}", 140_000) + "\"", "5000 directives"},
		"text too long":        {"a = [" + strings.Repeat("1,", 600_000) + "]", "1048576"},
		"heredoc":              {"a = <<E\n" + strings.Repeat("x\n", 60_000) + "E\n", "Too many lines"},
	} {
		before := cpuTime(t)
		_, diags := enginetest.LoadPaper(t, "experiment {}\nlocals {\n  "+tc.text+"\n}\n")
		if took := cpuTime(t) - before; took > mostCPUTime || !strings.Contains(diags.Error(), tc.want) {
			t.Errorf("%s: got %.300v after %v, want %q", name, diags, took, tc.want)
		}
	}
	_, diags := enginetest.LoadPaper(t, "experiment {}\nvariable \"v\" {\n  default = length("+loop+")\n}\n")
	must.Contain(t, diags.Error(), "Too many steps")
}

// Each of these took minutes or gigabytes, because each error compared or listed all names.
func TestManyErrorsNeedLittleWork(t *testing.T) {
	each := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"long names": "variable \"" + strings.Repeat("a", 200_000) + "\" {}\nlocals {\n  a = var." +
			strings.Repeat("b", 200_000) + "\n}\n",
		"names": each(10_000, "variable \"aaaaaaaaaaaaaaaa%d\" {\n  default = 1\n}\n") + "locals {\n  a = [" +
			each(10_000, "var.bbbbbbbbbbbbbbbb%d,") + "]\n}\n",
		"keys": "stage \"tasks\" \"t\" {\n  source   = \"drills\"\n  for_each = [" + each(10_000, "\"aaaaaaaaaaaaaaaa%d\",") +
			"]\n}\nlocals {\n" + each(10_000, "  a%d = stage.tasks.t[\"b\"]\n") + "}\n",
		"a long map": "stage \"exec\" \"x\" {\n  command = [\"true\"]\n  outputs = {\n" +
			each(30_000, "    aaaaaaaaaaaaaaaa%d = \"a\"\n") + "  }\n  b = 1\n}\n",
		"indexes": "locals {\n  o = {\n" + each(10_000, "    aaaaaaaaaaaaaaaa%d = 1\n") + "  }\n  a = [" +
			each(10_000, "local.o.b%d,") + "]\n}\n",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := cpuTime(t)
		_, diags := enginetest.LoadPaper(t, "experiment {}\n"+text)
		took := cpuTime(t) - start
		runtime.ReadMemStats(&after)
		if allocated := (after.TotalAlloc - before.TotalAlloc) >> 20; took > mostCPUTime || allocated > 1<<10 ||
			len(diags) == 0 || len(diags) > 201 {
			t.Errorf("%s: %d diagnostics after %v and %d MiB", name, len(diags), took, allocated)
		} else {
			t.Logf("%s: %d diagnostics after %v and %d MiB", name, len(diags), took, allocated)
		}
	}
}

// long is a local s of 100 KB.
var long = "\n  s = \"" + strings.Repeat("b", 100_000) + "\""

// doubled has strings each of which is ten times the string before.
func doubled(levels int) string {
	text := "a0 = \"aaaaaaaaaa\"\n"
	for i := range levels {
		text += fmt.Sprintf("  a%d = \"%s\"\n", i+1, strings.Repeat(fmt.Sprintf("${local.a%d}", i), 10))
	}
	return text
}
