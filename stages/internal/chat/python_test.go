package chat

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// What Python's Jinja prints for each template with the variables below; "!" and a word where it raises.
func TestTemplatesBehaveAsInPython(t *testing.T) {
	variables := map[string]json.RawMessage{
		"o":     json.RawMessage(`{"b": 1, "a": [], "n": null, "t": true, "f": 1.0, "e": {}, "big": 123456789012345678901234567890}`),
		"l":     json.RawMessage(`["x", "é<&>", 2]`),
		"one":   json.RawMessage(`[{"role": "user"}]`),
		"s":     json.RawMessage(`"a'b\n"`),
		"nul":   json.RawMessage(`null`),
		"small": json.RawMessage(`[1e-7, 1e22, 123456789.125, 0.0001, 1e16, -0.0]`),
	}
	for template, want := range map[string]string{
		`{{ o }}`:                    `{'b': 1, 'a': [], 'n': None, 't': True, 'f': 1.0, 'e': {}, 'big': 123456789012345678901234567890}`,
		`{{ o|tojson }}`:             `{"b": 1, "a": [], "n": null, "t": true, "f": 1.0, "e": {}, "big": 123456789012345678901234567890}`,
		`{{ o.e|tojson(indent=2) }}`: `{}`,
		`{{ l|tojson(indent=2) }}`:   "[\n  \"x\",\n  \"é<&>\",\n  2\n]",
		`{{ l|tojson(ensure_ascii=true, separators=(',', ':')) }}`: `["x","\u00e9<&>",2]`,
		`{{ {'k': [nul, 1.5]}|tojson }}`:                           `{"k": [null, 1.5]}`,
		`{{ o|tojson(sort_keys=true)|length }}`:                    `97`,
		`{{ small|tojson }}`:                                       `[1e-07, 1e+22, 123456789.125, 0.0001, 1e+16, -0.0]`,
		`{{ [s, 'q"'] }}`:                                          `["a'b\n", 'q"']`,
		`{{ nul }}|{{ missing }}|{{ o.missing }}`:                  `None||`,
		`{{ 'a' ~ nul ~ 1 ~ missing }}`:                            `aNone1`,
		`{{ 'a' + nul }}`:                                          `!None`,
		`{{ 'a' + missing }}`:                                      `!undefined`,
		`{{ 1 + 'a' }}`:                                            `!int`,
		`{{ 1 + 2.5 }} {{ [1] + [2] }}`:                            `3.5 [1, 2]`,
		`{{ missing.x }}`:                                          `!not defined`,
		`{{ o.missing.x }}`:                                        `!not defined`,
		`{{ nul|length }}`:                                         `!None`,
		`{{ nul|trim }}|{{ missing|trim }}|{{ '\x1c a ' | trim }}`: `None||a`,
		`{% for k in o %}{{ k }} {% endfor %}`:                     `b a n t f e big `,
		`{% for k, v in o|items %}{{ k }}{% if not v %}-{% endif %} {% endfor %}`:                                   `b a- n- t f e- big `,
		`{% for k, v in o.items() %}{{ k }}={{ v }}{{ ';' if not loop.last }}{% endfor %}`:                          `b=1;a=[];n=None;t=True;f=1.0;e={};big=123456789012345678901234567890`,
		`{% for c in 'é!' %}{{ c }}.{% endfor %}`:                                                                   `é.!.`,
		`{% for x in nul %}{% endfor %}`:                                                                            `!None`,
		`{% for x in missing %}{{ x }}{% else %}none{% endfor %}`:                                                   `none`,
		`{{ one[-1].role }}{{ one[1] }}{{ l[0] }}{{ l[-1] }}{{ l[1:]|length }}`:                                     `userx22`,
		`{{ 'a' in o }} {{ 'z' in o }} {{ 2 in l }} {{ 'b' in s }}`:                                                 `True False True True`,
		`{{ o.n is none }} {{ o.n is defined }} {{ o.z is defined }} {{ nul is defined }} {{ missing is defined }}`: `True True False True False`,
		`{{ o is mapping }} {{ l is sequence }} {{ s is string }} {{ o.t is true }} {{ o.b is number }} {{ l is mapping }} {{ nul is iterable }} {{ s is iterable }}`: `True True True True True False False True`,
		`{{ o.z|default('d') }} {{ o.n|default('d') }} {{ o.n|default('d', true) }}`:                                                                                  `d None d`,
		`{% set ns = namespace(n=0) %}{% for x in l %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}`:                                                                `3`,
		`{% set x = 1 %}{% for y in l %}{% set x = 2 %}{% endfor %}{{ x }}`:                                                                                           `1`,
		`{% set x %}a{{ 1 }}{% endset %}{{ x }}`:                                                                                                                      `a1`,
		`{% macro m(a, b='z') %}<{{ a }}{{ b }}>{% endmacro %}{{ m('x') }}{{ m('x', b=nul) }}`:                                                                        `<xz><xNone>`,
		`{{ 'a,b'.split(',')[1] }} {{ ' x '.strip() }} {{ 'abc'.startswith('ab') }} {{ 'aXb'|lower }}`:                                                                `b x True axb`,
		`{{ o.get('b') }} {{ o.get('z') }} {{ o.get('z', 3) }} {{ o.keys()|list|length }}`:                                                                            `1 None 3 7`,
		`{{ l|join('-') }} {{ l|first }} {{ l|last }}`:                                                                                                                `x-é<&>-2 x 2`,
		`{% for i in range(3) %}{{ i }}{% endfor %}{% for i in range(5, 0, -2) %}{{ i }}{% endfor %}`:                                                                 `012531`,
		`{% generation %}x{% endgeneration %}`:                                                                                                                        `x`,
		"  {% if true %}\n  a\n  {% endif %}\nb\n":                                                                                                                    "  a\nb",
		`{{ raise_exception('so') }}`:                                                                                                                                 `!so`,
		`{{ strftime_now('%d %b %Y') }}`:                                                                                                                              `03 Feb 2025`,
		`{{ strftime_now('%Q') }}`:                                                                                                                                    `!directive`,
		`{{ 'x' if o.e else 'y' }}`:                                                                                                                                   `y`,
		`{% if one[0].tool_calls is not defined or not one[0].tool_calls %}n{% endif %}`:                                                                              `n`,
	} {
		compiled, err := NewTemplate(template, nil)
		if err != nil {
			t.Errorf("%s: %v", template, err)
			continue
		}
		got, err := compiled.Render(Prompt{Variables: variables, Date: time.Date(2025, 2, 3, 4, 5, 6, 0, time.UTC)})
		if cause, raises := strings.CutPrefix(want, "!"); raises {
			if err == nil || !strings.Contains(err.Error(), cause) {
				t.Errorf("%s: got %q, %v, want an error that says %q", template, got, err, cause)
			}
		} else if err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", template, got, err, want)
		}
	}
}

func TestTemplatesThatNeedWhatIsNotThereAreRefused(t *testing.T) {
	for template, want := range map[string]string{
		`{% include 'x' %}`:                         "include",
		`{% import '/etc/passwd' as x %}`:           "import",
		`{% if %}`:                                  "chat template",
		`{{ 'x' | nofilter }}`:                      "nofilter",
		`{{ strftime_now('%Y') }}`:                  "fixed date",
		`{% for x in range(9999999) %}{% endfor %}`: "million",
	} {
		compiled, err := NewTemplate(template, nil)
		if err == nil {
			_, err = compiled.Render(Prompt{})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one that says %q", template, err, want)
		}
	}
}

func TestAFolderGivesItsTemplateAndSpecialTokens(t *testing.T) {
	const config = `{"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>", "unk_token": null, "chat_template": %}`
	for name, tc := range map[string]struct{ config, file, want string }{
		"in the configuration": {strings.Replace(config, "%", `"{{ bos_token }}{{ eos_token }}{{ unk_token }}"`, 1), "", "<s></s>"},
		"named":                {strings.Replace(config, "%", `[{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]`, 1), "", "d"},
		"in its own file":      {strings.Replace(config, "%", `"old"`, 1), "new{{ eos_token }}\n", "new</s>"},
		"none":                 {`{}`, "", "!no chat template"},
		"no configuration":     {"", "x", "!tokenizer_config.json"},
		"broken configuration": {"{", "x", "!tokenizer_config.json"},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{configFile: tc.config, TemplateFile: tc.file} {
			if text != "" {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		got := ""
		template, err := LoadTemplate(dir)
		if err == nil {
			got, err = template.Render(Prompt{})
		}
		if cause, fails := strings.CutPrefix(tc.want, "!"); fails {
			if err == nil || !strings.Contains(err.Error(), cause) {
				t.Errorf("%s: got error %v, want one that says %q", name, err, cause)
			}
		} else if err != nil || got != tc.want {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, tc.want)
		}
	}
}

func FuzzTemplate(f *testing.F) {
	for _, s := range []string{"{{ a.b[0]|tojson }}", "{% for x in a %}{{ x }}{% endfor %}", "{% set a = 1 %}", "{{ -a }}", "{{ a[1:2:0] }}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, source string) {
		if template, err := NewTemplate(source, nil); err == nil {
			_, _ = template.Render(Prompt{Variables: map[string]json.RawMessage{"a": json.RawMessage(`{"b": [1]}`)}})
		}
	})
}
