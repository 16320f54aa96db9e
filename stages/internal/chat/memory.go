package chat

import (
	"container/list"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"sync"

	"rcgrpo/stages/internal/token"
)

// memorySize bounds the bytes of remembered replies.
const memorySize = 64 << 20

// Memory stores the ids of replies, so that a prompt that continues one contains exactly the ids that were sampled.
// The reply that was unused for longest is evicted first. The zero value is ready for use.
type Memory struct {
	mu    sync.Mutex
	size  int
	order list.List // elements are *remembered, the last used first
	turns map[[sha256.Size]byte]*list.Element
}

// remembered is either a reply of a chat, whose digest covers the ids before it and its content, or a prompt that was a
// text, together with its reply.
type remembered struct {
	digest [sha256.Size]byte
	text   string // the prompt and its reply; "" for a reply of a chat
	ids    []int32
}

func (r *remembered) bytes() int { return len(r.text) + 4*len(r.ids) + 200 }

// turnDigest names a message of the assistant after the ids before it.
func turnDigest(before []int32, t Turn) (sum [sha256.Size]byte) {
	h := sha256.New()
	field := func(b []byte) {
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(b))))
		h.Write(b)
	}
	raw := make([]byte, 0, 4*len(before))
	for _, id := range before {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(id))
	}
	field(raw)
	field([]byte(t.Text))
	for _, call := range t.Calls {
		field([]byte(call.Name))
		field(call.Arguments)
	}
	h.Sum(sum[:0])
	return sum
}

// KeepTurn stores the ids of a reply in a chat after those before it.
func (m *Memory) KeepTurn(before []int32, t Turn, ids []int32) {
	m.keep(&remembered{ids: ids, digest: turnDigest(before, t)})
}

// KeepText stores the ids of a prompt that was a text and those of its reply, unless the reply's text is not exactly
// that of its ids.
func (m *Memory) KeepText(tokens *token.Tokenizer, prompt, reply string, before, ids []int32) {
	if reply != "" && reply == tokens.Decode(ids, false) {
		text := prompt + reply
		m.keep(&remembered{text: text, ids: slices.Concat(before, ids), digest: sha256.Sum256([]byte(text))})
	}
}

func (m *Memory) keep(r *remembered) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.turns == nil {
		m.turns = map[[sha256.Size]byte]*list.Element{}
	}
	if old := m.turns[r.digest]; old != nil {
		m.drop(old)
	}
	m.turns[r.digest] = m.order.PushFront(r)
	m.size += r.bytes()
	for m.size > memorySize {
		m.drop(m.order.Back())
	}
}

func (m *Memory) drop(e *list.Element) {
	r := m.order.Remove(e).(*remembered)
	delete(m.turns, r.digest)
	m.size -= r.bytes()
}

// Turn returns the ids of a reply in a chat, or nil.
func (m *Memory) Turn(before []int32, t Turn) []int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.turns[turnDigest(before, t)]
	if e == nil {
		return nil
	}
	m.order.MoveToFront(e)
	return e.Value.(*remembered).ids
}

// Encode returns the ids of a text. Those of the longest stored text that it starts with are the stored ones.
func (m *Memory) Encode(tokens *token.Tokenizer, text string) []int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	var best *list.Element
	longest := &remembered{}
	for e := m.order.Front(); e != nil; e = e.Next() {
		if r := e.Value.(*remembered); len(r.text) > len(longest.text) && strings.HasPrefix(text, r.text) {
			best, longest = e, r
		}
	}
	if best != nil {
		m.order.MoveToFront(best)
	}
	rest := tokens.EncodeAs(text[len(longest.text):], token.Everything)
	return append(slices.Clone(longest.ids), rest...)
}
