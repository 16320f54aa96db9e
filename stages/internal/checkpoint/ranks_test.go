//go:build libtorch

package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/ranks"
	"rcgrpo/stages/internal/torch"
)

// joined runs f as each of two ranks of a job, in this process, and returns their errors.
func joined(t *testing.T, seeds [2]int64, settled [2][]ranks.Fact,
	f func(ctx context.Context, p lm.Peers) error) (errs [2]error) {
	t.Helper()
	dir := t.TempDir()
	var both sync.WaitGroup
	for rank := range 2 {
		job := must.Get(engine.NewJob(engine.JobSetup{Dir: t.TempDir(), Seed: seeds[rank], Rank: rank, Ranks: 2,
			Rendezvous: filepath.Join(dir, "store")}))(t)
		both.Go(func() {
			p, err := Join(job, settled[rank]...)
			if err == nil {
				err = f(t.Context(), p)
				p.Group.Close()
			}
			errs[rank] = err
		})
	}
	both.Wait()
	return errs
}

func TestRanksThatDifferAreRefused(t *testing.T) {
	nothing := func(context.Context, lm.Peers) error { return nil }
	for _, name := range []string{"build", "libtorch", "seed", "input stage.model.random.checkpoint", "shape",
		"gradient_parts"} {
		seeds, settled := [2]int64{1, 1}, [2][]ranks.Fact{{{Name: name, Value: "1"}}, {{Name: name, Value: "2"}}}
		if name == "seed" {
			seeds, settled = [2]int64{1, 2}, [2][]ranks.Fact{}
		}
		for rank, err := range joined(t, seeds, settled, nothing) {
			if want := fmt.Sprintf("the ranks differ: rank 1 has %s 2, and rank 0 has %s 1", name, name); err == nil ||
				err.Error() != want {
				t.Errorf("rank %d: got %v, want %s", rank, err, want)
			}
		}
	}
	var names []string
	for _, f := range factsOf(must.Get(engine.NewJob(engine.JobSetup{Dir: t.TempDir()}))(t)) {
		names = append(names, f.Name)
		if f.Value == "" || strings.HasPrefix(f.Value, "unknown ") {
			t.Errorf("got the fact %v without a value", f)
		}
	}
	if want := []string{"build", "libtorch", "seed"}; !slices.Equal(names, want) {
		t.Errorf("got the facts %v, want %v", names, want)
	}
}

func TestSyncCarriesStopErrorAndLackOfMemory(t *testing.T) {
	full := errors.New("no space left")
	for name, tc := range map[string]struct {
		of1  func(ctx context.Context) (context.Context, error) // context and error of rank 1
		want [2]error
	}{
		"nothing": {func(ctx context.Context) (context.Context, error) { return ctx, nil }, [2]error{}},
		"the request to stop": {func(ctx context.Context) (context.Context, error) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, ctx.Err()
		}, [2]error{context.Canceled, context.Canceled}},
		"lack of memory": {func(ctx context.Context) (context.Context, error) { return ctx, torch.ErrOutOfMemory },
			[2]error{torch.ErrOutOfMemory, torch.ErrOutOfMemory}},
		"an error": {func(ctx context.Context) (context.Context, error) { return ctx, full },
			[2]error{errors.New("rank 1: no space left"), full}},
	} {
		errs := joined(t, [2]int64{}, [2][]ranks.Fact{}, func(ctx context.Context, p lm.Peers) (err error) {
			if p.Rank.Index() == 1 {
				ctx, err = tc.of1(ctx)
			}
			return Sync(ctx, p.Rank, "rollout", err)
		})
		for rank, want := range tc.want {
			if got := errs[rank]; !errors.Is(got, want) && (want == nil || got == nil || got.Error() != want.Error()) {
				t.Errorf("%s, rank %d: got %v, want %v", name, rank, got, want)
			}
		}
	}
}
