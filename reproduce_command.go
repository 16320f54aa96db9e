package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/reports"
)

// reproduceCommand runs `rcgrpo reproduce PAGE#CELL [EXP]`: it prints the stages behind one cell of a page and, with -run,
// runs them in a fresh store and compares.
func reproduceCommand(args []string, _ io.Reader, stdout, stderr io.Writer) int {
	c := newCall("reproduce", "PAGE#CELL [EXP]", stdout, stderr)
	run := c.Bool("run", false, "run the stages in a fresh store and compare")
	into := c.String("into", "", "keep that store in this `FOLDER`; an interrupted run goes on there")
	replace := c.Bool("replace", false, "run the stages in the site's store instead, although it holds their results")
	if code, done := c.parse(args); done {
		return code
	}
	if len(c.args) < 1 || len(c.args) > 2 {
		return c.misuse("want PAGE#CELL and at most one experiment, got %d arguments", len(c.args))
	}
	path, cell, ok := cutCell(c.args[0])
	if !ok {
		return c.misuse("want PAGE#CELL, such as drills.html#main-test.r1c2; got %s", c.args[0])
	}
	if *replace && *into != "" {
		return c.misuse("-replace runs in the site's store, -into in another: want one of them")
	}
	page, dir, done, err := readPageFile(path)
	if err != nil {
		return c.fail(err)
	}
	defer done()
	ev, err := reports.ReadEvidence(page)
	if err != nil {
		return c.fail(fmt.Errorf("%s: %w", path, err))
	}
	source, err := ev.SourceOf(cell)
	if err != nil {
		return c.fail(fmt.Errorf("%s: %w", path, err))
	}
	experiment := ""
	if len(c.args) == 2 {
		experiment = c.args[1]
	} else if experiment, err = findBeside(dir, ev.Name); err != nil {
		return c.fail(fmt.Errorf("%w: name the experiment after the cell", err))
	}
	c.source.Name = ev.Name
	x, code := c.load(experiment)
	if x == nil {
		return code
	}
	store, forget, err := c.reproductionStore(x, *into, *run, *replace)
	if err != nil {
		return c.fail(err)
	}
	defer forget()
	o := engine.PlanOptions{Targets: source.Stages()}
	plan, err := x.PlanWith(store, o)
	if err == nil && *replace {
		for _, n := range plan.Nodes {
			o.Replace = append(o.Replace, n.Address)
		}
		plan, err = x.PlanWith(store, o)
	}
	if err != nil {
		return c.fail(err)
	}
	fmt.Fprintf(stdout, "%s is %s\n\n", cell, source)
	if !*run && !*replace {
		fmt.Fprintf(stdout, "Behind it: %d of the %d stages of %s.\n", len(plan.Nodes), len(x.Nodes), x.Name)
		took := c.recorded(x, ev, plan)
		for _, l := range planLines(plan, engine.Forecast{}) {
			fmt.Fprintf(stdout, "  %s\n", strings.TrimSuffix(l.stem+"@"+strings.Join(l.seeds, ","), "@"))
		}
		if took > 0 {
			fmt.Fprintf(stdout, "They took %s of stage time when the page was made.\n", took.Round(time.Second))
		}
		fmt.Fprintln(stdout, "-run runs them in a fresh store and compares.")
		return exitDone
	}
	ctx, kill, stop := interruptible(stderr)
	defer stop()
	display := newDisplay(stdout)
	err = plan.Run(ctx, engine.RunOptions{Kill: kill}, display.Observe)
	display.Close()
	var failed *engine.RunError
	switch {
	case errors.Is(err, engine.ErrInterrupted):
		return exitInterrupted
	case errors.As(err, &failed): // told already
		return exitFailed
	case err != nil:
		return c.fail(err)
	}
	r, err := reports.Reproduce(page, cell, store, func(address string) (*artifact.Manifest, error) { return store.Last(x.Name, address) })
	if err != nil {
		return c.fail(err)
	}
	for _, port := range r.Differs {
		fmt.Fprintf(stdout, "%s came out otherwise than the page's\n", port)
	}
	if !r.Equal() {
		fmt.Fprintf(stdout, "%s (%s) differs: the page shows %q, the run gives %q\n", r.Cell, r.Name, r.Shown, r.Got)
		return exitFailed
	}
	fmt.Fprintf(stdout, "%s (%s) is equal: %s\n", r.Cell, r.Name, r.Got)
	return exitDone
}

// cutCell cuts PAGE#CELL; a path may hold a # of its own.
func cutCell(arg string) (page, cell string, ok bool) {
	i := strings.LastIndexByte(arg, '#')
	if i < 1 || i == len(arg)-1 {
		return "", "", false
	}
	return arg[:i], arg[i+1:], true
}

// readPageFile reads a page, or the one in a bundle, and says in which folder its experiment should be.
func readPageFile(path string) (page []byte, dir string, done func(), err error) {
	if !strings.HasSuffix(path, reports.BundleSuffix) {
		page, err = os.ReadFile(path)
		return page, filepath.Dir(path), func() {}, err
	}
	unpacked, done, err := temporaryFolder("rcgrpo-bundle-")
	if err != nil {
		return nil, "", nil, err
	}
	if page, _, err = reports.OpenBundle(path, unpacked); err != nil {
		done()
		return nil, "", nil, err
	}
	return page, filepath.Join(unpacked, "experiment"), done, nil
}

// findBeside finds the experiment of that name in a folder: its file, or the folder itself.
func findBeside(dir, name string) (string, error) {
	file := filepath.Join(dir, name+".hcl")
	_, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return engine.FindExperiment(dir)
	}
	return file, err
}

// reproductionStore is where a cell is reproduced: a new folder, which forget removes, unless into names one or the
// site's is asked for. Without a run it is an empty store.
func (c *call) reproductionStore(x *engine.Experiment, into string, run, replace bool) (store *artifact.Store, forget func(), err error) {
	forget = func() {}
	switch {
	case replace:
		store, err = c.store(x)
		return store, forget, err
	case into != "":
		store, err = artifact.Open(into)
		return store, forget, err
	}
	dir, forget, err := temporaryFolder("rcgrpo-reproduce-")
	if err != nil {
		return nil, func() {}, err
	}
	store, err = artifact.Open(filepath.Join(dir, "store"))
	return store, forget, err
}

// recorded is how long the plan's stages took when the page was made, as far as the site's store knows.
func (c *call) recorded(x *engine.Experiment, ev *reports.Evidence, plan *engine.Plan) time.Duration {
	store, err := c.store(x)
	if err != nil {
		return 0
	}
	keys := map[string]string{}
	for _, r := range ev.Records {
		keys[r.Address] = r.Key
	}
	sum := 0.0
	for _, n := range plan.Nodes {
		if m, err := store.Manifest(keys[n.Address]); err == nil {
			sum += m.Seconds
		}
	}
	return time.Duration(sum * float64(time.Second))
}
