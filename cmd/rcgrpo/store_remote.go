package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"rcgrpo/cmd/rcgrpo/internal/interrupt"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/remote"
	"rcgrpo/engine/runs"
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

func storeKeyCommand() *cobra.Command {
	c := newCommand("key NAME", "Make a key that signs pushed results, and print its line for trust",
		wantArgs(1, 1, "want a name, such as me-1"))
	return c.runs(func(args []string) error {
		line, path, err := remote.MakeKey(args[0])
		if err != nil {
			return err
		}
		fmt.Fprintf(c.stderr(), "private key: %s\n", path)
		fmt.Fprintln(c.stdout(), line)
		return nil
	})
}

// matchesAny reports whether an address matches one of some patterns, or there are none.
func matchesAny(address string, patterns []string) bool {
	return len(patterns) == 0 ||
		slices.ContainsFunc(patterns, func(p string) bool { return lang.MatchAddress(address, p) })
}

func storePushCommand() *cobra.Command {
	c := newExperimentCommand("push [ADDRESS…]", "Copy results, and all that they depend on, to the remote store",
		cobra.ArbitraryArgs)
	return c.runs(func(addresses []string) error {
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
			return !m.Collected.IsZero() || len(m.Absent) > 0 // they came from a remote store, or gc removed them
		})
		return c.transfer(r, "push", manifests, func(ctx context.Context, m *artifact.Manifest) error {
			if _, err := store.Lookup(m.Key); err != nil {
				return err
			}
			return r.PushResult(ctx, m)
		})
	})
}

// withInputs returns the results that match addresses, and those with whose digests their keys were made.
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

func storePullCommand() *cobra.Command {
	c := newExperimentCommand("pull [ADDRESS…]", "Copy results from the remote store, with all ports", cobra.ArbitraryArgs)
	return c.runs(func(addresses []string) error {
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
			if matchesAny(m.Address, addresses) && (err != nil || len(have.Absent) > 0) {
				open = append(open, m)
			}
		}
		flusher := store.Flusher()
		err = c.transfer(r, "pull", open, func(ctx context.Context, m *artifact.Manifest) error {
			return fetchPorts(ctx, r, flusher, m.Key, m.Ports())
		})
		return errors.Join(err, flusher.Close())
	})
}

// fetchPorts fetches ports of a result, which are durable when the flusher has been closed.
func fetchPorts(ctx context.Context, r *remote.Remote, flusher *artifact.Flusher, key string, ports []string) error {
	result, lock, err := r.Fetch(ctx, key, ports)
	if err == nil {
		flusher.Add(result, lock)
	}
	return err
}

// transfer prints the number and size of results, moves them, and prints how many were moved.
func (c *command) transfer(r *remote.Remote, verb string, all []*artifact.Manifest,
	move func(context.Context, *artifact.Manifest) error) error {
	var bytes int64
	for _, m := range all {
		bytes += m.Bytes()
	}
	text := fmt.Sprintf("%s %s, %s", verb, english.Plural(len(all), "result", ""), lang.BytesText(bytes))
	if s := r.Seconds(bytes); s >= minDuration.Seconds() {
		text += ", about " + runs.DurationText(s)
	}
	fmt.Fprintln(c.stdout(), text)
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
	if err := r.Close(); err != nil {
		return err
	}
	if int(moved.Load()) < len(all) {
		return exitCode(exitFailed)
	}
	return nil
}

// checkRemote probes the remote store and reports its results, damage, alarms and the results that it lacks.
func (c *command) checkRemote() error {
	store, r, err := c.siteRemote()
	if err != nil {
		return err
	}
	r.Report(func(string, string) {}) // errors are returned
	w, ctx := c.stdout(), context.Background()
	probed := "not probed, since push = \"no\""
	if r.Push != "no" {
		ahead, err := r.Probe(ctx)
		if err != nil {
			return fmt.Errorf("remote %s: %w", r.Name, err)
		}
		probed = "reads, writes and conditions work; its clock agrees"
		if ahead.Abs() > 2*time.Second { // S3 has whole seconds
			probed = fmt.Sprintf("reads, writes and conditions work; its clock differs by %v", ahead.Abs().Round(time.Second))
		}
	}
	stored, damaged, err := r.Results(ctx)
	if err != nil {
		return fmt.Errorf("remote %s: %w", r.Name, err)
	}
	fmt.Fprintf(w, "remote %s: %s; %s\n", r.Name, english.Plural(len(stored), "result", ""), probed)
	if len(r.Trust) == 0 {
		fmt.Fprintln(w, "every writer is trusted, since it has no trust setting")
	}
	writeUnpushed(w, store, r)
	for _, name := range damaged {
		fmt.Fprintf(w, "%s is damaged\n", name)
	}
	if len(damaged)+len(r.Alarms()) > 0 {
		return exitCode(exitFailed)
	}
	return nil
}

// writeUnpushed prints the number of results that the remote store lacks, and a line for each alarm.
func writeUnpushed(w io.Writer, store *artifact.Store, r *remote.Remote) {
	if n := len(r.Pending()); n > 0 {
		fmt.Fprintf(w, "remote %s: %s not pushed yet; `rcgrpo store push` sends what is missing\n", r.Name,
			english.Plural(n, "result is", "results are"))
	}
	for _, key := range r.Alarms() {
		address := "key " + key
		if m, err := store.Manifest(key); err == nil {
			address = m.Address
		}
		fmt.Fprintf(w, "remote %s: %s has other digests there than in this store: it is not deterministic, or one of the "+
			"results was edited; remove %s to dismiss this\n", r.Name, address, r.AlarmPath(key))
	}
}

// collectRemote lists or removes results of the remote store, and objects that no result names.
func (c *command) collectRemote(older time.Duration, limit int64, yes bool) error {
	_, r, err := c.siteRemote()
	if err != nil {
		return err
	}
	r.Report(func(string, string) {}) // errors are returned
	var before time.Time
	if older > 0 {
		before = time.Now().Add(-older)
	}
	ctx := context.Background()
	g, err := r.Garbage(ctx, before, limit)
	if err != nil {
		return err
	}
	w := c.stdout()
	for _, s := range g.Results {
		m := s.Manifest
		fmt.Fprintf(w, "result  %10s  %s  %s to run again\n", lang.BytesText(m.Bytes()), m.Address,
			runs.DurationText(m.Seconds))
	}
	for _, name := range g.Damaged {
		fmt.Fprintf(w, "damaged             %s\n", name)
	}
	var freed int64
	for _, info := range g.Unnamed {
		freed += info.Bytes
	}
	for _, u := range g.Uploads {
		freed += u.Bytes
	}
	fmt.Fprintf(w, "%s and %s to remove, %s freed; %s stay\n", english.Plural(len(g.Results), "result", ""),
		english.Plural(len(g.Unnamed), "object without result", "objects without result"), lang.BytesText(freed),
		lang.BytesText(g.Kept))
	if g.UploadsErr != nil {
		fmt.Fprintf(w, "unfinished uploads are not listed: %v\n", g.UploadsErr)
	}
	if len(g.Uploads) > 0 {
		fmt.Fprintf(w, "%s to abort\n", english.Plural(len(g.Uploads), "unfinished upload", ""))
	}
	if len(g.Results) > 0 {
		fmt.Fprintln(w, "the next collection frees the bytes of the removed results")
	}
	if !yes {
		fmt.Fprintln(w, "nothing was removed; --yes removes it")
		return nil
	}
	return r.Collect(ctx, g)
}
