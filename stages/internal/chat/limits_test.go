package chat

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Templates come from anywhere. Whatever one does, rendering it ends soon with an error and takes little memory.
func TestHostileTemplatesAreRefused(t *testing.T) {
	const passes = "{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(1000) %}"
	const ends = "{% endfor %}{% endfor %}{% endfor %}"
	grow := func(step string) string {
		return `{% set ns = namespace(x="aaaaaaaa") %}{% for i in range(100) %}{% set ns.x = ` + step + ` %}{% endfor %}{{ ns.x }}`
	}
	for name, tc := range map[string]struct{ source, want string }{
		"recursion":                {`{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}`, "100 calls in each other"},
		"recursion of two":         {`{% macro f(x) %}{{ g(x) }}{% endmacro %}{% macro g(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}`, "in each other"},
		"recursion, twice":         {`{% macro f(x) %}{{ f(x) }}{{ f(x) }}{% endmacro %}{{ f(1) }}`, "in each other"},
		"recursive loop":           {`{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}`, "a recursive loop is not understood"},
		"passes":                   {passes + "x" + ends, "does too much"},
		"passes without a body":    {passes + ends, "does too much"},
		"passes with a test":       {passes + "{% if a is string %}x{% endif %}" + ends, "does too much"},
		"passes that set":          {passes + "{% set x = 1 %}" + ends, "does too much"},
		"passes in a macro":        {`{% macro f() %}` + passes + "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx" + ends + `{% endmacro %}{{ f() }}`, "does too much"},
		"text of a macro":          {`{% macro f() %}` + strings.Repeat("x", 100_000) + `{% endmacro %}{% for i in range(100000) %}{{ f() }}{% endfor %}`, "does too much"},
		"text of a loop":           {`{% for i in range(1000000) %}` + strings.Repeat("x", 100_000) + `{% endfor %}`, "does too much"},
		"lists of numbers":         {`{% for i in range(100000) %}{% set x = range(1000000) %}{% endfor %}`, "does too much"},
		"lists in conditions":      {`{% for i in range(100000) %}{% if range(1000000) %}{% endif %}{% endfor %}`, "does too much"},
		"more numbers":             {`{{ range(-9000000000000000000, 9000000000000000000)|length }}`, "a million numbers"},
		"strings that double":      {grow(`ns.x + ns.x`), "does too much"},
		"strings joined":           {grow(`ns.x ~ ns.x`), "does too much"},
		"strings replaced":         {grow(`ns.x.replace("a", "aa", -1)`), "larger than 16 MiB"},
		"strings replaced, method": {grow(`ns.x.replace("a", "aa", -1)`), "larger than 16 MiB"},
		"strings that join":        {grow(`ns.x.join([ns.x, ns.x])`), "larger than 16 MiB"},
		"lists that double":        {grow(`[ns.x, ns.x]`), "larger than 16 MiB"},
		"lists that hold lists":    {grow(`[ns.x]`) + grow(`[ns.x]`) + grow(`[[ns.x]]`), "lists in each other"},
		"macros that double":       {`{% macro f(x) %}{{ f([x, x]) }}{% endmacro %}{{ f(1) }}`, "larger than 16 MiB"},
		"multiplied string":        {`{{ "ab" * 1000000000 }}`, "larger than 16 MiB"},
		"multiplied, other way":    {`{{ 1000000000 * "ab" }}`, "larger than 16 MiB"},
		"indented":                 {`{{ "a\nb"|indent(2000000000) }}`, "a width may be 10000"},
		"indented JSON":            {`{{ [1]|tojson(indent=2000000000) }}`, "a width may be 10000"},
		"padded":                   {`{{ "a".ljust(2000000000) }}`, "a width may be 10000"},
		"centered":                 {`{{ "a".center(2000000000) }}`, "a width may be 10000"},
		"zeros":                    {`{{ "1".zfill(2000000000) }}`, "a width may be 10000"},
		"format":                   {`{{ "{:2000000000}".format(1) }}`, "a width may be 10000"},
		"list that holds itself":   {`{% set x = [1] %}{% set y = x.append(x) %}{{ x }}`, ""},
		"brackets":                 {"{{ " + strings.Repeat("(", 100_000) + "1" + strings.Repeat(")", 100_000) + " }}", "brackets"},
		"size":                     {strings.Repeat("x", maxSource+1), "262144 are allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begun := time.Now()
			template, err := NewTemplate(tc.source, nil)
			if err == nil {
				_, err = template.Render(Prompt{})
			}
			took := time.Since(begun)
			runtime.ReadMemStats(&after)
			if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
			if made := after.TotalAlloc - before.TotalAlloc; made > 8<<30 {
				t.Errorf("allocated %d MiB", made>>20)
			}
			t.Logf("%v, %d MiB", took, (after.TotalAlloc-before.TotalAlloc)>>20)
		})
	}
}

// A long conversation is far within the limits.
func TestLongConversationsAreRendered(t *testing.T) {
	const source = `{% set ns = namespace(text="") %}{% for m in messages %}{% set ns.text = ns.text + m.role %}{{ "<" + m.role + ">" }}{{ m.content|trim }}{{ m|tojson }}
{% endfor %}{{ ns.text|length * 2 }}`
	var messages []map[string]string
	for range 500 {
		messages = append(messages, map[string]string{"role": "user", "content": strings.Repeat("word ", 400)})
	}
	raw, err := json.Marshal(messages)
	if err != nil {
		t.Fatal(err)
	}
	template, err := NewTemplate(source, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := template.Render(Prompt{Messages: raw})
	if err != nil || !strings.HasSuffix(text, "4000") || strings.Count(text, "<user>") != 500 {
		t.Errorf("got %d bytes, %v, want 500 messages and 4000", len(text), err)
	}
}
