package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
)

func storeCommand() *cobra.Command {
	return newGroup("store", "List, check and clean the stored results",
		storeListCommand(), storeCheckCommand(), storeGarbageCommand())
}

// storeFilter selects results.
type storeFilter struct {
	experiment, kind, address string
	older, newer              age
	larger                    size
}

// age is the value of a flag, such as 36h, 7d or 2w.
type age time.Duration

func (a *age) String() string {
	if *a == 0 {
		return ""
	}
	return time.Duration(*a).String()
}

func (a *age) Type() string { return "TIME" }

func (a *age) Set(text string) error {
	for suffix, unit := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		if n, err := strconv.ParseFloat(strings.TrimSuffix(text, suffix), 64); err == nil &&
			strings.HasSuffix(text, suffix) && n >= 0 {
			*a = age(n * float64(unit))
			return nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return errors.New("want a time such as 90m, 36h, 7d or 2w")
	}
	*a = age(d)
	return nil
}

// size is the value of a flag, such as 1.5GB.
type size int64

func (s *size) String() string {
	if *s == 0 {
		return ""
	}
	return lang.BytesText(int64(*s))
}

func (s *size) Type() string { return "SIZE" }

func (s *size) Set(text string) error {
	n, err := lang.ParseBytes(text)
	*s = size(n)
	return err
}

func (f *storeFilter) addFlags(c *experimentFlags) {
	c.Flags().StringVar(&f.experiment, "experiment", "", "only results of the experiment `NAME`")
	c.Flags().StringVar(&f.kind, "kind", "", "only results of stages of this `KIND`")
	c.Flags().StringVar(&f.address, "address", "", "only results whose address matches `PATTERN`, such as 'eval.*@1'")
	c.Flags().Var(&f.older, "older", "only results older than `TIME`, such as 36h or 7d")
	c.Flags().Var(&f.newer, "newer", "only results newer than `TIME`")
	c.Flags().Var(&f.larger, "larger", "only results of at least `SIZE`, such as 100MB")
	c.completeFlag("kind", kindNames)
}

func (f *storeFilter) picks(r storedResult, now time.Time) bool {
	since := age(now.Sub(r.Started))
	return (f.experiment == "" || f.experiment == r.Experiment) && (f.kind == "" || f.kind == r.Kind) &&
		(f.address == "" || lang.MatchAddress(r.Address, f.address)) && (f.older == 0 || since > f.older) &&
		(f.newer == 0 || since <= f.newer) && r.Bytes >= int64(f.larger)
}

// storeOrders are the orders of `store ls --sort`. A result is worth the seconds that it took per byte; gc removes the
// results that are worth least.
var storeOrders = map[string]func(a, b storedResult) int{
	"address": func(a, b storedResult) int { return 0 }, // the order of the store
	"age":     func(a, b storedResult) int { return a.Started.Compare(b.Started) },
	"size":    func(a, b storedResult) int { return cmp.Compare(b.Bytes, a.Bytes) },
	"seconds": func(a, b storedResult) int { return cmp.Compare(b.Seconds, a.Seconds) },
	"worth": func(a, b storedResult) int {
		return cmp.Compare(b.Seconds*float64(a.Bytes), a.Seconds*float64(b.Bytes)) // seconds per byte, without dividing
	},
}

// storedResult is the summary of a manifest.
type storedResult struct {
	Key        string            `json:"key"`
	Experiment string            `json:"experiment"`
	Address    string            `json:"address"`
	Kind       string            `json:"kind"`
	Seed       *int64            `json:"seed,omitempty"`
	Types      map[string]string `json:"types"` // port -> artifact type
	Bytes      int64             `json:"bytes"`
	Seconds    float64           `json:"seconds"`
	Started    time.Time         `json:"started"`
	Run        string            `json:"run,omitempty"`
	Revision   string            `json:"revision"`
	Device     string            `json:"device,omitempty"`
	PeakBytes  int64             `json:"peak_bytes,omitempty"`
	Collected  time.Time         `json:"collected,omitzero"` // when gc removed the bytes
}

func newStoredResult(m *artifact.Manifest) storedResult {
	r := storedResult{Key: m.Key, Experiment: m.Experiment, Address: m.Address, Kind: m.Kind, Seed: m.Seed,
		Types: map[string]string{}, Bytes: m.Bytes(), Seconds: m.Seconds, Started: m.Started, Run: m.Run,
		Revision: m.Revision, Device: m.Device, PeakBytes: m.PeakBytes, Collected: m.Collected}
	for port, o := range m.Outputs {
		r.Types[port] = o.Type
	}
	return r
}

func storeListCommand() *cobra.Command {
	c := newExperimentCommand("ls", "List the stored results and the time that they took", wantArgs(0, 0, ""))
	var filter storeFilter
	filter.addFlags(c)
	orders := slices.Sorted(maps.Keys(storeOrders))
	order := c.Flags().String("sort", "address", "`ORDER`: address, age (oldest first), size, seconds (run time), "+
		"or worth (seconds per byte; gc removes the last first)")
	asJSON := c.Flags().Bool("json", false, "print JSON")
	c.completeFlag("sort", func() []string { return orders })
	c.RunE = func(*cobra.Command, []string) error {
		compare := storeOrders[*order]
		if compare == nil {
			hint := cmp.Or(lang.NearHint(*order, orders), ", only "+strings.Join(orders, ", "))
			return misuse("there is no order %s%s", *order, hint)
		}
		store, _, err := c.siteStore()
		if err != nil {
			return err
		}
		manifests, problems, err := store.Manifests()
		if err != nil {
			return err
		}
		now := time.Now()
		results := []storedResult{}
		for _, m := range manifests {
			if r := newStoredResult(m); filter.picks(r, now) {
				results = append(results, r)
			}
		}
		slices.SortStableFunc(results, compare)
		if *asJSON {
			return writeStoreJSON(c.stdout(), store.Dir(), results, problems)
		}
		return writeStore(c.stdout(), store.Dir(), results, problems)
	}
	return c.Command
}

func writeStore(w io.Writer, dir string, results []storedResult, problems []artifact.Problem) error {
	out := bufio.NewWriter(w)
	var total int64
	var seconds float64
	experiment := 0
	for _, r := range results {
		experiment = max(experiment, utf8.RuneCountInString(r.Experiment))
	}
	for _, r := range results {
		state := ""
		if !r.Collected.IsZero() {
			state = "  collected"
		} else {
			total += r.Bytes
			seconds += r.Seconds
		}
		fmt.Fprintf(out, "%.12s  %10s  %8s  %s  %-*s  %s%s\n", r.Key, lang.BytesText(r.Bytes), runs.DurationText(r.Seconds),
			r.Started.Local().Format("2006-01-02 15:04"), experiment, cmp.Or(r.Experiment, "-"), r.Address, state)
	}
	for _, p := range problems {
		fmt.Fprintln(out, p)
	}
	fmt.Fprintf(out, "%s, %s in %s; running them again takes %s\n",
		english.Plural(len(results), "result", ""), lang.BytesText(total), dir, runs.DurationText(seconds))
	return out.Flush()
}

func writeStoreJSON(w io.Writer, dir string, results []storedResult, problems []artifact.Problem) error {
	type problem struct {
		Path string `json:"path"`
		What string `json:"what"`
	}
	out := struct {
		Store    string         `json:"store"`
		Results  []storedResult `json:"results"`
		Problems []problem      `json:"problems"`
	}{dir, results, []problem{}}
	for _, p := range problems {
		out.Problems = append(out.Problems, problem{p.Path, p.What})
	}
	return printJSON(w, out)
}

func storeCheckCommand() *cobra.Command {
	c := newExperimentCommand("check", "Read all results and report damage", wantArgs(0, 0, ""))
	c.RunE = func(*cobra.Command, []string) error {
		store, _, err := c.siteStore()
		if err != nil {
			return err
		}
		problems, err := store.Check()
		if err != nil {
			return err
		}
		printed := map[string]bool{} // results of one stage may share a file
		for _, p := range problems {
			if line := p.String(); !printed[line] {
				printed[line] = true
				fmt.Fprintln(c.stdout(), line)
			}
		}
		if len(problems) > 0 {
			fmt.Fprintf(c.stdout(), "%s; a run computes damaged results again\n", english.Plural(len(printed), "problem", ""))
			return exitCode(exitFailed)
		}
		fmt.Fprintf(c.stdout(), "%s is sound\n", store.Dir())
		return nil
	}
	return c.Command
}

func storeGarbageCommand() *cobra.Command {
	c := newExperimentCommand("gc", "List results to remove to stay under the limit; --yes removes them",
		wantArgs(0, 0, ""))
	limit := c.Flags().String("limit", "", "`SIZE` of the store, such as 200GB (default: the site file's)")
	yes := c.Flags().Bool("yes", false, "remove the listed results")
	c.RunE = func(*cobra.Command, []string) error { return c.collectGarbage(*limit, *yes) }
	return c.Command
}

func (c *experimentFlags) collectGarbage(limitText string, yes bool) error {
	store, site, err := c.siteStore()
	if err != nil {
		return err
	}
	limit := site.Limit
	if limitText != "" {
		if limit, err = lang.ParseBytes(limitText); err != nil {
			return err
		}
		if limit == 0 {
			return misuse("--limit %s would mean no limit; 1B removes every result", limitText)
		}
	}
	gc, verb := store.Garbage, "would free"
	if yes {
		gc, verb = store.Collect, "freed"
	}
	plan, err := gc(limit)
	if errors.Is(err, artifact.ErrBusy) {
		return fmt.Errorf("%w; try again when that run has ended (see `rcgrpo status`)", err)
	}
	if err != nil {
		return err
	}
	w := c.stdout()
	var freed int64
	var seconds float64
	for _, g := range plan {
		freed += g.Bytes
		seconds += g.Seconds
		cost := ""
		if g.Manifest != nil {
			cost = "  " + runs.DurationText(g.Seconds) + " to run again"
		}
		fmt.Fprintf(w, "%-20s %10s  %s%s\n", g.What, lang.BytesText(g.Bytes), g.Name, cost)
	}
	fmt.Fprintf(w, "%s %s of %s; running it all again takes %s\n",
		verb, lang.BytesText(freed), english.Plural(len(plan), "thing", ""), runs.DurationText(seconds))
	if !yes && len(plan) > 0 {
		fmt.Fprintln(w, "nothing was removed; --yes removes it")
	}
	if limit == 0 {
		fmt.Fprintln(w, "there is no limit, so results stay: set --limit SIZE, or limit in the store block of the site file")
		return nil
	}
	inUse, err := store.InUse()
	if err == nil && inUse > 0 {
		fmt.Fprintf(w, "in use by active runs: %s\n", english.Plural(inUse, "result", ""))
	}
	return err
}
