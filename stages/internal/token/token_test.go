package token

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"rcgrpo/bench/fixtures"
	"rcgrpo/internal/must"
)

var families = map[string]string{"qwen2": "qwen2_5", "llama3": "llama3_1", "smollm2": "smollm2",
	"gpt2_small": "gpt2_small"}

// streams are the families with vectors of ids that end in the middle of characters.
var streams = map[string]bool{"qwen2": true, "llama3": true}

// loaded keeps the large tokenizers, which take long to read under the race detector.
var loaded = map[string]*Tokenizer{}

func loadLarge(t testing.TB, name string) *Tokenizer {
	t.Helper()
	if tok := loaded[name]; tok != nil {
		return tok
	}
	tok := must.Get(Parse(fixtures.Read(t, name)))(t)
	loaded[name] = tok
	return tok
}

func TestEncodingAndDecodingEqualThePublishedTokenizers(t *testing.T) {
	for family, file := range families {
		t.Run(family, func(t *testing.T) {
			tok := loadLarge(t, "hf/tokenizers/"+file+".tokenizer.json")
			bad := 0
			type vector struct {
				Kind    string  `json:"kind"`
				Text    string  `json:"text"`
				IDs     []int32 `json:"ids"`
				Parsed  []int32 `json:"ids_with_specials_parsed"`
				Decoded string  `json:"decoded"`
				Skipped *string `json:"decoded_skip_special_tokens"`
			}
			n := fixtures.Records(t, "hf/tokenizers/vectors_"+family+".jsonl.gz", func(v vector) {
				check := func(what string, got, want any) {
					if fmt.Sprint(got) != fmt.Sprint(want) {
						if bad++; bad <= 10 {
							t.Errorf("%s: %s of %.80q: got %.200v, want %.200v", v.Kind, what, v.Text, got, want)
						}
					}
				}
				check("ids", tok.Encode(v.Text), v.IDs)
				check("ids with added tokens", tok.EncodeAs(v.Text, Everything), v.Parsed)
				check("text", tok.Decode(v.Parsed, false), v.Decoded)
				if v.Skipped != nil {
					check("text without specials", tok.Decode(v.Parsed, true), *v.Skipped)
				}
			})
			t.Logf("%d vectors, %d differences", n, bad)
			if !streams[family] {
				return
			}
			fixtures.Records(t, "hf/tokenizers/stream_decode_"+family+".jsonl.gz", func(v vector) {
				if got := tok.Decode(v.IDs, false); got != v.Decoded {
					t.Errorf("ids %v: got %q, want %q", v.IDs, got, v.Decoded)
				}
			})
		})
	}
}

func TestTokenizerFilesRoundTripByteForByte(t *testing.T) {
	for _, name := range []string{"models/qwen2-tiny/tokenizer.json", "models/llama31-tiny/tokenizer.json",
		"special_rows/tokenizer_before.json", "special_rows/tokenizer_after.json",
		"special_rows/tokenizer_padded_after.json"} {
		path := fixtures.File(t, "hf/"+name)
		want := must.Get(os.ReadFile(path))(t)
		if got := must.Get(Load(path))(t).JSON(); !bytes.Equal(got, want) {
			t.Errorf("%s differs: got %d bytes, want %d; first difference at %q", name, len(got), len(want),
				firstDifference(got, want))
		}
	}
}

func firstDifference(a, b []byte) string {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	return string(a[max(0, i-40):min(len(a), i+40)])
}

func TestAddedRewardTokensEncodeAsInTheReference(t *testing.T) {
	type vector struct {
		Text    string  `json:"text"`
		Before  []int32 `json:"ids_before"`
		After   []int32 `json:"ids_after"`
		Decoded string  `json:"decoded_after"`
		Skipped string  `json:"decoded_skip_special_tokens"`
	}
	// The rows of new tokens are the mean over the rows of the entries before, whose number the tokenizer knows.
	type sizes struct {
		Before int              `json:"tokenizer_size_before"`
		After  int              `json:"tokenizer_size_after"`
		IDs    map[string]int32 `json:"new_ids"`
	}
	var expect struct {
		New     []string `json:"new_tokens"`
		Strings []vector `json:"strings"`
		Padded  []vector `json:"strings_padded"`
		Cases   []sizes  `json:"cases"`
		Real    map[string]struct {
			sizes
			Strings []vector `json:"strings"`
		} `json:"real_tokenizers"`
	}
	raw := fixtures.Read(t, "hf/special_rows/expect.json")
	must.OK(t, json.Unmarshal(raw, &expect))
	grown := map[sizeChange]bool{}
	check := func(name string, tok *Tokenizer, vectors []vector) {
		before := tok.Size()
		for _, v := range vectors {
			if got := tok.EncodeAs(v.Text, Everything); !slices.Equal(got, v.Before) {
				t.Errorf("%s before: %q: got %v, want %v", name, v.Text, got, v.Before)
			}
		}
		ids := must.Get(tok.Add(expect.New...))(t)
		grown[sizeChange{before, tok.Size(), ids[0], ids[1]}] = true
		for _, v := range vectors {
			got := tok.EncodeAs(v.Text, Everything)
			if !slices.Equal(got, v.After) || tok.Decode(got, false) != v.Decoded || tok.Decode(got, true) != v.Skipped {
				t.Errorf("%s after: %q: got %v (%q), want %v (%q)", name, v.Text, got, tok.Decode(got, false), v.After,
					v.Decoded)
			}
		}
	}
	for suffix, vectors := range map[string][]vector{"": expect.Strings, "padded_": expect.Padded} {
		tok := must.Get(Load(fixtures.File(t, "hf/special_rows/tokenizer_"+suffix+"before.json")))(t)
		for _, file := range []string{"before", "after"} {
			if file == "after" {
				check("tiny "+suffix, tok, vectors)
			}
			want := fixtures.Read(t, "hf/special_rows/tokenizer_"+suffix+file+".json")
			if got := tok.JSON(); !bytes.Equal(got, want) {
				t.Errorf("%s: the written file %s differs at %q", suffix, file, firstDifference(got, want))
			}
		}
	}
	for name, real := range expect.Real {
		t.Run(name, func(t *testing.T) {
			check(name, loadLarge(t, "hf/tokenizers/"+name+".tokenizer.json").Clone(), real.Strings)
			expect.Cases = append(expect.Cases, real.sizes)
		})
	}
	for _, c := range expect.Cases {
		after := c.After
		if after == 0 {
			after = c.Before + len(expect.New)
		}
		if want := (sizeChange{c.Before, after, c.IDs[expect.New[0]], c.IDs[expect.New[1]]}); !grown[want] {
			t.Errorf("no tokenizer grew as expected: %+v; got %v", want, grown)
		}
	}
}

type sizeChange struct {
	before, after int
	first, second int32
}

// corpus is n short texts of the drills' kind.
func corpus(n int) []string {
	r := rand.New(rand.NewPCG(1, 2))
	nouns := make([]string, 172)
	for i := range nouns {
		b := make([]byte, 4+r.IntN(6))
		for j := range b {
			b[j] = "etaoinshrdlucmfwyp"[r.IntN(18)]
		}
		nouns[i] = string(b)
	}
	texts := make([]string, n)
	for i := range texts {
		var b strings.Builder
		for range 2 + r.IntN(3) {
			a, c := nouns[r.IntN(len(nouns))], nouns[r.IntN(len(nouns))]
			fmt.Fprintf(&b, "<|user|>Please move '%s.txt' into the folder '%s'.<|assistant|>mv(source='%s.txt', "+
				"destination='%s')<|call|>{\"result\": \"'%s.txt' moved to '%s/%s.txt'\", \"id\": %d}<|assistant|><|end|>",
				a, c, a, c, a, c, a, r.IntN(1000))
		}
		texts[i] = b.String()
	}
	return texts
}

var specials = []string{"<|user|>", "<|assistant|>", "<|call|>", "<|end|>"}

func TestTrainedTokenizerIsDeterministicAndRoundTrips(t *testing.T) {
	texts := corpus(400)
	tok := must.Get(Train(texts, 700, specials))(t)
	slices.Reverse(texts)
	again := must.Get(Train(texts, 700, specials))(t)
	if !bytes.Equal(tok.JSON(), again.JSON()) {
		t.Error("the order of the texts changed the tokenizer")
	}
	if tok.Size() != 700 {
		t.Errorf("size: got %d, want 700", tok.Size())
	}
	back := must.Get(Parse(tok.JSON()))(t)
	if !bytes.Equal(back.JSON(), tok.JSON()) {
		t.Error("a tokenizer read back is written differently")
	}
	for _, text := range append(texts[:50], "", "naïve 🙂 12345\n\n  x", "<|user|> in a user's mouth") {
		ids := tok.Encode(text)
		if got := tok.Decode(ids, false); got != text {
			t.Errorf("round trip of %q gave %q", text, got)
		}
		if got := back.Encode(text); !slices.Equal(got, ids) {
			t.Errorf("read back, %q has ids %v, want %v", text, got, ids)
		}
		for _, id := range ids {
			if id >= 696 {
				t.Errorf("ordinary text %q became special token %d", text, id)
			}
		}
	}
	if got := tok.EncodeAs("<|end|>1234", Everything); len(got) != 5 || got[0] != 699 {
		t.Errorf("special token and single digits: got %v", got)
	}
}

// Merges stand in a file as "a b" or as ["a", "b"]; both read as the same tokenizer, and each comes back as it
// was.
func TestMergesOfBothFormsAreTheSameTokenizer(t *testing.T) {
	trained := must.Get(Train([]string{"the cat sat on the mat, the rat on the hat", "that cat ate the rat"}, 290, nil))(t)
	type file = map[string]any
	var f file
	must.OK(t, json.Unmarshal(trained.JSON(), &f))
	model := f["model"].(file)
	texts, pairs := []any{}, []any{}
	for _, m := range model["merges"].([]any) {
		pair, isPair := m.([]any)
		if text, ok := m.(string); ok {
			a, b, _ := strings.Cut(text, " ")
			pair, isPair = []any{a, b}, true
		}
		if !isPair || len(pair) != 2 {
			t.Fatalf("a merge is %v", m)
		}
		texts, pairs = append(texts, fmt.Sprintf("%s %s", pair...)), append(pairs, pair)
	}
	if len(texts) < 10 {
		t.Fatalf("%d merges only", len(texts))
	}
	const text = "the cat that ate the hat sat"
	for name, merges := range map[string][]any{"texts": texts, "pairs": pairs} {
		model["merges"] = merges
		raw := must.Get(json.Marshal(f))(t)
		tok := must.Get(Parse(raw))(t)
		if got, want := tok.Encode(text), trained.Encode(text); !slices.Equal(got, want) || len(got) > 20 {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
		var back struct{ Model struct{ Merges []any } }
		if err := json.Unmarshal(tok.JSON(), &back); err != nil ||
			fmt.Sprintf("%q", back.Model.Merges) != fmt.Sprintf("%q", merges) {
			t.Errorf("%s: written back as %q (%v)", name, back.Model.Merges[:2], err)
		}
	}
	for _, merges := range []any{[]any{"ab"}, []any{[]any{"a"}}, []any{[]any{"a", "b", "c"}}, []any{3}, []any{"t zzz"}} {
		model["merges"] = merges
		raw := must.Get(json.Marshal(f))(t)
		if _, err := Parse(raw); err == nil {
			t.Errorf("the merges %v are accepted", merges)
		}
	}
}

func TestFirstMergesAreTheMostFrequentPairs(t *testing.T) {
	// Words: "aab" 3 times, " ab" 2 times. Pairs: ab 5, aa 3, " a" 2. After ab: a+ab 3, " "+ab 2.
	tok := must.Get(Train([]string{"aab", "aab ab", "aab ab"}, 256+3, nil))(t)
	got := []string{string(tok.Bytes(256)), string(tok.Bytes(257)), string(tok.Bytes(258))}
	if want := []string{"ab", "aab", " ab"}; !slices.Equal(got, want) {
		t.Errorf("merges: got %q, want %q", got, want)
	}
}

func TestATokenizerOfManyValuesIsNotDecoded(t *testing.T) {
	zeros := strings.Repeat("0,", mostCommas) // twice as many took 2.2 GB
	_, err := Parse([]byte(`{"pre_tokenizer": {"pretokenizers": [` + zeros + "0, 0]}}"))
	must.Match(t, err, "at most 4194304 are read")
}

func TestUnsupportedTokenizerFilesAreRefusedByName(t *testing.T) {
	tok := must.Get(Train([]string{"ab ab"}, 257, nil))(t)
	good := string(tok.JSON())
	for name, c := range map[string]struct{ old, new, want string }{
		"other normalizer":  {`"NFC"`, `"NFKC"`, "NFKC"},
		"other pattern":     {`\\p{N}|`, `\\p{N}+|`, "is unknown; known are Qwen's, Llama 3's and GPT-2's"},
		"prefix space":      {`"add_prefix_space": false`, `"add_prefix_space": true`, "add_prefix_space true"},
		"both patterns":     {`"use_regex": false`, `"use_regex": true`, "ByteLevel with use_regex true"},
		"removed pieces":    {`"Isolated"`, `"Removed"`, "the behavior Isolated"},
		"other model":       {`"BPE"`, `"Unigram"`, "Unigram"},
		"byte fallback":     {`"byte_fallback": false`, `"byte_fallback": true`, "byte_fallback"},
		"unknown key":       {`"byte_fallback"`, `"surprise"`, "surprise"},
		"merge of nothing":  {`"a",`, `"q",`, "merge 0"},
		"id taken twice":    {`"b": 65`, `"b": 64`, "taken twice"},
		"merge of no token": {`"b": 65,`, ``, "merge 0"},
		"not JSON":          {`{`, `[`, "tokenizer.json"},
		"a long token":      {`"b": 65`, `"` + strings.Repeat("b", 1025) + `": 65`, "or has more than 1024 bytes"},
		"a long added token": {`"added_tokens": []`, `"added_tokens": [{"id": 257, "content": "` +
			strings.Repeat("a", 65) + `"}]`, "it needs a text of 1 to 64 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := strings.Replace(good, c.old, c.new, 1)
			if bad == good {
				t.Fatalf("%q does not occur", c.old)
			}
			_, err := Parse([]byte(bad))
			must.Match(t, err, c.want)
		})
	}
}

// The pre-tokenizer decides the ids. Expected words follow from the patterns by hand.
func TestPreTokenizersThatAreAcceptedCutAsTheyDescribe(t *testing.T) {
	const text = "it's IT'S a1  23\n x"
	split := func(pattern, level string) string {
		quoted := must.Get(json.Marshal(pattern))(t)
		return fmt.Sprintf(`{"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": %s},
			"behavior": "Isolated", "invert": false}, %s]}`, quoted, level)
	}
	const (
		level  = `{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}`
		older  = `{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true}`
		plain  = `{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}`
		digits = `{"type": "Digits", "individual_digits": %t}`
		list   = `{"type": "Sequence", "pretokenizers": [%s]}`
	)
	smol := fmt.Sprintf(list, fmt.Sprintf(digits, true)+","+level)
	spaced := []string{"it", "'s", " IT", "'", "S", " a", "1", " ", " 23", "\n", " x"}
	for name, c := range map[string]struct {
		section string
		words   []string
		refused string
	}{
		"GPT-2":               {level, spaced, ""},
		"GPT-2, older":        {older, spaced, ""},
		"GPT-2 in a sequence": {fmt.Sprintf(list, level), spaced, ""},
		"GPT-2 as a split":    {split(patternGPT2, plain), spaced, ""},
		"SmolLM2": {smol,
			[]string{"it", "'s", " IT", "'", "S", " a", "1", "  ", "2", "3", "\n", " x"}, ""},
		"Llama 3": {split(patternLlama, plain),
			[]string{"it", "'s", " IT", "'S", " a", "1", " ", " ", "23", "\n", " x"}, ""},
		"Qwen": {split(patternQwen, plain),
			[]string{"it", "'s", " IT", "'S", " a", "1", " ", " ", "2", "3", "\n", " x"}, ""},
		"numbers together":      {fmt.Sprintf(list, fmt.Sprintf(digits, false)+","+level), nil, "individual_digits false"},
		"digits, no pattern":    {fmt.Sprintf(list, fmt.Sprintf(digits, true)+","+plain), nil, "supported are Split"},
		"digits after bytes":    {fmt.Sprintf(list, level+","+fmt.Sprintf(digits, true)), nil, "supported are Split"},
		"bytes without pattern": {plain, nil, "supported are Split"},
		"nothing":               {`{"type": "Sequence", "pretokenizers": []}`, nil, "supported are Split"},
		"another":               {`{"type": "Whitespace"}`, nil, "supported are Split"},
	} {
		t.Run(name, func(t *testing.T) {
			tok := &Tokenizer{}
			err := tok.parsePreTokenizer(&file{PreTokenizer: json.RawMessage(c.section)})
			must.Match(t, err, c.refused)
			var got []string
			if err == nil {
				tok.words(text, func(word string) { got = append(got, word) })
			}
			if !slices.Equal(got, c.words) {
				t.Errorf("got %q, want %q", got, c.words)
			}
		})
	}
}

// A model folder is untrusted: a FIFO would block, and a huge file would fill the memory.
func TestOnlyPlainTokenizerFilesOfBoundedSizeAreRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokenizer.json")
	must.OK(t, os.WriteFile(path, nil, 0o600))
	must.OK(t, os.Truncate(path, maxFile+1)) // a sparse file takes no disk
	_, err := Load(path)
	must.Match(t, err, "a plain file of at most 64 MiB")
	_, err = Load(t.TempDir())
	must.Match(t, err, "a plain file of at most 64 MiB")
}

func TestPartsAreOneTextExceptForTheirAddedTokens(t *testing.T) {
	tok := must.Get(Train(corpus(100), 500, specials))(t)
	whole := tok.EncodeParts(Part{"<|user|>Please mo", Everything}, Part{"ve <|end|> it", Nothing},
		Part{"<|end|>", Everything})
	want := slices.Concat(tok.EncodeAs("<|user|>", Everything), tok.Encode("Please move <|end|> it"),
		tok.EncodeAs("<|end|>", Everything))
	if !slices.Equal(whole, want) {
		t.Errorf("got %v, want %v", whole, want)
	}
	if got := tok.EncodeParts(); len(got) != 0 {
		t.Errorf("no parts: got %v", got)
	}
}

func FuzzEncode(f *testing.F) {
	tok, err := Train(corpus(100), 500, specials)
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range []string{"", "it's 'S 'ſ", "a\r\n \t b", "\xff\xfe", "e\u0301", "<|user|>x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ids := tok.Encode(text)
		for _, id := range ids {
			if int(id) >= tok.Size()-len(specials) {
				t.Fatalf("ordinary text became special token %d", id)
			}
		}
		if want := tok.normal(text); utf8.ValidString(want) && tok.Decode(ids, false) != want {
			t.Fatalf("round trip of %q gave %q", want, tok.Decode(ids, false))
		}
		tok.EncodeAs(text, Everything)
	})
}

func BenchmarkEncode(b *testing.B) {
	text := strings.Join(corpus(100), "\n")
	for name, file := range families {
		b.Run(name, func(b *testing.B) {
			tok := loadLarge(b, "hf/tokenizers/"+file+".tokenizer.json")
			b.SetBytes(int64(len(text)))
			n := 0
			for b.Loop() {
				n += len(tok.Encode(text))
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "tokens/s")
		})
	}
}

// The ids of a long word are those of the scan over all pairs, which every short word shows to be the reference's.
func TestLongWordsMergeAsShortOnesDo(t *testing.T) {
	tok := must.Get(Train(corpus(400), 700, specials))(t)
	random := rand.New(rand.NewPCG(7, 11))
	for range 3000 {
		letters := make([]byte, 1+random.IntN(longWord))
		for i := range letters {
			letters[i] = "aeinrst"[random.IntN(2+random.IntN(6))]
		}
		var parts []int32
		for _, b := range letters {
			parts = append(parts, tok.single[b])
		}
		got := parts[:tok.mergeLong(parts)]
		if want := tok.word(nil, string(letters)); !slices.Equal(got, want) {
			t.Fatalf("%s: got %v, want %v", letters, got, want)
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	long := strings.Repeat("abcdefgh", 200_000)
	if got := len(tok.Encode(long)); got == 0 { // took minutes
		t.Error("a word of 1.6 MB has no ids")
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > uint64(60*len(long)) {
		t.Errorf("a word of %d bytes allocates %d bytes, want at most 60 times as many", len(long), n)
	}
	longWords.Lock() // 60 words of a megabyte at once took 4 GB
	merged := make(chan []int32, 1)
	go func() { merged <- tok.Encode(long[:100_000]) }()
	select {
	case <-merged:
		t.Fatal("a long word is merged beside another")
	case <-time.After(50 * time.Millisecond):
	}
	longWords.Unlock()
	<-merged
}

// Of all added tokens that begin at a place, the longest is found. Thousands that begin alike took hours.
func TestAddedTokensThatBeginAlikeAreFound(t *testing.T) {
	tok := must.Get(Train(corpus(10), 300, nil))(t)
	random := rand.New(rand.NewPCG(3, 5))
	word := func(most int) string {
		return string(slices.Collect(func(yield func(rune) bool) {
			for range 1 + random.IntN(most) {
				yield(rune("ab"[random.IntN(2)]))
			}
		}))
	}
	var all []string
	for range 40 {
		all = append(all, word(8))
	}
	must.Get(tok.Add(all...))(t)
	for range 2000 {
		text := word(12)
		want := ""
		for _, name := range all {
			if i := strings.Index(text, name); i >= 0 {
				if at := strings.Index(text, want); want == "" || i < at || i == at && len(name) > len(want) {
					want = name
				}
			}
		}
		if _, got := tok.raw.find(text); got.Content != want {
			t.Fatalf("%s of %v: found %q, want %q", text, all, got.Content, want)
		}
	}
	many := make([]string, 8000)
	for i := range many {
		many[i] = fmt.Sprint(strings.Repeat("c", 50), i)
	}
	must.Get(tok.Add(many...))(t)
	if from, _ := tok.raw.find(strings.Repeat("c", 1<<20)); from >= 0 {
		t.Errorf("found a token at %d, want none", from)
	}
}
