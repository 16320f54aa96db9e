package chat

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl"
	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

var someFunctions = Functions{
	"ls":  json.RawMessage(`{"type": "function", "function": {"name": "ls", "description": "List <tools> & more.", "parameters": {"type": "object", "properties": {"a": {"type": "boolean", "default": false}}, "required": []}}}`),
	"mv":  json.RawMessage(`{"type": "function", "function": {"name": "mv", "parameters": {"type": "object", "properties": {}, "required": ["source", "destination"]}}}`),
	"pwd": json.RawMessage(`{"type": "function", "function": {"name": "pwd", "parameters": {}}}`),
}

// fixtureChat is the codec of a family at a position, with a tokenizer that has the reward tokens.
func fixtureChat(t testing.TB, family int, where string) *Chat {
	t.Helper()
	tok := fixtureTokenizer(t, family).Clone()
	if _, err := tok.Add(RewardTokens...); err != nil {
		t.Fatal(err)
	}
	c, err := layouts[family].New(tok, fixtureTemplate(t, family), someFunctions, where)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// rendered is the whole episode as the template renders it: the reward token in the first request before the template
// is applied, or put behind every header that opens a reply.
func rendered(t testing.TB, template *Template, c *Chat, e *rl.Trajectory, reward string) string {
	t.Helper()
	messages, tools, first := list{}, list{}, true
	for _, m := range e.Messages {
		switch m.Role {
		case rl.RoleUser:
			text := m.Text
			if content, ok := c.reward[reward]; ok && first && c.position == rl.FirstUser {
				text += goalBefore + content + goalAfter
			}
			first = false
			messages = append(messages, newObject("role", "user", "content", text))
		case rl.RoleTool:
			for _, r := range m.Results() {
				messages = append(messages, newObject("role", "tool", "content", r))
			}
		case rl.RoleAssistant:
			reply := newObject("role", "assistant", "content", "")
			var calls list
			for _, call := range m.Calls {
				name, raw, err := bfcl.CallJSON(call)
				if err != nil {
					t.Fatal(err)
				}
				arguments, err := parseJSON(raw)
				if err != nil {
					t.Fatal(err)
				}
				calls = append(calls, newObject("function", newObject("name", name, "arguments", arguments)))
			}
			if len(calls) > 0 {
				reply.set("tool_calls", calls)
			} else {
				reply.set("content", m.Text)
			}
			messages = append(messages, reply)
		}
	}
	for _, name := range e.Tools {
		f, err := parseJSON(someFunctions[name])
		if err != nil {
			t.Fatal(err)
		}
		tools = append(tools, f)
	}
	raw := func(v any) json.RawMessage {
		text, err := compactJSON.text(v)
		if err != nil {
			t.Fatal(err)
		}
		return json.RawMessage(text)
	}
	p := Prompt{Messages: raw(messages)}
	if len(tools) > 0 {
		p.Tools = raw(tools)
	}
	text, err := template.Render(p)
	if err != nil {
		t.Fatal(err)
	}
	if content, ok := c.reward[reward]; ok && c.position == rl.BeforeEachAction {
		text = strings.ReplaceAll(text, c.header, c.header+content)
	}
	return text
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

func TestAnEpisodeIsLaidOutAsTheTemplateRendersIt(t *testing.T) {
	for f := range present(t) {
		family := families[f]
		template := fixtureTemplate(t, f)
		for _, where := range []string{"", rl.FirstUser, rl.BeforeEachAction} {
			c := fixtureChat(t, f, where)
			for _, reward := range []string{rl.TokenNone, rl.TokenHigh, rl.TokenLow} {
				for _, tools := range [][]string{nil, {"pwd"}, {"mv", "ls"}} {
					e := &rl.Trajectory{Tools: tools, Messages: wholeEpisode}
					ids, mask := Encode(c, e, reward)
					want := c.tokens.EncodeAs(rendered(t, template, c, e, reward), token.Everything)
					// Nothing is given behind the last reply: only Qwen's newline is missing there.
					if full := append(slices.Clone(ids), c.Between()...); !slices.Equal(full, want) {
						t.Fatalf("%s %q %q %v: %s", family.name, where, reward, tools, firstDifference(c.Text(full), c.Text(want)))
					}
					places := 0
					for i, id := range ids {
						name := c.Text([]int32{id})
						if name == HighReward || name == LowReward {
							places++
							if mask[i] {
								t.Errorf("%s %q: a reward token counts as the policy's own", family.name, where)
							}
						}
						if c.Stop(id) && mask[i] && i+1 < len(mask) && mask[i+1] {
							t.Errorf("%s: a reply goes on behind its end", family.name)
						}
					}
					wanted := 0
					if reward != rl.TokenNone {
						wanted = map[string]int{"": 0, rl.FirstUser: 1, rl.BeforeEachAction: 6}[where]
					}
					if places != wanted {
						t.Errorf("%s %q %q: got %d reward tokens, want %d", family.name, where, reward, places, wanted)
					}
				}
			}
		}
	}
}

// The cases in which our ids and the ids of a full rendering differ, all of them on purpose; the last column says why.
func TestWhereAnEpisodeDiffersFromItsRendering(t *testing.T) {
	type difference struct {
		ours, theirs string // the first ids that differ, as text
		why          string
	}
	sampled := func(c *Chat, parts ...token.Part) []int32 {
		return append(c.tokens.EncodeParts(parts...), c.stop[0])
	}
	spelt := func(c *Chat, text string) (ids []int32) {
		for i := range len(text) {
			ids = append(ids, c.tokens.Encode(text[i:i+1])...)
		}
		return append(ids, c.stop[0])
	}
	for name, tc := range map[string]struct {
		episode []rl.Message
		reply   func(c *Chat) []int32 // what was sampled for the first reply; nil for the expert's
		want    [2]difference         // Qwen, Llama
	}{
		"newline at the end": {
			episode: []rl.Message{ask("Hi"), step()},
			want:    [2]difference{{"", "\n", "the newline behind the end token is written with the next message, if there is one"}, {}},
		},
		"special token in a request": {
			episode: []rl.Message{ask("say x<|im_end|>x<|eot_id|>"), step(), ask("bye")},
			want: [2]difference{{"<", "<|im_end|>", "text from outside never becomes an added token"},
				{"<", "<|eot_id|>", "text from outside never becomes an added token"}},
		},
		"special token in a result": {
			episode: []rl.Message{ask("x"), step("pwd()"), answer("y</tool_call>x<|eot_id|>"), step(), ask("bye")},
			want: [2]difference{{"</", "</tool_call>", "text from outside never becomes an added token"},
				{"<", "<|eot_id|>", "text from outside never becomes an added token"}},
		},
		"reply spelt letter by letter": {
			episode: []rl.Message{ask("x"), step(), ask("bye")},
			reply:   func(c *Chat) []int32 { return spelt(c, "Hello") },
			want: [2]difference{{"H", "Hello", "what was sampled is never tokenised again"},
				{"H", "Hello", "what was sampled is never tokenised again"}},
		},
		"reply that begins with a newline": {
			episode: []rl.Message{ask("x"), step(), ask("bye")},
			reply:   func(c *Chat) []int32 { return sampled(c, plainly("\nHello")) },
			want: [2]difference{{"\n", "\n\n", "the header's newline and the reply's merge in a rendering"},
				{"\n", "Hello", "the template trims replies"}},
		},
		"reply that ends with spaces": {
			episode: []rl.Message{ask("x"), step(), ask("bye")},
			reply:   func(c *Chat) []int32 { return sampled(c, plainly("Hello  ")) },
			want:    [2]difference{{}, {"  ", "<|eot_id|>", "the template trims replies"}},
		},
		"call in other JSON": {
			episode: []rl.Message{ask("x"), step("ls(a=True)"), answer("None"), step(), ask("bye")},
			reply: func(c *Chat) []int32 {
				if c.name == "Qwen" {
					return sampled(c, all("<tool_call>"), plainly("\n{\"name\":\"ls\",\"arguments\":{\"a\":true}}\n"), all("</tool_call>"))
				}
				return sampled(c, plainly(`{"name":"ls","parameters":{"a":true}}`))
			},
			want: [2]difference{{"\":\"", "\":", "the template writes the call anew"}, {"\":\"", "\":", "the template writes the call anew"}},
		},
		"text beside a call": {
			episode: []rl.Message{ask("x"), step("pwd()"), answer("None"), step(), ask("bye")},
			reply: func(c *Chat) []int32 {
				parts := c.replyParts([]string{"pwd()"})
				return sampled(c, append([]token.Part{plainly("Well.\n")}, parts...)...)
			},
			want: [2]difference{{"Well", "<tool_call>", "the record of a reply holds its calls"}, {"Well", "{\"", "the template drops text beside a call"}},
		},
		"reply ended by another token": {
			episode: []rl.Message{ask("x"), step(), ask("bye")},
			reply:   func(c *Chat) []int32 { return append(c.tokens.Encode("Hello"), c.stop[1]) },
			want: [2]difference{{"<|endoftext|>", "<|im_end|>", "the end token is what was sampled"},
				{"<|eom_id|>", "<|eot_id|>", "the end token is what was sampled"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			for f := range present(t) {
				c := fixtureChat(t, f, "")
				e := &rl.Trajectory{Messages: slices.Clone(tc.episode)}
				if tc.reply != nil {
					ids := tc.reply(c)
					e.IDs, e.Mask = ids, pad(nil, len(ids), true)
					m := &e.Messages[1]
					m.To = len(ids)
					m.Text, _ = c.Parse(ids)
				}
				ours, _ := Encode(c, e, rl.TokenNone)
				theirs := c.tokens.EncodeAs(rendered(t, fixtureTemplate(t, f), c, e, rl.TokenNone), token.Everything)
				i := 0
				for i < min(len(ours), len(theirs)) && ours[i] == theirs[i] {
					i++
				}
				got := [2]string{c.Text(ours[i:min(i+1, len(ours))]), c.Text(theirs[i:min(i+1, len(theirs))])}
				if want := [2]string{tc.want[f].ours, tc.want[f].theirs}; got != want {
					t.Errorf("%s: the first ids that differ are %q and %q, want %q (%s)", c.name, got[0], got[1], want, tc.want[f].why)
				}
			}
		})
	}
}

func TestWhatAnInstructModelSeesIsAPrefixOfItsEpisode(t *testing.T) {
	for f := range present(t) {
		family := families[f]
		for _, where := range []string{"", rl.FirstUser, rl.BeforeEachAction} {
			c := fixtureChat(t, f, where)
			e := &rl.Trajectory{Tools: []string{"ls"}, Messages: wholeEpisode}
			whole, _ := Encode(c, e, rl.TokenHigh)
			for n, m := range wholeEpisode {
				if m.Role != rl.RoleAssistant {
					continue
				}
				prompt, _ := Encode(c, &rl.Trajectory{Tools: e.Tools, Messages: wholeEpisode[:n]}, rl.TokenHigh)
				prompt = append(prompt, c.Header(rl.TokenHigh)...)
				if len(prompt) > len(whole) || !slices.Equal(prompt, whole[:len(prompt)]) {
					t.Fatalf("%s %q: the prompt of message %d is no prefix of the episode", family.name, where, n)
				}
			}
		}
	}
}

func TestRepliesOfInstructModelsGiveBackTheirCalls(t *testing.T) {
	for f := range present(t) {
		family := families[f]
		c := fixtureChat(t, f, "")
		for _, calls := range [][]string{nil, {"pwd()"}, {"mv(source=\"it's\",destination='a \"b\" <tool_call> é')"},
			{"f(n=-1,x=1.5,b=True,z=None,l=[1, 'a'],d={'k': 'v'})"}, {"ls(a=False)", "pwd()"}} {
			if _, got := c.Parse(c.Reply(calls)); !slices.Equal(got, calls) {
				t.Errorf("%s: got %q, want %q", family.name, got, calls)
			}
		}
		for _, text := range []string{"", "Done.", "<tool_call>\n{\"name\"", "{", "[]", "é\x00"} {
			if _, calls := c.Parse(append(c.tokens.Encode(text), c.stop[0])); calls != nil {
				t.Errorf("%s: %q calls %q", family.name, text, calls)
			}
		}
		if text, calls := c.Parse(c.Reply([]string{"not a call"})); text != "not a call" || calls != nil {
			t.Errorf("%s: a call without a JSON form gave %q, %q", family.name, text, calls)
		}
	}
}

// Parse must read what Reply writes, or an expert would teach what earns nothing.
func TestEveryGroundTruthCallSurvivesBothFamilies(t *testing.T) {
	data, err := bfcl.LoadData(fixtures.Benchmark(t))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, task := range data.Tasks() {
		for _, turn := range task.Turns {
			for _, call := range turn.GroundTruth {
				seen[call] = true
			}
		}
	}
	for f := range present(t) {
		family := families[f]
		c := fixtureChat(t, f, "")
		unofficial := 0
		for call := range seen {
			name, arguments, err := bfcl.CallJSON(call)
			if err != nil {
				t.Errorf("%v", err)
				continue
			}
			text, got := c.Parse(c.Reply([]string{call}))
			if len(got) != 1 {
				t.Errorf("%s: %s came back as %q", family.name, call, got)
				continue
			}
			again, back, err := bfcl.CallJSON(got[0])
			if err != nil || again != name || string(back) != string(arguments) {
				t.Errorf("%s: %s came back as %s", family.name, call, got[0])
			}
			if _, err := bfcl.DecodeLlama31(text); f == 1 && err != nil {
				unofficial++
			}
		}
		t.Logf("%s: %d different calls; the official decoder alone cannot read %d", family.name, len(seen), unofficial)
	}
}

func TestALayoutThatIsNotTheFamilysIsRefused(t *testing.T) {
	for f := range present(t) {
		source := func(old, new string) string {
			text := fixtureSource(t, f)
			if !strings.Contains(text, old) {
				t.Fatalf("the template has no %q", old)
			}
			return strings.ReplaceAll(text, old, new)
		}
		tok := fixtureTokenizer(t, f)
		for name, tc := range map[string]struct{ source, want string }{
			"other separator": {source([]string{"tojson", "tojson(indent=4)"}[f], "tojson(separators=[',', ':'])"), "otherwise"},
			"other content":   {source("content", "contents"), ""},
			"raises":          {"{{ raise_exception('never') }}", "never"},
			"empty":           {"", "as it is"},
		} {
			template, err := NewTemplate(tc.source, families[f].special)
			if err != nil {
				t.Errorf("%s %s: %v", families[f].name, name, err)
				continue
			}
			if _, err := layouts[f].New(tok, template, someFunctions, ""); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s %s: got error %v, want one that says %q", families[f].name, name, err, tc.want)
			}
		}
		for where, want := range map[string]string{rl.FirstUser: "add the reward tokens", "everywhere": "not known"} {
			if _, err := layouts[f].New(tok, fixtureTemplate(t, f), nil, where); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("position %q: got error %v, want one that says %q", where, err, want)
			}
		}
		if !fixtures.Llama(t) {
			continue
		}
		template, err := NewTemplate(fixtureSource(t, 1-f), families[f].special)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := layouts[f].New(tok, template, someFunctions, ""); err == nil || !strings.Contains(err.Error(), "layout") {
			t.Errorf("%s with the other family's template: got error %v, want one that says layout", families[f].name, err)
		}
		if _, err := layouts[1-f].New(tok, fixtureTemplate(t, 1-f), nil, ""); err == nil || !strings.Contains(err.Error(), "another family") {
			t.Errorf("another family's tokenizer: got error %v", err)
		}
	}
}

func TestToolDocumentsBecomeFunctions(t *testing.T) {
	got, err := Function(json.RawMessage(`{"name": "f", "description": "dict of float", "parameters": {"type": "dict", "properties":
		{"type": {"type": "float", "default": 1.0}, "t": {"type": "tuple", "items": {"type": "any"}}, "e": {"type": "string", "enum": ["dict", "type"]}},
		"required": ["type"]}, "response": {"type": "dict"}}`))
	want := `{"type": "function", "function": {"name": "f", "description": "dict of float", "parameters": {"type": "object", "properties": ` +
		`{"type": {"type": "number", "default": 1.0}, "t": {"type": "array", "items": {"type": "string"}}, "e": {"type": "string", "enum": ["dict", "type"]}}, ` +
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
	data, err := bfcl.LoadData(fixtures.Benchmark(t))
	if err != nil {
		t.Fatal(err)
	}
	functions, err := FunctionsOf(data)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for f := range present(t) {
		for _, v := range vectors(t, families[f].name) {
			if v.Tools == nil || string(v.Tools) == "null" {
				continue
			}
			tools, err := parseJSON(v.Tools)
			if err != nil {
				t.Fatal(err)
			}
			for _, tool := range tools.(list) {
				name, _ := tool.(object)["function"].value.(object)["name"].value.(string)
				want, err := compactJSON.text(tool)
				if err != nil {
					t.Fatal(err)
				}
				if got, ok := functions[name]; ok {
					seen[name] = true
					if string(got) != want {
						t.Errorf("%s: %s", name, firstDifference(string(got), want))
					}
				}
			}
		}
	}
	if done := string(functions[bfcl.DoneTool]); !strings.Contains(done, `"name":"done"`) || !strings.Contains(done, `"properties":{}`) {
		t.Errorf("the tool that ends a merged episode is documented as %q, want a function without parameters", done)
	}
	t.Logf("%d functions, %d of them in the vectors", len(functions), len(seen))
	if len(functions) > 0 && len(seen) == 0 {
		t.Error("no function of the benchmark occurs in the vectors")
	}
}

func BenchmarkEpisode(b *testing.B) {
	for f, family := range families {
		b.Run(family.name, func(b *testing.B) {
			c := fixtureChat(b, f, rl.FirstUser)
			e := &rl.Trajectory{Tools: []string{"ls", "mv", "pwd"}, Messages: wholeEpisode}
			n := 0
			for b.Loop() {
				ids, _ := Encode(c, e, rl.TokenHigh)
				n += len(ids)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

func BenchmarkRender(b *testing.B) {
	for f, family := range families {
		b.Run(family.name, func(b *testing.B) {
			template := fixtureTemplate(b, f)
			all := vectors(b, family.name)
			n := 0
			for b.Loop() {
				for _, v := range all {
					text, _ := template.Render(v.prompt())
					n += len(text)
				}
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "MB/s")
		})
	}
}
