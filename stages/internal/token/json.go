package token

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"rcgrpo/internal/nesting"
)

// Limits of a tokenizer.json, several times those of any supported one that is published. A table of ids grows up to
// the highest one.
const (
	maxFile    = 64 << 20
	maxAdded   = 1 << 14 // added tokens, and the distance of their ids from the vocabulary
	maxName    = 64      // bytes of an added token, which each place of a text is compared with
	maxToken   = 1024    // bytes of another token; a reply has thousands
	mostCommas = 4 << 20 // between values: 0 in the place of a merge or a step takes 64 bytes
)

// Load reads a tokenizer.json of at most 64 MiB.
func Load(path string) (*Tokenizer, error) {
	raw, err := readFile(path, maxFile)
	if err != nil {
		return nil, err
	}
	t, err := Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("load %s: %.1000v", path, err)
	}
	return t, nil
}

// file is a tokenizer.json.
type file struct {
	Version       json.RawMessage            `json:"version"`
	Truncation    json.RawMessage            `json:"truncation"`
	Padding       json.RawMessage            `json:"padding"`
	Added         []Added                    `json:"added_tokens"`
	Normalizer    json.RawMessage            `json:"normalizer"`
	PreTokenizer  json.RawMessage            `json:"pre_tokenizer"`
	PostProcessor json.RawMessage            `json:"post_processor"`
	Decoder       json.RawMessage            `json:"decoder"`
	Model         map[string]json.RawMessage `json:"model"`

	mergesAsText bool // merges as "a b" instead of ["a", "b"]
}

// Parse reads the text of a tokenizer.json: byte-level BPE with the pre-tokenizer of Qwen, Llama 3, GPT-2 or SmolLM2,
// merges as "a b" or ["a", "b"]. Unsupported features are errors. Truncation, padding and post-processing are preserved
// but not applied. Encoding drops bytes for which the vocabulary has no token.
func Parse(raw []byte) (*Tokenizer, error) {
	if !utf8.Valid(raw) {
		return nil, fmt.Errorf("tokenizer.json is not valid UTF-8")
	}
	if err := CheckNesting(raw); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	if n := bytes.Count(raw, []byte(",")); n > mostCommas {
		return nil, fmt.Errorf("tokenizer.json has %d commas, and at most %d are read", n, mostCommas)
	}
	t := &Tokenizer{ids: map[string]int32{}, byName: map[string]int32{}}
	if err := json.Unmarshal(raw, &t.file); err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	for _, step := range []func(*file) error{t.parseNormalizer, t.parsePreTokenizer, t.parseModel, t.parseVocabulary,
		t.parseMerges, t.parseAdded} {
		if err := step(&t.file); err != nil {
			return nil, fmt.Errorf("tokenizer.json: %w", err)
		}
	}
	t.file.Added, t.file.Model["vocab"], t.file.Model["merges"] = nil, nil, nil // large, and held by t
	t.index()
	return t, nil
}

func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

func (t *Tokenizer) parseNormalizer(f *file) error {
	if absent(f.Normalizer) {
		return nil
	}
	var n struct{ Type string }
	if err := json.Unmarshal(f.Normalizer, &n); err != nil {
		return fmt.Errorf("normalizer: %w", err)
	}
	if n.Type != "NFC" {
		return fmt.Errorf("normalizer: type %q is not supported, only NFC or none", n.Type)
	}
	t.nfc = true
	return nil
}

// parsePreTokenizer reads which split the file describes: ByteLevel, Split and ByteLevel, or Digits and ByteLevel.
func (t *Tokenizer) parsePreTokenizer(f *file) error {
	type step struct {
		Type             string
		Pattern          struct{ Regex string }
		Behavior         string
		Invert           bool
		IndividualDigits bool  `json:"individual_digits"`
		AddPrefixSpace   bool  `json:"add_prefix_space"`
		UseRegex         *bool `json:"use_regex"` // older files have no such key, which means true
	}
	var p struct {
		step
		PreTokenizers []step
	}
	if err := json.Unmarshal(f.PreTokenizer, &p); err != nil {
		return fmt.Errorf("pre_tokenizer: %w", err)
	}
	steps := p.PreTokenizers
	if p.Type != "Sequence" {
		steps = []step{p.step}
	}
	var types []string
	for _, s := range steps {
		types = append(types, s.Type)
	}
	level := step{}
	if len(steps) > 0 {
		level = steps[len(steps)-1]
	}
	regex := level.UseRegex == nil || *level.UseRegex
	switch way := strings.Join(types, " "); {
	case way == "ByteLevel" && regex:
		t.split = split{spaced: true}
	case way == "Digits ByteLevel" && regex:
		if !steps[0].IndividualDigits {
			return fmt.Errorf("pre_tokenizer: Digits with individual_digits false is not supported; true is")
		}
		t.split = split{spaced: true, digits: true}
	case way == "Split ByteLevel" && !regex:
		known := false
		if t.split, known = patterns[steps[0].Pattern.Regex]; !known {
			return fmt.Errorf("pre_tokenizer: the pattern %q is unknown; known are Qwen's, Llama 3's and GPT-2's",
				steps[0].Pattern.Regex)
		}
		if steps[0].Behavior != "Isolated" || steps[0].Invert {
			return fmt.Errorf("pre_tokenizer: Split needs the behavior Isolated and invert false")
		}
	default:
		return fmt.Errorf("pre_tokenizer: got %.80s; supported are Split and ByteLevel with use_regex false, and "+
			"ByteLevel with use_regex true, alone or after Digits", f.PreTokenizer)
	}
	if level.AddPrefixSpace {
		return fmt.Errorf("pre_tokenizer: add_prefix_space true is not supported, because a text would not be that of " +
			"its tokens; false is")
	}
	return nil
}

// parseModel checks the switches of the model: those that change the result must be off.
func (t *Tokenizer) parseModel(f *file) error {
	for name, raw := range f.Model {
		switch name {
		case "type":
			if string(raw) != `"BPE"` {
				return fmt.Errorf("model: type %s is not supported, only BPE", raw)
			}
		case "ignore_merges":
			if err := json.Unmarshal(raw, &t.ignoreMerges); err != nil {
				return fmt.Errorf("model: ignore_merges: %w", err)
			}
		case "vocab", "merges":
		case "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback":
			if !absent(raw) && string(raw) != `""` && string(raw) != "false" && string(raw) != "0.0" {
				return fmt.Errorf("model: %s is %s; only tokenizers without it are supported", name, raw)
			}
		default:
			return fmt.Errorf("model: the key %q is not known", name)
		}
	}
	return nil
}

func (t *Tokenizer) parseVocabulary(f *file) error {
	var vocab map[string]int32
	if err := json.Unmarshal(f.Model["vocab"], &vocab); err != nil {
		return fmt.Errorf("model: vocab: %w", err)
	}
	size := 0
	for _, id := range vocab {
		size = max(size, int(id)+1)
	}
	if size > 2*len(vocab)+1024 {
		return fmt.Errorf("model: vocab: the highest id is %d, but there are only %d tokens", size-1, len(vocab))
	}
	t.bytes = make([][]byte, size)
	for spelt, id := range vocab {
		token, ok := unspell(spelt)
		if !ok || token == "" || len(token) > maxToken {
			return fmt.Errorf("model: vocab: %.200q is not written in the byte alphabet, or has more than %d bytes", spelt,
				maxToken)
		}
		if id < 0 || t.bytes[id] != nil {
			return fmt.Errorf("model: vocab: id %d of %q is negative or taken twice", id, spelt)
		}
		t.bytes[id] = []byte(token)
		t.ids[token] = id
	}
	for b := range 256 {
		t.single[b] = noToken
		if id, ok := t.ids[string([]byte{byte(b)})]; ok {
			t.single[b] = id
		}
	}
	return nil
}

func (t *Tokenizer) parseMerges(f *file) error {
	var pairs [][2]string
	if err := json.Unmarshal(f.Model["merges"], &pairs); err != nil {
		var lines []string
		if err := json.Unmarshal(f.Model["merges"], &lines); err != nil {
			return fmt.Errorf("model: merges are neither a list of \"a b\" nor of [\"a\", \"b\"]: %w", err)
		}
		f.mergesAsText = true
		pairs = make([][2]string, len(lines))
		for i, line := range lines {
			left, right, ok := strings.Cut(line, " ")
			if !ok || strings.Contains(right, " ") {
				return fmt.Errorf("model: merge %d: %q is not two tokens with one space between", i, line)
			}
			pairs[i] = [2]string{left, right}
		}
	}
	t.merges = make(map[pair]merge, len(pairs))
	t.order = make([]pair, 0, len(pairs))
	for i, spelt := range pairs {
		left, _ := unspell(spelt[0])
		right, _ := unspell(spelt[1])
		a, okA := t.ids[left]
		b, okB := t.ids[right]
		id, ok := t.ids[left+right]
		if !ok || !okA || !okB {
			return fmt.Errorf("model: merge %d: %q and %q and what they make must be in vocab", i, spelt[0], spelt[1])
		}
		p := pair{a, b}
		t.merges[p] = merge{int32(i), id}
		t.order = append(t.order, p)
	}
	return nil
}

func (t *Tokenizer) parseAdded(f *file) error {
	if len(f.Added) > maxAdded {
		return fmt.Errorf("%d added tokens; at most %d are supported", len(f.Added), maxAdded)
	}
	slices.SortStableFunc(f.Added, func(a, b Added) int { return int(a.ID) - int(b.ID) })
	end := len(t.bytes) + maxAdded
	for _, a := range f.Added {
		if a.Content == "" || len(a.Content) > maxName || a.ID < 0 || int(a.ID) >= end {
			return fmt.Errorf("added token %.200q with id %d: it needs a text of 1 to %d bytes, and an id that follows the "+
				"vocabulary", a.Content, a.ID, maxName)
		}
		if a.LStrip || a.RStrip || a.SingleWord {
			return fmt.Errorf("added token %q: lstrip, rstrip and single_word are not supported", a.Content)
		}
		if _, twice := t.byName[a.Content]; twice {
			return fmt.Errorf("added token %q occurs twice", a.Content)
		}
		for int(a.ID) >= len(t.bytes) {
			t.bytes = append(t.bytes, nil)
		}
		if old := t.bytes[a.ID]; old != nil && string(old) != a.Content {
			return fmt.Errorf("added token %q has id %d, which is %q already", a.Content, a.ID, old)
		}
		t.bytes[a.ID] = []byte(a.Content)
		t.byName[a.Content] = a.ID
		t.added = append(t.added, a)
	}
	return nil
}

// JSON returns the tokenizer.json of t. Equal tokenizers give identical files, and a file of the Rust library is
// reproduced byte by byte.
func (t *Tokenizer) JSON() []byte {
	var b bytes.Buffer
	section := func(name string, raw json.RawMessage) {
		b.WriteString(`,"` + name + `":`)
		b.Write(or(raw, "null"))
	}
	b.WriteString(`{"version":`)
	b.Write(or(t.file.Version, `"1.0"`))
	section("truncation", t.file.Truncation)
	section("padding", t.file.Padding)
	var added, vocab, merges []string
	for _, a := range t.added {
		added = append(added, fmt.Sprintf(
			`{"id":%d,"content":%s,"single_word":%t,"lstrip":%t,"rstrip":%t,"normalized":%t,"special":%t}`,
			a.ID, Quote(a.Content), a.SingleWord, a.LStrip, a.RStrip, a.Normalized, a.Special))
	}
	b.WriteString(`,"added_tokens":[` + strings.Join(added, ",") + "]")
	section("normalizer", t.file.Normalizer)
	section("pre_tokenizer", t.file.PreTokenizer)
	section("post_processor", t.file.PostProcessor)
	section("decoder", t.file.Decoder)
	b.WriteString(`,"model":{"type":"BPE"`)
	for _, name := range []string{"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"} {
		section(name, t.file.Model[name])
	}
	fmt.Fprintf(&b, `,"fuse_unk":false,"byte_fallback":false,"ignore_merges":%t,"vocab":{`, t.ignoreMerges)
	for id, token := range t.bytes {
		if base, ok := t.ids[string(token)]; ok && int(base) == id {
			vocab = append(vocab, fmt.Sprintf("%s:%d", Quote(spell(string(token))), id))
		}
	}
	for _, p := range t.order {
		left, right := spell(string(t.bytes[p.left])), spell(string(t.bytes[p.right]))
		if t.file.mergesAsText {
			merges = append(merges, Quote(left+" "+right))
		} else {
			merges = append(merges, "["+Quote(left)+","+Quote(right)+"]")
		}
	}
	b.WriteString(strings.Join(vocab, ",") + `},"merges":[` + strings.Join(merges, ",") + "]}}")

	var out bytes.Buffer
	if err := json.Indent(&out, b.Bytes(), "", "  "); err != nil {
		return b.Bytes() // unreachable: every part above is JSON
	}
	return out.Bytes()
}

func or(raw json.RawMessage, otherwise string) []byte {
	if len(raw) == 0 {
		return []byte(otherwise)
	}
	return raw
}

// Quote returns a JSON string with as few escapes as possible, as Rust's and Python's libraries write it.
func Quote(s string) string {
	b := []byte{'"'}
	for i, n := 0, 0; i < len(s); i += n {
		var r rune
		r, n = utf8.DecodeRuneInString(s[i:])
		short := strings.IndexRune("\"\\\n\r\t\b\f", r)
		switch {
		case short >= 0:
			b = append(b, '\\', `"\nrtbf`[short])
		case r < 0x20:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			b = append(b, s[i:i+n]...)
		}
	}
	return string(append(b, '"'))
}

// CheckNesting refuses JSON of a model folder with many levels. A checkpoint indents each level, so 0.2 MB of numbers
// below 9,000 brackets took 8 GB. Published files have at most 7 levels.
func CheckNesting(text []byte) error {
	if depth, _ := nesting.JSON(text); depth > 16 {
		return errors.New("it is nested deeper than 16")
	}
	return nil
}

// ReadSmall reads a file of a model folder of at most 1 MiB, as Open does.
func ReadSmall(path string) ([]byte, error) { return readFile(path, 1<<20) }

// readFile reads a file of a model folder of at most this many bytes, as Open does.
func readFile(path string, most int64) ([]byte, error) {
	file, err := Open(path, most)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, most))
}

// Open opens a regular file of a model folder, of at most this many bytes. Model folders are untrusted: a FIFO would
// block, and a link to another folder would put a private file into checkpoints, which are shared. The links of the
// Hugging Face cache are followed: snapshots/REVISION/NAME is one to ../../blobs/HASH.
func Open(path string, most int64) (*os.File, error) {
	at, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(at, dir+"/") && filepath.Dir(at) != filepath.Join(dir, "../../blobs") {
		return nil, fmt.Errorf("%s is a link to %s, outside of its folder: use that folder, or copy the file", path, at)
	}
	file, err := os.OpenFile(at, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() > most) {
		err = fmt.Errorf("%s must be a plain file of at most %d MiB, got %v of %d bytes", path, most>>20, info.Mode(),
			info.Size())
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
