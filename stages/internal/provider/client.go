package provider

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"

	"rcgrpo/engine/proc"
	"rcgrpo/internal/dial"
	"rcgrpo/stages/rl"
)

// Client sends the requests of a stage.
type Client struct {
	settings *Settings
	limits   *Calls
	price    Price
	key      string
	secrets  *proc.Secrets // the key, masked in all that the server sends
	http     *http.Client  // nil for a replay, which reads the record only
	rate     *Rate
	calls    *callRecord
	logf     func(format string, args ...any)
	backoff  time.Duration // half of the longest wait before the second attempt
}

// newClient returns a client that sends requests and appends each attempt to the record in a file.
func newClient(s *Settings, l *Calls, p Price, rate *Rate, path string, logf func(string, ...any)) (
	*Client, error) {
	key, err := s.key()
	if err != nil {
		return nil, err
	}
	r, err := openCallRecord(path, p)
	if err != nil {
		return nil, fmt.Errorf("read the calls of the last attempt: %w", err)
	}
	return &Client{settings: s, limits: l, price: p, key: key, secrets: proc.NewSecrets(key), rate: rate, calls: r,
		logf: logf, backoff: FirstBackoff,
		http: &http.Client{
			Transport:     dial.Transport(l.Parallel),
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the key stays here
		}}, nil
}

const (
	maxRequest  = 8 << 20  // bytes of a body; no model has such a context
	maxResponse = 2 << 20  // bytes of a body, after its decompression; no model writes as much
	maxRejected = 64 << 10 // bytes of a body without a reply that the record keeps
)

// longestBackoff is the longest wait between two attempts that the API does not request.
const longestBackoff = time.Minute

// FirstBackoff is half of the longest wait before the second attempt; each further attempt doubles it. Exported for
// tests, which shorten it.
var FirstBackoff = time.Second

// errExhausted is the error of a call whose attempts have all failed, or that the API rejects. It fails the stage after
// its other episodes.
var errExhausted = errors.New("no reply")

// send returns the final row of a call: from the record, or from the API. errExhausted ends one episode; any other
// error stops the stage.
func (c *Client) send(ctx context.Context, at Call, body []byte) (Row, error) {
	sum := sha256.Sum256(body)
	request := hex.EncodeToString(sum[:])
	if row, ok := c.calls.find(at, request); ok {
		return row, nil
	}
	if c.http == nil {
		return Row{}, fmt.Errorf("%s: %w to this request in the record", at, errExhausted)
	}
	for try := 1; ; try++ {
		row := Row{Call: at, Attempt: c.calls.begin(at), Request: request}
		pause, err := c.attempt(ctx, &row, body)
		switch {
		case err != nil || row.final():
			return row, err
		case row.Outcome == OutcomeRejected:
			c.logf("%s: the API rejects the request: status %d, %.300s", at, row.Status, row.Response)
			return row, fmt.Errorf("%s: %w: status %d, %.300s", at, errExhausted, row.Status, row.Response)
		case try >= c.limits.Attempts:
			c.logf("%s: no reply after %d attempts: %s", at, try, row.Error)
			return row, fmt.Errorf("%s: %w after %d attempts: %s", at, errExhausted, try, row.Error)
		}
		if pause == 0 { // full jitter
			pause = time.Duration(rand.Int64N(int64(min(longestBackoff, c.backoff<<min(try, 10))) + 1))
		}
		if err := sleep(ctx, pause); err != nil {
			return row, err
		}
	}
}

// attempt sends a request once and completes its row. pause is what the API requests before the next attempt.
func (c *Client) attempt(ctx context.Context, row *Row, body []byte) (pause time.Duration, err error) {
	if err := c.rate.Take(ctx, len(body)/bytesPerToken); err != nil {
		return 0, err
	}
	if err := c.calls.check(c.limits.Budget, 0); err != nil {
		return 0, err
	}
	row.Dollars = c.price.unknown(len(body))
	row.Outcome, row.Date = OutcomeSent, time.Now().UTC().Format(time.RFC3339)
	if err := c.calls.write(*row); err != nil {
		return 0, err
	}
	limit, stop := context.WithTimeout(ctx, c.limits.Timeout)
	defer stop()
	response, text, err := c.post(limit, body)
	if ctx.Err() != nil { // the row stays as sent: the API may charge for it
		return 0, context.Cause(ctx)
	}
	c.complete(row, response, text, err)
	row.Error = fmt.Sprintf("%.1000s", row.Error) // the server may have written most of it
	if response != nil {
		if pause = retryAfter(response.Header); row.final() {
			pause = 0
		}
		c.rate.Learn(response.Header, pause)
	}
	if err := c.calls.write(*row); err != nil {
		return 0, err
	}
	if s := row.Status; s == http.StatusUnauthorized || s == http.StatusForbidden || s == http.StatusNotFound ||
		s >= 300 && s < 400 {
		return 0, fmt.Errorf("%s: status %d: %.300s; check the key in %s, model and base_url",
			c.settings.address(), s, row.Response, c.settings.Key)
	}
	return pause, nil
}

// post sends the body. The response is nil if the server sends none. The key is masked in all returned text of
// the server.
func (c *Client) post(ctx context.Context, body []byte) (*http.Response, []byte, error) {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, c.settings.address(), bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("User-Agent", "rcgrpo")
	if c.key != "" {
		for name, value := range apis[c.settings.API].headers {
			q.Header.Set(name, strings.ReplaceAll(value, "KEY", c.key))
		}
	}
	r, err := c.http.Do(q)
	if err != nil {
		return nil, nil, c.secrets.Error(err)
	}
	defer r.Body.Close()
	if r.StatusCode == http.StatusSwitchingProtocols { // then the body ends neither with ctx nor with its time
		return r, nil, errors.New("the server switches to another protocol")
	}
	most := min(maxResponse, mostBytes/c.limits.Parallel) // all responses may arrive at once
	text, err := io.ReadAll(io.LimitReader(r.Body, int64(most)+1))
	if len(text) > most {
		text, err = nil, fmt.Errorf("the response has more than %d bytes", most)
	}
	// A record, which is JSON, has valid UTF-8 only. Its replies must make the same requests as those of the server.
	return r, []byte(c.secrets.Mask(strings.ToValidUTF8(string(text), "\ufffd"))), c.secrets.Error(err)
}

// complete fills in the row of an attempt.
func (c *Client) complete(row *Row, r *http.Response, text []byte, err error) {
	row.Response = string(text[:min(len(text), maxRejected)])
	if r != nil {
		row.Status = r.StatusCode
	}
	a, unreadable := readReply(apis[c.settings.API], text)
	expected := row.Dollars
	row.Dollars = c.price.cost(a.usage) // also of another answer than a reply
	switch {
	case err != nil: // a request that did not leave is not charged
		row.Dollars = max(row.Dollars, expected)
		row.Outcome, row.Error = OutcomeRetry, err.Error()
		if op, ok := errors.AsType[*net.OpError](err); r == nil && ok && op.Op == "dial" {
			row.Dollars = 0
		}
	case row.Status == http.StatusOK:
		if unreadable != nil {
			row.Dollars = max(row.Dollars, expected)
			row.Outcome, row.Error = OutcomeRetry, "the reply cannot be read: "+unreadable.Error()
			return
		}
		row.Outcome, row.Usage, row.Model, row.Stop = OutcomeReply, a.usage, a.model, a.stop
		row.Response = string(text)
	default:
		row.Outcome = failure(row.Status, []byte(row.Response)) // as a replay of the record does
		row.Error = fmt.Sprintf("status %d: %.300s", row.Status, text)
	}
}

// keyless returns an error if replies or results of an episode contain the key. No part of a response does, but a
// server can have parts put together: those of a text, strings of Python, or folders of a path.
func (c *Client) keyless(t *rl.Trajectory) error {
	for _, m := range t.Messages {
		if m.Role == rl.RoleUser {
			continue
		}
		text, err := encode(m)
		if err != nil || c.secrets.Mask(string(text)) != string(text) {
			return cmp.Or(err, fmt.Errorf("%s, member %d: its replies or results contain the key in %s, and are not stored: "+
				"use another server, or a key that is no ordinary text", t.Task, t.Member, c.settings.Key))
		}
	}
	return nil
}

// failure returns the outcome of a response without a reply.
func failure(status int, body []byte) string {
	switch {
	case status == http.StatusRequestTimeout, status == http.StatusConflict, status == http.StatusTooManyRequests,
		status >= 500:
		return OutcomeRetry
	case status == http.StatusRequestEntityTooLarge:
		return OutcomeTooLong
	}
	said := strings.ToLower(errorText(body))
	for _, text := range []string{"context_length_exceeded", "prompt is too long", "maximum context length",
		"exceeds the maximum number of tokens", "1261"} {
		if strings.Contains(said, text) {
			return OutcomeTooLong
		}
	}
	for _, text := range []string{"content_filter", "content_policy", "invalid_prompt", "1301"} {
		if strings.Contains(said, text) {
			return OutcomeRefused
		}
	}
	return OutcomeRejected
}

// errorText returns code, type and message of an error of any API.
func errorText(body []byte) string {
	var e struct {
		Error struct {
			Code          any
			Type, Message string
		}
	}
	if json.Unmarshal(body, &e) != nil {
		return ""
	}
	return fmt.Sprint(e.Error.Code, " ", e.Error.Type, " ", e.Error.Message)
}
