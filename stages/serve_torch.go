//go:build libtorch

package stages

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"

	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/serve"
	"rcgrpo/stages/rl"
)

// defaultContext bounds the memory of the caches.
const defaultContext = 8192

// Run answers requests until ctx ends.
func (s *Serving) Run(ctx context.Context) error {
	host, _, err := net.SplitHostPort(s.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if s.Key == "" && !isLoopback(host) {
		return fmt.Errorf("listen on %s: other machines can reach this address, so an API key is required: --key-env NAME",
			s.Listen)
	}
	dir, remove, err := s.folder(ctx)
	if err != nil {
		return err
	}
	defer remove()
	use := lm.Use{Slots: s.Slots, Threads: s.Threads, Precision: cmp.Or(lm.Precision(s.Precision), lm.Float32)}
	shape, unread := lm.ReadConfig(dir) // OpenFolder explains its error
	use.Context = min(cmp.Or(s.Context, defaultContext), shape.MaxPosition)
	if unread == nil {
		use, err = s.fit(shape, use)
	}
	if err != nil {
		return err
	}
	policy, err := checkpoint.OpenFolder(dir, s.Device, use)
	if err != nil {
		return err
	}
	defer policy.Close()
	token, err := policy.Resolve(s.Token)
	if err != nil {
		return err
	}
	codec, err := policy.Codec()
	if err != nil {
		return err
	}
	decoder, err := lm.NewDecoder(policy.Model, use.Slots, use.Context)
	if err != nil {
		return err
	}
	batcher := rl.NewBatcher(decoder)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Listen)
	if err != nil {
		return err
	}
	defer listener.Close()
	record, err := s.openLog()
	if err != nil {
		return err
	}
	server := serve.New(serve.Config{Name: s.Name, Aliases: s.Aliases, Batcher: batcher, Codec: codec,
		Tokenizer: policy.Tokenizer, Position: policy.Position, Token: token, Addr: listener.Addr().String(), Key: s.Key,
		Queue: s.Queue, MaxBody: s.MaxBody, Timeout: s.Timeout, Log: record,
		Logf: log.New(s.Log, "", 0).Printf})
	fmt.Fprintf(s.Log, "chat layout %s, reward token %s\n", policy.Layout, cmp.Or(token, "none"))
	fmt.Fprintf(s.Log, "memory: at most %s\n", lm.MemoryText(shape.Memory(use)))
	if use.Slots < s.Slots {
		fmt.Fprintf(s.Log, "%d of %d replies at once, for which the memory has room\n", use.Slots, s.Slots)
	}
	fmt.Fprintf(s.Out, "http://%s/v1\n", listener.Addr())
	if err := errors.Join(server.Serve(ctx, listener, s.Drain), record.Close()); err != nil {
		return err
	}
	return batcher.Release()
}

// folder returns the folder to serve. For a GGUF file, and for a model with another layout, it is a temporary one,
// which remove removes.
func (s *Serving) folder(ctx context.Context) (dir string, remove func(), err error) {
	if !checkpoint.IsGGUF(s.Dir) && s.Layout == "" {
		return s.Dir, func() {}, nil
	}
	folder := checkpoint.ReadFolder(s.Dir, s.Layout)
	if err := folder.Err(); err != nil {
		return "", nil, err
	}
	if dir, err = os.MkdirTemp("", "rcgrpo-serve-"); err != nil {
		return "", nil, err
	}
	remove = func() { os.RemoveAll(dir) }
	if checkpoint.IsGGUF(s.Dir) {
		err = checkpoint.ImportGGUF(ctx, s.Dir, dir, log.New(s.Log, "", 0).Printf, nil)
	} else {
		err = checkpoint.CopyFiles(s.Dir, dir)
	}
	if err == nil {
		err = folder.Write(dir, chat.Settings{Layout: s.Layout})
	}
	if err != nil {
		remove()
		return "", nil, err
	}
	return dir, remove, nil
}

// openLog opens the log of conversations, nil without a folder.
func (s *Serving) openLog() (*serve.Log, error) {
	if s.Record == "" {
		return nil, nil
	}
	if err := os.MkdirAll(s.Record, 0o700); err != nil {
		return nil, err
	}
	return serve.NewLog(filepath.Join(s.Record, rl.TrajectoriesFile))
}

// isLoopback reports whether only this machine can reach an address with this host.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
