package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"rcgrpo/cmd/rcgrpo/internal/output"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
)

func storeCommand() *cobra.Command {
	return newGroup("store", "List, verify, clean and share the stored results",
		storeSizeCommand(), storeVerifyCommand(), storeGarbageCommand(), storePushCommand(), storeFetchCommand())
}

type storeFilter struct {
	experiment, kind, address string
	older, newer              time.Duration
	larger                    int64
}

// parsed returns the function of a flag whose value parse reads.
func parsed[T any](value *T, parse func(string) (T, error)) func(string) error {
	return func(text string) (err error) {
		*value, err = parse(text)
		return err
	}
}

// parseAge parses a duration such as 36h, 7d or 2w.
func parseAge(text string) (time.Duration, error) {
	for suffix, unit := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		if n, err := strconv.ParseFloat(strings.TrimSuffix(text, suffix), 64); err == nil && n >= 0 &&
			strings.HasSuffix(text, suffix) {
			return time.Duration(n * float64(unit)), nil
		}
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, errors.New("want a time such as 90m, 36h, 7d or 2w")
	}
	return d, nil
}

func (f *storeFilter) addFlags(c *command) {
	c.Flags().StringVar(&f.experiment, "experiment", "", "only results of the experiment `NAME`")
	c.Flags().StringVar(&f.kind, "kind", "", "only results of stages of this `KIND`")
	c.Flags().StringVar(&f.address, "address", "", "only results whose address matches `PATTERN`, such as 'eval.*@1'")
	c.Flags().Func("older", "only results older than `TIME`, such as 36h or 7d", parsed(&f.older, parseAge))
	c.Flags().Func("newer", "only results newer than `TIME`", parsed(&f.newer, parseAge))
	c.Flags().Func("larger", "only results of at least `SIZE`, such as 100MB", parsed(&f.larger, lang.ParseBytes))
}

func (f *storeFilter) picks(m *artifact.Manifest, now time.Time) bool {
	since := now.Sub(m.Started)
	return (f.experiment == "" || f.experiment == m.Experiment) && (f.kind == "" || f.kind == m.Kind) &&
		(f.address == "" || lang.MatchAddress(m.Address, f.address)) && (f.older == 0 || since > f.older) &&
		(f.newer == 0 || since <= f.newer) && m.Bytes() >= f.larger
}

// storeOrders are the orders of `store du --sort`. A result is worth the seconds that it took per byte; gc removes the
// results that are worth least.
var storeOrders = map[string]func(a, b *artifact.Manifest) int{
	"address": func(a, b *artifact.Manifest) int { return 0 }, // the order of the store
	"age":     func(a, b *artifact.Manifest) int { return a.Started.Compare(b.Started) },
	"size":    func(a, b *artifact.Manifest) int { return cmp.Compare(b.Bytes(), a.Bytes()) },
	"seconds": func(a, b *artifact.Manifest) int { return cmp.Compare(b.Seconds, a.Seconds) },
	"worth": func(a, b *artifact.Manifest) int { // seconds per byte, without dividing
		return cmp.Compare(b.Seconds*float64(a.Bytes()), a.Seconds*float64(b.Bytes()))
	},
}

func storeOrderNames() []string { return slices.Sorted(maps.Keys(storeOrders)) }

func storeSizeCommand() *cobra.Command {
	c := newExperimentCommand("du", "List the stored results and the time that they took", wantArgs(0, 0, ""))
	var filter storeFilter
	filter.addFlags(c)
	order := c.Flags().String("sort", "address", "`ORDER`: address, age (oldest first), size, seconds (run time), "+
		"or worth (seconds per byte; gc removes the last first)")
	asJSON := c.Flags().Bool("json", false, "print JSON")
	return c.does(func([]string) error {
		compare := storeOrders[*order]
		if compare == nil {
			names := storeOrderNames()
			hint := cmp.Or(lang.NearHint(*order, names), ", only "+strings.Join(names, ", "))
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
		manifests = slices.DeleteFunc(manifests, func(m *artifact.Manifest) bool { return !filter.picks(m, now) })
		slices.SortStableFunc(manifests, compare)
		if *asJSON {
			return writeStoreJSON(c.stdout(), store, manifests, problems)
		}
		return writeStore(c.stdout(), store, manifests, problems)
	})
}

func writeStore(w io.Writer, s *artifact.Store, results []*artifact.Manifest, problems []artifact.Problem) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	var total int64
	var seconds float64
	for _, m := range results {
		state := ""
		switch absent := s.Absent(m); len(absent) {
		case 0:
			total += m.Bytes()
			seconds += m.Seconds
		case len(m.Outputs):
			state = "  not here"
		default:
			state = "  not here: " + strings.Join(absent, ", ")
		}
		fmt.Fprintf(out, "%.12s\t%10s\t%8s\t%s\t%s\t%s%s\n", m.Key, lang.BytesText(m.Bytes()),
			runs.DurationText(m.Seconds), m.Started.Local().Format("2006-01-02 15:04"), cmp.Or(m.Experiment, "-"),
			m.Address, state)
	}
	for _, p := range problems {
		fmt.Fprintln(out, p)
	}
	fmt.Fprintf(out, "%s, %s in %s; running them again takes %s\n",
		english.Plural(len(results), "result", ""), lang.BytesText(total), s.Dir(), runs.DurationText(seconds))
	return out.Flush()
}

// storedResult is a manifest as JSON, without the parts of its key and the lists of its files.
type storedResult struct {
	*artifact.Manifest
	Types map[string]string `json:"types"` // port -> artifact type
	Bytes int64             `json:"bytes"`
	// Absent are the ports whose bytes are not in the store.
	Absent []string `json:"absent,omitempty"`

	Parts   *struct{} `json:"parts,omitempty"`
	Outputs *struct{} `json:"outputs,omitempty"`
}

func writeStoreJSON(w io.Writer, s *artifact.Store, results []*artifact.Manifest, problems []artifact.Problem) error {
	type problem struct {
		Path string `json:"path"`
		What string `json:"what"`
	}
	out := struct {
		Store    string         `json:"store"`
		Results  []storedResult `json:"results"`
		Problems []problem      `json:"problems"`
	}{s.Dir(), []storedResult{}, []problem{}}
	for _, m := range results {
		r := storedResult{Manifest: m, Types: map[string]string{}, Bytes: m.Bytes(), Absent: s.Absent(m)}
		for port, o := range m.Outputs {
			r.Types[port] = o.Type
		}
		out.Results = append(out.Results, r)
	}
	for _, p := range problems {
		out.Problems = append(out.Problems, problem{p.Path, p.What})
	}
	return output.JSON(w, out)
}

func storeVerifyCommand() *cobra.Command {
	c := newExperimentCommand("verify", "Read all results and report damage", wantArgs(0, 0, ""))
	far := c.Flags().Bool("remote", false, "probe the remote store instead: reads, writes, damage")
	return c.does(func([]string) error {
		if *far {
			return c.verifyRemote()
		}
		store, _, err := c.siteStore()
		if err != nil {
			return err
		}
		problems, err := store.Check()
		if err != nil {
			return err
		}
		var lines []string
		for _, p := range problems {
			lines = append(lines, p.Error())
		}
		lines = unique(lines) // results of one stage may share a file
		for _, line := range lines {
			fmt.Fprintln(c.stdout(), line)
		}
		if len(lines) > 0 {
			fmt.Fprintf(c.stdout(), "%s; a run computes damaged results again\n", english.Plural(len(lines), "problem", ""))
			return exitCode(exitFailed)
		}
		fmt.Fprintf(c.stdout(), "%s is sound\n", store.Dir())
		return nil
	})
}

func storeGarbageCommand() *cobra.Command {
	c := newExperimentCommand("gc", "List the results to remove so that the store stays under its limit",
		wantArgs(0, 0, ""))
	var limit int64
	c.Flags().Func("limit", "`SIZE` of the store, such as 200GB (default: the site file's)",
		parsed(&limit, lang.ParseBytes))
	yes := c.Flags().Bool("yes", false, "remove them")
	return c.does(func([]string) error {
		if limit == 0 && c.Flags().Changed("limit") {
			return misuse("--limit 0 would mean no limit; 1B removes every result")
		}
		return c.collectGarbage(limit, *yes)
	})
}

// collectGarbage lists or removes the results that exceed the limit; 0 stands for the limit of the site file.
func (c *command) collectGarbage(limit int64, yes bool) error {
	store, site, err := c.siteStore()
	if err != nil {
		return err
	}
	limit = cmp.Or(limit, site.Limit)
	gc, verb := store.Garbage, "would free"
	if yes {
		gc, verb = store.Collect, "freed"
	}
	plan, err := gc(limit, runs.Pins)
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
	pinned, err := runs.Pins(store)
	inUse := 0
	for key := range pinned {
		if _, err := store.Manifest(key); err == nil {
			inUse++
		}
	}
	if inUse > 0 {
		fmt.Fprintf(w, "in use by active runs: %s\n", english.Plural(inUse, "result", ""))
	}
	return err
}
