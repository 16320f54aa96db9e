package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/reports"
)

// reproduceCommand runs `rcgrpo reproduce PAGE#CELL [EXP]`: it prints the stages behind one cell of a page, with every
// command that they start and every file that they read, and with -run runs them in a fresh store and compares. An
// experiment that the caller did not name may be a stranger's: its commands run only with the caller's consent.
func reproduceCommand(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	c := newCall("reproduce", "PAGE#CELL [EXP]", stdout, stderr)
	run := c.Bool("run", false, "run the stages in a fresh store and compare")
	into := c.String("into", "", "keep that store in this `FOLDER`; an interrupted run goes on there")
	replace := c.Bool("replace", false, "run the stages in the site's store instead, although it holds their results")
	trust := c.Bool("trust", false, "run the commands of the page's experiment without asking")
	limit := c.limitFlag()
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
	in, err := c.openPage(path, "", *limit)
	if err != nil {
		return c.fail(err)
	}
	defer in.close()
	ev, err := reports.ReadEvidence(in.page)
	if err != nil {
		return c.fail(fmt.Errorf("%s: %w", path, err))
	}
	source, err := ev.SourceOf(cell)
	if err != nil {
		return c.fail(fmt.Errorf("%s: %w", path, err))
	}
	experiment, named := "", len(c.args) == 2
	switch {
	case named:
		experiment = c.args[1]
	case in.bundle != nil:
		experiment, err = findBeside(in.bundle.Experiment, ev.Name)
	default:
		experiment, err = findBeside(filepath.Dir(path), ev.Name)
	}
	if err != nil {
		return c.fail(fmt.Errorf("%w: name the experiment after the cell", err))
	}
	c.source.Name = ev.Name
	x, code := c.load(experiment)
	if x == nil {
		return code
	}
	if faults := ev.CheckExperiment(x); len(faults) > 0 && in.bundle != nil && !named {
		return c.fail(fmt.Errorf("%s: %s: nothing in it was run", path, visible(strings.Join(faults, "; "))))
	} else if len(faults) > 0 {
		fmt.Fprintf(stderr, "warning: %s\n", visible(strings.Join(faults, "; ")))
	}
	store, forget, err := c.reproductionStore(x, *into, *run, *replace)
	if err != nil {
		return c.fail(err)
	}
	defer forget()
	o := engine.PlanOptions{Targets: source.Stages(), DataOnly: true}
	plan, err := engine.NewPlan(x, store, o)
	if err == nil && *replace {
		for _, n := range plan.Nodes {
			o.Replace = append(o.Replace, n.Address)
		}
		plan, err = engine.NewPlan(x, store, o)
	}
	if err != nil {
		return c.fail(err)
	}
	fmt.Fprintf(stdout, "%s is %s\n\n", cell, visible(source.String()))
	fmt.Fprintf(stdout, "Behind it: %d of the %d stages of %s.\n", len(plan.Nodes), len(x.Nodes), x.Name)
	for _, l := range planLines(plan, engine.Forecast{}) {
		fmt.Fprintf(stdout, "  %s\n", strings.TrimSuffix(l.stem+"@"+strings.Join(l.seeds, ","), "@"))
	}
	foreign := printForeign(stdout, plan)
	if !*run && !*replace {
		if took := c.recorded(x, ev, plan); took > 0 {
			fmt.Fprintf(stdout, "They took %s of stage time when the page was made.\n", took.Round(time.Second))
		}
		fmt.Fprintln(stdout, "-run runs them in a fresh store and compares.")
		return exitDone
	}
	if foreign > 0 && !named && !*trust {
		if !isTerminal(stdin) {
			return c.fail(errors.New("these commands run with your rights, and the files are yours: read them, then add -trust"))
		}
		fmt.Fprint(stdout, "These commands run with your rights, and the files are yours. Run them? [y/N] ")
		if !agreed(stdin) {
			return c.fail(errors.New("nothing was run"))
		}
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
	r, err := reports.Reproduce(in.page, cell, store, func(address string) (*artifact.Manifest, error) { return store.Last(x.Name, address) })
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

// printForeign prints the commands that the stages of a plan start, and the files of the user's that they read. It
// returns how many there are.
func printForeign(w io.Writer, plan *engine.Plan) int {
	shown, n := map[engine.Stage]bool{}, 0
	files := map[string]bool{}
	for _, node := range plan.Nodes {
		for _, f := range node.Files {
			files[f.Path] = true
		}
		starter, ok := node.Stage.(engine.Starter)
		if !ok || shown[node.Stage] { // seeds share their stage
			continue
		}
		shown[node.Stage] = true
		n++
		stem, _, _ := strings.Cut(node.Address, "@")
		fmt.Fprintf(w, "%s starts:\n", stem)
		args, env := starter.Starts()
		for _, word := range args {
			fmt.Fprintf(w, "  | %s\n", strings.ReplaceAll(visible(word), "\n", "\n  | "))
		}
		for _, v := range env {
			if _, _, set := strings.Cut(v, "="); !set {
				v += " of your environment"
			}
			fmt.Fprintf(w, "  with %s\n", strings.ReplaceAll(visible(v), "\n", "\n  | "))
		}
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(w, "reads %s\n", visible(path))
	}
	return n + len(files)
}

// visible shows text from outside on a terminal: everything but line breaks that no font shows, or that moves the
// cursor or turns the direction of writing, is escaped.
func visible(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r == '\n' || unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// agreed reads one line and reports whether it says yes.
func agreed(stdin io.Reader) bool {
	line, _ := bufio.NewReader(stdin).ReadString('\n') // at the end of the input: no
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
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
