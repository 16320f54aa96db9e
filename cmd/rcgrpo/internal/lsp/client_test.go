package lsp_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/textproto"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"rcgrpo/cmd/rcgrpo/internal/lsp"
	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
	"rcgrpo/reports"
	"rcgrpo/stages"
)

// client is an editor. Its calls fail the test after a minute.
type client struct {
	t     testing.TB
	in    io.WriteCloser
	ended chan error

	mu        sync.Mutex
	changed   *sync.Cond
	closed    bool
	replies   map[string]reply
	published map[string][]published // by URI
	next      int
}

type reply struct {
	ID     json.RawMessage
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
	}
}

type published struct {
	URI         string
	Version     int
	Diagnostics []diagnostic
}

type diagnostic struct {
	Range    span   `json:"range"`
	Severity int    `json:"severity"`
	Message  string `json:"message"`
}

type place struct {
	Line      int `json:"line"`
	Character int `json:"character"`
}

type span struct {
	Start place `json:"start"`
	End   place `json:"end"`
}

type edit struct {
	Range   span
	NewText string
}

// newClient starts a server with a store below dir.
func newClient(t testing.TB, dir string, more ...*lang.Kind) *client {
	requests, in := io.Pipe()
	out, replies := io.Pipe()
	c := &client{t: t, in: in, ended: make(chan error, 1), replies: map[string]reply{},
		published: map[string][]published{}}
	c.changed = sync.NewCond(&c.mu)
	kinds := slices.Concat(lang.Registry(stages.Kinds()), lang.Registry{reports.Kind()}, more)
	go func() {
		err := lsp.Serve(requests, replies, lsp.Options{Kinds: kinds, Source: lang.Source{Env: []string{"HOME=" + dir}}})
		requests.Close()
		replies.Close()
		c.ended <- err
	}()
	go c.receive(bufio.NewReader(out))
	t.Cleanup(func() { in.Close(); <-c.ended })
	return c
}

func (c *client) receive(r *bufio.Reader) {
	for {
		header, err := textproto.NewReader(r).ReadMIMEHeader()
		size, _ := strconv.Atoi(header.Get("Content-Length"))
		body := make([]byte, size)
		io.ReadFull(r, body)
		var m reply
		if wrong := json.Unmarshal(body, &m); err == nil && wrong != nil {
			panic(fmt.Sprintf("%v in %q", wrong, body))
		}
		c.mu.Lock()
		switch {
		case err != nil:
			c.closed = true
		case m.Method != "":
			var p published
			json.Unmarshal(m.Params, &p)
			c.published[p.URI] = append(c.published[p.URI], p)
		default:
			c.replies[string(m.ID)] = m
		}
		c.changed.Broadcast()
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// result waits for the end of the session.
func (c *client) result() error {
	err := <-c.ended
	c.ended <- nil // for the cleanup
	return err
}

// wait waits until done returns true.
func (c *client) wait(what string, done func() bool) {
	c.t.Helper()
	expired := false
	timer := time.AfterFunc(5*time.Minute, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		expired = true
		c.changed.Broadcast()
	})
	defer timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for !done() {
		if expired || c.closed {
			c.t.Fatalf("no %s (connection closed: %v)", what, c.closed)
		}
		c.changed.Wait()
	}
}

func (c *client) raw(body string) {
	c.t.Helper()
	_, err := fmt.Fprintf(c.in, "Content-Length: %d\r\n\r\n%s", len(body), body)
	must.OK(c.t, err)
}

func (c *client) notify(method string, params any) {
	c.t.Helper()
	c.message(map[string]any{"jsonrpc": "2.0", "method": method, "params": params})
}

// send sends a request and returns its ID.
func (c *client) send(method string, params any) string {
	c.t.Helper()
	c.next++
	c.message(map[string]any{"jsonrpc": "2.0", "id": c.next, "method": method, "params": params})
	return strconv.Itoa(c.next)
}

func (c *client) message(m map[string]any) {
	c.t.Helper()
	b, err := json.Marshal(m)
	must.OK(c.t, err)
	c.raw(string(b))
}

func (c *client) receiveReply(id string) (r reply) {
	c.t.Helper()
	c.wait("reply "+id, func() (ok bool) { r, ok = c.replies[id]; return ok })
	return r
}

// call sends a request and decodes the result, which must not be an error.
func call[R any](c *client, method string, params any) (result R) {
	c.t.Helper()
	r := c.receiveReply(c.send(method, params))
	if r.Error != nil {
		c.t.Fatalf("%s: got error %d, %s", method, r.Error.Code, r.Error.Message)
	}
	if err := json.Unmarshal(r.Result, &result); err != nil {
		c.t.Fatalf("%s: %v in %s", method, err, r.Result)
	}
	return result
}

func (c *client) initialize() {
	c.t.Helper()
	call[map[string]any](c, "initialize", map[string]any{"capabilities": map[string]any{
		"textDocument": map[string]any{
			"completion": map[string]any{"completionItem": map[string]any{"snippetSupport": true}}},
	}})
	c.notify("initialized", struct{}{})
}

// file is an open document of a client.
type file struct {
	*client
	uri     string
	path    string
	text    string
	version int
}

// open writes text to a file and opens it.
func (c *client) open(path, text string) *file {
	c.t.Helper()
	must.OK(c.t, os.WriteFile(path, []byte(text), 0o644))
	f := &file{client: c, uri: "file://" + path, path: path, text: text, version: 1}
	c.notify("textDocument/didOpen", map[string]any{"textDocument": map[string]any{"uri": f.uri, "languageId": "hcl",
		"version": 1, "text": text}})
	return f
}

// set replaces the buffer, not the file.
func (f *file) set(text string) {
	f.t.Helper()
	f.text = text
	f.change(map[string]any{"text": text})
}

func (f *file) change(contents ...any) {
	f.t.Helper()
	f.version++
	f.notify("textDocument/didChange", map[string]any{"textDocument": map[string]any{"uri": f.uri, "version": f.version},
		"contentChanges": contents})
}

// diagnostics waits for those of the current version.
func (f *file) diagnostics() (found []diagnostic) {
	f.t.Helper()
	f.wait("diagnostics of "+f.path, func() bool {
		all := f.published[f.uri]
		if len(all) == 0 || all[len(all)-1].Version != f.version {
			return false
		}
		found = all[len(all)-1].Diagnostics
		return true
	})
	return found
}

// at returns the parameters of a request at the end of the first occurrence of text.
func (f *file) at(text string) map[string]any {
	f.t.Helper()
	before, _, ok := strings.Cut(f.text, text)
	if !ok {
		f.t.Fatalf("%s does not contain %q", f.path, text)
	}
	before += text
	line := strings.Count(before, "\n")
	column := len(utf16Of(before[strings.LastIndexByte(before, '\n')+1:]))
	return map[string]any{"textDocument": map[string]any{"uri": f.uri}, "position": place{line, column}}
}

func (f *file) params() map[string]any {
	return map[string]any{"textDocument": map[string]any{"uri": f.uri}}
}

// apply returns the buffer after edits, which must not overlap and come in the order of the text.
func (f *file) apply(edits []edit) string {
	offset := func(p place) int {
		lines := strings.SplitAfter(f.text, "\n")
		at := len(strings.Join(lines[:p.Line], ""))
		units := 0
		for _, r := range lines[p.Line] {
			if units >= p.Character {
				break
			}
			units += len(utf16Of(string(r)))
			at += len(string(r))
		}
		return at
	}
	text, end := "", 0
	for _, e := range edits {
		text += f.text[end:offset(e.Range.Start)] + e.NewText
		end = offset(e.Range.End)
	}
	return text + f.text[end:]
}

func experimentFile(t testing.TB) string { return filepath.Join(t.TempDir(), "x.hcl") }
