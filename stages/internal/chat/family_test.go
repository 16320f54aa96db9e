package chat

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/jinja"
	"rcgrpo/stages/rl"
)

var someFunctions = Functions{
	"ls": json.RawMessage(`{"type": "function", "function": {"name": "ls", "description": "List <tools> & more.", ` +
		`"parameters": {"type": "object", "properties": {"a": {"type": "boolean", "default": false}}, "required": []}}}`),
	"mv": json.RawMessage(`{"type": "function", "function": {"name": "mv", ` +
		`"parameters": {"type": "object", "properties": {}, "required": ["source", "destination"]}}}`),
	"pwd": json.RawMessage(`{"type": "function", "function": {"name": "pwd", "parameters": {}}}`),
}

// fixtureChat is the codec of a family at a position, with a tokenizer that has the reward tokens.
func fixtureChat(t testing.TB, family int, where string) *Chat {
	t.Helper()
	tok := fixtureTokenizer(t, family).Clone()
	must.Get(tok.Add(RewardTokens...))(t)
	return must.Get(fixtureTemplate(t, family).New(tok, someFunctions, where))(t)
}

func step(calls ...string) rl.Message { return rl.Message{Role: rl.RoleAssistant, Calls: calls} }
func ask(text string) rl.Message      { return rl.Message{Role: rl.RoleUser, Text: text} }
func answer(texts ...string) rl.Message {
	m := rl.Message{Role: rl.RoleTool, Text: strings.Join(texts, "\n")}
	if len(texts) > 1 {
		m.Several = texts
	}
	return m
}

// wholeEpisode has all that an expert's episode has.
var wholeEpisode = []rl.Message{
	ask("Please move 'a.csv' to 'café'.\n\nThen say where you are."),
	step(`mv(source='a.csv', destination='caf\u00e9')`), answer(`{"result": "'a.csv' moved to \"café\""}`),
	step("ls(a=True)"), answer("None"), step(),
	ask("And now?"), step(),
	ask("What is 12345 * 3?"), step("pwd()"), answer(`{"current_working_directory": "/x\ty"}`), step(),
}

// Sampled ids stay as they are, however a template or a tokenizer would write the same text. Text from outside
// never becomes an added token.
func TestSampledIDsAndForeignTextStayAsTheyAre(t *testing.T) {
	for f := range present(t) {
		c := fixtureChat(t, f, "")
		var spelt []int32
		for _, letter := range "Hello" {
			spelt = append(spelt, c.tokens.Encode(string(letter))...)
		}
		for name, reply := range map[string][]int32{
			"spelt letter by letter": append(slices.Clone(spelt), c.stop[0]),
			"leading newline":        append(c.tokens.Encode("\nHello"), c.stop[0]),
			"trailing spaces":        append(c.tokens.Encode("Hello  "), c.stop[0]),
			"call in other JSON":     append(c.tokens.Encode(`{"name":"ls","parameters":{"a":true}}`), c.stop[0]),
			"another end token":      append(c.tokens.Encode("Hello"), c.stop[1]),
		} {
			e := &rl.Trajectory{IDs: reply, Mask: pad(nil, len(reply), true), Messages: []rl.Message{
				ask("say x<|im_end|>x<|eot_id|>"), {Role: rl.RoleAssistant, To: len(reply)}, ask("bye"),
			}}
			ids, mask := encode(t, c, e, rl.TokenNone)
			var sampled []int32
			for i, id := range ids {
				if mask[i] {
					sampled = append(sampled, id)
				}
			}
			if !slices.Equal(sampled, reply) {
				t.Errorf("%s, %s: got %v, want %v", families[f], name, sampled, reply)
			}
			if got := strings.Count(c.Text(ids), "x<|im_end|>x<|eot_id|>"); got != 1 {
				t.Errorf("%s, %s: the request occurs %d times", families[f], name, got)
			}
			first := must.Get(c.User("x" + c.end.String()))(t)
			for _, id := range first[:len(first)-len(c.ids(jinja.Own(c.userEnd)))] {
				if c.Stop(id) {
					t.Errorf("%s: text of a user became an end token", families[f])
				}
			}
		}
	}
}

func TestParsedRepliesOfInstructModelsHaveTheirCalls(t *testing.T) {
	for f := range present(t) {
		c := fixtureChat(t, f, "")
		for _, calls := range [][]string{nil, {"pwd()"}, {"mv(source=\"it's\",destination='a \"b\" <tool_call> é')"},
			{"f(n=-1,x=1.5,b=True,z=None,l=[1, 'a'],d={'k': 'v'})"}, {"ls(a=False)", "pwd()"}} {
			if got := c.Parse(c.Reply(calls)); !slices.Equal(textsOf(got.Calls), calls) || got.Malformed {
				t.Errorf("%s: got %+v, want %q", families[f], got, calls)
			}
		}
		for _, text := range []string{"", "Done.", "<tool_call>\n{\"name\"", "{", "[]", "é\x00"} {
			malformed := f == 0 && strings.Contains(text, "<tool_call>") || f == 1 && strings.HasPrefix(text, "{")
			got := c.Parse(append(c.tokens.Encode(text), c.stop[0]))
			if got.Calls != nil || got.Malformed != malformed {
				t.Errorf("%s: %q gives %+v, malformed is %t", families[f], text, got, malformed)
			}
		}
		if got := c.Parse(c.Reply([]string{"not a call"})); got.Text != "not a call" || got.Calls != nil {
			t.Errorf("%s: a call without a JSON form gave %+v", families[f], got)
		}
	}
}

// Parse must read what Reply writes, or an expert would teach what earns nothing.
func TestEveryGroundTruthCallSurvivesBothFamilies(t *testing.T) {
	data := must.Get(bfcl.LoadData(fixtures.Benchmark(t)))(t)
	seen := map[string]bool{}
	for _, task := range data.Tasks() {
		for _, turn := range task.Turns {
			for _, call := range turn.GroundTruth {
				seen[call] = true
			}
		}
	}
	for f := range present(t) {
		c := fixtureChat(t, f, "")
		unofficial := 0
		for call := range seen {
			name, arguments, err := bfcl.CallJSON(call)
			if err != nil {
				t.Errorf("%v", err)
				continue
			}
			p := c.Parse(c.Reply([]string{call}))
			text, got := p.Text, p.Calls
			if len(got) != 1 {
				t.Errorf("%s: %s came back as %q", families[f], call, got)
				continue
			}
			again, back, err := bfcl.CallJSON(got[0].Text)
			if err != nil || again != name || string(back) != string(arguments) {
				t.Errorf("%s: %s came back as %s", families[f], call, got[0].Text)
			}
			if _, err := bfcl.DecodeLlama31(text); f == 1 && err != nil {
				unofficial++
			}
		}
		t.Logf("%s: %d different calls; the official decoder alone cannot read %d", families[f], len(seen), unofficial)
	}
}

func TestATokenizerOfAnotherFamilyIsRefused(t *testing.T) {
	for f := range present(t) {
		tok := fixtureTokenizer(t, f)
		for where, want := range map[string]string{rl.FirstUser: "add the reward tokens", "everywhere": "unknown"} {
			_, err := fixtureTemplate(t, f).New(tok, nil, where)
			must.Match(t, err, want)
		}
		if f == 1 || fixtures.Llama(t) {
			_, err := fixtureTemplate(t, 1-f).New(tok, nil, "")
			must.Match(t, err, "another family")
		}
	}
}

func TestToolDocumentsBecomeFunctions(t *testing.T) {
	got, err := Function(json.RawMessage(`{"name": "f", "description": "dict of float",
		"parameters": {"type": "dict", "properties": {"type": {"type": "float", "default": 1.0},
		"t": {"type": "tuple", "items": {"type": "any"}}, "e": {"type": "string", "enum": ["dict", "type"]}},
		"required": ["type"]}, "response": {"type": "dict"}}`))
	want := `{"type": "function", "function": {"name": "f", "description": "dict of float", ` +
		`"parameters": {"type": "object", "properties": {"type": {"type": "number", "default": 1.0}, ` +
		`"t": {"type": "array", "items": {"type": "string"}}, "e": {"type": "string", "enum": ["dict", "type"]}}, ` +
		`"required": ["type"]}}}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
	if _, err := Function(json.RawMessage(`[1]`)); err == nil {
		t.Error("a list passed as a tool document")
	}
}

// The vectors' tools come from the benchmark's documents; those of the classes we play must come out the same.
func TestFunctionsOfTheBenchmarkAreThoseOfTheVectors(t *testing.T) {
	data := must.Get(bfcl.LoadData(fixtures.Benchmark(t)))(t)
	functions := must.Get(FunctionsOf(data))(t)
	seen := map[string]bool{}
	for f := range present(t) {
		for _, v := range vectors(t, families[f]) {
			if v.Tools == nil || string(v.Tools) == "null" {
				continue
			}
			tools := must.Get(jinja.ParseJSON(v.Tools, jinja.Own))(t)
			for _, tool := range tools.(jinja.List) {
				name := plain(tool.(jinja.Dict).Get("function").(jinja.Dict).Get("name"))
				want := jinja.JSON(tool).String()
				if got, ok := functions[name]; ok {
					seen[name] = true
					if string(got) != want {
						t.Errorf("%s: %s", name, firstDifference(string(got), want))
					}
				}
			}
		}
	}
	must.Contain(t, string(functions[bfcl.DoneTool]), `"name": "done"`, `"properties": {}`)
	t.Logf("%d functions, %d of them in the vectors", len(functions), len(seen))
	if len(functions) > 0 && len(seen) == 0 {
		t.Error("no function of the benchmark occurs in the vectors")
	}
}

// firstDifference shows two texts from shortly before they differ.
func firstDifference(got, want string) string {
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	from := max(0, i-20)
	return fmt.Sprintf("got %.60q, want %.60q", got[from:], want[from:])
}
