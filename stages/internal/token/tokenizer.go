package token

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Tokenizer maps text to ids and back. Goroutines may share it; Add must not run concurrently with other methods.
type Tokenizer struct {
	ids    map[string]int32 // bytes of a base token -> id
	bytes  [][]byte         // id -> its text; nil for an id without a token
	added  []Added
	byName map[string]int32 // content of an added token -> id
	merges map[pair]merge
	order  []pair     // merges by rank, as written to tokenizer.json
	single [256]int32 // byte -> id, or noToken

	split        split
	nfc          bool // normalise to NFC before anything else
	ignoreMerges bool // a pre-token that is itself in the vocabulary is taken whole

	raw, late finder // added tokens in the text before and after normalization

	file file // its raw sections are preserved unchanged
}

// Added is a token outside the vocabulary, which is recognized before all other rules.
type Added struct {
	ID         int32  `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"` // see Decode
}

// noToken is the id of a byte without a token, which encoding drops.
const noToken = -1

type pair struct{ left, right int32 }

type merge struct{ rank, id int32 }

// Size returns one more than the highest id: the number of rows of an embedding.
func (t *Tokenizer) Size() int { return len(t.bytes) }

// ID returns the id of an added token by its content, or of a base token by its bytes.
func (t *Tokenizer) ID(token string) (int32, bool) {
	if id, ok := t.byName[token]; ok {
		return id, true
	}
	id, ok := t.ids[token]
	return id, ok
}

// Bytes returns the text of an id, or nil for an id without a token. The caller must not change it.
func (t *Tokenizer) Bytes(id int32) []byte {
	if id < 0 || int(id) >= len(t.bytes) {
		return nil
	}
	return t.bytes[id]
}

// IsAdded reports whether an id is that of an added token.
func (t *Tokenizer) IsAdded(id int32) bool {
	added, ok := t.byName[string(t.Bytes(id))]
	return ok && added == id
}

// Add appends special tokens and returns their ids in order. An existing added token keeps its id.
func (t *Tokenizer) Add(contents ...string) ([]int32, error) {
	ids := make([]int32, len(contents))
	for i, content := range contents {
		if content == "" {
			return nil, fmt.Errorf("add token %d: an added token needs at least one character", i)
		}
		id, ok := t.byName[content]
		if !ok {
			id = int32(len(t.bytes))
			t.bytes = append(t.bytes, []byte(content))
			t.added = append(t.added, Added{ID: id, Content: content, Special: true})
			t.byName[content] = id
		}
		ids[i] = id
	}
	t.index()
	return ids, nil
}

// Clone returns a copy for Add that leaves t unchanged.
func (t *Tokenizer) Clone() *Tokenizer {
	c := *t
	c.bytes, c.added, c.byName = slices.Clone(t.bytes), slices.Clone(t.added), maps.Clone(t.byName)
	return &c
}

func (t *Tokenizer) index() {
	t.raw, t.late = finder{all: map[string]Added{}}, finder{all: map[string]Added{}}
	for _, a := range t.added {
		f := &t.raw
		if a.Normalized {
			f = &t.late
		}
		f.all[a.Content] = a
		lengths := append(f.lengths[a.Content[0]], len(a.Content))
		slices.Sort(lengths)
		f.lengths[a.Content[0]] = slices.Compact(lengths)
	}
}

// finder finds the leftmost and then longest of a set of added tokens. Thousands may begin alike, with few lengths.
type finder struct {
	all     map[string]Added // by content
	lengths [256][]int       // of the tokens with a first byte, ascending
}

func (f *finder) find(text string) (from int, found Added) {
	for i := range len(text) {
		for _, n := range slices.Backward(f.lengths[text[i]]) {
			if a, ok := f.all[text[i:min(i+n, len(text))]]; ok {
				return i, a
			}
		}
	}
	return -1, Added{}
}

// The byte alphabet of GPT-2: tokenizer.json writes each byte as one printable character.
var (
	byteRune [256]rune
	runeByte = func() map[rune]byte {
		back := make(map[rune]byte, 256)
		next := rune(256)
		for b := range 256 {
			r := rune(b)
			if !(b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE) {
				r = next
				next++
			}
			byteRune[b] = r
			back[r] = byte(b)
		}
		return back
	}()
)

func spell(token string) string {
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		b.WriteRune(byteRune[token[i]])
	}
	return b.String()
}

func unspell(spelt string) (string, bool) {
	b := make([]byte, 0, len(spelt))
	for _, r := range spelt {
		c, ok := runeByte[r]
		if !ok {
			return "", false
		}
		b = append(b, c)
	}
	return string(b), true
}
