package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
)

// Remote is the remote store of a site file beside the local store. Any number of goroutines may use it. A nil Remote
// finds nothing.
type Remote struct {
	lang.Remote
	store     *artifact.Store
	bucket    bucket
	transfers chan struct{} // one per transfer
	answers   chan struct{} // one per other call: a slow server may hold each transfer for hours

	large     sync.Mutex // of one large manifest, while it is read
	mu        sync.Mutex
	report    func(address, text string)
	reported  map[string]bool               // texts
	manifests map[string]*artifact.Manifest // by key; nil: the remote store lacks it
	damaged   map[string]bool               // results with a missing or damaged object, by key
	rests     time.Time                     // until then no call is made
	denied    bool                          // reported
	queue     sync.WaitGroup
	unsent    atomic.Int64
}

// Open returns the remote of a site, or nil if it has none. It reads nothing.
func Open(site *lang.Site, store *artifact.Store) *Remote {
	if site == nil || site.Remote == nil {
		return nil
	}
	if site.Remote.S3 != nil {
		return open(*site.Remote, store, newS3(*site.Remote.S3, site.Remote.Parallel))
	}
	return open(*site.Remote, store, folder{site.Remote.Folder})
}

func open(settings lang.Remote, store *artifact.Store, b bucket) *Remote {
	return &Remote{Remote: settings, store: store, bucket: b, transfers: make(chan struct{}, settings.Parallel),
		answers: make(chan struct{}, settings.Parallel),
		report:  func(string, string) {}, reported: map[string]bool{},
		manifests: map[string]*artifact.Manifest{}, damaged: map[string]bool{}}
}

// Report sets the function that receives each problem once. address is that of a stage, or "".
func (r *Remote) Report(f func(address, text string)) {
	if r != nil {
		r.mu.Lock()
		r.report = f
		r.mu.Unlock()
	}
}

// problem reports a text once.
func (r *Remote) problem(address, format string, args ...any) {
	text := fmt.Sprintf("remote %s: ", r.Name) + fmt.Sprintf(format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.reported[address+text] {
		r.reported[address+text] = true
		r.report(address, text)
	}
}

// Close waits for the results that Send pushes and returns the number of those that it could not push.
func (r *Remote) Close() (unsent int) {
	if r == nil {
		return 0
	}
	r.queue.Wait()
	return int(r.unsent.Load())
}

const (
	restAfterError = time.Minute
	smallLimit     = 10 * time.Second // of a call that moves few bytes
)

// reported is an error that call has reported, or that follows from one.
type reported struct{ error }

func (e reported) Unwrap() error { return e.error }

func isReported(err error) bool {
	_, ok := errors.AsType[reported](err)
	return ok
}

var (
	errResting = reported{errors.New("not asked, since it did not answer before")}
	errSilent  = errors.New("no answer")
)

// call calls the bucket when one of the slots is free. f ends with an error if it neither returns nor calls progress
// within the limit. Errors of the network and of access are reported once. After one of the network no call is made for
// a minute.
func (r *Remote) call(ctx context.Context, slots chan struct{}, limit time.Duration,
	f func(ctx context.Context, progress func()) error) error {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	r.mu.Lock()
	resting := time.Now().Before(r.rests)
	r.mu.Unlock()
	if resting {
		return errResting
	}
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(limit, func() { cancel(fmt.Errorf("%w for %v", errSilent, limit)) })
	defer silent.Stop()
	err := f(limited, func() { silent.Reset(limit) })
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil && limited.Err() != nil {
		err = context.Cause(limited)
	}
	return r.judge(err)
}

// judge returns the error of a call. It reports those of the network and of access.
func (r *Remote) judge(err error) error {
	for _, answer := range []error{nil, errMissing, errExists, errDamaged} {
		if errors.Is(err, answer) {
			return err
		}
	}
	r.mu.Lock()
	known := time.Now().Before(r.rests) // another call has reported the network
	if errors.Is(err, errDenied) {
		known, r.denied = r.denied, true
	} else {
		r.rests = time.Now().Add(restAfterError)
	}
	r.mu.Unlock()
	if !known {
		r.problem("", "%v", err)
	}
	return reported{err}
}

// small makes a call that moves few bytes and therefore ends within ten seconds.
func (r *Remote) small(ctx context.Context, f func(context.Context) error) error {
	return r.call(ctx, r.answers, min(smallLimit, r.Deadline), func(ctx context.Context, _ func()) error { return f(ctx) })
}

// mostParallel bounds the goroutines of each: a result may have 200,000 files.
const mostParallel = 512

// each calls f for all elements at the same time, waits for all calls and returns the first error. The calls of the
// bucket in f wait for slots.
func each[T any](all []T, f func(T) error) error {
	var group errgroup.Group
	group.SetLimit(mostParallel)
	for _, v := range all {
		group.Go(func() error { return f(v) })
	}
	return group.Wait()
}
