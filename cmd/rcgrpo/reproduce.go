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
	"strings"

	"github.com/spf13/cobra"

	"rcgrpo/cmd/rcgrpo/internal/interrupt"
	"rcgrpo/cmd/rcgrpo/internal/output"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/reports"
	"rcgrpo/stages"
)

type reproduction struct {
	*command
	run, replace, trust bool
	into                string
	limit               *uint32 // megabytes of an unpacked bundle

	path, cell string // PAGE#CELL
	named      bool   // the user named the experiment
}

func reproduceCommand() *cobra.Command {
	r := &reproduction{command: newExperimentCommand("reproduce PAGE#CELL [EXP]",
		"Show the stages behind one number of a page, or run them again and compare",
		wantArgs(1, 2, "want PAGE#CELL and at most one experiment"))}
	r.Long = r.Short + `.

CELL is the id of a number in the page, such as main-test.r1c2: table main-test, first row, second column.`
	r.Flags().BoolVar(&r.run, "run", false, "run the stages in a fresh store and compare")
	r.Flags().StringVar(&r.into, "into", "", "with --run, keep the store in `FOLDER`; an interrupted run resumes there")
	r.Flags().BoolVar(&r.replace, "replace", false, "run the stages again in the store of the site file and compare")
	r.Flags().BoolVar(&r.trust, "trust", false, "do not ask before a foreign experiment reaches out: programs, "+
		"servers, files")
	r.limit = r.limitFlag()
	return r.does(func(args []string) error {
		i := strings.LastIndexByte(args[0], '#') // the path may contain # too
		if i < 1 || i == len(args[0])-1 {
			return misuse("want PAGE#CELL, such as drills.html#main-test.r1c2; got %s", args[0])
		}
		r.path, r.cell = args[0][:i], args[0][i+1:]
		if r.replace && r.into != "" {
			return misuse("--replace and --into exclude each other: each selects a store")
		}
		r.named = len(args) == 2
		in, err := openPage(r.path, "", *r.limit)
		if err != nil {
			return err
		}
		defer in.close()
		return r.reproduce(in, args[1:])
	})
}

// reproduce computes one number of a page again:
//
//  1. The evidence in the page has the source of the cell: the ports and rows from which the number follows.
//  2. The experiment that the user named is loaded, or the one beside the page; the page's files and names must be its.
//  3. The plan has the stages of the source and their inputs, in a fresh store; with --replace, all run again in the
//     store of the site file.
//  4. The stages and everything outside that they reach are printed. Without --run or --replace it ends here. Work of
//     an experiment that the user did not name requires consent.
//  5. runAndCompare runs the plan; reports.Reproduce computes the number from these results alone and compares.
//
// `verify` (reports.Verify) recomputes all numbers from the recorded artifacts and runs no stage.
func (r *reproduction) reproduce(in openedPage, experiment []string) error {
	ev, err := reports.ReadEvidence(in.page)
	if err != nil {
		return fmt.Errorf("%s: %w", r.path, err)
	}
	value, err := ev.Value(r.cell)
	if err != nil {
		return fmt.Errorf("%s: %w", r.path, err)
	}
	x, err := r.experiment(in, ev, experiment)
	if err != nil {
		return err
	}
	x.Unpublished = true // a stranger's page may lie among the user's files
	store, remove, err := r.openStore(x)
	defer remove()
	if err != nil {
		return err
	}
	o := plan.Options{Targets: value.Source.Stages(), DataOnly: true}
	pl, err := plan.New(x, store, o)
	if err == nil && r.replace {
		for _, n := range pl.Nodes {
			o.Replace = append(o.Replace, n.Address)
		}
		pl, err = plan.New(x, store, o)
	}
	if err != nil {
		return err
	}
	w := r.stdout()
	fmt.Fprintf(w, "%s is %s\n\n", r.cell, value.Source.String())
	fmt.Fprintf(w, "It depends on %d of the %d stages of %s.\n", len(pl.Nodes), len(x.Nodes), x.Name)
	for _, l := range planLines(pl, plan.Forecast{}) {
		fmt.Fprintf(w, "  %s\n", l.address())
	}
	foreign := printForeign(w, pl)
	if !r.run && !r.replace {
		fmt.Fprintln(w, "--run runs them in a fresh store and compares.")
		return nil
	}
	if foreign && !r.named && !r.trust {
		if err := r.askForTrust(); err != nil {
			return err
		}
	}
	return r.runAndCompare(in.page, x, store, pl)
}

// experiment loads the experiment that the user named, or the one beside the page. The latter may come from anyone.
func (r *reproduction) experiment(in openedPage, ev *reports.Evidence, named []string) (*lang.Experiment, error) {
	path := strings.Join(named, "")
	if !r.named {
		dir := filepath.Dir(r.path)
		if in.bundle != nil {
			dir = in.bundle.Experiment
		}
		var err error
		if path, err = findBeside(dir, ev.Name); err != nil {
			return nil, fmt.Errorf("%w: name the experiment after the cell", err)
		}
	}
	r.source.Name = ev.Name
	x, err := r.load(path)
	if err != nil {
		return nil, err
	}
	faults := ev.CheckFiles(x.SourceFiles())
	if err := ev.CheckExperiment(x); err != nil {
		faults = append(faults, err.Error())
	}
	if len(faults) > 0 {
		if in.bundle != nil && !r.named {
			return nil, fmt.Errorf("%s: %s: nothing in it was run", r.path, strings.Join(faults, "; "))
		}
		fmt.Fprintf(r.stderr(), "warning: %s\n", strings.Join(faults, "; "))
	}
	return x, nil
}

func (r *reproduction) askForTrust() error {
	if !output.IsTerminal(r.InOrStdin()) {
		return errors.New("this work runs with your permissions, files and keys: read the list, then add --trust")
	}
	fmt.Fprint(r.stdout(), "This work runs with your permissions, files and keys. Run it? [y/N] ")
	line, _ := bufio.NewReader(r.InOrStdin()).ReadString('\n') // the end of the input means no
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "y" && answer != "yes" {
		return errors.New("nothing was run")
	}
	return nil
}

func (r *reproduction) runAndCompare(page []byte, x *lang.Experiment, store *artifact.Store, pl *plan.Plan) error {
	ctx, kill, stop := interrupt.Context(r.stderr())
	view := newDisplay(r.stdout(), nil)
	err := engine.Run(ctx, pl, engine.Options{Kill: kill}, view.Observe)
	view.Close()
	stop() // from here on, a signal ends the command, as the limit of memory does
	if err != nil {
		return r.ranWith(err)
	}
	got, err := reports.Reproduce(page, r.cell, store, func(address string) (*artifact.Manifest, error) {
		return store.Last(x.Name, address)
	})
	if err != nil {
		return err
	}
	w := r.stdout()
	for _, port := range got.Differs {
		fmt.Fprintf(w, "%s differs from the page's\n", port)
	}
	if !got.Equal() {
		fmt.Fprintf(w, "%s (%s) differs: page %q, run %q\n", got.Cell, got.Name, got.Shown, got.Got)
		return exitCode(exitFailed)
	}
	fmt.Fprintf(w, "%s (%s) is equal: %s\n", got.Cell, got.Name, got.Got)
	return nil
}

// printForeign prints everything outside that the stages of a plan reach, each stage once for all seeds. It reports
// whether there is anything.
func printForeign(w io.Writer, pl *plan.Plan) bool {
	x := pl.Experiment
	runs := map[lang.Stage]int{} // of each stage, which its seeds share
	for _, n := range pl.Nodes {
		runs[n.Stage]++
	}
	var b strings.Builder
	shown, files := map[lang.Stage]bool{}, map[string]bool{}
	for _, n := range pl.Nodes {
		r := n.Reach()
		for _, path := range r.Files {
			for _, read := range readBelow(x.Dir, path) {
				files[read] = true
			}
		}
		if !shown[n.Stage] {
			shown[n.Stage] = true
			stem, _, _ := strings.Cut(n.Address, "@")
			writeReach(&b, oneLine(stem), r, stages.CallPrice(n.Stage, x.Site), runs[n.Stage])
		}
	}
	for _, m := range x.Modules {
		if rel, err := filepath.Rel(x.Dir, m.Path); err != nil || !filepath.IsLocal(rel) || linked(x.Dir, m.Path) != m.Path {
			files[linked(x.Dir, m.Path)] = true
		}
	}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&b, "reads %s\n", oneLine(path))
	}
	for _, name := range x.EnvVariables {
		fmt.Fprintf(&b, "its settings contain %s of your environment\n", name)
	}
	if b.Len() == 0 {
		return false
	}
	if line := costLine(pl); line != "" {
		fmt.Fprintln(&b, line)
	}
	if x.Site.Path != "" {
		fmt.Fprintf(&b, "settings of this machine, with prices: %s\n", x.Site.Path)
	}
	io.WriteString(w, b.String())
	return true
}

// linked adds the target to a path with a link in it below the folder: that of a stranger may contain links to the
// user's files.
func linked(folder, path string) string {
	for at := path; at != folder && at != filepath.Dir(at); at = filepath.Dir(at) {
		info, err := os.Lstat(at)
		if target, e := filepath.EvalSymlinks(path); err == nil && e == nil && info.Mode()&fs.ModeSymlink != 0 {
			return path + ", a link to " + target
		}
	}
	return path
}

// readBelow returns a path and the links below it, which dir() follows, with their targets.
func readBelow(folder, path string) (read []string) {
	_ = filepath.WalkDir(path, func(at string, d fs.DirEntry, err error) error {
		if at == path || err == nil && d.Type()&fs.ModeSymlink != 0 {
			read = append(read, linked(folder, at))
		}
		return nil // what cannot be read is not followed either
	})
	return read
}

// oneLine keeps foreign text from imitating a line of its own.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "\\n") }

// writeReach writes what a stage reaches, for review. price is that of the model that it describes, or "".
func writeReach(b *strings.Builder, stage string, r lang.Reach, price string, runs int) {
	indented := func(text string) {
		fmt.Fprintf(b, "  %s\n", strings.ReplaceAll(text, "\n", "\n  | "))
	}
	for _, words := range r.Programs {
		fmt.Fprintf(b, "%s starts:\n", stage)
		for _, word := range words {
			indented("| " + word)
		}
	}
	for _, address := range r.Addresses {
		fmt.Fprintln(b, strings.TrimSpace(fmt.Sprintf("%s sends requests to %s %s", stage, oneLine(address), price)))
	}
	for _, variable := range r.Env {
		indented("with " + variable)
	}
	for _, name := range r.Secrets {
		indented("with " + name + " of your environment")
	}
	switch {
	case r.Paid && r.Budget > 0:
		fmt.Fprintf(b, "%s calls models until $%.9g is spent; up to %d calls in progress cost more\n", stage,
			float64(runs)*r.Budget, runs*r.Parallel)
	case r.Paid:
		fmt.Fprintf(b, "%s calls models whose price is 0\n", stage)
	}
}

// findBeside returns the file of an experiment in a folder, or the only experiment there.
func findBeside(dir, name string) (string, error) {
	file := filepath.Join(dir, name+".hcl")
	_, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return lang.FindExperiment(dir, nil)
	}
	return file, err
}

// openStore opens the store of the run: the site's, the one of --into, or a temporary one that remove deletes.
func (r *reproduction) openStore(x *lang.Experiment) (store *artifact.Store, remove func(), err error) {
	switch {
	case r.replace:
		store, err = openStore(x.Site)
		return store, func() {}, err
	case r.into != "":
		store, err = artifact.Open(r.into)
		return store, func() {}, err
	}
	dir, remove, err := interrupt.TemporaryFolder("rcgrpo-reproduce-")
	if err != nil {
		return nil, func() {}, err
	}
	store, err = artifact.Open(filepath.Join(dir, "store"))
	return store, remove, err
}
