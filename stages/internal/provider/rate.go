package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Rate limits the calls of all processes of a user with one API key by a token bucket in a locked file. Its times
// count from the boot of the machine, because that clock cannot be set.
type Rate struct {
	Path     string
	Requests float64 // per minute; 0: as the API reports, else no limit
	Tokens   float64 // of input, per minute; 0 as for Requests
}

// bucket is the content of the file.
type bucket struct {
	At       float64 `json:"at"`       // seconds since boot of the numbers below
	Requests float64 `json:"requests"` // available; may be negative
	Tokens   float64 `json:"tokens"`

	RequestLimit float64 `json:"request_limit,omitempty"` // per minute, as the API reports
	TokenLimit   float64 `json:"token_limit,omitempty"`
	Until        float64 `json:"until,omitempty"` // no call before, as the API requests
}

// Take waits until the rate allows a request with so many tokens of input.
func (r *Rate) Take(ctx context.Context, tokens float64) error {
	for {
		var wait float64
		err := r.update(func(b *bucket, now float64) {
			requests, limit := r.limits(b)
			wait = max(b.Until-now, shortage(b.Requests, 1, requests), shortage(b.Tokens, tokens, limit))
			if wait <= 0 {
				b.Requests--
				b.Tokens -= tokens
			}
		})
		if err != nil || wait <= 0 {
			return err
		}
		if err := sleep(ctx, time.Duration(wait*float64(time.Second))+time.Millisecond); err != nil {
			return err
		}
	}
}

// Learn stores the limits that a response reports, and until when calls must wait.
func (r *Rate) Learn(h http.Header, pause time.Duration) error {
	number := func(names ...string) (n float64) {
		for _, name := range names {
			if x, err := strconv.ParseFloat(h.Get(name), 64); err == nil && x > 0 {
				n = x
			}
		}
		return n
	}
	requests := number("X-Ratelimit-Limit-Requests", "Anthropic-Ratelimit-Requests-Limit")
	tokens := number("X-Ratelimit-Limit-Tokens", "Anthropic-Ratelimit-Input-Tokens-Limit")
	if requests == 0 && tokens == 0 && pause == 0 {
		return nil
	}
	return r.update(func(b *bucket, now float64) {
		if requests > 0 {
			b.RequestLimit = requests
		}
		if tokens > 0 {
			b.TokenLimit = tokens
		}
		if pause > 0 {
			b.Until = max(b.Until, now+pause.Seconds())
		}
	})
}

// limits returns the limits per minute; 0: none.
func (r *Rate) limits(b *bucket) (requests, tokens float64) {
	return cmp.Or(r.Requests, b.RequestLimit), cmp.Or(r.Tokens, b.TokenLimit)
}

// capacity is the size of a bucket: a second's worth, so that no minute has more than its limit.
func capacity(limit float64) float64 { return max(1, limit/60) }

// shortage returns the seconds until n are available, or the bucket is full if it is smaller.
func shortage(available, n, limit float64) float64 {
	if limit == 0 {
		return 0
	}
	return (min(n, capacity(limit)) - available) / (limit / 60)
}

// update changes the bucket under the lock of its file, after refilling it.
func (r *Rate) update(change func(b *bucket, now float64)) error {
	file, err := os.OpenFile(r.Path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer file.Close() // releases the lock
	if err := flock(file); err != nil {
		return err
	}
	var clock unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &clock); err != nil {
		return err
	}
	now := float64(clock.Nano()) / 1e9
	b := bucket{At: now, Requests: math.Inf(1), Tokens: math.Inf(1)}
	text, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	if read := (bucket{}); json.Unmarshal(text, &read) == nil && read.At <= now {
		b = read // a bucket from before a boot, or a damaged one, starts full
	}
	requests, tokens := r.limits(&b)
	b.Requests = refilled(b.Requests, requests, now-b.At)
	b.Tokens = refilled(b.Tokens, tokens, now-b.At)
	b.At = now
	change(&b, now)
	if requests, tokens = r.limits(&b); requests == 0 { // unlimited: it starts empty when a limit becomes known
		b.Requests = 0
	}
	if tokens == 0 {
		b.Tokens = 0
	}
	if text, err = json.Marshal(b); err != nil {
		return err
	}
	_, err = file.WriteAt(fmt.Appendf(nil, "%-*s\n", bucketSize-1, text), 0)
	return err
}

// bucketSize is the size of the file in bytes. One write replaces the whole bucket, so that a killed process leaves
// none that is empty, which the next one would take for a full bucket.
const bucketSize = 512

func refilled(available, limit, seconds float64) float64 {
	return min(capacity(limit), available+seconds*limit/60)
}

func flock(file *os.File) error {
	for {
		if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != unix.EINTR {
			return err
		}
	}
}

// retryAfter returns the pause that a response requests; 0: none.
func retryAfter(h http.Header) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseFloat(text, 64); err == nil && s >= 0 && s < 1e6 {
		return time.Duration(s * float64(time.Second))
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
