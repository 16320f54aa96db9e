package serve

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"rcgrpo/stages/internal/token"
	"rcgrpo/stages/rl"
)

// openConversations bounds the conversations that may still be continued; the oldest is written first.
const openConversations = 1024

// Log writes one trajectory per conversation, without a reward, to a file that stages can read. A request whose prompt
// contains the ids of an earlier reply continues its conversation. A nil Log writes nothing.
type Log struct {
	path string

	mu     sync.Mutex
	number int
	open   []*logged // the oldest first
}

// logged is a conversation up to a reply.
type logged struct {
	rl.Trajectory
	continued bool // by another one, which contains it
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
	e := &logged{}
	for _, o := range l.open {
		if n := len(o.IDs); n > len(e.IDs) && n < len(c.prompt) && slices.Equal(o.IDs, c.prompt[:n]) {
			o.continued = true
			e.Trajectory = o.Trajectory
		}
	}
	if l.number++; len(e.IDs) == 0 {
		e.Task, e.Origin, e.Token = fmt.Sprintf("served_%d", l.number), rl.OriginPolicy, c.q.reward
		e.Reward, e.RState, e.RAction = rl.MissingReward(), rl.MissingReward(), rl.MissingReward()
	}
	e.append(c)
	l.open = append(l.open, e)
	if n := len(l.open) - openConversations; n > 0 {
		gone := l.open[:n]
		l.open = slices.Clone(l.open[n:])
		return l.write(gone)
	}
	return nil
}

// append appends the news of a prompt and the reply to it. The first message has the ids of all news.
func (e *logged) append(c *choice) {
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
		_, calls := c.s.Layout.Parse(ids(c.draws))
		for _, call := range calls {
			m.Calls = append(m.Calls, call.Text)
		}
	}
	e.say(m)
	if e.Stop = rl.StopDone; c.finish == "length" {
		e.Stop = rl.StopStep
	}
}

func (e *logged) say(m rl.Message) {
	users := 0
	for _, had := range e.Messages {
		if had.Role == rl.RoleUser {
			users++
		}
	}
	if m.Turn = max(0, users-1); m.Role == rl.RoleUser {
		m.Turn = users
	}
	e.Messages = append(e.Messages, m)
}

// Close writes the conversations that were not written.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	open := l.open
	l.open = nil
	return l.write(open)
}

// write appends rows as a gzip member of their own.
func (l *Log) write(rows []*logged) (err error) {
	f, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z := gzip.NewWriter(f)
	for _, row := range rows {
		if row.continued {
			continue
		}
		text, err := json.Marshal(row.Trajectory)
		if err != nil {
			return err
		}
		if _, err := z.Write(append(text, '\n')); err != nil {
			return err
		}
	}
	return z.Close()
}
