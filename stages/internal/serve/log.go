package serve

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

const (
	openConversations = 1024        // that may still be continued; of more, the oldest is written
	openBytes         = 256 << 20   // of all open conversations; of more, the oldest are written
	mostWaiting       = 2           // times as many, where the writer is slow; of more, the new ones are not written
	bytesOfMessage    = 200         // besides its texts
	openFor           = time.Minute // without another reply; then a conversation is written
)

// Log writes one trajectory per conversation, without a reward, to a file in the form of the port trajectories. It is
// not the way to a training: episodes of an agent are (package agent). A request whose prompt contains the ids of an
// earlier reply continues its conversation. A nil Log writes nothing. The file can be read at
// any time, after a kill too, because each row is a gzip member that is written at once. A kill loses the conversations
// of the last minute.
type Log struct {
	path    string
	writing sync.Mutex // held by the writer; no reply waits for it

	mu     sync.Mutex
	number int
	open   []*logged // the oldest first
	bytes  int       // of the open conversations and the conversation that is being written
	err    error     // of the writer
}

// logged is a conversation up to a reply.
type logged struct {
	rl.Trajectory
	at        time.Time
	continued bool // by another one, which contains it
	bytes     int  // in memory: texts, and 9 for the id, mask and logprob of a token
}

// NewLog returns a log with the file path, to which rows are appended.
func NewLog(path string) (*Log, error) {
	l := &Log{path: path}
	return l, l.write(nil) // an unusable path is an error before the first request
}

// add appends the reply of a choice.
func (l *Log) add(c *choice) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full(mostWaiting) {
		return fmt.Errorf("a conversation is not written, because %d before it are not written yet", len(l.open))
	}
	e := &logged{at: time.Now()}
	var before []*logged
	for _, o := range l.open {
		if n := len(o.IDs); n > len(e.IDs) && n < len(c.prompt) && slices.Equal(o.IDs, c.prompt[:n]) {
			before = append(before, o)
			e.Trajectory = o.Trajectory
		}
	}
	if l.number++; len(e.IDs) == 0 {
		e.Task, e.Origin, e.Token = fmt.Sprintf("served_%d", l.number), rl.OriginPolicy, c.q.reward
		e.Reward, e.RState, e.RAction = rl.MissingReward(), rl.MissingReward(), rl.MissingReward()
	}
	if text, most := e.append(c), int(rl.ReplyBytesOf(c.s.Batcher.MaxLen())); text > most {
		return fmt.Errorf("a conversation of %d bytes is not written, because its context has at most %d", text, most)
	}
	for _, o := range before {
		o.continued = true
	}
	l.open = append(l.open, e)
	l.bytes += e.bytes
	time.AfterFunc(openFor, l.expire)
	if l.full(1) {
		go l.expire()
	}
	err := l.err
	l.err = nil
	return err
}

// full reports whether there are more open conversations than times the limits.
func (l *Log) full(times int) bool {
	return len(l.open) > times*openConversations || l.bytes > times*openBytes
}

// append appends the news of a prompt and the reply to it, and returns the bytes of all texts. The first message has
// the ids of all news.
func (e *logged) append(c *choice) (text int) {
	e.Messages, e.Mask, e.Logp = slices.Clone(e.Messages), slices.Clone(e.Mask), slices.Clone(e.Logp)
	news := []rl.Message{{Role: rl.RoleUser, Text: c.s.Tokenizer.Decode(c.prompt[len(e.IDs):], false)}}
	if v := c.q.conversation; v != nil {
		e.Tools, news = nil, nil
		for _, tool := range v.Tools {
			e.Tools = append(e.Tools, tool.Name)
		}
		for _, t := range v.Turns[min(len(e.Messages), len(v.Turns)):] {
			m := rl.Message{Role: t.Role, Text: t.Text}
			for _, call := range t.Calls { // of a reply that another server gave
				m.Calls = append(m.Calls, call.Python())
			}
			news = append(news, m)
		}
	}
	for i, m := range news {
		if i == 0 {
			m.From, m.To = len(e.IDs), len(c.prompt)
		}
		e.say(m)
	}
	e.IDs = append(slices.Clone(c.prompt), ids(c.draws)...)
	for len(e.Mask) < len(c.prompt) {
		e.Mask, e.Logp = append(e.Mask, false), append(e.Logp, 0)
	}
	for _, d := range c.draws {
		e.Mask, e.Logp = append(e.Mask, true), append(e.Logp, d.Logp)
	}
	m := rl.Message{Role: rl.RoleAssistant, Text: token.Text(c.text), From: len(c.prompt), To: len(e.IDs)}
	if c.tools {
		for _, call := range c.s.Codec.Parse(ids(c.draws)).Calls {
			m.Calls = append(m.Calls, call.Text)
		}
	}
	e.say(m)
	if e.Stop = rl.StopDone; c.finish == "length" {
		e.Stop = rl.StopStep
	}
	for _, tool := range e.Tools {
		text += len(tool)
	}
	for _, m := range e.Messages {
		text += len(m.Text) + len(strings.Join(m.Calls, ""))
	}
	e.bytes = 9*len(e.IDs) + bytesOfMessage*len(e.Messages) + text
	return text
}

// say appends a message. The first one of a conversation is of the user.
func (e *logged) say(m rl.Message) {
	if n := len(e.Messages); n > 0 {
		if m.Turn = e.Messages[n-1].Turn; m.Role == rl.RoleUser {
			m.Turn++
		}
	}
	e.Messages = append(e.Messages, m)
}

// expire writes the conversations that are open for openFor.
func (l *Log) expire() { l.writeOlder(openFor) }

// Close writes the conversations that were not written.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.writeOlder(0)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// writeOlder writes and forgets the conversations that are open for age or longer, and the oldest of too many or too
// large ones. The error of one leaves the others alone.
func (l *Log) writeOlder(age time.Duration) {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.open) > 0 && (l.full(1) || time.Since(l.open[0].at) >= age) {
		c := l.open[0]
		l.open[0], l.open = nil, l.open[1:]
		if !c.continued {
			l.mu.Unlock()
			err := l.write(&c.Trajectory)
			l.mu.Lock()
			if err != nil {
				l.err = errors.Join(l.err, fmt.Errorf("conversation %s is not in the log: %w", c.Task, err))
			}
		}
		l.bytes -= c.bytes
	}
}

// write appends a row as a gzip member of its own; nil is an empty member. After an error the file is as before.
func (l *Log) write(row *rl.Trajectory) (err error) {
	var member bytes.Buffer
	z := gzip.NewWriter(&member)
	if row != nil {
		err = json.NewEncoder(z).Encode(row)
	}
	if err = errors.Join(err, z.Close()); err != nil {
		return err
	}
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	before, err := f.Stat()
	if err != nil {
		return err
	}
	if _, err = f.Write(member.Bytes()); err != nil { // a torn member would hide those behind it
		err = errors.Join(err, f.Truncate(before.Size()))
	}
	return err
}
