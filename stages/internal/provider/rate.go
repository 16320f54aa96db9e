package provider

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Rate limits the calls of a stage to the values of the site file, else to those that responses of the API report. It
// belongs to its process; stages that run at once have one each.
type Rate struct {
	Requests float64 // requests per minute; 0: as the API reports, else no limit
	Tokens   float64 // input tokens per minute; 0: as the API reports, else no limit
	Logf     func(format string, args ...any)

	mu       sync.Mutex
	requests bucket
	tokens   bucket
	until    time.Time // no request is sent before, because the API requests a pause
}

// bucket is a limit per minute with a burst of one second's worth, so that no minute has more than the limit.
type bucket struct {
	perMinute float64 // 0: no limit
	*rate.Limiter
}

func (b *bucket) set(perMinute float64) {
	if b.perMinute != perMinute {
		*b = bucket{perMinute, rate.NewLimiter(rate.Limit(perMinute/60), max(1, int(perMinute/60)))}
	}
}

// take reserves n and returns how long to wait for them.
func (b *bucket) take(n int) (wait time.Duration) {
	for now := time.Now(); b.perMinute > 0 && n > 0; n -= b.Burst() { // a reservation is at most a burst
		wait = b.ReserveN(now, min(n, b.Burst())).DelayFrom(now)
	}
	return wait
}

// longestPause bounds the pause between two calls that a server can request.
const longestPause = 10 * time.Minute

// Take waits until the rate allows a request with that number of input tokens.
func (r *Rate) Take(ctx context.Context, tokens int) error {
	r.mu.Lock()
	r.requests.set(cmp.Or(r.Requests, r.requests.perMinute))
	r.tokens.set(cmp.Or(r.Tokens, r.tokens.perMinute))
	requested, sent := r.requests.take(1), r.tokens.take(tokens)
	if r.Requests == 0 { // a server requests longestPause at most
		requested = min(requested, longestPause)
	}
	if r.Tokens == 0 {
		sent = min(sent, longestPause)
	}
	wait := max(requested, sent, time.Until(r.until))
	r.mu.Unlock()
	for wait > 0 {
		if err := sleep(ctx, wait); err != nil {
			return err
		}
		r.mu.Lock()
		wait = time.Until(r.until)
		r.mu.Unlock()
	}
	return context.Cause(ctx)
}

// Learn adopts the limits that a response reports, unless the site file sets them, and the pause that it requests.
func (r *Rate) Learn(h http.Header, pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.learn(&r.requests, r.Requests, "requests", h.Get("X-Ratelimit-Limit-Requests"),
		h.Get("Anthropic-Ratelimit-Requests-Limit"))
	r.learn(&r.tokens, r.Tokens, "tokens", h.Get("X-Ratelimit-Limit-Tokens"),
		h.Get("Anthropic-Ratelimit-Input-Tokens-Limit"))
	until := time.Now().Add(pause)
	if pause == 0 || !until.After(r.until) {
		return
	}
	if until.After(r.until.Add(time.Second)) { // several replies in flight request the same pause
		r.Logf("the API requests a pause of %v", pause.Round(100*time.Millisecond))
	}
	r.until = until
}

// learn sets a bucket to the first number among texts. A limit has one call in longestPause at least.
func (r *Rate) learn(b *bucket, site float64, unit string, texts ...string) {
	for _, text := range texts {
		limit, err := strconv.ParseFloat(text, 64)
		if err != nil || !(limit > 0 && limit < 1e12) || site > 0 {
			continue
		}
		if limit = max(limit, 1/longestPause.Minutes()); limit != b.perMinute {
			r.Logf("the API allows %g %s per minute", limit, unit)
			b.set(limit)
		}
		return
	}
}

// retryAfter returns the pause that a response requests, at most longestPause; 0: none.
func retryAfter(h http.Header) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseFloat(text, 64); err == nil && s >= 0 {
		return time.Duration(min(s, longestPause.Seconds()) * float64(time.Second))
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(0, time.Until(at)), longestPause)
	}
	return 0
}

func sleep(ctx context.Context, d time.Duration) error {
	limited, stop := context.WithTimeout(ctx, d)
	defer stop()
	<-limited.Done()
	return context.Cause(ctx)
}
