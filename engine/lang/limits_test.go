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
const mostCPUTime = time.Minute

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
		"equality": {`a = [for i in range(1000) : local.l == local.m]` + lists, "oo many steps"},
		"splat":    {`a = [for i in range(1000) : local.l[*].b == 1]` + lists, "oo many steps"},
		"condition": {`a = [for i in range(30) : length(i > 1 ? [for b in local.l : b.b] : [])]` + lists,
			"oo many steps"},
		"dropped by try":  {`a = try(length(` + loop + `), 1)`, "oo many steps"},
		"index":           {`a = [for i in range(1000) : [` + strings.Repeat("1,", 30_000) + `][i]]`, "oo many steps"},
		"distinct":        {`a = distinct([for p in setproduct(range(100), range(50)) : p[0]])`, "oo many steps"},
		"tuple to list":   {`a = sort([for p in setproduct(range(300), range(300)) : "x"])`, "oo many steps"},
		"tuple to set":    {`a = toset([for p in setproduct(range(400), range(100)) : p[0] * 100 + p[1]])`, "oo many steps"},
		"matches":         {`a = length(regexall("(b?){1000}c", local.s))` + long, "oo many steps"},
		"pattern":         {`a = can(regex("` + strings.Repeat("(b?){1000}", 90) + `", local.s))` + long, "oo many steps"},
		"long pattern":    {`a = regex("` + strings.Repeat("b?", 501) + `", local.s)` + long, "1000 bytes"},
		"replace matches": {`a = replace(local.s, "/(b?){1000}c/", "")` + long, "oo many steps"},
		"format argument": {`a = format("` + strings.Repeat("%[1]s", 700) + `", local.s)` + long, "oo many steps"},
		"formatlist":      {`a = formatlist("%s%s", local.s, range(1000))` + long, "oo many steps"},
		"trim":            {`a = trim(local.s, "é${local.s}")` + long, "oo many steps"},
		"texts of a list": {`a = jsonencode([` + strings.Repeat("local.s,", 1000) + `])` + long, "oo many steps"},
		"split": {`a = length(split("b", join("", [` + strings.Repeat("local.s,", 45) + `])))` + long,
			"oo many steps"},
		"csvdecode": {`a = csvdecode(replace(join("", [` + strings.Repeat("local.s,", 22) + `]), "b", "\n"))` + long,
			"oo many steps"},
		"elements in JSON": {`a = jsondecode("[${replace(join("", [` + strings.Repeat("local.s,", 15) +
			`]), "b", "1,")}1]")` + long, "oo many steps"},
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
	for name, text := range map[string]string{
		"a default": "variable \"v\" {\n  default = length(" + loop + ")\n}\n",
		"the type of a default": "variable \"v\" {\n  type    = list(number)\n  default = [" +
			strings.Repeat("1,", 100_000) + "]\n}\n",
		"settings of instances": "locals {\n  l = [" + strings.Repeat(`"x",`, 40_000) + "]\n}\n" +
			"stage \"exec\" \"x\" {\n  for_each = range(500)\n  command  = local.l\n  outputs  = { o = \"o\" }\n}\n",
	} {
		_, diags := enginetest.LoadPaper(t, "experiment {}\n"+text)
		if !strings.Contains(diags.Error(), "oo many steps") && !strings.Contains(diags.Error(), "need too many steps") {
			t.Errorf("%s: got %.300v, want too many steps", name, diags)
		}
	}
}

// Each loop around the one that takes too many steps takes too many, too.
func TestTooManyStepsAreReportedOnceWithTheirPlace(t *testing.T) {
	_, diags := enginetest.LoadPaper(t, "experiment {}\nlocals {\n  a = "+
		"length([for i in range(1000) : [for j in range(1000) : [for k in range(300) : 1]]])\n}\n")
	if len(diags) != 1 || diags[0].Summary != "Too many steps" || diags[0].Subject == nil ||
		diags[0].Subject.Start.Line != 3 {
		t.Errorf("got %v, want one error in line 3", diags)
	}
}

// The values of variables may be missing, as in an editor. Their steps are counted when they are known.
func TestUnknownElementsAreNoTexts(t *testing.T) {
	_, diags := enginetest.LoadPaper(t, `
experiment {}
variable "size" { type = string }
locals {
  all = concat(["a", var.size], [for s in [var.size, null] : "${s}"], split(",", var.size), distinct([var.size]))
  one = var.size == "a" ? trim(var.size, "x") : format("%s", regex(var.size, join(var.size, [var.size, null])))
}
stage "exec" "a" {
  for_each = toset([var.size])
  command  = ["echo", each.key, local.one]
  outputs  = { out = "x" }
}`)
	must.Contain(t, diags.Error(), "size")
}

// Experiments of the size that people write stay far below the limit.
func TestLargeExperimentsNeedFewSteps(t *testing.T) {
	_, diags := enginetest.LoadPaper(t, `
experiment {
  seeds = [for n in setproduct(range(100), range(100)) : n[0] * 100 + n[1]]
}
locals {
  names = [for i in range(1000) : "name-${i}"]
  long  = [for name in local.names : name if contains(local.names, name) && length(regexall("[0-9]+", name)) > 0]
  words = replace(join(" ", slice(local.long, 0, 500)), "/\\s+/", "_")
  sizes = { for i, name in local.names : name => { small = i, large = i % 2 == 0 ? [name, name] : [name, "x"] } }
}
stage "exec" "one" {
  for_each = toset(slice(local.long, 0, 500))
  command  = ["echo", each.key, local.words]
  outputs  = { out = "${format("%s-%d", each.key, local.sizes[each.key].small)}.txt" }
}
stage "exec" "two" {
  for_each = slice(local.names, 0, 500)
  command  = concat(["cat"], local.sizes[each.key].large)
  inputs   = { a = stage.exec.one[each.value].out }
  outputs  = { out = "two-${each.key}.txt" }
}
`)
	if diags.HasErrors() {
		t.Errorf("got %.500v, want no error", diags)
	}
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

// lists are two equal lists of 10,000 elements.
var lists = "\n  l = [for p in setproduct(range(100), range(100)) : { b = p[0] }]\n  m = [for b in local.l : b]"

// doubled has strings each of which is ten times the string before.
func doubled(levels int) string {
	text := "a0 = \"aaaaaaaaaa\"\n"
	for i := range levels {
		text += fmt.Sprintf("  a%d = \"%s\"\n", i+1, strings.Repeat(fmt.Sprintf("${local.a%d}", i), 10))
	}
	return text
}

// Addresses and ports are repeated by each instance: these took more than 6 GB.
func TestNamesAreShort(t *testing.T) {
	name, exec := strings.Repeat("n", 1000), "\" {\n  command = [\"true\"]\n  for_each = range(99)\n  outputs = { "
	for text, want := range map[string]string{
		"stage \"exec\" \"" + name + exec + "o = \"o\" }\n}\n":                      "Name too long",
		"module \"" + name + "\" {\n  source = \"m.hcl\"\n}\n":                      "Name too long",
		"stage \"exec\" \"a" + exec + strings.Repeat(name, 800) + " = \"o\" }\n}\n": "Too many steps",
	} {
		_, diags := enginetest.LoadPaper(t, "experiment {}\n"+text)
		if len(diags) != 1 || diags[0].Summary != want {
			t.Errorf("%.40s: got %.300v, want %s", text, diags, want)
		}
	}
}
