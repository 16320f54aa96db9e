package remote

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/minio/minio-go/v7"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
	"rcgrpo/internal/versitygw"
)

// storage is a remote store under test.
type storage struct {
	lang.Remote
	relay *relay // nil: a folder
	fake  *s3mem.Backend
}

// onEachStorage runs a test on a folder, on gofakes3 in this process and on a process of versitygw.
func onEachStorage(t *testing.T, test func(t *testing.T, s *storage)) {
	t.Run("folder", func(t *testing.T) { test(t, inFolder(t)) })
	onEachS3(t, test)
}

func onEachS3(t *testing.T, test func(t *testing.T, s *storage)) {
	t.Run("gofakes3", func(t *testing.T) { test(t, fakeS3(t, new(clock))) })
	t.Run("versitygw", func(t *testing.T) { test(t, versity(t)) })
}

func inFolder(t testing.TB) *storage {
	dir := t.TempDir()
	return &storage{Remote: settings(lang.Remote{Folder: dir})}
}

func settings(r lang.Remote) lang.Remote {
	r.Name, r.Push, r.Pull, r.Parallel, r.Deadline = "lab", "yes", true, 8, time.Minute
	return r
}

// machine is a machine with an empty store.
func (s *storage) machine(t testing.TB) *Remote {
	t.Helper()
	return Open(&lang.Site{Remote: &s.Remote}, must.Get(artifact.Open(filepath.Join(t.TempDir(), "store")))(t))
}

// clock is that of gofakes3.
type clock struct{ ahead atomic.Int64 }

func (c *clock) Now() time.Time                   { return time.Now().UTC().Add(time.Duration(c.ahead.Load())) }
func (c *clock) Since(at time.Time) time.Duration { return c.Now().Sub(at) }
func (c *clock) set(ahead time.Duration)          { c.ahead.Store(int64(ahead)) }

// credentialsOf sets the variables of the AWS tools. No other source of credentials is read.
func credentialsOf(t *testing.T, key, secret string) {
	t.Setenv("AWS_ACCESS_KEY_ID", key)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
}

// fakeS3 is gofakes3 in this process. It checks the time of requests, but no signature.
func fakeS3(t *testing.T, c *clock) *storage {
	credentialsOf(t, "key", "secret")
	backend := s3mem.New(s3mem.WithTimeSource(c))
	must.OK(t, backend.CreateBucket("lab"))
	server := httptest.NewServer(gofakes3.New(backend, gofakes3.WithTimeSource(c), gofakes3.WithoutVersioning()).Server())
	t.Cleanup(server.Close)
	s := behindRelay(t, server.URL, httptest.NewTLSServer)
	s.fake = backend
	return s
}

// versity is a process of versitygw on a folder.
func versity(t *testing.T) *storage {
	server, _ := versitygw.Start(t, "lab")
	credentialsOf(t, "key", "secret")
	return behindRelay(t, server, httptest.NewServer)
}

// relay forwards requests to an S3 server and injects faults.
type relay struct {
	httputil.ReverseProxy
	fault atomic.Pointer[func(w http.ResponseWriter, r *http.Request) bool]
}

// setFault sets a function that may change a request, or answer it and return true.
func (r *relay) setFault(f func(w http.ResponseWriter, r *http.Request) bool) {
	if f == nil {
		r.fault.Store(nil)
		return
	}
	r.fault.Store(&f)
}

func (r *relay) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if f := r.fault.Load(); f == nil || !(*f)(w, request) {
		r.ReverseProxy.ServeHTTP(w, request)
	}
}

// behindRelay is the storage of a server with a relay that listen starts.
func behindRelay(t *testing.T, server string, listen func(http.Handler) *httptest.Server) *storage {
	to := must.Get(url.Parse(server))(t)
	// The header Host, which is signed, stays.
	r := &relay{ReverseProxy: httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
		p.Out.URL.Scheme, p.Out.URL.Host = to.Scheme, to.Host
	}, Transport: &http.Transport{MaxIdleConnsPerHost: 64}, ErrorLog: log.New(io.Discard, "", 0)}} // of faults
	front := listen(r)
	front.Config.ErrorLog = r.ErrorLog
	t.Cleanup(front.Close)
	if certificate := front.Certificate(); certificate != nil {
		file := filepath.Join(t.TempDir(), "certificate")
		text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw})
		must.OK(t, os.WriteFile(file, text, 0o600))
		t.Setenv("SSL_CERT_FILE", file)
	}
	return &storage{relay: r, Remote: settings(lang.Remote{S3: &lang.S3{Host: front.Listener.Addr().String(),
		TLS: front.TLS != nil, Region: "us-east-1", Bucket: "lab", Prefix: "a/"}})}
}

// names returns the names of the blobs of a remote store that have bytes.
func names(t *testing.T, r *Remote, prefixes ...string) (all []string) {
	t.Helper()
	for _, prefix := range prefixes {
		for _, b := range must.Get(r.list(t.Context(), prefix))(t) {
			if b.bytes > 0 || prefix == manifests {
				all = append(all, b.name)
			}
		}
	}
	return all
}

func read(t *testing.T, r *Remote, name string) []byte {
	t.Helper()
	body, err := r.bucket.Get(t.Context(), name)
	must.OK(t, err)
	defer body.Close()
	return must.Get(io.ReadAll(body))(t)
}

func write(t *testing.T, r *Remote, name string, b []byte) {
	t.Helper()
	must.OK(t, r.bucket.Put(t.Context(), name, text(b)))
}

// remove deletes an object, as a lifecycle rule does.
func (s *storage) remove(t *testing.T, name string) {
	t.Helper()
	if s.S3 == nil {
		must.OK(t, os.Remove(filepath.Join(s.Folder, name)))
		return
	}
	b := newS3(*s.S3, 1)
	must.OK(t, must.Get(b.open())(t).RemoveObject(t.Context(), b.Bucket, b.Prefix+name, minio.RemoveObjectOptions{}))
}
