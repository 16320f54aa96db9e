// Package dial connects to servers that may read nothing.
package dial

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"
)

// Transport returns a transport with some idle connections. It speaks HTTP/1: in HTTP/2 a server that reads nothing
// holds the reader of its reply, whatever the time limit, and 481 bytes hold all connections (Go 1.26.8).
func Transport(idle int) *http.Transport {
	return &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: Context, MaxIdleConnsPerHost: idle,
		IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: 1 << 20,
		TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
}

// writeTimeout limits the write of a piece; a variable for tests. The kernel wakes a blocked writer only when a third
// of its buffer, up to 1.4 MB, is sent.
var writeTimeout = 30 * time.Second

const piece = 64 << 10 // bytes

// Context connects as net.Dialer does. A write fails if the server does not read. Without that, crypto/tls waits for
// ever: it answers a server's key updates while it reads a reply, and closing the connection waits for the answer.
func Context(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: 30 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return conn{c}, nil
}

type conn struct{ net.Conn }

func (c conn) Write(p []byte) (written int, err error) {
	for written < len(p) && err == nil {
		if err = c.SetWriteDeadline(time.Now().Add(writeTimeout)); err == nil {
			var n int
			n, err = c.Conn.Write(p[written:min(len(p), written+piece)])
			written += n
		}
	}
	return written, err
}
