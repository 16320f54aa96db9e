package remote

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rcgrpo/internal/must"
)

// reports collects the problems of a remote.
func reports(r *Remote) func() []string {
	var mu sync.Mutex
	var all []string
	r.Report(func(_, text string) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, text)
	})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// wantReports wants one report for each text, which contains the text.
func wantReports(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.EqualFunc(got, want, strings.Contains) {
		t.Errorf("got reports %q, want %q in them", got, want)
	}
}

// answer writes an error of an S3 server. Like Amazon's it names the object.
func answer(w http.ResponseWriter, r *http.Request, status int, code string) bool {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>of the test: %s.</Message></Error>", code, r.URL.Path)
	return true
}

// recorded serves a request and returns the answer without sending it.
func (r *relay) recorded(request *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r.ReverseProxy.ServeHTTP(w, request)
	return w
}

func TestABusyServerIsAskedAgainWhenItRequires(t *testing.T) {
	onEachS3(t, func(t *testing.T, s *storage) {
		a := s.machine(t)
		got := reports(a)
		m := commit(t, a, 1)
		var busy atomic.Bool
		var at, again time.Time
		s.relay.setFault(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "results/") {
				return false
			}
			if busy.Swap(true) {
				again = time.Now()
				return false
			}
			at = time.Now()
			w.Header().Set("Retry-After", "1")
			return answer(w, r, http.StatusServiceUnavailable, "SlowDown")
		})
		must.OK(t, a.PushResult(t.Context(), m))
		if wait := again.Sub(at); wait < time.Second {
			t.Errorf("got the next request after %v, want at least 1s", wait)
		}
		wantReports(t, got())
	})
}

func TestACutTransferIsRepeated(t *testing.T) {
	onEachS3(t, func(t *testing.T, s *storage) {
		a, b := s.machine(t), s.machine(t)
		m := commitLarge(t, a, 1, 200_000)
		must.OK(t, a.PushResult(t.Context(), m))
		got := reports(b)
		cut := map[string]bool{}
		var mu sync.Mutex
		s.relay.setFault(func(w http.ResponseWriter, r *http.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(r.URL.Path, "results/") || cut[r.URL.Path] {
				return false
			}
			cut[r.URL.Path] = true
			whole := s.relay.recorded(r)
			maps.Copy(w.Header(), whole.Header())
			w.Write(whole.Body.Bytes()[:whole.Body.Len()/2])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		})
		must.OK(t, fetch(t, b, m.Key, m.Ports()...))
		wantEqual(t, "cut objects", len(cut), 5)
		wantReports(t, got())
	})
}

// The machine that runs the stage again repairs the remote store.
func TestADeletedObjectIsAMissThatTheNextPushRepairs(t *testing.T) {
	onEachStorage(t, func(t *testing.T, s *storage) {
		a, b, m := pushed(t, s)
		lost := names(t, a, "objects/")[0]
		s.remove(t, lost)
		got := reports(b)
		if err := fetch(t, b, m.Key, m.Ports()...); !errors.Is(err, errDamaged) {
			t.Errorf("got %v, want damage", err)
		}
		wantReports(t, got(), lost+" is missing")
		must.OK(t, b.PushResult(t.Context(), commit(t, b, 1)))
		must.OK(t, fetch(t, s.machine(t), m.Key, m.Ports()...))
	})
}

func TestAStaleListingIsAMiss(t *testing.T) {
	onEachS3(t, func(t *testing.T, s *storage) {
		a, b := s.machine(t), s.machine(t)
		must.OK(t, a.PushResult(t.Context(), commit(t, a, 2)))
		var stale *httptest.ResponseRecorder
		s.relay.setFault(func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("list-type") != "2" {
				return false
			}
			if stale == nil {
				stale = s.relay.recorded(r)
			}
			w.Write(stale.Body.Bytes())
			return true
		})
		names(t, a, manifests)
		m := commit(t, a, 1)
		must.OK(t, a.PushResult(t.Context(), m))
		got := reports(b)
		keys := []string{m.Key}
		for i := range listAbove {
			keys = append(keys, fmt.Sprintf("%064x", 1000+i))
		}
		wantEqual(t, "results in the stale listing", len(b.Find(t.Context(), keys)), 0)
		must.OK(t, b.PushResult(t.Context(), commit(t, b, 1)))
		wantReports(t, got())
	})
}

func TestAClockThatIsOffBy20Minutes(t *testing.T) {
	c := new(clock)
	s := fakeS3(t, c)
	c.set(20 * time.Minute)
	a := s.machine(t)
	got := reports(a)
	for n := range 3 {
		must.Match(t, a.PushResult(t.Context(), commit(t, a, n)), "access denied")
	}
	wantReports(t, got(), "RequestTimeTooSkewed")

}

// Credentials that end are reported once. New ones in the file of the AWS tools are used without a restart.
func TestCredentialsThatEndAreReadAgain(t *testing.T) {
	onEachS3(t, func(t *testing.T, s *storage) {
		file := filepath.Join(t.TempDir(), "credentials")
		t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
		t.Setenv("AWS_ACCESS_KEY_ID", "")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "")
		put := func(key string) {
			text := fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = secret\n", key)
			must.OK(t, os.WriteFile(file, []byte(text), 0o600))
		}
		put("ended")
		s.relay.setFault(func(w http.ResponseWriter, r *http.Request) bool {
			return strings.Contains(r.Header.Get("Authorization"), "Credential=ended/") &&
				answer(w, r, http.StatusBadRequest, "ExpiredToken")
		})
		a := s.machine(t)
		got := reports(a)
		for n := range 2 {
			must.Match(t, a.PushResult(t.Context(), commit(t, a, n)), "access denied")
		}
		put("key")
		must.OK(t, a.PushResult(t.Context(), commit(t, a, 4)))
		wantReports(t, got(), "(ExpiredToken)")
	})
}

func TestDeniedAccessIsReportedAtOnce(t *testing.T) {
	onEachS3(t, func(t *testing.T, s *storage) {
		a := s.machine(t)
		got := reports(a)
		requests := 0
		s.relay.setFault(func(w http.ResponseWriter, r *http.Request) bool {
			requests++
			return answer(w, r, http.StatusForbidden, "AccessDenied")
		})
		if err := a.PushResult(t.Context(), commit(t, a, 1)); !errors.Is(err, errDenied) || requests != 1 {
			t.Errorf("got %v after %d requests, want it after one", err, requests)
		}
		wantReports(t, got(), "remote lab: access denied: of the test")
	})
}

// The errors of a network that loses requests name their objects, and are reported once.
func TestABrokenNetworkIsReportedOnce(t *testing.T) {
	s := fakeS3(t, new(clock))
	s.relay.setFault(func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) })
	a := s.machine(t)
	got := reports(a)
	a.Find(t.Context(), []string{fmt.Sprintf("%064x", 1), fmt.Sprintf("%064x", 2)})
	wantReports(t, got(), "remote lab: "+s.S3.Host)
}

func TestWithoutCredentialsNoRequestIsSent(t *testing.T) {
	s := fakeS3(t, new(clock))
	credentialsOf(t, "", "")
	s.relay.setFault(func(http.ResponseWriter, *http.Request) bool {
		t.Error("got a request")
		return false
	})
	a := s.machine(t)
	got := reports(a)
	must.Match(t, a.PushResult(t.Context(), commit(t, a, 1)), "no credentials")
	wantReports(t, got(), "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
}

func TestATransferWithoutProgressEndsAtTheDeadline(t *testing.T) {
	onEachS3(t, func(t *testing.T, s *storage) {
		_, b, m := pushed(t, s)
		b.Deadline = 300 * time.Millisecond
		got := reports(b)
		s.relay.setFault(func(w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, "objects/") {
				<-r.Context().Done()
				return true
			}
			return false
		})
		began := time.Now()
		if err := fetch(t, b, m.Key, "out"); err == nil || time.Since(began) > 5*time.Second {
			t.Errorf("got %v after %v, want an error after the deadline", err, time.Since(began))
		}
		_, err := b.read(t.Context(), m.Key)
		wantEqual[error](t, "no request for a minute", err, errResting)
		wantReports(t, got(), "no answer for 300ms")
	})
}

// A server may answer with anything. Every such answer is an error or a miss, within little memory, and credentials go
// to no other server.
func TestAHostileServerIsAnError(t *testing.T) {
	endless := func(text string) func(w http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			for range 1 << 6 {
				if _, err := io.WriteString(w, strings.Repeat(text, 1<<18/len(text))); err != nil {
					return
				}
			}
		}
	}
	const page = `<?xml version="1.0"?><ListBucketResult><IsTruncated>true</IsTruncated>` +
		`<NextContinuationToken>again</NextContinuationToken>`
	key := strings.Repeat("0", 64)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another server got %s %s with %v", r.Method, r.URL, r.Header)
	}))
	defer elsewhere.Close()
	defer func(n int) { maxListed = n }(maxListed)
	maxListed = 10_000
	defer func(n int) { maxNames = n }(maxNames)
	maxNames = 32 << 20
	for name, tc := range map[string]struct {
		write func(w http.ResponseWriter)
		want  string // of a list
	}{
		"a page without end": {func(w http.ResponseWriter) {
			io.WriteString(w, page)
			endless("<Contents><Key>results/x.json</Key><Size>1</Size></Contents>")(w)
		}, ""}, // by its bytes, on a busy machine by time
		"a name without end": {func(w http.ResponseWriter) {
			io.WriteString(w, page+"<Contents><Key>")
			endless("x")(w)
		}, "more than 4194304 bytes"},
		"a page of empty elements": {func(w http.ResponseWriter) {
			io.WriteString(w, "<ListBucketResult>"+strings.Repeat("<Contents/>", 300_000)+"</ListBucketResult>")
		}, "32768 tags"},
		"a long error with a secret": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, "<Error><Message>session token"+strings.Repeat("x", 900<<10)+"</Message></Error>")
		}, "access denied: ***x"},
		"pages without end": {func(w http.ResponseWriter) {
			io.WriteString(w, page+strings.Repeat("<Contents><Key>results/"+key+".json</Key><Size>1</Size></Contents>", 1000)+
				"</ListBucketResult>")
		}, "more than 10000 objects"},
		"long names without end": {func(w http.ResponseWriter) {
			io.WriteString(w, page+"<Contents><Key>"+strings.Repeat("x", 3<<20)+"</Key></Contents></ListBucketResult>")
		}, "33554432 bytes of names"},
		"an XML bomb": {func(w http.ResponseWriter) {
			io.WriteString(w, `<!DOCTYPE l [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>`+page+
				"<Contents><Key>&b;</Key></Contents></ListBucketResult>")
		}, "127.0.0.1"},
		"deep XML": {endless("<a>"), ""},
		"an error without end": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusForbidden)
			endless("<Error>")(w)
		}, ""},
		"a redirect": {func(w http.ResponseWriter) {
			w.Header().Set("Location", elsewhere.URL)
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, ""},
		"another protocol": {func(w http.ResponseWriter) {
			conn, _, _ := w.(http.Hijacker).Hijack()
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			io.Copy(io.Discard, conn) // until the client hangs up
		}, "another protocol"},
		"a negative size": {func(w http.ResponseWriter) {
			io.WriteString(w, "<ListBucketResult><Contents><Key>results/../../x.json</Key>"+
				"<Size>-1</Size></Contents></ListBucketResult>")
		}, "none"},
		"nothing":  {func(http.ResponseWriter) {}, ""},
		"no XML":   {func(w http.ResponseWriter) { io.WriteString(w, "\x1b[2J{}") }, ""},
		"a header": {func(w http.ResponseWriter) { w.Header().Set("X-A", strings.Repeat("x", 20<<20)) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := fakeS3(t, new(clock))
			t.Setenv("AWS_SESSION_TOKEN", "session token")
			a := s.machine(t)
			m := commit(t, a, 1)
			got := reports(a)
			s.relay.setFault(func(w http.ResponseWriter, _ *http.Request) bool { tc.write(w); return true })
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := a.Keys(t.Context())
			if (tc.want == "none") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
			if found := a.Find(t.Context(), []string{m.Key}); len(found) > 0 {
				t.Errorf("found %v", found)
			}
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > 400<<20 { // each answer may be read four times
				t.Errorf("%d bytes were allocated", n)
			}
			for _, text := range got() {
				if len(text) > 2000 {
					t.Errorf("a report has %d bytes: %.200q", len(text), text)
				}
			}
		})
	}
}

func TestManyKeysAreListed(t *testing.T) {
	s := fakeS3(t, new(clock))
	a := s.machine(t)
	m := commit(t, a, 1)
	must.OK(t, a.PushResult(t.Context(), m))
	keys := []string{m.Key}
	for i := range 9999 {
		key := fmt.Sprintf("%064x", 2+i)
		keys = append(keys, fmt.Sprintf("%064x", 1<<32+i))
		must.Get(s.fake.PutObject("lab", s.S3.Prefix+manifestName(key), nil, strings.NewReader(""), 0, nil))(t)
	}
	wantEqual(t, "names", len(names(t, a, manifests)), 10_000)
	requests := new(atomic.Int64)
	s.relay.setFault(func(http.ResponseWriter, *http.Request) bool {
		requests.Add(1)
		return false
	})
	if found := a.Find(t.Context(), keys); len(found) != 1 || requests.Load() > 12 {
		t.Errorf("got %d results with %d requests, want 1 with 10 pages and the manifest", len(found), requests.Load())
	}
}

// Of several writers one wins, and none replaces the manifest of another.
func TestTwoPushersOfAKeyLeaveOneRecord(t *testing.T) {
	onEachStorage(t, func(t *testing.T, s *storage) {
		a := s.machine(t)
		names := make([]string, 16)
		for i := range names {
			names[i] = fmt.Sprint(i)
		}
		won := new(atomic.Int64)
		must.OK(t, each(names, func(name string) error {
			err := a.bucket.Create(t.Context(), "results/x", text(name))
			if err == nil {
				won.Add(1)
			}
			if errors.Is(err, errExists) {
				err = nil
			}
			return err
		}))
		wantEqual(t, "winners", won.Load(), 1)
		machines := []*Remote{s.machine(t), s.machine(t)}
		must.OK(t, each(machines, func(r *Remote) error { return r.PushResult(t.Context(), commit(t, r, 1)) }))
		must.OK(t, fetch(t, a, fmt.Sprintf("%064x", 1), "out", "small"))
	})
}

// A push that was cut sends a large file again, and several machines may send the same file. Parts of the first upload
// may arrive after its push has ended, so parts are counted by upload.
func TestALargeFileIsSentInParts(t *testing.T) {
	onEachS3(t, func(t *testing.T, s *storage) {
		a, b := s.machine(t), s.machine(t)
		m := commitLarge(t, a, 1, 33<<20)
		var mu sync.Mutex
		var denied string // ID of the first upload
		parts := map[string]int{}
		s.relay.setFault(func(w http.ResponseWriter, r *http.Request) bool {
			upload, part := r.URL.Query().Get("uploadId"), r.URL.Query().Get("partNumber")
			if part == "" || r.Method != http.MethodPut {
				return false
			}
			mu.Lock()
			defer mu.Unlock()
			parts[upload]++
			if denied == "" {
				denied = upload
			}
			return part == "2" && upload == denied && answer(w, r, http.StatusForbidden, "AccessDenied")
		})
		must.Match(t, a.PushResult(t.Context(), m), "access denied")
		must.OK(t, a.PushResult(t.Context(), m))
		mu.Lock()
		delete(parts, denied)
		for _, n := range parts {
			wantEqual(t, "parts of 16 MiB", n, 3)
		}
		wantEqual(t, "uploads after the denied one", len(parts), 1)
		mu.Unlock()
		must.OK(t, fetch(t, b, m.Key, "out"))
		both := []*Remote{s.machine(t), s.machine(t)}
		must.OK(t, each(both, func(r *Remote) error { return r.PushResult(t.Context(), commitLarge(t, r, 2, 17<<20)) }))
		must.OK(t, fetch(t, b, fmt.Sprintf("%064x", 2), "out"))
	})
}

// A file of the store that is shorter than its manifest is not sent.
func TestAShortFileIsNotSent(t *testing.T) {
	onEachStorage(t, func(t *testing.T, s *storage) {
		a := s.machine(t)
		m := commit(t, a, 1)
		path := a.store.ObjectPath(m.Outputs["out"], m.Outputs["out"].Files[3])
		must.OK(t, os.Chmod(path, 0o600))
		must.OK(t, os.Truncate(path, 100))
		must.Match(t, a.PushResult(t.Context(), m), "another size than its manifest")
		wantEqual(t, "manifests", len(names(t, a, manifests)), 0)
		must.OK(t, os.RemoveAll(a.store.Dir()))
	})
}
