package stages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"rcgrpo/bfcl"
	"rcgrpo/stages/internal/environment"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

// ToolServer offers the benchmark's tools to clients of the Model Context Protocol. Each session has an episode of its
// own, without a limit of steps.
type ToolServer struct {
	Data  *bfcl.Data
	Find  func(id string) (*bfcl.Task, error) // the task of a session; id is the path of its URL, "" on stdio
	Turns bool                                // requests and verdict by the tool next_request
}

// open starts an episode and its server.
func (s ToolServer) open(ctx context.Context, id string, versions []string) (*environment.Offer, error) {
	task, err := s.Find(id)
	if err != nil {
		return nil, err
	}
	settings := bfcl.Settings{Data: s.Data, Today: bfcl.ReleaseDate}
	env, err := rl.Benchmark(settings, blocks.Limits{Steps: math.MaxInt / 2}).Start(ctx, task, rl.StartOptions{})
	if err != nil {
		return nil, err
	}
	return environment.NewOffer(env, environment.OfferOptions{Data: s.Data, Turns: s.Turns, Versions: versions})
}

// Talk serves one session on a pair of streams until the input ends.
func (s ToolServer) Talk(ctx context.Context, in io.Reader, out io.Writer) error {
	offer, err := s.open(ctx, "", nil)
	if err != nil {
		return err
	}
	err = offer.Run(ctx, &mcp.IOTransport{Reader: io.NopCloser(in), Writer: nopCloser{out}})
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil
	}
	return err
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// idleSession ends sessions that their client has left.
const idleSession = 30 * time.Minute

// Serve serves sessions over HTTP on a loopback address until ctx ends. It writes the URL to out.
func (s ToolServer) Serve(ctx context.Context, address string, out io.Writer) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if !isLoopback(host) {
		return fmt.Errorf("listen on %s: other machines can reach this address; want 127.0.0.1, [::1] or localhost", address)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	fmt.Fprintf(out, "http://%s/\n", listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// handler serves a session per initialization.
func (s ToolServer) handler() http.Handler {
	type started struct{}
	versions := environment.SessionVersions()
	known := mcp.NewServer(&mcp.Implementation{Name: "rcgrpo"}, &mcp.ServerOptions{SupportedProtocolVersions: versions})
	sessions := mcp.NewStreamableHTTPHandler(func(r *http.Request) *mcp.Server {
		if own, ok := r.Context().Value(started{}).(*environment.Offer); ok {
			return own.Server
		}
		return known // of a session that has begun, or of a later version of the protocol, which is refused
	}, &mcp.StreamableHTTPOptions{SessionTimeout: idleSession})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.Header.Get("Mcp-Session-Id") == "" {
			offer, err := s.open(r.Context(), strings.TrimPrefix(r.URL.Path, "/"), versions)
			if err != nil {
				http.Error(w, err.Error(), http.StatusNotFound)
				return
			}
			r = r.WithContext(context.WithValue(r.Context(), started{}, offer))
		}
		sessions.ServeHTTP(w, r)
	})
}
