package jinja_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/jinja"
)

// rendered is a text, or an error of the reference.
type rendered struct {
	text string
	err  string
}

func (r *rendered) UnmarshalJSON(raw []byte) error {
	if raw[0] == '"' {
		return json.Unmarshal(raw, &r.text)
	}
	var e struct{ Error string }
	err := json.Unmarshal(raw, &e)
	r.err = e.Error
	return err
}

// reference is what bench/hf_templates.py writes.
type reference struct {
	Templates     map[string]string
	Conversations []json.RawMessage
	Variables     json.RawMessage
	Renderings    map[string][]rendered
	Expressions   [][2]json.RawMessage
}

func read(t *testing.T) (r reference) {
	t.Helper()
	f := must.Get(os.Open("testdata/renderings.json.gz"))(t)
	defer f.Close()
	must.OK(t, json.NewDecoder(must.Get(gzip.NewReader(f))(t)).Decode(&r))
	return r
}

func variables(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	vars := map[string]any{"documents": nil}
	for _, m := range must.Get(jinja.ParseJSON(raw, jinja.Foreign))(t).(jinja.Dict) {
		vars[m.Key.String()] = m.Value
	}
	return vars
}

func render(source string, vars map[string]any) (string, error) {
	p, err := jinja.Parse(source)
	if err != nil {
		return "", err
	}
	text, err := p.Render(vars, jinja.NewWork(jinja.MaxSteps))
	return text.String(), err
}

// The reference is transformers. The engine must raise where the reference raises, and render the same text elsewhere.
func TestTemplatesRenderAsTheReference(t *testing.T) {
	r := read(t)
	failures, total := 0, 0
	for name, source := range r.Templates {
		for i, want := range r.Renderings[name] {
			got, err := render(source, variables(t, r.Conversations[i]))
			if total++; want.err != "" {
				failures++
			}
			// Python's text of lists and dicts is refused.
			refused := err != nil && strings.Contains(err.Error(), "is not supported, because it is Python's")
			if (err != nil) != (want.err != "") && !refused || err == nil && got != want.text {
				t.Errorf("%s, conversation %d: got %q, %v, want %q, %q", name, i, got, err, want.text, want.err)
			}
		}
	}
	if total != 1200 || failures < 50 {
		t.Errorf("%d renderings with %d errors; want 1200 with at least 50", total, failures)
	}
}

func TestExpressionsAreAsTheReference(t *testing.T) {
	r := read(t)
	refused, failures := 0, 0
	for _, e := range r.Expressions {
		var source string
		var want rendered
		must.OK(t, json.Unmarshal(e[0], &source))
		must.OK(t, json.Unmarshal(e[1], &want))
		got, err := render("{{ "+source+" }}", variables(t, r.Variables))
		switch {
		case want.err != "":
			if failures++; err == nil {
				t.Errorf("%s: got %q, want an error: %s", source, got, want.err)
			}
		case err != nil && strings.Contains(err.Error(), "not supported"):
			t.Logf("refused: %s, %q: %v", source, want.text, err)
			refused++
		case err != nil || got != want.text:
			t.Errorf("%s: got %q, %v, want %q", source, got, err, want.text)
		}
	}
	t.Logf("%d expressions, %d are errors of the reference, %d more are refused", len(r.Expressions), failures, refused)
	if len(r.Expressions) != 300 || refused > 105 { // the rest of Jinja, which chat templates do not use
		t.Errorf("%d expressions, %d refused; want 300, at most 105", len(r.Expressions), refused)
	}
}

// The published templates of the fixtures, with errors.
func TestPublishedTemplatesRenderAsTheReference(t *testing.T) {
	for _, family := range []string{"qwen2_5", "llama3_1"} {
		p := must.Get(jinja.Parse(string(fixtures.Read(t, "hf/chat/"+family+".jinja"))))(t)
		fixtures.Records(t, "hf/chat/vectors_"+family+".jsonl", func(v struct {
			Note     string
			Messages json.RawMessage
			Tools    json.RawMessage
			Generate bool `json:"add_generation_prompt"`
			Kwargs   json.RawMessage
			Rendered *string
			Optional bool
		}) {
			vars := map[string]any{}
			if v.Kwargs != nil && string(v.Kwargs) != "null" {
				vars = variables(t, v.Kwargs)
			}
			vars["bos_token"] = jinja.Own("<|begin_of_text|>")
			vars["messages"] = must.Get(jinja.ParseJSON(v.Messages, jinja.Foreign))(t)
			vars["add_generation_prompt"], vars["tools"] = v.Generate, nil
			if v.Tools != nil {
				vars["tools"] = must.Get(jinja.ParseJSON(v.Tools, jinja.Foreign))(t)
			}
			got, err := p.Render(vars, jinja.NewWork(jinja.MaxSteps))
			switch {
			case v.Rendered == nil && err == nil:
				t.Errorf("%s, %s: got %q, want an error", family, v.Note, got)
			case v.Rendered != nil && (err != nil && !v.Optional || err == nil && got.String() != *v.Rendered):
				t.Errorf("%s, %s: got %q, %v, want %q", family, v.Note, got, err, *v.Rendered)
			}
		})
	}
}

func TestTextsKeepTheirMarks(t *testing.T) {
	vars := map[string]any{"x": jinja.Foreign(" a,B\"c "),
		"d": jinja.Dict{{Key: jinja.Foreign("k"), Value: jinja.Foreign("v")}}}
	for source, want := range map[string]string{
		"<{{ x }}>":                                      `<[ a,B"c ]>`,
		"{{ '<' + x + '>' }}":                            `<[ a,B"c ]>`,
		"{{ '<' ~ (x | trim)[1:3] }}":                    `<[,B]`,
		"{{ x.split(',') | join('|')}}":                  `[ a]|[B"c ]`,
		"{{ x | replace('B', 'own') }}":                  `[ a,]own["c ]`,
		"{{ x | upper | tojson }}":                       `"[ A,B\"C ]"`,
		"{{ d | tojson }}":                               `{"[k]": "[v]"}`,
		"{% set b %}({{ x }}){% endset %}{{ b | trim }}": `([ a,B"c ])`,
		"{% for c in x[1:3] %}{{ c }}.{% endfor %}":      `[a].[,].`,
	} {
		p := must.Get(jinja.Parse(source))(t)
		text := must.Get(p.Render(vars, jinja.NewWork(jinja.MaxSteps)))(t)
		got := ""
		for _, r := range text.Runs() {
			if r.Foreign {
				r.Text = "[" + r.Text + "]"
			}
			got += r.Text
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", source, got, want)
		}
	}
}

func TestTemplatesAreRefusedWithTheLine(t *testing.T) {
	nest := func(n, value string) string {
		return "{% set ns = namespace(x=[]) %}{% for i in many[:" + n + "] %}{% set ns.x = [" + value +
			"] %}{% endfor %}{{ ns.x | tojson }}"
	}
	passes := "{% for i in many %}{% for j in many %}{% endfor %}{% endfor %}"
	grow := "{% set ns = namespace(x='aaaaaaaaaaaaaaaa') %}" +
		"{% for i in many[:99] %}{% set ns.x = ns.x + ns.x %}{% endfor %}"
	vars := map[string]any{"many": slices.Repeat(jinja.List{true}, 99999), "big": int64(math.MaxInt64),
		"huge": json.Number("123456789012345678901")}
	for source, want := range map[string]string{
		"\n{% macro f() %}{% endmacro %}":   "line 2: the tag macro is not supported",
		"{% include 'x' %}":                 "line 1: the tag include is not supported",
		"{{ 1 | nope }}":                    "line 1: the filter nope is unknown",
		"{{ 1 is nope }}":                   "line 1: the test nope is unknown",
		"{% for x in y %}":                  "expected {% endfor %}",
		"\n\n{{ x":                          "line 3: the tag has no end }}",
		"{{ missing.a }}":                   `line 1: the undefined value "missing" has no attribute a`,
		"\n{{ {'a': 1} }}":                  "line 2: the text of a dict is not supported",
		"{{ 'a' + none }}":                  "a string + None is not supported",
		"{{ raise_exception('no tools') }}": "the template refuses: no tools",
		"{% break %}":                       "break is outside a loop",
		"{{ " + strings.Repeat("(", 300) + strings.Repeat(")", 300) + " }}": "nested deeper than 200",
		"{{ 1" + strings.Repeat("+1", 6000) + " }}":                         "more than 5000 operators",
		strings.Repeat(" ", 1<<20+1):                                        "at most 1048576",
		grow:                                                                "exceeds 2097152 bytes",
		passes:                                                              "more than the 5000000 steps",
		nest("999", "ns.x"):                                                 "nested deeper than 100",
		nest("60", "ns.x, ns.x"):                                            "exceeds 2097152 bytes",
		"{{ range(3) }}":                                                    "rarely use is not supported",
		"{{ 1.5 }}":                                                         "the number 1. is not supported",
		"{{ 'a\\x41' }}":                                                    `the escape "\\x" is not supported`,
		"{{ 1 < 2 < 3 }}":                                                   "a chain of comparisons is not supported",
		"{{ many[::2] }}":                                                   "a step other than [::-1] is not supported",
		"{{ big + 1 }}":                                                     "an integer + an integer is not supported",
		"{{ huge < 1 }}":                                                    "the order of an integer and an integer",
		"{{ huge == 1 }}":                                                   "comparing integers above 2^53 is not supported",
		"{{ 'ä' | upper }}":                                                 "beyond ASCII are not supported",
		"{{ 'a' | replace('', 'b') }}":                                      "to split at or to replace is not supported",
	} {
		_, err := render(source, vars)
		must.Match(t, err, want, source)
	}
}

// The characters of a long text are counted before a list of them is made.
func TestLongTextsAreRefusedBeforeTheyBecomeLists(t *testing.T) {
	vars := map[string]any{"x": jinja.Foreign(strings.Repeat("a", 16<<20))}
	for _, source := range []string{"{% for c in x %}{% endfor %}", "{{ x[0] }}", "{{ x[0:1] }}", "{{ x | list }}",
		"{% set a, b = x %}", "{% for c in x[1:] %}{% endfor %}"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := render(source, vars)
		runtime.ReadMemStats(&after)
		must.Match(t, err, "more than the 5000000 steps", source)
		if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
			t.Errorf("%s: allocated %d bytes, want at most 1 MiB", source, n)
		}
	}
}

// A step needs little time and memory, however short the text beside a long one, deep the scopes or many the marks are.
func TestStepsAreOfEqualWork(t *testing.T) {
	scopes := strings.Repeat("{% for a in few %}", 150) + "{% for k in many %}{% if [" + strings.Repeat("y, ", 20) +
		"] %}{% endif %}{% endfor %}" + strings.Repeat("{% endfor %}", 150)
	marks := "{% set s = y + 'x' %}" + strings.Repeat("{% set s = s + s %}", 10)
	names := ""
	for i := range 10_000 {
		names += fmt.Sprintf("a%d=0, ", i)
	}
	vars := map[string]any{"many": slices.Repeat(jinja.List{true}, 99999), "few": jinja.List{true},
		"x": jinja.Own(strings.Repeat("b", 3<<20)), "y": jinja.Foreign("y"),
		"p": jinja.Own(strings.Repeat("ab"+strings.Repeat("c", 15), 60_000)), "z": jinja.Own(strings.Repeat("b", 99999))}
	for source, want := range map[string]string{scopes: "steps",
		"{% for k in many %}{% if namespace(" + names + ") %}{% endif %}{% endfor %}":                          "steps",
		"{% for k in many %}{% if not (" + strings.Repeat("1 < 2 and ", 1600) + "1) %}{% endif %}{% endfor %}": "steps",
		"{{ x.split('b') | length }}": "steps",
		"{% for k in many %}" + strings.Repeat("{% set a %}{% endset %}", 9) + "{% endfor %}": "steps",
		"{% if (p ~ 'X') in p ~ p %}{% endif %}":                                              "steps",
		"{{ (p ~ p).replace(p ~ 'X', 'y') }}":                                                 "steps",
		"{% for k in many %}{{ 'aaaaaaaaaaaaaaa'.strip(x) }}{% endfor %}":                     "steps",
		"{% for c in x %}{% break %}{% endfor %}":                                             "steps",
		marks + "{% set s = z | replace('b', s) %}":                                           "bytes",
		marks + "{% set s = z.split('b') | join(s) %}":                                        "bytes",
		marks + "{% set s = " + strings.Repeat("s ~ ", 20_000) + "s %}":                       "bytes"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := render(source, vars)
		runtime.ReadMemStats(&after)
		must.Match(t, err, want, fmt.Sprintf("%.40s", source))
		if n := after.TotalAlloc - before.TotalAlloc; n > 3<<29 {
			t.Errorf("%.40s: allocated %d bytes, want at most 1.5 GiB", source, n)
		}
	}
}

// A template may store its values until its steps end: lists of items took 34 bytes for each step, in all renderings
// at once.
func TestValuesTakeFewBytesForAStep(t *testing.T) {
	must.Long(t)
	marks := "{% set s = y + 'x' %}" + strings.Repeat("{% set s = s + s %}", 7)
	d := jinja.Dict{}
	for i := range 250 {
		d = append(d, jinja.Member{Key: jinja.Own(fmt.Sprint("a", i)), Value: true})
	}
	vars := map[string]any{"many": slices.Repeat(jinja.List{true}, 99999), "d": d, "y": jinja.Foreign("y"),
		"text": jinja.Foreign(strings.Repeat("a", 250))}
	for _, e := range []string{"d.items()", "d | items | list", "d.keys()", "text | list", "text.split('a')", "[{'a': 0}]",
		"[{}, {}, {}]", "s.strip()", "text.strip", "namespace(a=0)", "[y, y, y]", "y + 'a'"} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := render(marks+"{% set ns = namespace(l=0) %}{% for i in many %}{% for j in many %}{% set ns.l = [ns.l, "+e+
			"] %}{% endfor %}{% endfor %}", vars)
		runtime.ReadMemStats(&after)
		must.Match(t, err, "more than the 5000000 steps", e)
		if n := after.TotalAlloc - before.TotalAlloc; n > 30*jinja.MaxSteps {
			t.Errorf("%s: %d bytes for all steps", e, n)
		}
	}
}

// Each operation of these reads or copies a megabyte. Without its steps, a template took hours.
func TestWorkOnLongTextsIsCounted(t *testing.T) {
	must.Long(t)
	long := func(s string) any { return jinja.Own(strings.Repeat(s, 1<<20)) }
	number := func() any { return json.Number(strings.Repeat("9", 1<<20)) }
	many := slices.Repeat(jinja.List{true}, 99999)
	vars := map[string]any{"many": many, "x": long("a"), "y": long("a"), "spaces": long(" "), "n": number(),
		"few": jinja.Own(strings.Repeat("a", 2000)), "set": jinja.Own(strings.Repeat("b", 2000) + "a"),
		"d": jinja.Dict{{Key: long("a").(jinja.Text), Value: int64(1)}}}
	for _, e := range []string{"x.startswith(y)", "x.endswith(y)", "spaces.strip()", "spaces | trim",
		"few.strip(set)", "spaces.split('b')", "d[y]", "d.get(y)", "y in d", "{x: 1, y: 2} is mapping", "x == y", "x <= y",
		"[y] | reject('equalto', x) | list", "[spaces] | map(attribute='strip') | list"} {
		_, err := render("{% for k in many %}{% if "+e+" %}{% endif %}{% endfor %}", vars)
		must.Match(t, err, "more than the 5000000 steps", e)
	}
	_, err := render("{% set f = spaces.strip %}{% for k in many %}{% if f() %}{% endif %}{% endfor %}", vars)
	must.Match(t, err, "more than the 5000000 steps", "a kept method")
	p := must.Get(jinja.Parse("{% for k in many %}{% endfor %}"))(t)
	_, err = p.Render(vars, &jinja.Work{Steps: math.MaxInt})
	must.Match(t, err, "takes longer than a prompt may", "a rendering without time")
	_, err = render("{{ "+strings.Repeat("n", 300)+" }}", nil)
	must.Match(t, err, "has 300 bytes; at most 256", "a long name")
	_, err = render("{{ "+strings.Repeat("'a'", 6000)+" }}", nil)
	must.Match(t, err, "more than 5000 operators", "literals in a row")
	_, err = render("{{ raise_exception(x) }}", vars)
	if len(err.Error()) > 2000 {
		t.Errorf("the error has %d bytes, want at most 2000", len(err.Error()))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = render("{% set l = ["+strings.Repeat("n | string, ", 500)+"] %}", vars)
	must.Match(t, err, "more than the 5000000 steps", "texts of a long integer")
	if runtime.ReadMemStats(&after); after.TotalAlloc-before.TotalAlloc > 8<<20 {
		t.Errorf("500 texts of one number allocate %d bytes", after.TotalAlloc-before.TotalAlloc)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"{% for a, b in x if a %}{{ loop.index }}{% else %}{% endfor %}",
		"{%- set ns.x = [1][::-1] -%}", "{{ {'a': 1}['a'] | tojson(indent=2) }}",
		"{% if a is not none and b in c %}x{% elif y %}{% endif %}{# c #}",
		"{{ 'a\\n' ~ 1.5e3 // 2 ** -1 }}", "{% generation %}{% endgeneration %}",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, source string) {
		p, err := jinja.Parse(source)
		if err != nil {
			return
		}
		message := jinja.Dict{{Key: jinja.Own("role"), Value: jinja.Own("user")},
			{Key: jinja.Own("content"), Value: jinja.Foreign("x")}}
		text, err := p.Render(map[string]any{"messages": jinja.List{message},
			"tools": nil, "x": jinja.Foreign("a b")}, jinja.NewWork(jinja.MaxSteps))
		if err != nil {
			return
		}
		whole := ""
		for _, r := range text.Runs() {
			whole += r.Text
		}
		if whole != text.String() || len(whole) > 16<<20 {
			t.Errorf("the runs are not the text")
		}
	})
}
