package chat

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/jinja"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// chatML is a small vocabulary with the added tokens of Qwen and SmolLM2.
func chatML(t *testing.T) *token.Tokenizer {
	t.Helper()
	special := slices.Concat(RewardTokens, []string{"<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"})
	return must.Get(token.Train([]string{LayoutTemplate("qwen3")}, 400, special))(t)
}

// The embedded layouts, and signatures in each template, write what they read.
func TestEmbeddedLayoutsReadWhatTheyWrite(t *testing.T) {
	tok := chatML(t)
	for _, layout := range layouts {
		name := layout.name
		for _, signatures := range []bool{false, true} {
			template := must.Get(NewTemplate(LayoutTemplate(name), nil, signatures))(t)
			c := must.Get(template.New(tok, someFunctions, rl.FirstUser))(t)
			for _, calls := range [][]string{nil, {"pwd()"}, {`mv(source="it's; x",destination='a "b" é')`},
				{"f(n=-1,x=1.5,b=True,z=None,l=[1, 'a'],d={'k': 'v'})", "pwd()"}} {
				if got := c.Parse(c.Reply(calls)); !slices.Equal(textsOf(got.Calls), calls) || got.Malformed {
					t.Errorf("%s, %s: got %+v, want %q", name, template.Format(), got, calls)
				}
			}
			for text, malformed := range map[string]bool{"Done (see above).": false, "<tool_call>\n{": !signatures,
				"pwd(": signatures, "pwd()\nDone.": signatures, "<tool_call>[]</tool_call>": template.Format() != "list"} {
				if signatures && strings.HasPrefix(text, "<") {
					malformed = false
				}
				if got := c.Parse(append(tok.Encode(text), c.stop[0])); got.Calls != nil || got.Malformed != malformed {
					t.Errorf("%s, %s: %q gives %+v, malformed is %t", name, template.Format(), text, got, malformed)
				}
			}
			prompt := c.Text(must.Get(c.Begin("", rl.ToolsNamed([]string{"ls", "mv"}), "Go.", rl.TokenHigh))(t))
			want := []string{"Go.\n[Reward Goal: " + HighReward + "]", `"ls"`}
			if signatures {
				want[1] = "\nls(a: bool = False)\nmv()\n"
			}
			must.Contain(t, prompt, want...)
		}
	}
}

// Each template has one fault, which its refusal names.
func TestTemplatesThatCannotBeTrainedAreRefused(t *testing.T) {
	qwen3, qwen := LayoutTemplate("qwen3"), LayoutTemplate("qwen2.5")
	for name, tc := range map[string]struct{ source, old, fresh, want string }{
		"thinking is dropped from earlier replies": {qwen3, "{{- '<|im_start|>assistant\\n<think>\\n' + thinking + " +
			"'\\n</think>\\n\\n' + content }}", "{{- '<|im_start|>assistant\\n' }}{%- if loop.last %}{{- '<think>\\n' + " +
			"thinking + '\\n</think>\\n\\n' }}{%- endif %}{{- content }}", "the template rewrites earlier messages"},
		"calls are dropped": {qwen, "for tool_call in message.tool_calls", "for tool_call in []",
			`drops calls: "probe_files" of probe_files(a=True,text='x y',n=1.5) is not in its rendering`},
		"calls of an unknown form": {qwen, `"arguments": `, `"args": `, "which is no known format"},
		"tools are dropped":        {qwen, "{%- if tools %}", "{%- if false %}", "the template drops tools"},
		"results are dropped": {qwen, "{{- message.content }}\n        {{- '\\n</tool", "{{- '\\n</tool",
			"the template drops message"},
		"the system message is dropped": {qwen, "messages[0]['content'] + '<|im_end|>", "'Hi<|im_end|>",
			"the template drops the system message"},
		"a request is written twice": {qwen, "message.role + '\\n' + message.content",
			"message.role + '\\n' + message.content + message.content", "line 1"},
		"replies have no end": {qwen, "message.content + '<|im_end|>' + '\\n' }}", "message.content }}",
			"without its text or its end"},
	} {
		changed := strings.Replace(tc.source, tc.old, tc.fresh, 1)
		if changed == tc.source {
			t.Errorf("%s: the template has no %q", name, tc.old)
		}
		_, err := NewTemplate(changed, nil, false)
		must.Match(t, err, tc.want, name)
	}
	// A reply that ends with an ordinary text is refused with the tokenizer.
	plain := must.Get(NewTemplate(strings.ReplaceAll(qwen, "<|im_end|>", "---"), nil, false))(t)
	_, err := plain.New(chatML(t), nil, "")
	must.Match(t, err, "has no added token")
}

// The numbers of docs/models.md: the tokens that the tools of a class add to the first request, as documents and as
// signatures, in the tokenizer of SmolLM2.
func TestTokensOfToolsInBothForms(t *testing.T) {
	tok := must.Get(token.Parse(fixtures.Read(t, "hf/tokenizers/smollm2.tokenizer.json")))(t)
	data := must.Get(bfcl.LoadData(fixtures.Benchmark(t)))(t)
	functions := must.Get(FunctionsOf(data))(t)
	page := string(must.Get(os.ReadFile(filepath.Join(fixtures.Root(t), "docs", "models.md")))(t))
	classes := map[string]bool{}
	for _, task := range data.Tasks() {
		for _, class := range task.Classes {
			classes[class] = true
		}
	}
	for class := range classes {
		var names []string
		for _, doc := range data.Docs(class) {
			names = append(names, doc.Name)
		}
		var counts [2]int
		for i, signatures := range []bool{false, true} {
			template := must.Get(NewTemplate(LayoutTemplate("smollm2"), nil, signatures))(t)
			c := must.Get(template.New(tok, functions, ""))(t)
			with := must.Get(c.Begin("", rl.ToolsNamed(names), "Hi", ""))(t)
			counts[i] = len(with) - len(must.Get(c.Begin("", nil, "Hi", ""))(t))
		}
		row := fmt.Sprintf("| `%s` | %d | %d | %d |", class, len(names), counts[0], counts[1])
		if !strings.Contains(page, row) {
			t.Errorf("docs/models.md has no row %s", row)
		}
	}
	if len(classes) != 8 {
		t.Errorf("%d classes, want 8", len(classes))
	}
}

// Each message of a prompt is a rendering of its own: 20 short ones took a minute.
func TestMessagesOfAPromptHaveTheWorkOfOne(t *testing.T) {
	const loop = "{%- for message in messages %}"
	source := LayoutTemplate("qwen2.5")
	if !strings.Contains(source, loop) {
		t.Fatal("the layout has another loop")
	}
	slow := loop + "{% if message.content == 'slow' %}{% for a in '" + strings.Repeat("a", 1500) + "' %}{% for b in '" +
		strings.Repeat("b", 300) + "' %}{% endfor %}{% endfor %}{% endif %}"
	template := must.Get(NewTemplate(strings.Replace(source, loop, slow, 1), nil, false))(t)
	c := must.Get(template.New(chatML(t), nil, ""))(t)
	prompt := func(longest int, texts ...string) error {
		turns := []Turn{{Role: rl.RoleUser, Text: "Hi"}}
		for _, text := range texts {
			turns = append(turns, Turn{Role: rl.RoleUser, Text: text})
		}
		_, err := Prompt(c, Conversation{Turns: turns}, longest, func([]int32, Turn) []int32 { return nil })
		return err
	}
	must.OK(t, prompt(1<<20, "slow"))
	must.Match(t, prompt(1<<20, slices.Repeat([]string{"slow"}, 20)...), "the rendering takes more than the")
	long := strings.Repeat("a", 30_000)
	if err := prompt(1000, long+long+long); !errors.Is(err, ErrLong) {
		t.Errorf("a long message: %v", err)
	}
	one := c.bounded(1000)
	for i := range 3 { // a tokenizer of a stranger may have no id for these
		if _, err := one.User(long); errors.Is(err, ErrLong) != (i == 2) {
			t.Errorf("message %d of 30,000 bytes: %v", i+1, err)
		}
	}
}

// The values of a rendering can take a quarter of a gigabyte, and a stage plays many episodes: 24 took 9 GB.
func TestFewRenderingsAreMadeAtOnce(t *testing.T) {
	template := must.Get(NewTemplate(LayoutTemplate("qwen2.5"), nil, false))(t)
	for range cap(renderings) {
		renderings <- struct{}{}
	}
	made := make(chan error, 1)
	go func() {
		_, err := template.user(jinja.Foreign("Hi"))
		made <- err
	}()
	select {
	case <-made:
		t.Fatalf("more than %d renderings are made at once", cap(renderings))
	case <-time.After(50 * time.Millisecond):
	}
	for range cap(renderings) {
		<-renderings
	}
	must.OK(t, <-made)
}
