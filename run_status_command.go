package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
)

// experimentName is the name that runs of an experiment carry, without reading its files.
func experimentName(path string) (string, error) {
	if path == "" {
		found, err := engine.FindExperiment(".")
		if err != nil {
			return "", err
		}
		path = found
	}
	abs, err := filepath.Abs(path)
	return strings.TrimSuffix(filepath.Base(abs), ".hcl"), err
}

// siteStore opens the store that the site file names, without reading an experiment.
func (c *call) siteStore() (*artifact.Store, *engine.Site, error) {
	site, files, diags := engine.LoadSite(c.source)
	c.tell(diags, files)
	if diags.HasErrors() {
		return nil, nil, errors.New("the site file has mistakes")
	}
	store, err := c.store(&engine.Experiment{Site: site})
	return store, site, err
}

// statusCommand runs "rcgrpo status [EXP]": how the newest run stands. Without an experiment it lists the newest run of
// each that the store knows.
func statusCommand(args []string, _ io.Reader, stdout, stderr io.Writer) int {
	c := newCall("status", "[EXP]", stdout, stderr)
	all := c.Bool("all", false, "every stage, not only those that run or failed")
	if code, done := c.parse(args); done {
		return code
	}
	if len(c.args) > 1 {
		return c.misuse("one experiment at a time; got %s", strings.Join(c.args, " "))
	}
	store, _, err := c.siteStore()
	if err != nil {
		return c.fail(err)
	}
	names := []string{}
	if name, err := experimentName(strings.Join(c.args, "")); err == nil {
		names = append(names, name)
	} else if len(c.args) > 0 {
		return c.fail(err)
	} else if names, err = engine.Experiments(store); err != nil {
		return c.fail(err)
	}
	shown := 0
	for _, name := range names {
		folders, err := engine.Runs(store, name)
		if err != nil {
			return c.fail(err)
		}
		if len(folders) == 0 {
			continue
		}
		s, err := engine.Status(folders[0])
		if err != nil {
			return c.fail(err)
		}
		shown++
		printStatus(stdout, s, *all)
	}
	survivors, err := engine.Survivors(store)
	if err != nil {
		return c.fail(err)
	}
	for _, stage := range survivors {
		if slices.Contains(names, stage.Experiment) {
			fmt.Fprintln(stdout, stage.Text(time.Now()))
		}
	}
	if shown == 0 {
		fmt.Fprintf(stdout, "no runs in %s\n", store.Dir())
	}
	return exitDone
}

func printStatus(w io.Writer, s *engine.RunStatus, all bool) {
	fmt.Fprintf(w, "%s  %s\n", engine.RunName(s.Folder), s.Text())
	counts := map[string]int{}
	for _, n := range s.Nodes {
		state := string(n.State)
		switch n.State {
		case "":
			state = string(engine.UpToDate)
		case engine.EventPlanned:
			state = "waiting"
		case engine.EventStarted:
			state = "running"
			if !s.Live && !n.Survives {
				state = "stopped"
			}
		}
		counts[state]++
		if all || state == "running" || state == "stopped" || state == "failed" {
			now := s.Now()
			if n.Survives {
				now = time.Now()
			}
			fmt.Fprintf(w, "  %-10s %s  %s\n", state, n.Address, n.Text(now))
		}
		if n.Failure != nil {
			fmt.Fprintf(w, "             log: %s\n", n.Failure.Log)
		}
	}
	fmt.Fprintf(w, "  %s\n  %s\n", countsText(counts), s.Folder)
}

// logsCommand runs "rcgrpo logs ADDR": what a stage wrote, from its first byte or its last lines, and what it goes on
// to write.
func logsCommand(args []string, _ io.Reader, stdout, stderr io.Writer) int {
	c := newCall("logs", "ADDRESS [EXP]", stdout, stderr)
	follow := c.Bool("f", false, "go on as long as its run does")
	last := c.Int("n", 0, "only the last `N` lines; 0: all")
	if code, done := c.parse(args); done {
		return code
	}
	if len(c.args) < 1 || len(c.args) > 2 {
		return c.misuse("want the address of a stage, and perhaps an experiment")
	}
	store, _, err := c.siteStore()
	if err != nil {
		return c.fail(err)
	}
	name, err := experimentName(strings.Join(c.args[1:], ""))
	if err != nil {
		return c.fail(err)
	}
	address, err := loggedAddress(store, name, c.args[0])
	if err != nil {
		return c.fail(err)
	}
	path, _, err := engine.LogOf(store, name, address)
	if err != nil {
		return c.fail(err)
	}
	ctx, _, stop := interruptible(stderr)
	defer stop()
	live := func() bool {
		newest, live, err := engine.LogOf(store, name, address)
		return err == nil && live && newest == path
	}
	if err := printLog(ctx, stdout, path, *last, *follow, live); err != nil {
		return c.fail(err)
	}
	return exitDone
}

// loggedAddress finds the address that a user means among those that runs have planned.
func loggedAddress(store *artifact.Store, experiment, wanted string) (string, error) {
	known := engine.LoggedNodes(store, experiment)
	for _, address := range known {
		if engine.SameAddress(address, wanted) {
			return address, nil
		}
	}
	if len(known) == 0 {
		return "", fmt.Errorf("experiment %s has no runs in %s", experiment, store.Dir())
	}
	return "", fmt.Errorf("no run of %s had a stage %s; the newest had %s", experiment, wanted, strings.Join(known, ", "))
}

// followEvery is how often a log that is followed is looked at.
const followEvery = 200 * time.Millisecond

// printLog copies a log to w, then what is appended as long as live says so.
func printLog(ctx context.Context, w io.Writer, path string, last int, follow bool, live func() bool) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if last > 0 {
		if err := skipToLast(f, last); err != nil {
			return err
		}
	}
	for {
		goesOn := follow && live() // asked before the copy, so that nothing written before the end is lost
		if _, err := io.Copy(w, f); err != nil {
			return err
		}
		if !goesOn {
			return nil
		}
		select {
		case <-time.After(followEvery):
		case <-ctx.Done():
			return nil
		}
	}
}

// skipToLast moves f to the start of its last n lines.
func skipToLast(f *os.File, n int) error {
	starts := make([]int64, 0, n)
	lines := bufio.NewReader(f)
	var at int64
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			if len(starts) == n {
				starts = append(starts[:0], starts[1:]...)
			}
			starts = append(starts, at)
			at += int64(len(line))
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	var from int64
	if len(starts) > 0 {
		from = starts[0]
	}
	_, err := f.Seek(from, io.SeekStart)
	return err
}

const storeUsage = `usage:
  rcgrpo store ls                                what the store holds, and what it took to make it
  rcgrpo store check                             read everything and name what is damaged
  rcgrpo store gc [-limit SIZE] [-yes]   what may be removed to stay under the limit; -yes removes it
`

// storeCommand runs "rcgrpo store ls|check|gc".
func storeCommand(args []string, _ io.Reader, stdout, stderr io.Writer) int {
	commands := map[string]func(c *call, args []string) int{"ls": storeList, "check": storeCheck, "gc": storeGarbage}
	if len(args) == 0 || commands[args[0]] == nil {
		fmt.Fprint(stderr, storeUsage)
		return exitMisuse
	}
	c := newCall("store "+args[0], "", stdout, stderr)
	return commands[args[0]](c, args[1:])
}

func storeList(c *call, args []string) int {
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
	manifests, problems, err := store.Manifests()
	if err != nil {
		return c.fail(err)
	}
	var total int64
	for _, m := range manifests {
		state := ""
		if !m.Collected.IsZero() {
			state = "  collected"
		} else {
			total += m.Bytes()
		}
		fmt.Fprintf(c.stdout, "%.12s  %10s  %8s  %s  %s  %s%s\n", m.Key, bytesText(m.Bytes()), secondsText(m.Seconds),
			m.Started.Local().Format("2006-01-02 15:04"), cmp.Or(m.Experiment, "-"), m.Address, state)
	}
	for _, p := range problems {
		fmt.Fprintln(c.stdout, p)
	}
	fmt.Fprintf(c.stdout, "%d results, %s in %s\n", len(manifests), bytesText(total), store.Dir())
	return exitDone
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
	for _, p := range problems {
		fmt.Fprintln(c.stdout, p)
	}
	if len(problems) > 0 {
		fmt.Fprintf(c.stdout, "%d problems; a run makes damaged results again\n", len(problems))
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
	}
	plan, err := store.Garbage(limit)
	if err == nil && *yes {
		plan, err = store.Collect(limit)
	}
	if errors.Is(err, artifact.ErrBusy) {
		return c.fail(fmt.Errorf("%w; try again when it has ended (`rcgrpo status` tells)", err))
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
		fmt.Fprintf(c.stdout, "%-20s %10s  %s%s\n", g.What, bytesText(g.Bytes), g.Name, cost)
	}
	verb := "would free"
	if *yes {
		verb = "freed"
	}
	fmt.Fprintf(c.stdout, "%s %s of %d things; making it all again takes %s\n", verb, bytesText(freed), len(plan), secondsText(seconds))
	if !*yes && len(plan) > 0 {
		fmt.Fprintln(c.stdout, "nothing was removed: -yes does it")
	}
	return exitDone
}

// bytesText writes a size with three digits: "1.5 MB".
func bytesText(n int64) string {
	size, units := float64(n), []string{"B", "kB", "MB", "GB", "TB"}
	for len(units) > 1 && size >= 1000 {
		size, units = size/1000, units[1:]
	}
	if units[0] == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.3g %s", size, units[0])
}

func secondsText(s float64) string {
	return (time.Duration(s*1000) * time.Millisecond).Round(100 * time.Millisecond).String()
}

// countsText writes "12 up to date, 3 waiting".
func countsText(counts map[string]int) string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[what], what))
	}
	return strings.Join(parts, ", ")
}
