package chat

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/jinja"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// families are the names of the fixtures.
var families = []string{"qwen2_5", "llama3_1"}

// present yields the families whose fixtures are at hand. A subtest of the same name skips for each other one.
func present(t *testing.T) iter.Seq[int] {
	return func(yield func(family int) bool) {
		for f, family := range families {
			if f == 1 && !fixtures.Llama(t) {
				t.Run(family, func(t *testing.T) { t.Skip(fixtures.NoLlama) })
			} else if !yield(f) {
				return
			}
		}
	}
}

type vector struct {
	Note     string                     `json:"note"`
	Messages json.RawMessage            `json:"messages"`
	Tools    json.RawMessage            `json:"tools"`
	Generate bool                       `json:"add_generation_prompt"`
	Kwargs   map[string]json.RawMessage `json:"kwargs"`
	Rendered *string                    `json:"rendered"`
	Error    string                     `json:"error"`
	Tokens   int                        `json:"n_tokens"`
	Sum      string                     `json:"ids_sha256"`
	Optional bool                       `json:"optional"`
}

// vectorMessage is a message of a vector.
type vectorMessage struct {
	Role    string
	Content *string
	Calls   []struct {
		Function struct {
			Name      string
			Arguments json.RawMessage
		}
	} `json:"tool_calls"`
}

func vectors(t testing.TB, family string) []vector {
	t.Helper()
	var all []vector
	fixtures.Records(t, "hf/chat/vectors_"+family+".jsonl", func(v vector) { all = append(all, v) })
	return all
}

var read [2]struct {
	once sync.Once
	tok  *token.Tokenizer
}

// fixtureTokenizer reads each of the two large tokenizers once.
func fixtureTokenizer(t testing.TB, family int) *token.Tokenizer {
	t.Helper()
	read[family].once.Do(func() {
		read[family].tok = must.Get(token.Parse(fixtures.Read(t,
			"hf/tokenizers/"+families[family]+".tokenizer.json")))(t)
	})
	if read[family].tok == nil {
		t.Fatalf("the tokenizer of %s could not be read", families[family])
	}
	return read[family].tok
}

// fixtureTemplate returns the published template of a family, with the ids that end replies in its published
// generation_config.json.
func fixtureTemplate(t testing.TB, family int) *Template {
	t.Helper()
	name, variables, ends := families[family], map[string]any{}, []string{"<|im_end|>", "<|endoftext|>"}
	if family == 1 {
		variables["bos_token"] = jinja.Own("<|begin_of_text|>")
		ends = []string{"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"}
	}
	template := must.Get(NewTemplate(string(fixtures.Read(t, "hf/chat/"+name+".jinja")), variables, false))(t)
	for _, end := range ends {
		id, _ := fixtureTokenizer(t, family).ID(end)
		template.eos = append(template.eos, id)
	}
	return template
}

func sum(ids []int32) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = strconv.Itoa(int(id))
	}
	h := sha256.Sum256([]byte(strings.Join(texts, ",")))
	return hex.EncodeToString(h[:])
}

// conversation returns the messages of a vector as an episode, with replies as if they had been sampled. It
// returns false for conversations that episodes cannot have: system messages, template variables, content that is
// not a text.
func (v vector) conversation(t *testing.T, c *Chat) (e *rl.Trajectory, ok bool) {
	t.Helper()
	var messages []vectorMessage
	if v.Rendered == nil || len(v.Kwargs) > 0 || json.Unmarshal(v.Messages, &messages) != nil {
		return nil, false
	}
	e = &rl.Trajectory{}
	for i, m := range messages {
		if m.Content == nil {
			if len(m.Calls) == 0 {
				return nil, false
			}
			m.Content = new(string)
		}
		switch last := len(e.Messages) - 1; {
		case m.Role == "user" && (i == 0 || e.Messages[last].Role == rl.RoleAssistant):
			e.Messages = append(e.Messages, ask(*m.Content))
		case m.Role == "tool" && i > 0 && e.Messages[last].Role == rl.RoleTool:
			e.Messages[last].Several = append(e.Messages[last].Results(), *m.Content)
		case m.Role == "tool" && i > 0:
			e.Messages = append(e.Messages, answer(*m.Content))
		case m.Role == "assistant" && i > 0 && e.Messages[last].Role != rl.RoleAssistant:
			var calls []FunctionCall
			for _, call := range m.Calls {
				if raw := call.Function.Arguments; raw == nil || raw[0] != '{' {
					return nil, false
				}
				calls = append(calls, FunctionCall{call.Function.Name, call.Function.Arguments})
			}
			reply := must.Get(c.write(*m.Content, calls))(t)
			from := len(e.IDs)
			e.IDs = append(e.IDs, reply...)
			e.Mask = pad(e.Mask, len(e.IDs), true)
			e.Messages = append(e.Messages, rl.Message{Role: rl.RoleAssistant, From: from, To: len(e.IDs)})
		default:
			return nil, false
		}
	}
	return e, len(e.Messages) > 0
}

// TestLayoutsRenderAsTheReference compares the joined pieces of each published template with its renderings by
// transformers.
func TestLayoutsRenderAsTheReference(t *testing.T) {
	for f := range present(t) {
		t.Run(families[f], func(t *testing.T) {
			compared, sameIDs := 0, 0
			template := fixtureTemplate(t, f)
			for _, v := range vectors(t, families[f]) {
				var tools []json.RawMessage
				if v.Tools != nil && json.Unmarshal(v.Tools, &tools) != nil {
					continue
				}
				functions := Functions{}
				var names []string
				for i, tool := range tools {
					names = append(names, strconv.Itoa(i))
					functions[names[i]] = tool
				}
				c := must.Get(template.New(fixtureTokenizer(t, f), functions, ""))(t)
				e, ok := v.conversation(t, c)
				if !ok || string(v.Tools) == "[]" { // an empty list counts as tools in Llama's template
					continue
				}
				e.Tools = names
				ids, _ := encode(t, c, e, rl.TokenNone)
				if e.Messages[len(e.Messages)-1].Role == rl.RoleAssistant {
					ids = append(ids, c.Between()...)
				}
				if v.Generate {
					ids = append(ids, c.Header(rl.TokenNone)...)
				}
				compared++
				if len(ids) == v.Tokens && sum(ids) == v.Sum {
					sameIDs++
				} else if got := c.Text(ids); got != *v.Rendered {
					t.Errorf("%s: %s", v.Note, firstDifference(got, *v.Rendered))
				}
			}
			t.Logf("%d conversations compared, %d with equal ids", compared, sameIDs)
			if compared < 40 || sameIDs < compared*3/4 {
				t.Errorf("%d conversations compared, %d with equal ids; want at least 40 and three quarters", compared, sameIDs)
			}
		})
	}
}

func TestTemplatesThatCannotBeReadAreRefused(t *testing.T) {
	folder := func(files map[string]string) string {
		dir := t.TempDir()
		for name, text := range files {
			must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		return dir
	}
	qwen := LayoutTemplate("qwen2.5")
	quoted := strconv.Quote(strings.TrimRight(qwen, "\n"))
	raw := must.Get(json.Marshal(qwen))(t)
	for name, tc := range map[string]struct {
		files map[string]string
		want  string // in the error; "" for none
	}{
		"the published file":       {map[string]string{TemplateFile: qwen}, ""},
		"without the last newline": {map[string]string{TemplateFile: strings.TrimRight(qwen, "\n")}, ""},
		"in the config":            {map[string]string{configFile: `{"chat_template": ` + string(raw) + `}`}, ""},
		"edited":                   {map[string]string{TemplateFile: strings.ReplaceAll(qwen, "You are Qwen", "Be")}, ""},
		"without a reply's text":   {map[string]string{TemplateFile: "{{ messages | length }}"}, `write layout = "qwen2.5"`},
		"Python's text of lists":   {map[string]string{TemplateFile: "{{ messages }}"}, "the text of a list is not"},
		"with a macro":             {map[string]string{TemplateFile: "\n{% macro f() %}"}, "line 2: the tag macro"},
		// Hundreds of probes took minutes.
		"much work for nothing": {map[string]string{TemplateFile: "{% for a in '" + strings.Repeat("x", 25_000) +
			"' %}{% endfor %}" + qwen}, "more than the 100000 steps"},
		"none":                 {map[string]string{configFile: `{}`}, "no chat template"},
		"no file":              {nil, "tokenizer_config.json"},
		"config is not JSON":   {map[string]string{configFile: `{`}, "tokenizer_config.json"},
		"template is a number": {map[string]string{configFile: `{"chat_template": 3}`}, "tokenizer_config.json"},
		"too large": {map[string]string{TemplateFile: qwen + strings.Repeat(" ", 1<<20)},
			"at most 1 MiB"},
		"quoted twice": {map[string]string{TemplateFile: quoted}, "not supported outside strings"},
	} {
		_, err := ReadTemplate(folder(tc.files), Settings{Decoder: "qwen2"})
		must.Match(t, err, tc.want, name)
	}
}
