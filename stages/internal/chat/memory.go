package serve

import (
	"container/list"
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"sync"

	"rcgrpo/stages/internal/chat"
)

// memorySize bounds the bytes of remembered replies.
const memorySize = 64 << 20

// memory stores the ids of replies, so that a prompt that continues one contains exactly the ids that were sampled.
// The reply that was unused for longest is evicted first.
type memory struct {
	mu    sync.Mutex
	size  int
	order list.List // of *remembered, the last used first
	turns map[[sha256.Size]byte]*list.Element
}

// remembered is a reply of a chat, found by the digest of all before it, or a prompt with its reply as a text.
type remembered struct {
	digest [sha256.Size]byte
	text   string // of prompt and reply; "" in a chat
	ids    []int32
}

func (r *remembered) bytes() int { return len(r.text) + 4*len(r.ids) + 200 }

// turnDigest names a message of the assistant after the ids before it.
func turnDigest(before []int32, t chat.Turn) (sum [sha256.Size]byte) {
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

// keep stores a reply.
func (m *memory) keep(r *remembered) {
	if r.text != "" {
		r.digest = sha256.Sum256([]byte(r.text))
	}
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

func (m *memory) drop(e *list.Element) {
	r := m.order.Remove(e).(*remembered)
	delete(m.turns, r.digest)
	m.size -= r.bytes()
}

// turn returns the ids of a reply in a chat, or nil.
func (m *memory) turn(before []int32, t chat.Turn) []int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.turns[turnDigest(before, t)]
	if e == nil {
		return nil
	}
	m.order.MoveToFront(e)
	return e.Value.(*remembered).ids
}

// continued returns the ids of the longest stored text that a text starts with, and the rest of the text.
func (m *memory) continued(text string) (ids []int32, rest string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var best *list.Element
	longest := 0
	for e := m.order.Front(); e != nil; e = e.Next() {
		if r := e.Value.(*remembered); len(r.text) > longest && strings.HasPrefix(text, r.text) {
			best, longest = e, len(r.text)
		}
	}
	if best == nil {
		return nil, text
	}
	m.order.MoveToFront(best)
	return best.Value.(*remembered).ids, text[longest:]
}
