package environment

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"rcgrpo/bfcl"
	"rcgrpo/engine/proc"
	"rcgrpo/internal/dial"
	"rcgrpo/internal/nesting"
	"rcgrpo/stages/rl"
)

// Server describes a server of the Model Context Protocol. Description.Command starts it, unless it has a URL.
type Server struct {
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"` // header -> variable of the engine's environment
	Tools   []json.RawMessage `json:"tools"`             // in OpenAI's form, in the order of the server
	Score   []string          `json:"score,omitempty"`   // words of the command that scores; none: the expected calls
}

// SessionVersion is the latest version of the protocol in which a connection is a session.
const SessionVersion = "2025-11-25"

// Servers plays the episodes of tasks whose tools belong to a server of the Model Context Protocol. Each episode has a
// session of its own, and starts the server, if it has no URL, in a copy of the program's folder. Servers implements
// rl.Environment.
type Servers struct {
	*launcher
	dir    string // tasks artifact
	folder string // of the copies
	steps  int
	places chan struct{} // sessions
}

// newServers returns the environment of a tasks artifact whose program has a server.
func newServers(p *Description, at bfcl.ProgramRef, o Options) *Servers {
	return &Servers{launcher: newLauncher(p, o), dir: at.Dir, folder: o.folder(), steps: o.Steps,
		places: make(chan struct{}, max(1, at.Processes))}
}

// session is a connection to a server.
type session struct {
	*mcp.ClientSession
	dir     string   // copy of the program's folder
	process *process // nil with a URL
	tools   toolList
	names   map[string]string // of the server, by that of the tool
	most    int               // bytes that the process may write for a call
	left    atomic.Int64      // bytes that it may write before the next one
	cancel  func()            // ends the requests to a URL, and what is written to the process
	secrets *proc.Secrets     // masked in errors, which quote headers of the server
}

// An answer has at most the share of a session. The process of a server may write half as much besides for one call:
// notifications, and requests, which wait in memory for their answers as long as the server does not read.
const (
	mostAnswers = 256 << 20 // bytes of the answers of all sessions, one for each
	perMessage  = 16 << 10  // bytes that a message counts for besides its line: a request waits until it is answered
	perLarge    = 4 << 10   // bytes that a member counts for whose value the SDK makes with room for many
	perObject   = 768       // bytes that another object counts for: the SDK decodes a tool of two bytes and encodes it
	perArray    = 256       // bytes that an array counts for: the SDK makes hundreds of one of two bytes
	perValue    = 16        // bytes that another value counts for: the SDK makes forty of one of two bytes
)

// largeNames are the names of the members that count for perLarge, and how escapes of their letters begin, which
// encoders do not write.
var largeNames = [][]byte{[]byte(`"_meta"`), []byte(`"input"`), []byte(`"icons"`),
	[]byte(`\u005`), []byte(`\u006`), []byte(`\u007`)}

// Weigh returns the bytes of a piece of JSON, with perObject for each object, perArray for each array, perValue for
// each comma, and perLarge for each of largeNames.
func Weigh(p []byte) int {
	w := len(p) + perObject*bytes.Count(p, []byte{'{'}) + perArray*bytes.Count(p, []byte{'['}) +
		perValue*bytes.Count(p, []byte{','})
	for _, name := range largeNames {
		w += perLarge * bytes.Count(p, name)
	}
	return w
}

// scale weighs a text that comes in pieces. It is the end of the last piece, because a name can be in two pieces.
type scale []byte

func (s *scale) weigh(p []byte) int {
	all := append(*s, p...)
	w := Weigh(all) - Weigh(*s)
	*s = slices.Clone(all[max(0, len(all)-len(`"_meta`)):])
	return w
}

// share returns the bytes that each session may get at once.
func (s *Servers) share() int { return min(maxLine, mostAnswers/cap(s.places)) }

// tooMuch returns the error of a server that has sent more than most bytes, as Weigh counts them.
func tooMuch(most int) error {
	return fmt.Errorf("the server has sent more than %d bytes, or too many objects or messages, for one call (the limit "+
		"is lower with more than %d processes)", most, mostAnswers/maxLine)
}

// metered is the output of the process of a session.
type metered struct {
	io.Reader
	scale
	session *session
}

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	if m.session.left.Add(-int64(m.weigh(p[:n]))) < 0 {
		return 0, tooMuch(m.session.most)
	}
	return n, err
}

// counted is the transport and the connection to the process of a session. It counts messages as the SDK finds them:
// with several ends of lines, without any, and in batches.
type counted struct {
	mcp.IOTransport
	mcp.Connection
	session *session
}

func (c counted) Connect(ctx context.Context) (mcp.Connection, error) {
	var err error
	c.Connection, err = c.IOTransport.Connect(ctx)
	return c, err
}

func (c counted) Read(ctx context.Context) (jsonrpc.Message, error) {
	m, err := c.Connection.Read(ctx)
	if err == nil && c.session.left.Add(-perMessage) < 0 {
		err = tooMuch(c.session.most)
	}
	return m, err
}

func (s *session) close() {
	s.disconnect()
	os.RemoveAll(s.dir)
}

// disconnect ends the connection and the process. The SDK's Close waits until its answers to requests of the server are
// written. A server need not take them, so cancel ends them first.
func (s *session) disconnect() {
	s.cancel()
	if s.ClientSession != nil {
		s.Close()
	}
	if s.process != nil {
		s.process.Stop()
	}
}

// connect opens a session for a task. Its tools must be the stored ones, if any are stored.
func (s *Servers) connect(ctx context.Context, task string) (*session, error) {
	dir, err := s.described.Copy(s.dir, s.folder)
	if err != nil {
		return nil, err
	}
	o := &session{dir: dir, secrets: s.secrets, most: s.share() + s.share()/2}
	o.left.Store(int64(o.most))
	requests, end := context.WithCancel(context.WithoutCancel(ctx))
	o.cancel = func() {
		end()
		if o.process != nil {
			o.process.stdin.SetWriteDeadline(time.Now())
		}
	}
	transport, err := s.transport(requests, o)
	if err != nil {
		o.close()
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, s.described.Start)
	defer cancel()
	defer context.AfterFunc(limited, o.cancel)() // Connect writes, and waits for its answers, without a limit
	options := &mcp.ClientSessionOptions{ProtocolVersion: SessionVersion}
	o.ClientSession, err = newClient().Connect(limited, transport, options)
	if err == nil {
		err = o.readTools(limited)
	}
	if err != nil {
		err = o.fault(ctx, "initialize", task, err, s.described.Start)
	} else if s.described.Server.Tools != nil {
		err = s.compareTools(o)
	}
	if err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

// newClient returns the client of a session.
func newClient() *mcp.Client {
	c := mcp.NewClient(&mcp.Implementation{Name: "rcgrpo", Version: "1"},
		&mcp.ClientOptions{MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true}}) // else a tool acts several times
	c.AddReceivingMiddleware(answerFew)
	c.AddSendingMiddleware(boundTools)
	return c
}

// answerFew keeps the notifications of a server from the SDK, which panics about some without params, in a goroutine of
// its own, and all requests except pings and lists of roots: the SDK sends completion/complete back to the server, and
// the session cannot end before the server answers.
func answerFew(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		switch {
		case strings.HasPrefix(method, "notifications/"):
			return nil, nil
		case method == "ping" || method == "roots/list":
			return next(ctx, method, r)
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "this client does not answer " + method}
	}
}

// transport starts the server of a session, or returns the transport to its URL, whose requests end with a context.
func (s *Servers) transport(requests context.Context, o *session) (mcp.Transport, error) {
	server := s.described.Server
	if server.URL != "" {
		headers := http.Header{}
		for name, variable := range server.Headers {
			value, ok := os.LookupEnv(variable)
			if !ok {
				return nil, fmt.Errorf("the environment has no variable %s, which the header %s of the server needs", variable,
					name)
			}
			headers.Set(name, value)
		}
		own := &ownTransport{requests: requests, headers: headers, secrets: s.secrets, most: s.share()}
		return &mcp.StreamableClientTransport{Endpoint: server.URL, MaxRetries: -1, DisableStandaloneSSE: true,
			HTTPClient: &http.Client{Transport: own, CheckRedirect: sameOrigin}}, nil
	}
	out, in := io.Pipe()
	var err error
	o.process, err = s.start(s.described.Command, o.dir, nil, func(p *process, stdout io.Reader) {
		_, err := io.Copy(in, &metered{Reader: stdout, session: o})
		in.CloseWithError(err)
		if o.left.Load() < 0 { // its further output has no reader
			p.fail(tooMuch(o.most).Error())
		}
	})
	if err != nil {
		return nil, err
	}
	return counted{IOTransport: mcp.IOTransport{Reader: out, Writer: o.process.stdin, MaxLineLength: maxLine}, session: o},
		nil
}

// sameOrigin refuses a redirect to another server, which would receive the headers with their secrets.
func sameOrigin(r *http.Request, via []*http.Request) error {
	first := via[0].URL
	if r.URL.Scheme != first.Scheme || r.URL.Host != first.Host {
		return fmt.Errorf("the server redirects to %s://%s; if that is right, set url to its address", r.URL.Scheme,
			r.URL.Host)
	}
	if len(via) > 5 {
		return errors.New("the server redirects more than 5 times")
	}
	return nil
}

// ownTransport sends headers with each request, and bounds and masks each answer, which the SDK does not.
type ownTransport struct {
	requests context.Context // ends all requests but the one that ends the session
	headers  http.Header
	secrets  *proc.Secrets
	most     int          // bytes of an answer
	open     atomic.Int64 // requests
}

// mostOpen limits the requests of a session at once: a server can make the client answer any number of its own.
const mostOpen = 16

// connections are those of all sessions, which close few of them.
var connections = dial.Transport(256)

func (a *ownTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	if r.Method != http.MethodDelete {
		context.AfterFunc(a.requests, cancel)
	}
	end := sync.OnceFunc(func() {
		cancel()
		a.open.Add(-1)
	})
	if a.open.Add(1) > mostOpen {
		end()
		return nil, fmt.Errorf("the server keeps more than %d requests open", mostOpen)
	}
	r = r.Clone(ctx)
	maps.Copy(r.Header, a.headers)
	r.Header.Set("Accept-Encoding", "identity") // compressed, the results that trajectories keep have few bytes
	answer, err := connections.RoundTrip(r)
	if err == nil && answer.StatusCode == http.StatusSwitchingProtocols { // then the body does not end with the context
		answer.Body.Close()
		err = errors.New("the server switches to another protocol")
	}
	if err != nil {
		end()
		return nil, a.secrets.Error(err)
	}
	body := &bounded{answer.Body, nil, a.most, a.most, end}
	answer.Body = struct {
		io.Reader
		io.Closer
	}{a.secrets.Reader(body), body}
	return answer, nil
}

// bounded is the body of an answer. More than most bytes, as Weigh counts them, are an error.
type bounded struct {
	io.ReadCloser
	scale
	most, left int
	end        func() // of the request
}

func (b *bounded) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= b.weigh(p[:n]); b.left < 0 {
		return 0, tooMuch(b.most)
	}
	return n, err
}

// readTools lists the tools of the server.
func (o *session) readTools(ctx context.Context) error {
	if v := o.InitializeResult().ProtocolVersion; v > SessionVersion { // lists of which may be cached, without end
		return fmt.Errorf("the server answers with version %s of the protocol, later than %s", v, SessionVersion)
	}
	o.names = map[string]string{}
	for tool, err := range o.Tools(ctx, nil) {
		if err != nil {
			return err
		}
		name := identifier(tool.Name)
		if other, ok := o.names[name]; ok {
			return fmt.Errorf("the tools %q and %q have the same name %s in calls", other, tool.Name, name)
		}
		text, err := json.Marshal(map[string]any{"type": "function", "function": map[string]any{"name": name,
			"description": tool.Description, "parameters": tool.InputSchema}})
		if err != nil {
			return err
		}
		o.names[name] = tool.Name
		if err := o.tools.add(rl.Tool{Name: name, JSON: text}); err != nil { // a list may have pages without end
			return err
		}
	}
	if len(o.tools.all) == 0 {
		return errors.New("the server has no tool")
	}
	return nil
}

// boundTools returns an error for a list of tools that exceeds their limits before the SDK reads the schemas, because
// it makes a path of the names around each property: those of a list of 12 MB took 11 GB.
func boundTools(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
		result, err := next(ctx, method, r)
		list, ok := result.(*mcp.ListToolsResult)
		if !ok || err != nil {
			return result, err
		}
		var bounds toolList
		for _, tool := range list.Tools {
			if tool == nil { // the SDK drops it
				continue
			}
			text, err := json.Marshal(tool.InputSchema)
			if err == nil {
				err = bounds.add(rl.Tool{Name: tool.Name, JSON: text})
			}
			if err != nil {
				return nil, err
			}
		}
		return result, nil
	}
}

// toolList collects the tools of a program or server. Each is read in every episode and its name is in every log.
type toolList struct {
	all   []rl.Tool
	bytes int
	paths int // see maxToolPaths
}

const (
	maxTools     = 10_000
	maxToolBytes = 1 << 20 // of all tools; the prompts of most models have room for less
	maxToolName  = 256
	maxToolDepth = 100 // as in chat templates; the description of a server is indented by levels

	// maxToolPaths limits the bytes of a tool times its objects, of all tools: the SDK, which offers them to an agent,
	// makes a path of names for each property.
	maxToolPaths = 2 << 30
)

func (l *toolList) add(t rl.Tool) error {
	if len(t.Name) > maxToolName {
		return fmt.Errorf("the name of a tool has %d bytes, want at most %d: %.40s…", len(t.Name), maxToolName, t.Name)
	}
	if depth, _ := nesting.JSON(t.JSON); depth > maxToolDepth {
		return fmt.Errorf("the tool %s is nested deeper than %d", t.Name, maxToolDepth)
	}
	if l.bytes += len(t.JSON); l.bytes > maxToolBytes || len(l.all) == maxTools {
		return fmt.Errorf("there are more than %d tools, or %d bytes of them", maxTools, maxToolBytes)
	}
	if l.paths += len(t.JSON) * bytes.Count(t.JSON, []byte{'{'}); l.paths > maxToolPaths {
		return fmt.Errorf("the tool %s, or those before it, have too many properties with too long names", t.Name)
	}
	l.all = append(l.all, t)
	return nil
}

// identifier returns the name of a tool in calls, which are written as Python.
func identifier(name string) string {
	name = strings.Map(func(c rune) rune {
		if c == '_' || c < 0x80 && (c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'z') {
			return c
		}
		return '_'
	}, name)
	if name == "" || name[0] <= '9' {
		name = "_" + name
	}
	return name
}

// fault returns the failure of a request: that of ctx, or a Fault with the end of the process, if it has ended.
func (o *session) fault(ctx context.Context, method, task string, err error, limit time.Duration) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	text := fmt.Sprintf("%.1000s", o.secrets.Mask(err.Error())) // the server may have written most of it
	// A write to the process ends with the second error.
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) {
		text = fmt.Sprintf("no answer to %s within %v", method, limit)
	} else if o.process != nil {
		select {
		case <-o.process.ended:
			if fault := o.process.firstFault(); fault != exitedWell { // as after the end of its input
				text = fault
			}
		case <-time.After(3 * time.Second): // it works on; a process that has ended is found sooner
		}
	}
	if o.process != nil {
		text += o.process.stderr()
	}
	return &Fault{method, task, text}
}

// check opens a session, and stores its tools if none are stored.
func (s *Servers) check(ctx context.Context) error {
	o, err := s.connect(ctx, "")
	if err != nil {
		return err
	}
	defer o.close()
	if s.described.Server.Tools == nil {
		for _, tool := range o.tools.all {
			s.described.Server.Tools = append(s.described.Server.Tools, json.RawMessage(tool.JSON))
		}
	}
	return nil
}

// compareTools returns an error unless the tools of a session are the stored ones.
func (s *Servers) compareTools(o *session) error {
	stored := map[string]string{}
	for _, raw := range s.described.Server.Tools {
		tool, err := readTool(raw)
		if err != nil {
			return err
		}
		stored[tool.Name] = compact(raw)
	}
	changed := func(name, how string) error {
		return fmt.Errorf("the tools of the server are not those that the tasks were made with: %s %s; "+
			"run the stage tasks again with --replace", name, how)
	}
	for _, tool := range o.tools.all {
		switch text, ok := stored[tool.Name]; {
		case !ok:
			return changed(tool.Name, "is new")
		case text != compact(tool.JSON):
			return changed(tool.Name, "has another document")
		}
		delete(stored, tool.Name)
	}
	for name := range stored {
		return changed(name, "is gone")
	}
	return nil
}

func compact(raw []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return string(raw)
	}
	return b.String()
}

// Start implements rl.Environment. It waits while all places are taken.
func (s *Servers) Start(ctx context.Context, t *bfcl.Task, o rl.StartOptions) (rl.Env, error) {
	row, err := readRow(t)
	if err = cmp.Or(err, s.Broken()); err != nil {
		return nil, err
	}
	select {
	case s.places <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	e := &sessionEpisode{row: row, made: []madeCall{}, leave: func() { <-s.places },
		turns: turns{launcher: s.launcher, task: t, alone: o.Alone, system: row.System, user: row.User[0], most: s.steps}}
	if e.session, err = s.connect(ctx, t.ID); err != nil {
		e.leave()
		return nil, e.report(err, "")
	}
	for _, tool := range e.session.tools.all {
		if row.Tools == nil || slices.ContainsFunc(row.Tools, func(n string) bool { return identifier(n) == tool.Name }) {
			e.tools = append(e.tools, tool)
		}
	}
	return e, nil
}

// Close implements rl.Environment. The sessions have ended with their episodes.
func (s *Servers) Close() error { return nil }

// sessionEpisode is an episode with a session.
type sessionEpisode struct {
	turns
	session *session
	row     *row
	leave   func()
	made    []madeCall
	text    string // of the last reply
}

// madeCall is a call of the episode, as the command that scores reads it.
type madeCall struct {
	Turn int `json:"turn"`
	call
	Result string `json:"result"`
	Error  bool   `json:"error"`
}

// Step implements rl.Env. Calls run one after another. A call that cannot be read, of a tool that is not on offer, or
// that the server refuses, has an error as its result.
func (e *sessionEpisode) Step(ctx context.Context, r rl.Reply) ([]string, int, error) {
	results, calls, at := readCalls(r)
	errs := len(results) - len(calls)
	e.text = r.Text
	left := maxResults
	for i, c := range calls {
		text, failed, err := e.call(ctx, c)
		if err != nil {
			return nil, 0, e.report(err, "")
		}
		results[at[i]], failed = fit(&left, text, failed)
		if failed {
			errs++
		}
		e.made = append(e.made, madeCall{e.turn, c, results[at[i]], failed})
	}
	if len(r.Calls) > 0 {
		e.steps++
		e.limit()
		return results, errs, nil
	}
	if e.turn+1 < len(e.row.User) {
		e.next(e.row.User[e.turn+1])
	} else {
		e.stop = rl.StopDone
	}
	return nil, 0, nil
}

// undelivered marks the SDK's errors of HTTP requests without an answer of status 200: the server is gone, is busy, or
// has forgotten the session. These are faults, not results of a tool.
var undelivered = &jsonrpc.Error{Code: -32005}

// call executes a call on the server.
func (e *sessionEpisode) call(ctx context.Context, c call) (text string, failed bool, err error) {
	if !slices.ContainsFunc(e.tools, func(t rl.Tool) bool { return t.Name == c.Name }) {
		return refusal("there is no tool " + c.Name), true, nil
	}
	limit := e.described.Step
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	defer context.AfterFunc(limited, e.session.cancel)() // the SDK writes a request without a limit
	e.session.left.Store(int64(e.session.most))
	defer func() { // the SDK panics about null in the place of some objects
		if cause := recover(); cause != nil {
			err = e.session.fault(ctx, "tools/call", e.task.ID, fmt.Errorf("%v", cause), limit)
		}
	}()
	result, err := e.session.CallTool(limited, &mcp.CallToolParams{Name: e.session.names[c.Name], Arguments: c.Arguments})
	if refused, ok := errors.AsType[*jsonrpc.Error](err); ok && limited.Err() == nil && !errors.Is(err, undelivered) {
		return refusal(refused.Message), true, nil
	}
	if err != nil {
		return "", false, e.session.fault(ctx, "tools/call", e.task.ID, err, limit)
	}
	e.writing.Lock()
	defer e.writing.Unlock()
	var texts []string
	for _, content := range result.Content {
		if t, ok := content.(*mcp.TextContent); ok {
			texts = append(texts, t.Text)
			continue
		}
		raw, err := content.MarshalJSON()
		if err != nil {
			return "", false, err
		}
		texts = append(texts, string(raw))
	}
	return strings.Join(texts, "\n"), result.IsError, nil
}

// Verdict returns the reward of the episode.
func (e *sessionEpisode) Verdict(ctx context.Context) (bfcl.Verdict, error) {
	reward := 0.0
	if e.row.reached(e.made) {
		reward = 1
	}
	if words := e.described.Server.Score; len(words) > 0 {
		var err error
		if reward, err = e.score(ctx, words); err != nil {
			return bfcl.Verdict{}, e.report(err, "")
		}
	}
	return e.rewarded(reward), nil
}

// score ends the session and starts the command that scores in its folder. The command reads the task, the calls and
// the last text from its standard input, and writes the reward.
func (e *sessionEpisode) score(ctx context.Context, words []string) (float64, error) {
	e.session.disconnect()
	var out []byte
	c, err := e.start(words, e.session.dir, nil, func(_ *process, stdout io.Reader) {
		out, _ = io.ReadAll(io.LimitReader(stdout, maxLine))
	})
	if err != nil {
		return 0, err
	}
	line, err := json.Marshal(map[string]any{"task": e.task.Spec, "calls": e.made, "text": e.text})
	if err != nil {
		return 0, err
	}
	limit := e.described.Score
	c.write(append(line, '\n'), limit)
	c.stdin.Close()
	if err := c.awaitEnd(ctx, limit, "no reward"); err != nil {
		return 0, err
	}
	reward, err := Reward(out)
	if err != nil {
		return 0, &Fault{"score", e.task.ID, fmt.Sprintf("%s; %v%s", c.firstFault(), err, c.stderr())}
	}
	return reward, nil
}

// Close implements rl.Env.
func (e *sessionEpisode) Close() {
	e.session.close()
	e.leave()
}

// row is a task of a server, as readFile writes it.
type row struct {
	taskSpec
	System string   `json:"system"`
	User   []string `json:"user"`  // requests, one for each turn
	Tools  []string `json:"tools"` // on offer; nil: all
}

func readRow(t *bfcl.Task) (*row, error) {
	r := new(row)
	if err := decode(t.Spec, r); err != nil {
		return nil, fmt.Errorf("task %s: %w", t.ID, err)
	}
	return r, nil
}

// Tasks reads a file of tasks. Their expected calls and their lists of tools name tools of the server.
func (s *Servers) Tasks(path string) ([]*bfcl.Task, error) {
	known := map[string]bool{}
	for _, raw := range s.described.Server.Tools {
		tool, err := readTool(raw)
		if err != nil {
			return nil, err
		}
		known[tool.Name] = true
	}
	tasks, err := readFile(path)
	for _, t := range tasks {
		r, err := readRow(t)
		if err != nil {
			return nil, err
		}
		names := r.Tools
		for _, c := range slices.Concat(r.Expert...) {
			names = append(names, c.Name)
		}
		for _, name := range names {
			if !known[identifier(name)] {
				return nil, fmt.Errorf("%s: task %s names the tool %s, which the server does not have", path, t.ID, name)
			}
		}
	}
	return tasks, err
}

// readFile reads tasks: a JSON object per line, with id, user and expected.
func readFile(path string) ([]*bfcl.Task, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var tasks []*bfcl.Task
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		spec, err := normalize(lines.Bytes())
		var task *bfcl.Task
		if err == nil {
			task, err = newTask(spec)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", path, n, err)
		}
		tasks = append(tasks, task)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(tasks) == 0 {
		return nil, fmt.Errorf("%s has no task", path)
	}
	return tasks, nil
}

// normalize returns a line with a list of requests in place of a text, and with its member expected renamed to expert.
func normalize(line []byte) (json.RawMessage, error) {
	var members map[string]json.RawMessage
	if err := decode(line, &members); err != nil {
		return nil, err
	}
	var one string
	requests := []string{}
	if json.Unmarshal(members["user"], &one) == nil && one != "" {
		requests = []string{one}
	} else if json.Unmarshal(members["user"], &requests) != nil || len(requests) == 0 {
		return nil, errors.New(`"user" is its request, a text, or a list of texts, one for each turn`)
	}
	var err error
	if members["user"], err = json.Marshal(requests); err != nil {
		return nil, err
	}
	raw, ok := members["expected"]
	if !ok {
		return json.Marshal(members)
	}
	var turns [][]call
	if flat := []call{}; json.Unmarshal(raw, &flat) == nil && len(requests) == 1 {
		turns = [][]call{flat}
	} else if json.Unmarshal(raw, &turns) != nil || len(turns) != len(requests) {
		return nil, fmt.Errorf("\"expected\" has a list of calls for each of the %d requests", len(requests))
	}
	for _, calls := range turns {
		for i := range calls {
			if calls[i].Arguments == nil {
				return nil, errors.New("an expected call has no arguments")
			}
			calls[i].Name = identifier(calls[i].Name)
		}
	}
	delete(members, "expected")
	if members["expert"], err = json.Marshal(turns); err != nil {
		return nil, err
	}
	return json.Marshal(members)
}

// reached reports whether each expected call was made in its turn, with equal arguments and without an error. Further
// calls do not matter.
func (r *row) reached(made []madeCall) bool {
	left := slices.Clone(made)
	for turn, calls := range r.Expert {
		for _, want := range calls {
			at := slices.IndexFunc(left, func(m madeCall) bool {
				return m.Turn == turn && !m.Error && m.Name == want.Name && sameJSON(m.Arguments, want.Arguments)
			})
			if at < 0 {
				return false
			}
			left = slices.Delete(left, at, at+1)
		}
	}
	return true
}

// sameJSON compares values: the order of members does not matter, and 1 equals 1.0.
func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	return reflect.DeepEqual(x, y)
}
