package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"rcgrpo/cmd/rcgrpo/internal/interrupt"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/remote"
)

// siteRemote opens the store and the remote store of the site file.
func (c *command) siteRemote() (*artifact.Store, *remote.Remote, error) {
	store, site, err := c.siteStore()
	if err != nil {
		return nil, nil, err
	}
	r := remote.Open(site, store)
	if r == nil {
		return nil, nil, errors.New(`the site file names no remote store: add remote "NAME" { url = "…" }`)
	}
	r.Report(c.reportRemote)
	return store, r, nil
}

// matchesAny reports whether an address matches one of some patterns, or there are none.
func matchesAny(address string, patterns []string) bool {
	return len(patterns) == 0 ||
		slices.ContainsFunc(patterns, func(p string) bool { return lang.MatchAddress(address, p) })
}

func storePushCommand() *cobra.Command {
	c := newExperimentCommand("push [ADDRESS…]", "Copy results, and all that they depend on, to the remote store",
		cobra.ArbitraryArgs)
	return c.does(func(addresses []string) error {
		store, r, err := c.siteRemote()
		if err != nil {
			return err
		}
		if r.Push == "no" {
			return fmt.Errorf("remote %s has push = \"no\"", r.Name)
		}
		manifests, _, err := store.Manifests()
		if err != nil {
			return err
		}
		manifests = withInputs(manifests, addresses)
		manifests = slices.DeleteFunc(manifests, func(m *artifact.Manifest) bool {
			return len(store.Absent(m)) > 0 // the ports came from a remote store, or gc removed them
		})
		return c.transfer(r, "push", manifests, func(ctx context.Context, m *artifact.Manifest) error {
			if _, err := store.Lookup(m.Key); err != nil {
				return err
			}
			return r.PushResult(ctx, m)
		})
	})
}

// withInputs returns the results that match addresses, and the results whose outputs they were made from.
func withInputs(all []*artifact.Manifest, addresses []string) []*artifact.Manifest {
	byDigest := map[string][]*artifact.Manifest{}
	for _, m := range all {
		for _, o := range m.Outputs {
			byDigest[o.Digest] = append(byDigest[o.Digest], m)
		}
	}
	chosen := map[*artifact.Manifest]bool{}
	var choose func(m *artifact.Manifest)
	choose = func(m *artifact.Manifest) {
		if chosen[m] {
			return
		}
		chosen[m] = true
		for name, value := range m.Parts {
			if !strings.HasPrefix(name, "input.") {
				continue
			}
			for _, digest := range strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(`",[]`, r) }) {
				for _, input := range byDigest[digest] {
					choose(input)
				}
			}
		}
	}
	for _, m := range all {
		if matchesAny(m.Address, addresses) {
			choose(m)
		}
	}
	return slices.DeleteFunc(all, func(m *artifact.Manifest) bool { return !chosen[m] })
}

func storeFetchCommand() *cobra.Command {
	c := newExperimentCommand("fetch [ADDRESS…]", "Copy results from the remote store, with all ports",
		cobra.ArbitraryArgs)
	return c.does(func(addresses []string) error {
		store, r, err := c.siteRemote()
		if err != nil {
			return err
		}
		if !r.Pull {
			return fmt.Errorf("remote %s has pull = \"no\"", r.Name)
		}
		keys, err := r.Keys(context.Background())
		if err != nil {
			return err
		}
		var open []*artifact.Manifest
		for _, m := range r.Find(context.Background(), keys) {
			have, err := store.Lookup(m.Key)
			if matchesAny(m.Address, addresses) && (err != nil || len(store.Absent(have)) > 0) {
				open = append(open, m)
			}
		}
		err = c.transfer(r, "fetch", open, func(ctx context.Context, m *artifact.Manifest) error {
			_, err := r.Fetch(ctx, m.Key, m.Ports())
			return err
		})
		return errors.Join(err, store.Flush())
	})
}

// transfer prints the number and size of results, moves them, and prints how many were moved.
func (c *command) transfer(r *remote.Remote, verb string, all []*artifact.Manifest,
	move func(context.Context, *artifact.Manifest) error) error {
	var bytes int64
	for _, m := range all {
		bytes += m.Bytes()
	}
	fmt.Fprintf(c.stdout(), "%s %s, %s\n", verb, english.Plural(len(all), "result", ""), lang.BytesText(bytes))
	ctx, _, stop := interrupt.Context(c.stderr())
	defer stop()
	var moved atomic.Int64
	var group errgroup.Group
	group.SetLimit(2 * r.Parallel) // half of them work on this machine
	for _, m := range all {
		group.Go(func() error {
			if move(ctx, m) == nil { // the remote reports the error
				moved.Add(1)
			}
			return nil
		})
	}
	group.Wait()
	fmt.Fprintf(c.stdout(), "%d of %s done\n", moved.Load(), english.Plural(len(all), "result", ""))
	if int(moved.Load()) < len(all) {
		return exitCode(exitFailed)
	}
	return nil
}

// verifyRemote probes the remote store and reports its results and damage.
func (c *command) verifyRemote() error {
	_, r, err := c.siteRemote()
	if err != nil {
		return err
	}
	r.Report(func(string, string) {}) // errors are returned
	w, ctx := c.stdout(), context.Background()
	probed := "not probed, since push = \"no\""
	if r.Push != "no" {
		if err := r.Probe(ctx); err != nil {
			return fmt.Errorf("remote %s: %w", r.Name, err)
		}
		probed = "reads, writes and conditions work"
	}
	results, damaged, err := r.Check(ctx)
	if err != nil {
		return fmt.Errorf("remote %s: %w", r.Name, err)
	}
	fmt.Fprintf(w, "remote %s: %s; %s\n", r.Name, english.Plural(results, "result", ""), probed)
	for _, name := range damaged {
		fmt.Fprintf(w, "%s is damaged\n", name)
	}
	if len(damaged) > 0 {
		return exitCode(exitFailed)
	}
	return nil
}
