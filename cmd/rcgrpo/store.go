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

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
)

const storeUsage = `usage:
  rcgrpo store ls [flags]                what the store holds, and what it took to make it (-h lists filters and orders)
  rcgrpo store check                     read everything and name what is damaged
  rcgrpo store gc [-limit SIZE] [-yes]   what may be removed to stay under the limit; -yes removes it
`

// storeCommand runs "rcgrpo store ls|check|gc".
func storeCommand(args []string, _ io.Reader, stdout, stderr io.Writer) int {
	commands := map[string]func(c *call, args []string) int{"ls": storeList, "check": storeCheck, "gc": storeGarbage}
	name, rest := cutCommand(args, slices.Collect(maps.Keys(commands)))
	if name == "" {
		return noSubcommand("store", storeUsage, args, slices.Collect(maps.Keys(commands)), stdout, stderr)
	}
	c := newCall("store "+name, "", stdout, stderr)
	return commands[name](c, rest)
}

// noSubcommand ends a command whose line names none of its subcommands: with the usage, as an answer when it was asked for.
func noSubcommand(command, usage string, args, names []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && asksForHelp(args[0]) {
		fmt.Fprint(stdout, usage)
		return exitDone
	}
	if len(args) > 0 {
		fmt.Fprintf(stderr, "rcgrpo %s: there is no %s%s\n", command, args[0], engine.NearHint(args[0], names))
	}
	fmt.Fprint(stderr, usage)
	return exitMisuse
}

// storeFilter picks results.
type storeFilter struct {
	experiment, kind, address string
	older, newer              age
	larger                    size
}

// age is a flag such as 36h, 7d or 2w.
type age time.Duration

func (a *age) String() string { return time.Duration(*a).String() }

func (a *age) Set(text string) error {
	for suffix, unit := range map[string]time.Duration{"d": 24 * time.Hour, "w": 7 * 24 * time.Hour} {
		if n, err := strconv.ParseFloat(strings.TrimSuffix(text, suffix), 64); err == nil && strings.HasSuffix(text, suffix) && n >= 0 {
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

// size is a flag such as 1.5GB.
type size int64

func (s *size) String() string { return engine.BytesText(int64(*s)) }

func (s *size) Set(text string) error {
	n, err := engine.ParseBytes(text)
	*s = size(n)
	return err
}

func (f *storeFilter) flags(c *call) {
	c.StringVar(&f.experiment, "experiment", "", "only results of the experiment `NAME`")
	c.StringVar(&f.kind, "kind", "", "only results of stages of this `KIND`")
	c.StringVar(&f.address, "address", "", "only results whose address fits `PATTERN`, such as 'eval.*@1'")
	c.Var(&f.older, "older", "only results made longer ago than this `TIME`, such as 36h or 7d")
	c.Var(&f.newer, "newer", "only results made within this `TIME`")
	c.Var(&f.larger, "larger", "only results of at least this `SIZE`, such as 100MB")
}

func (f *storeFilter) picks(r storedResult, now time.Time) bool {
	since := age(now.Sub(r.Started))
	return (f.experiment == "" || f.experiment == r.Experiment) && (f.kind == "" || f.kind == r.Kind) &&
		(f.address == "" || engine.MatchAddress(r.Address, f.address)) && (f.older == 0 || since > f.older) &&
		(f.newer == 0 || since <= f.newer) && r.Bytes >= int64(f.larger)
}

// storeOrders are the orders of `store ls -sort`. What is worth most takes most seconds to make again for each byte kept:
// gc begins at the other end.
var storeOrders = map[string]func(a, b storedResult) int{
	"address": func(a, b storedResult) int { return 0 }, // as they come
	"age":     func(a, b storedResult) int { return a.Started.Compare(b.Started) },
	"size":    func(a, b storedResult) int { return cmp.Compare(b.Bytes, a.Bytes) },
	"seconds": func(a, b storedResult) int { return cmp.Compare(b.Seconds, a.Seconds) },
	"worth": func(a, b storedResult) int {
		return cmp.Compare(b.Seconds*float64(a.Bytes), a.Seconds*float64(b.Bytes)) // seconds per byte, without dividing
	},
}

// storedResult is the summary of a manifest that `store ls` prints.
type storedResult struct {
	Key        string            `json:"key"`
	Experiment string            `json:"experiment"`
	Address    string            `json:"address"`
	Kind       string            `json:"kind"`
	Seed       *int64            `json:"seed,omitempty"`
	Types      map[string]string `json:"types"` // port -> artifact type
	Bytes      int64             `json:"bytes"`
	Seconds    float64           `json:"seconds"` // that it took
	Started    time.Time         `json:"started"`
	Run        string            `json:"run,omitempty"`
	Revision   string            `json:"revision"`
	Device     string            `json:"device,omitempty"`
	PeakBytes  int64             `json:"peak_bytes,omitempty"`
	Collected  time.Time         `json:"collected,omitzero"` // when gc removed the bytes
}

func newStoredResult(m *artifact.Manifest) storedResult {
	r := storedResult{Key: m.Key, Experiment: m.Experiment, Address: m.Address, Kind: m.Kind, Seed: m.Seed, Types: map[string]string{},
		Bytes: m.Bytes(), Seconds: m.Seconds, Started: m.Started, Run: m.Run, Revision: m.Revision, Device: m.Device,
		PeakBytes: m.PeakBytes, Collected: m.Collected}
	for port, o := range m.Outputs {
		r.Types[port] = o.Type
	}
	return r
}

func storeList(c *call, args []string) int {
	var filter storeFilter
	filter.flags(c)
	order := c.String("sort", "address", "`ORDER`: address, age (oldest first), size, seconds (to make it again), or worth (seconds per byte)")
	asJSON := c.Bool("json", false, "print everything for programs")
	if code, done := c.parse(args); done {
		return code
	}
	if len(c.args) > 0 {
		return c.misuse("takes no arguments; got %s", strings.Join(c.args, " "))
	}
	compare := storeOrders[*order]
	if compare == nil {
		orders := slices.Sorted(maps.Keys(storeOrders))
		return c.misuse("there is no order %s%s", *order, cmp.Or(engine.NearHint(*order, orders), ", only "+strings.Join(orders, ", ")))
	}
	store, _, err := c.siteStore()
	if err != nil {
		return c.fail(err)
	}
	manifests, problems, err := store.Manifests()
	if err != nil {
		return c.fail(err)
	}
	now := time.Now()
	var results []storedResult
	for _, m := range manifests {
		if r := newStoredResult(m); filter.picks(r, now) {
			results = append(results, r)
		}
	}
	slices.SortStableFunc(results, compare)
	if *asJSON {
		err = writeStoreJSON(c.stdout, store.Dir(), results, problems)
	} else {
		err = writeStore(c.stdout, store.Dir(), results, problems)
	}
	if err != nil {
		return c.fail(err)
	}
	return exitDone
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
		fmt.Fprintf(out, "%.12s  %10s  %8s  %s  %-*s  %s%s\n", r.Key, engine.BytesText(r.Bytes), secondsText(r.Seconds),
			r.Started.Local().Format("2006-01-02 15:04"), experiment, cmp.Or(r.Experiment, "-"), r.Address, state)
	}
	for _, p := range problems {
		fmt.Fprintln(out, p)
	}
	fmt.Fprintf(out, "%s, %s in %s; making them again takes %s\n", engine.Plural(len(results), "result"), engine.BytesText(total), dir, secondsText(seconds))
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
	if out.Results == nil {
		out.Results = []storedResult{}
	}
	for _, p := range problems {
		out.Problems = append(out.Problems, problem{p.Path, p.What})
	}
	return printJSON(w, out)
}

func storeCheck(c *call, args []string) int {
	if code, done := c.parse(args); done {
		return code
	}
	if len(c.args) > 0 {
		return c.misuse("takes no arguments; got %s", strings.Join(c.args, " "))
	}
	store, _, err := c.siteStore()
	if err != nil {
		return c.fail(err)
	}
	problems, err := store.Check()
	if err != nil {
		return c.fail(err)
	}
	told := map[string]bool{} // results of one stage may share a file
	for _, p := range problems {
		if line := p.String(); !told[line] {
			told[line] = true
			fmt.Fprintln(c.stdout, line)
		}
	}
	if len(problems) > 0 {
		fmt.Fprintf(c.stdout, "%s; a run makes damaged results again\n", engine.Plural(len(told), "problem"))
		return exitFailed
	}
	fmt.Fprintf(c.stdout, "%s is sound\n", store.Dir())
	return exitDone
}

func storeGarbage(c *call, args []string) int {
	limitText := c.String("limit", "", "keep the store under this `SIZE`, such as 200GB; default the site file's")
	yes := c.Bool("yes", false, "remove what is listed")
	if code, done := c.parse(args); done {
		return code
	}
	if len(c.args) > 0 {
		return c.misuse("takes no arguments; got %s", strings.Join(c.args, " "))
	}
	store, site, err := c.siteStore()
	if err != nil {
		return c.fail(err)
	}
	limit := site.Limit
	if *limitText != "" {
		if limit, err = engine.ParseBytes(*limitText); err != nil {
			return c.fail(err)
		}
		if limit == 0 {
			return c.misuse("-limit %s would be no limit; 1B removes every result", *limitText)
		}
	}
	gc := store.Garbage
	if *yes {
		gc = store.Collect
	}
	plan, err := gc(limit)
	if errors.Is(err, artifact.ErrBusy) {
		return c.fail(fmt.Errorf("%w; try again when that has ended (`rcgrpo status` tells)", err))
	}
	if err != nil {
		return c.fail(err)
	}
	var freed int64
	var seconds float64
	for _, g := range plan {
		freed += g.Bytes
		seconds += g.Seconds
		cost := ""
		if g.Manifest != nil {
			cost = "  " + secondsText(g.Seconds) + " to make it again"
		}
		fmt.Fprintf(c.stdout, "%-20s %10s  %s%s\n", g.What, engine.BytesText(g.Bytes), g.Name, cost)
	}
	verb := "would free"
	if *yes {
		verb = "freed"
	}
	fmt.Fprintf(c.stdout, "%s %s of %s; making it all again takes %s\n", verb, engine.BytesText(freed), engine.Plural(len(plan), "thing"), secondsText(seconds))
	if !*yes && len(plan) > 0 {
		fmt.Fprintln(c.stdout, "nothing was removed: -yes does it")
	}
	if limit == 0 {
		fmt.Fprintln(c.stdout, "results stay, since there is no limit: say -limit SIZE, or limit in the site file's store block")
		return exitDone
	}
	inUse, err := store.InUse()
	if err != nil {
		return c.fail(err)
	}
	if inUse > 0 {
		fmt.Fprintf(c.stdout, "kept for runs that go on: %s\n", engine.Plural(inUse, "result"))
	}
	return exitDone
}
