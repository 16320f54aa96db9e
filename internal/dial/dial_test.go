package dial

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"rcgrpo/internal/must"
)

func TestServersAreAskedOverHTTP1(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Proto)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	transport := Transport(1)
	transport.TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig
	transport.ForceAttemptHTTP2 = true // without it, an own configuration turns HTTP/2 off
	r := must.Get((&http.Client{Transport: transport}).Get(s.URL))(t)
	if text := must.Get(io.ReadAll(r.Body))(t); string(text) != "HTTP/1.1" {
		t.Errorf("asked over %s", text)
	}
}

func TestAServerThatReadsNothingEndsAWrite(t *testing.T) {
	defer func(old time.Duration) { writeTimeout = old }(writeTimeout)
	writeTimeout = 300 * time.Millisecond
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	c := must.Get(Context(t.Context(), "tcp", l.Addr().String()))(t)
	defer c.Close()
	if n, err := c.Write(make([]byte, 64<<20)); !errors.Is(err, os.ErrDeadlineExceeded) || n >= 64<<20 {
		t.Errorf("wrote %d bytes: %v", n, err)
	}
}

// A slow server may take longer in all.
func TestASlowServerGetsAllOfAWrite(t *testing.T) {
	defer func(old time.Duration) { writeTimeout = old }(writeTimeout)
	writeTimeout = time.Second
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	got := make(chan int64)
	go func() {
		s, err := l.Accept()
		if err != nil {
			close(got)
			return
		}
		n := int64(0)
		for err == nil {
			time.Sleep(20 * time.Millisecond)
			var more int64
			more, err = io.CopyN(io.Discard, s, 256<<10)
			n += more
		}
		got <- n
	}()
	c := must.Get(Context(t.Context(), "tcp", l.Addr().String()))(t)
	must.Get(c.Write(make([]byte, 20<<20)))(t) // 1.6 s
	must.OK(t, c.Close())
	if n := <-got; n != 20<<20 {
		t.Errorf("%d bytes arrived", n)
	}
}
