package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
)

// Probe creates and reads an object. A storage that creates it twice is an error: the first result of a key would not
// stay.
func (r *Remote) Probe(ctx context.Context) error {
	const name = "probe"
	return r.small(ctx, func(ctx context.Context) error {
		if err := r.bucket.Create(ctx, name, text(name)); err != nil && !errors.Is(err, errExists) {
			return fmt.Errorf("write an object: %w", err)
		}
		if err := r.bucket.Create(ctx, name, text(name)); err == nil {
			return errors.New("it has no conditional writes (If-None-Match), so a second result would replace the first")
		} else if !errors.Is(err, errExists) {
			return fmt.Errorf("write an object conditionally: %w", err)
		}
		body, err := r.bucket.Get(ctx, name)
		if err != nil {
			return fmt.Errorf("read an object: %w", err)
		}
		defer body.Close()
		if got, err := io.ReadAll(io.LimitReader(body, int64(len(name))+1)); err != nil || string(got) != name {
			return fmt.Errorf("read an object: got %q and error %v, want %q", got, err, name)
		}
		return nil
	})
}

// Check reads the manifests of all results. It returns their number and the names of damaged ones.
func (r *Remote) Check(ctx context.Context) (results int, damaged []string, err error) {
	keys, err := r.Keys(ctx)
	if err != nil {
		return 0, nil, err
	}
	var mu sync.Mutex
	err = each(keys, func(key string) error {
		_, err := r.read(ctx, key)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			results++
		case errors.Is(err, errDamaged):
			damaged = append(damaged, manifestName(key))
		case !errors.Is(err, errMissing): // else it was removed meanwhile
			return err
		}
		return nil
	})
	slices.Sort(damaged)
	return results, damaged, err
}
