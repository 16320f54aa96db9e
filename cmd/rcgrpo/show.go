package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/stages"
	"rcgrpo/stages/rl"
)

// view prints an artifact.
type view struct {
	*artifact.Artifact
	out    io.Writer
	width  int
	colour bool
	pick   int                                 // index of the row of --row; negative: a summary and the first row
	task   string                              // --task
	layout func(*rl.Trajectory) []stages.Piece // --policy: splits a trajectory into the text that the policy reads
}

// views maps artifact types to their views. Other types are shown as a list of files.
var views = map[string]func(*view) error{
	"metrics":      (*view).metrics,
	"scores":       (*view).scores,
	"tasks":        (*view).tasks,
	"trajectories": (*view).trajectories,
	"dataset":      (*view).trajectories,
	"checkpoint":   (*view).checkpoint,
	"page":         (*view).page,
}

func showCommand() *cobra.Command {
	c := newExperimentCommand("show ADDRESS.PORT [EXP]", "Show an artifact as text, or its rows as CSV or JSON",
		wantArgs(1, 2,
			"want the address of a stage with its port, such as eval.arm[sft]@1.scores, and optionally an experiment"))
	v := &view{width: 100}
	c.Flags().IntVarP(&v.pick, "row", "n", -1, "show row `N`, counted from 0, of trajectories or tasks")
	c.Flags().Lookup("row").DefValue = "0"
	c.Flags().StringVar(&v.task, "task", "", "only rows of the task `ID`")
	asCSV := c.Flags().Bool("csv", false, "print rows as CSV; ADDRESS may contain * and omit keys and seeds")
	asJSON := c.Flags().Bool("json", false, "print rows as JSON, with the same addresses as --csv")
	policy := c.Flags().String("policy", "", "show trajectories as tokens of the checkpoint at `ADDRESS` or in a folder")
	c.completeFirst(c.ports)
	c.RunE = func(_ *cobra.Command, args []string) error {
		if *asCSV && *asJSON {
			return misuse("--csv and --json exclude each other")
		}
		x, err := c.load(strings.Join(args[1:], ""))
		if err != nil {
			return err
		}
		v.out, v.colour = c.stdout(), colored(c.stdout())
		if width, _, ok := terminalSize(c.stdout()); ok {
			v.width = width
		}
		store, err := c.store(x)
		if err != nil {
			return err
		}
		if *policy != "" {
			if v.layout, err = layoutOf(*policy, x, store); err != nil {
				return err
			}
		}
		if *asCSV || *asJSON {
			return export(c.stdout(), c.stderr(), x, store, args[0], v.task, *asJSON)
		}
		if err := v.open(x, store, args[0]); err != nil {
			return err
		}
		return v.print()
	}
	return c.Command
}

// layoutOf returns the layout of the checkpoint at an address or in a folder.
func layoutOf(policy string, x *lang.Experiment, store *artifact.Store) (func(*rl.Trajectory) []stages.Piece, error) {
	dir := policy
	if info, err := os.Stat(policy); err != nil || !info.IsDir() {
		var v view
		if err := v.open(x, store, policy); err != nil {
			if err := v.open(x, store, policy+".checkpoint"); err != nil {
				return nil, err
			}
		}
		dir = v.Dir
	}
	return stages.Layout(dir, x.Site.BFCL)
}

// open finds the artifact. The port may be omitted if the stage has only one.
func (v *view) open(x *lang.Experiment, store *artifact.Store, address string) error {
	nodes, port, err := portNodes(x, address)
	if err != nil {
		return err
	}
	if len(nodes) > 1 {
		var names []string
		for _, n := range nodes {
			names = append(names, n.Address)
		}
		return fmt.Errorf("%s matches several stages; name one of %s (--csv and --json print all)", address,
			strings.Join(names, ", "))
	}
	results, err := current(x, store, nodes)
	if err != nil {
		return err
	}
	if results[0] == nil {
		return fmt.Errorf("%s has no result yet; `rcgrpo run` computes it", nodes[0].Address)
	}
	v.Artifact, err = store.Open(results[0], port)
	return err
}

// portNodes returns the stages and the port of ADDRESS.PORT. An address without key or seed matches all instances and
// seeds; it may be a pattern with * and ?.
func portNodes(x *lang.Experiment, address string) (nodes []*lang.Node, port string, err error) {
	stem, end := address, ""
	if at := strings.LastIndexByte(address, '.'); at >= 0 && !strings.ContainsAny(address[at:], "]") {
		stem, end = address[:at], address[at+1:]
	}
	if strings.ContainsAny(address, "*?") {
		for _, n := range x.Nodes {
			if _, ok := n.Outputs[end]; ok && lang.MatchAddress(n.Address, stem) {
				nodes = append(nodes, n)
			}
		}
		if nodes == nil {
			return nil, "", fmt.Errorf("no stage of %s matches %s and has a port %s", x.Name, stem, end)
		}
		return nodes, end, nil
	}
	if nodes, err = x.Find(address); err != nil {
		if end == "" {
			return nil, "", err
		}
		if nodes, err = x.Find(stem); err != nil {
			return nil, "", err
		}
		port = end
	}
	ports := slices.Sorted(maps.Keys(nodes[0].Outputs))
	if port == "" && len(ports) == 1 {
		port = ports[0]
	}
	if _, ok := nodes[0].Outputs[port]; !ok {
		if port != "" {
			return nil, "", fmt.Errorf("%s has no port %s, only %s", nodes[0].Address, port, strings.Join(ports, ", "))
		}
		return nil, "", fmt.Errorf("%s has the ports %s; name one: %s.%s", nodes[0].Address, strings.Join(ports, ", "),
			address, ports[0])
	}
	return nodes, port, nil
}

// current returns the result of each node: the current one, or else the last one of an earlier version of the
// experiment. It is nil for a node without results.
func current(x *lang.Experiment, store *artifact.Store, nodes []*lang.Node) ([]*artifact.Manifest, error) {
	full, err := plan.New(x, store, plan.Options{})
	if err != nil {
		return nil, err
	}
	planned := map[*lang.Node]*plan.Planned{}
	for _, p := range full.Nodes {
		planned[p.Node] = p
	}
	results := make([]*artifact.Manifest, len(nodes))
	for i, n := range nodes {
		if p := planned[n]; p != nil && p.Verb == plan.UpToDate {
			results[i] = p.Manifest
			continue
		}
		m, err := store.Last(x.Name, n.Address)
		if errors.Is(err, artifact.ErrNotFound) {
			continue
		}
		if err == nil {
			results[i], err = store.Lookup(m.Key)
		}
		if err != nil {
			return nil, err
		}
	}
	return results, nil
}

func (v *view) print() error {
	m := v.Manifest
	fmt.Fprintf(v.out, "%s  %s %.12s\nmade %s in %s, %s\n", m.Address, v.Type, v.Digest,
		m.Started.Local().Format("2006-01-02 15:04:05"), secondsText(m.Seconds), v.Dir)
	show := views[v.Type]
	if show == nil {
		show = (*view).files
	}
	return show(v)
}
