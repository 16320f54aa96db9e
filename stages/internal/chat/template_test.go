package chat

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"iter"
	"strconv"
	"strings"
	"sync"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/stages/internal/token"
)

// families of the fixtures, with the variables their tokenizer_config.json gives.
var families = []struct {
	name    string
	special map[string]string
}{
	{"qwen2_5", map[string]string{"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}},
	{"llama3_1", map[string]string{"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}},
}

// present yields the families whose fixtures are at hand. A subtest of the same name skips for each other one.
func present(t *testing.T) iter.Seq[int] {
	return func(yield func(family int) bool) {
		for f, family := range families {
			if f == 1 && !fixtures.Llama(t) {
				t.Run(family.name, func(t *testing.T) { t.Skip(fixtures.NoLlama) })
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

func (v vector) prompt() Prompt {
	return Prompt{Messages: v.Messages, Tools: v.Tools, Generate: v.Generate, Variables: v.Kwargs}
}

func vectors(t testing.TB, family string) []vector {
	t.Helper()
	var all []vector
	fixtures.Records(t, "hf/chat/vectors_"+family+".jsonl", func(v vector) { all = append(all, v) })
	return all
}

func fixtureSource(t testing.TB, family int) string {
	t.Helper()
	return string(fixtures.Read(t, "hf/chat/"+families[family].name+".jinja"))
}

func fixtureTemplate(t testing.TB, family int) *Template {
	t.Helper()
	template, err := NewTemplate(fixtureSource(t, family), families[family].special)
	if err != nil {
		t.Fatal(err)
	}
	return template
}

var read [2]struct {
	once sync.Once
	tok  *token.Tokenizer
}

// fixtureTokenizer reads each of the two large tokenizers once.
func fixtureTokenizer(t testing.TB, family int) *token.Tokenizer {
	t.Helper()
	source := fixtures.Read(t, "hf/tokenizers/"+families[family].name+".tokenizer.json")
	read[family].once.Do(func() {
		var err error
		if read[family].tok, err = token.Parse(source); err != nil {
			t.Fatal(err)
		}
	})
	return read[family].tok
}

func sum(ids []int32) string {
	texts := make([]string, len(ids))
	for i, id := range ids {
		texts[i] = strconv.Itoa(int(id))
	}
	h := sha256.Sum256([]byte(strings.Join(texts, ",")))
	return hex.EncodeToString(h[:])
}

func TestTemplatesRenderAsTheReference(t *testing.T) {
	for f, family := range families {
		t.Run(family.name, func(t *testing.T) {
			all := vectors(t, family.name)
			template, tok := fixtureTemplate(t, f), fixtureTokenizer(t, f)
			passed, raised := 0, 0
			for _, v := range all {
				got, err := template.Render(v.prompt())
				switch {
				case v.Rendered == nil && err == nil:
					t.Errorf("%s: rendered, want the error %q", v.Note, v.Error)
				case v.Rendered == nil:
					if _, message, ok := strings.Cut(v.Error, "TemplateError: "); ok && !strings.Contains(err.Error(), message) {
						t.Errorf("%s: got error %v, want one that says %q", v.Note, err, message)
					}
					raised++
				case err != nil:
					t.Errorf("%s: %v", v.Note, err)
				case got != *v.Rendered:
					t.Errorf("%s: %s", v.Note, firstDifference(got, *v.Rendered))
				default:
					if ids := tok.EncodeAs(got, token.Everything); len(ids) != v.Tokens || sum(ids) != v.Sum {
						t.Errorf("%s: got %d ids, want %d, or others", v.Note, len(ids), v.Tokens)
						continue
					}
					passed++
				}
			}
			t.Logf("%d conversations: %d equal with their ids, %d raise", len(all), passed, raised)
		})
	}
}
