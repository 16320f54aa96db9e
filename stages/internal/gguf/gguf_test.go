package gguf_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"rcgrpo/bench/fixtures"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/gguf"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/token"
)

// bytesOf is the memory of v, as numpy's tobytes gives it.
func bytesOf(v []float32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v))
}

// wantSums compares the values of all tensors with the SHA-256 that gguf-py's values have.
func wantSums(t *testing.T, path string, sums map[string]string) {
	t.Helper()
	f := must.Get(gguf.Open(path))(t)
	defer f.Close()
	shapes := gguf.Shapes(f)
	if len(shapes) != len(sums) || len(sums) == 0 {
		t.Fatalf("got %d tensors, want %d", len(shapes), len(sums))
	}
	for name, shape := range shapes {
		row, n := shape[len(shape)-1], 1
		for _, d := range shape {
			n *= d
		}
		h, into := sha256.New(), make([]float32, 7*row)
		for at := 0; at < n; at += len(into) { // in pieces that are no power of two
			into = into[:min(len(into), n-at)]
			must.OK(t, f.Rows(name, at/row, into))
			h.Write(bytesOf(into))
		}
		if got := hex.EncodeToString(h.Sum(nil)); got != sums[name] {
			t.Errorf("tensor %s: got the hash %.8s, want %.8s", name, got, sums[name])
		}
	}
}

func TestTensorsOfEveryTypeEqualThoseOfGGUFPy(t *testing.T) {
	var want struct {
		SHA256 map[string]string
		First  map[string][]float64
	}
	must.OK(t, json.Unmarshal(fixtures.Read(t, "hf/gguf/types.json"), &want))
	path := fixtures.File(t, "hf/gguf/types.gguf")
	wantSums(t, path, want.SHA256)
	f := must.Get(gguf.Open(path))(t)
	defer f.Close()
	for name, values := range want.First {
		got := make([]float32, gguf.Shapes(f)[name][len(gguf.Shapes(f)[name])-1])
		must.OK(t, f.Rows(name, 0, got))
		for i, v := range values {
			if float64(got[i]) != v {
				t.Errorf("%s at %d: got %v, want %v", name, i, got[i], v)
				break
			}
		}
	}
	for _, kind := range []string{"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"} {
		if !strings.Contains(f.Types(), kind+" × ") {
			t.Errorf("the fixture has no tensor of type %s: %s", kind, f.Types())
		}
	}
}

// The real model: all values, and the tokens of the texts whose ids the library gave for the same tokenizer.
func TestSmolLM2EqualsGGUFPyAndTokenizers(t *testing.T) {
	path := fixtures.SmolLM2(t)
	var want struct{ SHA256 map[string]string }
	must.OK(t, json.Unmarshal(fixtures.Read(t, "hf/gguf/smollm2.json"), &want))
	wantSums(t, path, want.SHA256)
	f := must.Get(gguf.Open(path))(t)
	defer f.Close()
	tok := must.Get(token.Parse(must.Get(f.Tokenizer())(t)))(t)
	type vector struct {
		Text    string  `json:"text"`
		IDs     []int32 `json:"ids"`
		Parsed  []int32 `json:"ids_with_specials_parsed"`
		Skipped *string `json:"decoded_skip_special_tokens"`
	}
	bad := 0
	n := fixtures.Records(t, "hf/tokenizers/vectors_smollm2.jsonl", func(v vector) {
		if !slices.Equal(tok.Encode(v.Text), v.IDs) || !slices.Equal(tok.EncodeAs(v.Text, token.Everything), v.Parsed) ||
			v.Skipped != nil && tok.Decode(v.Parsed, true) != *v.Skipped {
			bad++
		}
	})
	if bad > 0 || n < 3000 {
		t.Errorf("%d of %d texts have other ids", bad, n)
	}
}

// A file is the parts of a GGUF file, to be written with one fault.
type file struct {
	magic   string
	version uint32
	keys    []key
	tensors []written
	counts  [2]uint64 // of tensors and keys; added to the true ones
	cut     int       // bytes to leave out at the end
}

type key struct {
	name  string
	value any
}

// raw is a value with its type number, already encoded.
type raw struct {
	kind uint32
	text []byte
}

type written struct {
	name   string
	dims   []uint64 // fastest first
	kind   uint32
	data   []byte
	offset uint64 // added to the true one
}

func text(s string) []byte { return append(u64(len(s)), s...) }
func u32(n int) []byte     { return binary.LittleEndian.AppendUint32(nil, uint32(n)) }
func u64(n int) []byte     { return binary.LittleEndian.AppendUint64(nil, uint64(n)) }

func array(kind, n int, elements []byte) raw {
	return raw{9, slices.Concat(u32(kind), u64(n), elements)}
}

func (f file) write(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	put := func(parts ...[]byte) { b.Write(slices.Concat(parts...)) }
	put([]byte(f.magic), u32(int(f.version)), u64(len(f.tensors)+int(f.counts[0])), u64(len(f.keys)+int(f.counts[1])))
	for _, k := range f.keys {
		put(text(k.name))
		switch v := k.value.(type) {
		case string:
			put(u32(8), text(v))
		case int:
			put(u32(4), u32(v))
		case float64:
			put(u32(6), u32(int(math.Float32bits(float32(v)))))
		case bool:
			put(u32(7), []byte{map[bool]byte{true: 1}[v]})
		case []string:
			put(u32(9), u32(8), u64(len(v)))
			for _, s := range v {
				put(text(s))
			}
		case []int:
			put(u32(9), u32(5), u64(len(v)))
			for _, n := range v {
				put(u32(n))
			}
		case raw:
			put(u32(int(v.kind)), v.text)
		default:
			t.Fatalf("key %s: no way to write a %T", k.name, v)
		}
	}
	offset := uint64(0)
	for _, x := range f.tensors {
		put(text(x.name), u32(len(x.dims)))
		for _, d := range x.dims {
			put(u64(int(d)))
		}
		put(u32(int(x.kind)), u64(int(offset+x.offset)))
		offset = (offset + uint64(len(x.data)) + 31) &^ 31
	}
	for _, x := range f.tensors {
		put(make([]byte, (32-b.Len()%32)%32), x.data)
	}
	return b.Bytes()[:b.Len()-f.cut]
}

// small is the file of a decoder with random-looking weights in F32.
func small(t testing.TB, family string) file {
	c := lm.Config{Decoder: family, Vocab: 6, Hidden: 8, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 6, MLP: 4,
		RopeBase: 1e4,
		NormEps:  1e-5, TiedEmbeddings: true, MaxPosition: 64}
	f := fileOf(c)
	n := 0
	for name, shape := range lm.WeightShapes(c) {
		v := make([]float32, product(shape))
		for i := range v {
			v[i] = float32(n)
			n++
		}
		f.add(theirName(t, name), shape, v)
	}
	return f
}

func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

func (f *file) add(name string, shape []int, v []float32) {
	dims := make([]uint64, len(shape))
	for i, d := range shape {
		dims[len(shape)-1-i] = uint64(d)
	}
	f.tensors = append(f.tensors, written{name: name, dims: dims, data: slices.Clone(bytesOf(v))})
}

// fileOf has the keys of a decoder, which converters of llama.cpp write, and no tensors.
func fileOf(c lm.Config) file {
	p := c.Decoder + "."
	tokens := []string{"a", "b", "ab", "<|end|>", "<think>"}
	types := []int{1, 1, 1, 3, 4}
	for len(tokens) < c.Vocab {
		tokens, types = append(tokens, "[PAD"+string(rune('0'+len(tokens)))+"]"), append(types, 5)
	}
	return file{magic: "GGUF", version: 3, keys: []key{{"general.architecture", c.Decoder}, {p + "block_count", c.Layers},
		{p + "context_length", c.MaxPosition}, {p + "embedding_length", c.Hidden}, {p + "feed_forward_length", c.MLP},
		{p + "attention.head_count", c.Heads}, {p + "attention.head_count_kv", c.KVHeads},
		{p + "attention.key_length", c.HeadDim}, {p + "attention.value_length", c.HeadDim},
		{p + "rope.freq_base", c.RopeBase}, {p + "attention.layer_norm_rms_epsilon", c.NormEps},
		{"tokenizer.ggml.model", "gpt2"}, {"tokenizer.ggml.pre", "gpt-2"}, {"tokenizer.ggml.tokens", tokens},
		{"tokenizer.ggml.token_type", types}, {"tokenizer.ggml.merges", []string{"a b"}},
		{"tokenizer.ggml.bos_token_id", 3}, {"tokenizer.ggml.eos_token_id", 3}, {"tokenizer.chat_template", "{{ x }}"}}}
}

// theirName is the name that llama.cpp's converters give a weight, as the conversion table of gguf-py has it.
func theirName(t testing.TB, name string) string {
	t.Helper()
	for _, p := range [][2]string{{"model.embed_tokens", "token_embd"}, {"lm_head", "output"},
		{"model.norm", "output_norm"},
		{"model.layers.", "blk."}, {"self_attn.q_norm", "attn_q_norm"}, {"self_attn.k_norm", "attn_k_norm"},
		{"self_attn.q_proj", "attn_q"}, {"self_attn.k_proj", "attn_k"}, {"self_attn.v_proj", "attn_v"},
		{"self_attn.o_proj", "attn_output"}, {"mlp.gate_proj", "ffn_gate"}, {"mlp.up_proj", "ffn_up"},
		{"mlp.down_proj", "ffn_down"}, {"input_layernorm", "attn_norm"}, {"post_attention_layernorm", "ffn_norm"}} {
		name = strings.Replace(name, p[0], p[1], 1)
	}
	return name
}

func store(t testing.TB, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.gguf")
	must.OK(t, os.WriteFile(path, data, 0o600))
	return path
}

// imported writes the folder of a file.
func imported(t testing.TB, path string) (dir string, err error) {
	t.Helper()
	dir = t.TempDir()
	f, err := gguf.Open(path)
	if err != nil {
		return dir, err
	}
	defer f.Close()
	return dir, f.WriteFolder(t.Context(), dir, nil)
}

// set replaces the value of a key, or adds it.
func (f *file) set(name string, value any) {
	f.keys = slices.DeleteFunc(slices.Clone(f.keys), func(k key) bool { return k.name == name })
	f.keys = append(f.keys, key{name, value})
}

// Each of these files has one fault, and none is imported.
var faults = map[string]struct {
	change func(*file)
	want   string
}{
	"another format":      {func(f *file) { f.magic = "GGML" }, `does not start with "GGUF"`},
	"version 1":           {func(f *file) { f.version = 1 }, "version 1; 2 and 3 are supported"},
	"version 4":           {func(f *file) { f.version = 4 }, "version 4"},
	"big-endian":          {func(f *file) { f.version = 3 << 24 }, "big-endian"},
	"too many keys":       {func(f *file) { f.counts[1] = 1 << 40 }, "at most 65536"},
	"too many tensors":    {func(f *file) { f.counts[0] = 1 << 63 }, "at most 65536"},
	"a key is missing":    {func(f *file) { f.counts[1] = 1 }, "string of 1688849860263936 bytes"},
	"a tensor is missing": {func(f *file) { f.counts[0] = 1 }, "empty, longer"},
	"a long string": {func(f *file) { f.set("a", raw{8, u64(1 << 40)}) },
		"string of 1099511627776 bytes"},
	"a string beyond the end": {func(f *file) { f.set("a", raw{8, u64(1 << 19)}) },
		"its metadata ends"},
	"an array beyond the end": {func(f *file) { f.set("a", array(4, 1<<20, nil)) },
		"array of 1048576 elements"},
	"an array whose length overflows": {func(f *file) { f.set("a", array(8, 1<<61, nil)) },
		"more than the rest"},
	"a nested array": {func(f *file) { f.set("a", array(9, 1, array(4, 1, u32(1)).text)) },
		"array of the type 9"},
	"an unknown value": {func(f *file) { f.set("a", raw{13, u64(0)}) }, "unknown type 13"},
	"a key twice":      {func(f *file) { f.keys = append(f.keys, f.keys[1]) }, "occurs twice"},
	"a tensor twice": {func(f *file) { f.tensors[1].name = f.tensors[0].name },
		"occurs twice"},
	"a long tensor name": {func(f *file) { f.tensors[1].name = strings.Repeat("x", 65) },
		"longer than 64 bytes"},
	"no dimensions": {func(f *file) { f.tensors[0].dims = nil }, "0 dimensions"},
	"four dimensions": {func(f *file) { f.tensors[0].dims = []uint64{1, 1, 1, 1} },
		"4 dimensions"},
	"a dimension of 0": {func(f *file) { f.tensors[0].dims[0] = 0 }, "dimension of 0"},
	"dimensions that overflow": {func(f *file) { f.tensors[0].dims = []uint64{1 << 33, 1 << 33} },
		"dimension of 8589934592"},
	"an unknown type": {func(f *file) { f.tensors[0].kind = 77 },
		"unknown number 77; supported are F32, F16, Q4_0"},
	"rows without blocks":        {func(f *file) { f.tensors[0].kind = 8 }, "no blocks of 32 as Q8_0 has"},
	"an alignment of 3":          {func(f *file) { f.set("general.alignment", 3) }, "a power of two"},
	"an alignment of 0":          {func(f *file) { f.set("general.alignment", 0) }, "a power of two"},
	"a large alignment":          {func(f *file) { f.set("general.alignment", 8192) }, "up to 4096"},
	"a gap":                      {func(f *file) { f.tensors[1].offset = 32 }, "after the one before it"},
	"an overlap":                 {func(f *file) { f.tensors[1].offset -= 32 }, "after the one before it"},
	"a cut file":                 {func(f *file) { f.cut = 1 }, "the file is not complete"},
	"a file cut in its metadata": {func(f *file) { f.cut = 3000 }, "its metadata ends after"},
	"one of several parts":       {func(f *file) { f.set("split.count", 3) }, "one of 3 parts"},
	"another architecture": {func(f *file) { f.set("general.architecture", "mamba") },
		`"mamba", which is not supported; supported are llama, qwen2`},
	"an unknown key": {func(f *file) { f.set("llama.expert_used_count", 2) },
		`unknown key "llama.expert_used_count"`},
	"a key of another type": {func(f *file) { f.set("llama.block_count", "two") }, "of type string"},
	"a scaling by a key": {func(f *file) { f.set("llama.rope.scaling.type", "yarn") },
		"rope.scaling.type is yarn; only none"},
	"a partial rotation": {func(f *file) { f.set("llama.rope.dimension_count", 4) },
		"rope.dimension_count is 4; only 6"},
	"no width": {func(f *file) { f.set("llama.embedding_length", 0) },
		"hidden_size must be at least 1"},
	"many layers": {func(f *file) { f.set("llama.block_count", 1<<31) },
		"num_hidden_layers must be at least 1"},
	"another shape": {func(f *file) { f.set("llama.feed_forward_length", 5) },
		"has shape [4 8], want [5 8]"},
	"a tensor too many": {func(f *file) { f.add("blk.9.attn_q.weight", []int{1}, []float32{1}) },
		"belongs to no part"},
	"a tensor too few": {func(f *file) { f.tensors = f.tensors[:len(f.tensors)-1] },
		`"output_norm.weight" is missing`},
	"no embedding": {func(f *file) { f.tensors = f.tensors[1:] },
		`"token_embd.weight" is missing`},
	"a coarse type": {func(f *file) {
		f.set("llama.embedding_length", 256)
		x := &f.tensors[0]
		x.dims, x.kind, x.data = []uint64{256, 6}, 11, make([]byte, 6*110)
	}, "type Q3_K, which is too coarse to train from; take the F16, BF16 or Q8_0 file"},
	"an infinite weight": {func(f *file) { copy(f.tensors[0].data, bytesOf([]float32{float32(math.Inf(1))})) },
		"must be finite"},
	"another scaling": {func(f *file) { f.add("rope_freqs.weight", []int{3}, []float32{1, 2, 8}) },
		"no other scaling is supported"},
	"a scaling that is no number": {func(f *file) {
		f.add("rope_freqs.weight", []int{3}, []float32{1, 2, float32(math.NaN())})
	}, "rope scaling needs factor"},
	"another tokenizer": {func(f *file) { f.set("tokenizer.ggml.model", "llama") },
		`"llama", which is not supported; gpt2`},
	"another split": {func(f *file) { f.set("tokenizer.ggml.pre", "tekken") },
		`"tekken", which is not supported; supported are gpt-2, llama-bpe`},
	"fewer types than tokens": {func(f *file) { f.set("tokenizer.ggml.token_type", []int{1}) },
		"6 tokens, 1 types"},
	"an unknown type of token": {func(f *file) { f.set("tokenizer.ggml.token_type", []int{1, 1, 1, 3, 4, 6}) },
		"has the type 6"},
	"a token twice": {func(f *file) { f.set("tokenizer.ggml.tokens", []string{"a", "b", "a", "c", "d", "e"}) },
		"tokens 0 and 2 are both"},
	"a foreign end token": {func(f *file) { f.set("tokenizer.ggml.eos_token_id", 6) },
		"eos_token_id is 6, and there are 6 tokens"},
}

func TestFilesWithAFaultAreRefused(t *testing.T) {
	if _, err := imported(t, store(t, small(t, "llama").write(t))); err != nil {
		t.Fatalf("the file without a fault: %v", err)
	}
	for name, tc := range faults {
		f := small(t, "llama")
		tc.change(&f)
		_, err := imported(t, store(t, f.write(t)))
		must.Match(t, err, tc.want, name)
		if err != nil && !strings.Contains(err.Error(), "x.gguf") {
			t.Errorf("%s: the error names no file: %v", name, err)
		}
	}
	dir := t.TempDir()
	_, err := gguf.Open(dir)
	must.Match(t, err, "must be a plain file")
}

// No file makes the reader panic or allocate more than the file holds.
func FuzzOpen(f *testing.F) {
	for _, tc := range faults {
		x := small(f, "llama")
		tc.change(&x)
		f.Add(x.write(f))
	}
	f.Add(small(f, "qwen3").write(f))
	path := filepath.Join(f.TempDir(), "x.gguf")
	f.Fuzz(func(t *testing.T, data []byte) {
		must.OK(t, os.WriteFile(path, data, 0o600))
		x, err := gguf.Open(path)
		if err != nil {
			return
		}
		defer x.Close()
		x.Tokenizer() // an error is another refusal
		x.Check()
		for name, shape := range gguf.Shapes(x) {
			x.Rows(name, 0, make([]float32, min(shape[len(shape)-1], 1<<16)))
		}
	})
}

// The folder of a file with the weights of a Hugging Face model is that model, for every family: the names of tensors,
// the order of rows of queries and keys, the shape and the scaling are reversed.
func TestWrittenModelsComeBack(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{"qwen2-tiny", "qwen2-tied", "qwen3-tiny", "llama31-tiny", "llama32-tiny",
		"smollm3-tiny"} {
		t.Run(name, func(t *testing.T) {
			from := fixtures.Dir(t, "hf/models/"+name)
			c := must.Get(lm.ReadConfig(from))(t)
			seen[c.Decoder] = true
			if c.RopeScaling.Factor != 0 {
				c.RopeScaling.Original = 8192 // the fixtures have a shorter one
			}
			if c.NoRope != 0 {
				c.NoRope = 4 // no key of a file has it, and all published models have 4
			}
			weights := readSafetensors(t, filepath.Join(from, "model.safetensors"))
			f := fileOf(c)
			for ours, shape := range lm.WeightShapes(c) {
				v := weights[ours]
				heads := map[string]int{"q_proj.weight": c.Heads, "k_proj.weight": c.KVHeads}[lastParts(ours)]
				if heads > 0 && (c.Decoder == "llama" || c.Decoder == "smollm3") {
					v = permuted(v, heads, shape)
				}
				f.add(theirName(t, ours), shape, v)
			}
			if s := c.RopeScaling; s.Factor != 0 {
				f.add("rope_freqs.weight", []int{c.HeadDim / 2}, divisors(c))
			}
			dir, err := imported(t, store(t, f.write(t)))
			must.OK(t, err)
			if got := must.Get(lm.ReadConfig(dir))(t); got != c {
				t.Errorf("got %+v, want %+v", got, c)
			}
			got := readSafetensors(t, filepath.Join(dir, "model.safetensors"))
			for name := range lm.WeightShapes(c) {
				if !slices.Equal(got[name], weights[name]) {
					t.Errorf("tensor %s is another", name)
				}
			}
			must.OK(t, lm.CheckGeneration(dir, c))
		})
	}
	if len(seen) != 4 {
		t.Errorf("got the families %v", seen)
	}
}

func lastParts(name string) string {
	parts := strings.Split(name, ".")
	return strings.Join(parts[max(0, len(parts)-2):], ".")
}

// permuted is what converters do: reshape(heads, 2, d/2, width).swapaxes(1, 2).
func permuted(v []float32, heads int, shape []int) []float32 {
	var out []float32
	width, d := shape[1], shape[0]/heads
	for h := range heads {
		for j := range d / 2 {
			for p := range 2 {
				row := h*d + p*d/2 + j
				out = append(out, v[row*width:(row+1)*width]...)
			}
		}
	}
	return out
}

// divisors are those of the converter of llama.cpp for Llama 3.1, in float64.
func divisors(c lm.Config) (all []float32) {
	for i := range c.HeadDim / 2 {
		wave := 2 * math.Pi * math.Pow(c.RopeBase, 2*float64(i)/float64(c.HeadDim))
		s := c.RopeScaling
		switch old := float64(s.Original); {
		case wave < old/s.High:
			all = append(all, 1)
		case wave > old/s.Low:
			all = append(all, float32(s.Factor))
		default:
			smooth := (old/wave - s.Low) / (s.High - s.Low)
			all = append(all, float32(1/((1-smooth)/s.Factor+smooth)))
		}
	}
	return all
}

// readSafetensors reads all tensors of a file in F32.
func readSafetensors(t *testing.T, path string) map[string][]float32 {
	t.Helper()
	data := must.Get(os.ReadFile(path))(t)
	n := binary.LittleEndian.Uint64(data)
	var header map[string]struct {
		DType   string
		Offsets []int `json:"data_offsets"`
	}
	must.OK(t, json.Unmarshal(data[8:8+n], &header))
	all := map[string][]float32{}
	for name, h := range header {
		if name == "__metadata__" {
			continue
		}
		for at := h.Offsets[0]; at < h.Offsets[1]; at += 4 {
			all[name] = append(all[name], math.Float32frombits(binary.LittleEndian.Uint32(data[8+int(n)+at:])))
		}
	}
	return all
}

// Tokens keep their ids. A control token is special and a user-defined one is not; unused ones are left out.
func TestTokensOfAFileKeepTheirIDs(t *testing.T) {
	f := must.Get(gguf.Open(store(t, small(t, "llama").write(t))))(t)
	defer f.Close()
	text := must.Get(f.Tokenizer())(t)
	// Hugging Face's library numbers the added tokens that are not in the vocabulary after it.
	if want := `"vocab":{"a":0,"ab":2,"b":1}`; !strings.Contains(string(text), want) {
		t.Errorf("got %s, want only normal tokens in the vocabulary: %s", text, want)
	}
	first := must.Get(gguf.Open(fixtures.File(t, "hf/gguf/types.gguf")))(t)
	defer first.Close()
	if text := must.Get(first.Tokenizer())(t); !strings.Contains(string(text), `\u003c|end|\u003e":0`) {
		t.Errorf("the control token before the normal ones is not in the vocabulary: %s", text)
	}
	tok := must.Get(token.Parse(text))(t)
	ids := tok.EncodeAs("abba<|end|><think>", token.Everything)
	if want := []int32{2, 1, 0, 3, 4}; !slices.Equal(ids, want) || tok.Size() != 5 {
		t.Errorf("got %v of %d tokens, want %v of 5", ids, tok.Size(), want)
	}
	if got := tok.Decode(ids, true); got != "abba<think>" {
		t.Errorf("without special tokens: got %q", got)
	}
	for pre, want := range map[string][]string{"smollm": {"Digits", "use_regex\":true"}, "qwen2": {"NFC", `\\p{N}|`},
		"llama-bpe": {`{1,3}`, `"ignore_merges":true`}} {
		x := small(t, "llama")
		x.set("tokenizer.ggml.pre", pre)
		f := must.Get(gguf.Open(store(t, x.write(t))))(t)
		defer f.Close()
		text := must.Get(f.Tokenizer())(t)
		must.Get(token.Parse(text))(t)
		for _, part := range want {
			if !strings.Contains(string(text), part) {
				t.Errorf("pre %s: %s is not in %s", pre, part, text)
			}
		}
	}
}
