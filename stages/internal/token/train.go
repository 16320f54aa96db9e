package token

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// patterns are the known patterns of pre-tokenizers.
var patterns = map[string]split{
	patternQwen: {most: 1}, patternLlama: {most: 3}, patternGPT2: {spaced: true},
}

const (
	patternQwen = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}` +
		`| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternLlama = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}` +
		`| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternGPT2 = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
)

// Train learns a byte-level BPE vocabulary with Qwen's pre-tokenizer. vocabulary is the number of ids, including
// the 256 bytes and the special tokens; texts with too few distinct pairs give fewer (see Size). The special
// tokens come last; they are removed from the texts first. Equal texts in any order give equal tokenizers: of
// pairs with equal counts, the pair with the smaller ids is merged first.
func Train(texts []string, vocabulary int, special []string) (*Tokenizer, error) {
	if vocabulary < 256+len(special) {
		return nil, fmt.Errorf("train tokenizer: vocabulary %d is too small, the bytes and %d special tokens take %d",
			vocabulary, len(special), 256+len(special))
	}
	t := newTrained()
	if _, err := t.Add(special...); err != nil {
		return nil, fmt.Errorf("train tokenizer: %w", err)
	}
	if len(t.added) != len(special) {
		return nil, fmt.Errorf("train tokenizer: the special tokens %q name one twice", special)
	}
	words := t.count(texts)
	t.bytes, t.added, t.byName = t.bytes[:256], nil, map[string]int32{}
	t.learn(words, vocabulary-256-len(special))
	_, err := t.Add(special...)
	return t, err
}

// newTrained returns a tokenizer of single bytes, numbered in the order of their spelling.
func newTrained() *Tokenizer {
	t := &Tokenizer{
		ids: map[string]int32{}, byName: map[string]int32{}, merges: map[pair]merge{}, split: patterns[patternQwen],
		nfc: true,
	}
	alphabet := make([]byte, 256)
	for b := range alphabet {
		alphabet[b] = byte(b)
	}
	slices.SortFunc(alphabet, func(a, b byte) int { return int(byteRune[a] - byteRune[b]) })
	for id, b := range alphabet {
		t.bytes = append(t.bytes, []byte{b})
		t.ids[string([]byte{b})] = int32(id)
		t.single[b] = int32(id)
	}
	level := json.RawMessage(`{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":false}`)
	pattern, _ := json.Marshal(patternQwen) // a constant string always encodes
	t.file = file{
		Version:    json.RawMessage(`"1.0"`),
		Normalizer: json.RawMessage(`{"type":"NFC"}`),
		PreTokenizer: json.RawMessage(`{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":` +
			string(pattern) + `},"behavior":"Isolated","invert":false},` + string(level) + `]}`),
		PostProcessor: level,
		Decoder:       level,
	}
	return t
}

// piece is a distinct pre-token of the corpus as ids, with its count.
type piece struct {
	ids []int32
	n   int
}

// count returns the distinct pre-tokens of the texts in the order of their bytes.
func (t *Tokenizer) count(texts []string) []piece {
	counts := map[string]int{}
	for _, text := range texts {
		cut(text, &t.raw, Everything, func(Added) {}, func(part string) {
			t.words(t.normal(part), func(word string) { counts[word]++ })
		})
	}
	var pieces []piece
	for _, w := range slices.Sorted(maps.Keys(counts)) {
		p := piece{n: counts[w]}
		for i := range len(w) {
			p.ids = append(p.ids, t.single[w[i]])
		}
		pieces = append(pieces, p)
	}
	return pieces
}

// learner counts the pairs of a corpus.
type learner struct {
	words  []piece
	counts map[pair]int
	where  map[pair]map[int]bool // words that contain or contained a pair
}

// learn adds up to n merges, each of the most frequent pair.
func (t *Tokenizer) learn(words []piece, n int) {
	l := &learner{words: words, counts: map[pair]int{}, where: map[pair]map[int]bool{}}
	for i, w := range words {
		for j := range len(w.ids) - 1 {
			l.count(pair{w.ids[j], w.ids[j+1]}, i, w.n)
		}
	}
	for n > 0 {
		top, ok := l.mostFrequent()
		if !ok {
			break
		}
		token := string(t.bytes[top.left]) + string(t.bytes[top.right])
		id, known := t.ids[token]
		if !known { // two pairs may spell one token
			id = int32(len(t.bytes))
			t.bytes = append(t.bytes, []byte(token))
			t.ids[token] = id
			n--
		}
		if _, again := t.merges[top]; !again {
			t.merges[top] = merge{int32(len(t.order)), id}
			t.order = append(t.order, top)
		}
		l.merge(top, id)
	}
}

// mostFrequent returns the pair with the highest count, of equals the one with smaller ids; ok is false without a pair.
func (l *learner) mostFrequent() (top pair, ok bool) {
	most := 0
	for p, n := range l.counts {
		if n > most || n == most && n > 0 && (p.left < top.left || p.left == top.left && p.right < top.right) {
			top, most = p, n
		}
	}
	return top, most > 0
}

// count adds n occurrences of a pair in a word.
func (l *learner) count(p pair, word, n int) {
	l.counts[p] += n
	if n > 0 {
		if l.where[p] == nil {
			l.where[p] = map[int]bool{}
		}
		l.where[p][word] = true
	}
}

// merge replaces a pair by id in all words.
func (l *learner) merge(p pair, id int32) {
	exchange := func(old, new pair, word int) {
		n := l.words[word].n
		l.count(old, word, -n)
		l.count(new, word, n)
	}
	for i := range l.where[p] {
		w := &l.words[i]
		for j := 0; j+1 < len(w.ids); j++ {
			if w.ids[j] != p.left || w.ids[j+1] != p.right {
				continue
			}
			if j > 0 {
				exchange(pair{w.ids[j-1], p.left}, pair{w.ids[j-1], id}, i)
			}
			if j+2 < len(w.ids) {
				exchange(pair{p.right, w.ids[j+2]}, pair{id, w.ids[j+2]}, i)
			}
			w.ids[j] = id
			w.ids = slices.Delete(w.ids, j+1, j+2)
		}
	}
	delete(l.counts, p)
	delete(l.where, p)
}
