package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/reports"
	"rcgrpo/stages"
	"rcgrpo/stages/rl"
)

// view is an artifact being printed.
type view struct {
	*artifact.Artifact
	out    io.Writer
	width  int
	colour bool   // of a terminal that wants colours
	pick   int    // -n: which row, from 0; below 0: a summary and the first
	task   string // -task: rows of this task only
	// -policy: cuts a trajectory into what a checkpoint's policy reads; nil without it
	layout func(*rl.Trajectory) []stages.Piece
}

// views is the table of what is known about artifact types; others are listed by file.
var views = map[string]func(*view) error{
	"metrics":      (*view).metrics,
	"scores":       (*view).scores,
	"tasks":        (*view).tasks,
	"trajectories": (*view).trajectories,
	"dataset":      (*view).trajectories,
	"checkpoint":   (*view).checkpoint,
	"page":         (*view).page,
}

// showCommand runs "rcgrpo show ADDRESS.PORT [EXP]": an artifact as text.
func showCommand(args []string, _ io.Reader, stdout, stderr io.Writer) int {
	c := newCall("show", "ADDRESS.PORT [EXP]", stdout, stderr)
	v := &view{out: stdout, width: 100, colour: colored(stdout)}
	c.IntVar(&v.pick, "n", -1, "row `N` in full, counted from 0 (trajectories, tasks)")
	c.StringVar(&v.task, "task", "", "only rows of the task `ID`")
	asCSV := c.Bool("csv", false, "print rows as CSV; without a key or seed in ADDRESS, or with * in it, those of all that fit")
	asJSON := c.Bool("json", false, "print rows for programs, of all that fit likewise")
	policy := c.String("policy", "", "print trajectories token by token as the checkpoint at `ADDRESS` or in this folder lays them out")
	if code, done := c.parse(args); done {
		return code
	}
	if *asCSV && *asJSON {
		return c.misuse("-csv or -json, not both")
	}
	if len(c.args) < 1 || len(c.args) > 2 {
		return c.misuse("want the address of a stage with its port, such as eval.arm[sft]@1.scores, and perhaps an experiment")
	}
	x, code := c.load(strings.Join(c.args[1:], ""))
	if x == nil {
		return code
	}
	if f, ok := stdout.(descriptor); ok && isTerminal(stdout) {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			v.width = width
		}
	}
	store, err := c.store(x)
	if err != nil {
		return c.fail(err)
	}
	if *policy != "" {
		if v.layout, err = layoutOf(*policy, x, store); err != nil {
			return c.fail(err)
		}
	}
	if *asCSV || *asJSON {
		if err := export(stdout, stderr, x, store, c.args[0], v.task, *asJSON); err != nil {
			return c.fail(err)
		}
		return exitDone
	}
	if err := v.open(x, store, c.args[0]); err != nil {
		return c.fail(err)
	}
	if err := v.print(); err != nil {
		return c.fail(err)
	}
	return exitDone
}

// layoutOf finds the checkpoint at an address, or in a folder, and opens its layout.
func layoutOf(policy string, x *engine.Experiment, store *artifact.Store) (func(*rl.Trajectory) []stages.Piece, error) {
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

// open finds the artifact. Without a port, a stage with one port means that one.
func (v *view) open(x *engine.Experiment, store *artifact.Store, address string) error {
	nodes, port, err := portNodes(x, address)
	if err != nil {
		return err
	}
	if len(nodes) > 1 {
		var names []string
		for _, n := range nodes {
			names = append(names, n.Address)
		}
		return fmt.Errorf("%s means several stages; name one of %s (-csv and -json print all)", address, strings.Join(names, ", "))
	}
	results, err := current(x, store, nodes)
	if err != nil {
		return err
	}
	if results[0] == nil {
		return fmt.Errorf("%s has no result yet; `rcgrpo run` makes it", nodes[0].Address)
	}
	v.Artifact, err = store.Open(results[0], port)
	return err
}

// portNodes finds the stages and the port that ADDRESS.PORT names, all instances and seeds where it names none, or
// those that fit a pattern with * and ?.
func portNodes(x *engine.Experiment, address string) (nodes []*engine.Node, port string, err error) {
	stem, end := address, ""
	if at := strings.LastIndexByte(address, '.'); at >= 0 && !strings.ContainsAny(address[at:], "]") {
		stem, end = address[:at], address[at+1:]
	}
	if strings.ContainsAny(address, "*?") {
		for _, n := range x.Nodes {
			if _, ok := n.Outputs[end]; ok && engine.AddressFits(n.Address, stem) {
				nodes = append(nodes, n)
			}
		}
		if nodes == nil {
			return nil, "", fmt.Errorf("no stage of %s fits %s and has a port %s", x.Name, stem, end)
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
		return nil, "", fmt.Errorf("%s has the ports %s; name one: %s.%s", nodes[0].Address, strings.Join(ports, ", "), address, ports[0])
	}
	return nodes, port, nil
}

// current returns the result of each node as the experiment stands, or else the one it had before it was edited; nil:
// there is none yet.
func current(x *engine.Experiment, store *artifact.Store, nodes []*engine.Node) ([]*artifact.Manifest, error) {
	plan, err := x.Plan(store)
	if err != nil {
		return nil, err
	}
	planned := map[*engine.Node]*engine.Planned{}
	for _, p := range plan.Nodes {
		planned[p.Node] = p
	}
	results := make([]*artifact.Manifest, len(nodes))
	for i, n := range nodes {
		if p := planned[n]; p != nil && p.Verb == engine.UpToDate {
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

// section prints tables and paragraphs below a heading.
func (v *view) section(title string, parts ...reports.Part) error {
	var b bytes.Buffer
	page := reports.Page{Sections: []reports.Section{{Title: title, Parts: parts}}}
	if err := page.Text(&b, v.width); err != nil {
		return err
	}
	_, err := fmt.Fprintln(v.out, "\n"+strings.Trim(b.String(), "\n"))
	return err
}

// rows reads a file of rows, those of one task when the view asks for it.
func rows[T any](v *view, file string, task func(T) string) ([]T, error) {
	var all []T
	for row, err := range artifact.Rows[T](v.Artifact, file) {
		if err != nil {
			return nil, err
		}
		if v.task == "" || task(row) == v.task {
			all = append(all, row)
		}
	}
	if v.task != "" && len(all) == 0 {
		return nil, fmt.Errorf("no row of task %s", v.task)
	}
	return all, nil
}

// picked returns the row that -n names, the first without one.
func picked[T any](v *view, all []T) (T, error) {
	var none T
	if max(v.pick, 0) >= len(all) {
		return none, fmt.Errorf("row %d of %d", max(v.pick, 0), len(all))
	}
	return all[max(v.pick, 0)], nil
}

// metrics prints first and last value, range and curve of each metric, and the same of the times beside them.
func (v *view) metrics() error {
	for _, file := range []string{rl.MetricsFile, rl.TimesFile} {
		if _, err := os.Stat(v.Path(file)); err != nil && file == rl.TimesFile {
			continue
		}
		values := map[string][]float64{}
		updates := 0
		for m, err := range artifact.Rows[rl.Metric](v.Artifact, file) {
			if err != nil {
				return err
			}
			updates++
			for name, x := range m.Values {
				values[name] = append(values[name], x)
			}
		}
		t := &reports.Table{ID: file, Title: fmt.Sprintf("%d updates", updates), Columns: []reports.Column{
			{Name: "metric", Left: true}, {Name: "first"}, {Name: "last"}, {Name: "least"}, {Name: "most"}, {Name: "curve", Left: true}}}
		for _, name := range slices.Sorted(maps.Keys(values)) {
			y := values[name]
			t.Rows = append(t.Rows, reports.Row{Arm: reports.NoArm, Cells: []reports.Cell{reports.Text("%s", name),
				reports.Number(y[0]), reports.Number(y[len(y)-1]), reports.Number(slices.Min(y)), reports.Number(slices.Max(y)),
				reports.Text("%s", sparkline(y, 24))}})
		}
		if err := v.section(strings.TrimSuffix(file, ".jsonl"), reports.Part{Table: t}); err != nil {
			return err
		}
	}
	return nil
}

// sparkline draws values as at most width blocks, each the mean of its share of them.
func sparkline(y []float64, width int) string {
	blocks := []rune("▁▂▃▄▅▆▇█")
	width = min(width, len(y))
	means := make([]float64, width)
	for i := range means {
		share := y[i*len(y)/width : (i+1)*len(y)/width]
		for _, x := range share {
			means[i] += x / float64(len(share))
		}
	}
	if width == 0 {
		return ""
	}
	least, most := slices.Min(means), slices.Max(means)
	var b strings.Builder
	for _, x := range means {
		level := 0
		if most > least {
			level = min(len(blocks)-1, int((x-least)/(most-least)*float64(len(blocks))))
		}
		b.WriteRune(blocks[level])
	}
	return b.String()
}

// scores prints the share of episodes with reward 1, and of those the official checker passes, by set, token and
// category, with Wilson intervals.
func (v *view) scores() error {
	all, err := rows(v, rl.ScoresFile, func(s rl.Score) string { return s.Task })
	if err != nil {
		return err
	}
	type group struct{ set, token, category string }
	type tally struct{ n, reward, official int }
	groups := map[group]*tally{}
	for _, s := range all {
		for _, category := range []string{"", s.Category} { // "" is the row of all categories
			g := group{s.Set, s.Token, category}
			if groups[g] == nil {
				groups[g] = new(tally)
			}
			groups[g].n++
			if s.Reward >= 1 {
				groups[g].reward++
			}
			if s.Official {
				groups[g].official++
			}
		}
	}
	order := slices.SortedFunc(maps.Keys(groups), func(a, b group) int {
		return cmp.Or(cmp.Compare(a.set, b.set), cmp.Compare(a.token, b.token), cmp.Compare(a.category, b.category))
	})
	t := &reports.Table{ID: "scores", Title: fmt.Sprintf("%d episodes, 95 %% Wilson intervals", len(all)), Columns: []reports.Column{
		{Name: "set", Left: true}, {Name: "token", Left: true}, {Name: "category", Left: true}, {Name: "reward 1"}, {Name: "official"}}}
	for _, g := range order {
		n := groups[g]
		t.Rows = append(t.Rows, reports.Row{Arm: reports.NoArm, Cells: []reports.Cell{reports.Text("%s", cmp.Or(g.set, "-")),
			reports.Text("%s", cmp.Or(g.token, "-")), reports.Text("%s", cmp.Or(g.category, "all")),
			reports.Share(n.reward, n.n), reports.Share(n.official, n.n)}})
	}
	if err := v.section("scores", reports.Part{Table: t}); err != nil {
		return err
	}
	return v.passes()
}

// passes prints pass@k where the evaluation computed it.
func (v *view) passes() error {
	if _, err := os.Stat(v.Path(rl.PassesFile)); err != nil || v.task != "" {
		return nil
	}
	t := &reports.Table{ID: "passes", Title: "pass@k, unbiased", Columns: []reports.Column{{Name: "set", Left: true}, {Name: "category", Left: true},
		{Name: "k"}, {Name: "tasks"}, {Name: "samples"}, {Name: "reward 1"}, {Name: "official"}}}
	for p, err := range artifact.Rows[rl.Pass](v.Artifact, rl.PassesFile) {
		if err != nil {
			return err
		}
		t.Rows = append(t.Rows, reports.Row{Arm: reports.NoArm, Cells: []reports.Cell{reports.Text("%s", cmp.Or(p.Set, "-")), reports.Text("%s", p.Category),
			reports.Text("%d", p.K), reports.Text("%d", p.Tasks), reports.Text("%d", p.Samples), reports.Number(p.Reward), reports.Number(p.Official)}})
	}
	return v.section("pass@k", reports.Part{Table: t})
}

// tasks prints what there is by category, and one task with its requests and ground truth.
func (v *view) tasks() error {
	all, err := rows(v, bfcl.TasksFile, func(t *bfcl.Task) string { return t.ID })
	if err != nil {
		return err
	}
	if v.pick < 0 && v.task == "" {
		count, families := map[string]int{}, map[string]map[string]bool{}
		for _, t := range all {
			count[t.Category]++
			if families[t.Category] == nil {
				families[t.Category] = map[string]bool{}
			}
			families[t.Category][t.Family] = true
		}
		table := &reports.Table{ID: "tasks", Title: fmt.Sprintf("%d tasks", len(all)),
			Columns: []reports.Column{{Name: "category", Left: true}, {Name: "tasks"}, {Name: "families"}}}
		for _, name := range slices.Sorted(maps.Keys(count)) {
			table.Rows = append(table.Rows, reports.Row{Arm: reports.NoArm, Cells: []reports.Cell{reports.Text("%s", name),
				reports.Text("%d", count[name]), reports.Text("%d", len(families[name]))}})
		}
		if err := v.section("tasks", reports.Part{Table: table}); err != nil || len(all) == 0 {
			return err
		}
	}
	t, err := picked(v, all)
	if err != nil {
		return err
	}
	fmt.Fprintf(v.out, "\n%s  %s, family %s, classes %s\n", t.ID, t.Category, t.Family, strings.Join(t.Classes, ", "))
	for i, turn := range t.Turns {
		fmt.Fprintf(v.out, "\nturn %d\n", i+1)
		v.paragraph("user", turn.User)
		for _, call := range turn.GroundTruth {
			v.paragraph("call", call)
		}
	}
	return nil
}

// trajectories prints what there is by origin, token and stop reason, and one trajectory as a conversation.
func (v *view) trajectories() error {
	file := rl.TrajectoriesFile
	if v.Type == "dataset" {
		file = rl.DatasetFile
	}
	all, err := rows(v, file, func(t rl.Trajectory) string { return t.Task })
	if err != nil {
		return err
	}
	if v.pick < 0 {
		if err := v.section(v.Type, reports.Part{Table: trajectoryTable(all)}); err != nil || len(all) == 0 {
			return err
		}
	}
	t, err := picked(v, all)
	if err != nil {
		return err
	}
	v.conversation(&t)
	return nil
}

func trajectoryTable(all []rl.Trajectory) *reports.Table {
	type group struct{ origin, token, stop string }
	type tally struct{ n, reward, calls, errors int }
	groups := map[group]*tally{}
	for _, t := range all {
		g := group{t.Origin, t.Token, t.Stop}
		if groups[g] == nil {
			groups[g] = new(tally)
		}
		groups[g].n++
		if t.Reward >= 1 {
			groups[g].reward++
		}
		groups[g].calls += t.Calls
		groups[g].errors += t.Errors
	}
	order := slices.SortedFunc(maps.Keys(groups), func(a, b group) int {
		return cmp.Or(cmp.Compare(a.origin, b.origin), cmp.Compare(a.token, b.token), cmp.Compare(a.stop, b.stop))
	})
	table := &reports.Table{ID: "trajectories", Title: fmt.Sprintf("%d trajectories", len(all)), Columns: []reports.Column{{Name: "origin", Left: true},
		{Name: "token", Left: true}, {Name: "stop", Left: true}, {Name: "reward 1"}, {Name: "calls"}, {Name: "call errors"}}}
	for _, g := range order {
		n := groups[g]
		table.Rows = append(table.Rows, reports.Row{Arm: reports.NoArm, Cells: []reports.Cell{reports.Text("%s", cmp.Or(g.origin, "-")),
			reports.Text("%s", cmp.Or(g.token, "-")), reports.Text("%s", cmp.Or(g.stop, "-")), reports.Share(n.reward, n.n),
			reports.Text("%d", n.calls), reports.Text("%d", n.errors)}})
	}
	return table
}

// conversation prints a trajectory message by message; where its tokens are known, with how many of them the policy
// itself sampled and their mean logprob.
func (v *view) conversation(t *rl.Trajectory) {
	fmt.Fprintf(v.out, "\n%s  %s, member %d, origin %s", t.Task, t.Category, t.Member, t.Origin)
	if t.Token != "" {
		fmt.Fprintf(v.out, ", token %s", t.Token)
	}
	fmt.Fprintf(v.out, "\nreward %g (state %g, action %g), official %v, stop %s, %d calls, %d errors\n",
		t.Reward, t.RState, t.RAction, t.Official, t.Stop, t.Calls, t.Errors)
	for _, text := range []string{t.Failure, t.Spoilt} {
		if text != "" {
			fmt.Fprintln(v.out, text)
		}
	}
	turn := -1
	for _, m := range t.Messages {
		if m.Turn != turn {
			turn = m.Turn
			fmt.Fprintf(v.out, "\nturn %d\n", turn+1)
		}
		text := m.Text
		if text == "" {
			text = strings.Join(m.Calls, "\n")
		}
		if m.Role == rl.RoleAssistant { // what the policy says itself, the end of its reply included, is what it learns
			text = "[[" + text + "]]"
		}
		v.paragraph(m.Role, text)
		if note := sampledText(t, m); note != "" {
			v.paragraph("", note)
			v.strip(reports.TokenStrip(t, m))
		}
	}
	if v.layout != nil {
		v.tokens(t)
	}
}

// tokens prints a trajectory as its policy reads it, what it learns in double brackets.
func (v *view) tokens(t *rl.Trajectory) {
	learned, all := 0, 0
	var text strings.Builder
	for _, p := range v.layout(t) {
		all += p.Tokens
		if p.Learned {
			learned += p.Tokens
			p.Text = "[[" + p.Text + "]]"
		}
		text.WriteString(p.Text)
	}
	fmt.Fprintf(v.out, "\n%d tokens, %d of them learned, in [[ ]]\n", all, learned)
	v.paragraph("", text.String())
}

// strip prints a character for each token: a dot for those that were given, a block for those that the policy sampled, the
// higher (and, in colours, the redder) the less likely.
func (v *view) strip(strip string) {
	const indent = 11
	for line := range slices.Chunk([]rune(strip), max(20, v.width-indent)) {
		text := string(line)
		if v.colour {
			var b strings.Builder
			for _, r := range line {
				colour := "2" // given: faint
				if r != reports.StripGiven {
					colour = "38;5;" + []string{"250", "229", "222", "215", "208", "202", "196", "160"}[min(7, max(0, r-'▁'))]
				}
				fmt.Fprintf(&b, "\x1b[%sm%c\x1b[0m", colour, r)
			}
			text = b.String()
		}
		fmt.Fprintf(v.out, "%*s%s\n", indent, "", text)
	}
}

// sampledText says how many tokens of a message were sampled, and how likely they were; "" when none was.
func sampledText(t *rl.Trajectory, m rl.Message) string {
	if m.To <= m.From || m.To > len(t.Mask) || m.To > len(t.Logp) {
		return ""
	}
	n, sum := 0, 0.0
	for i := m.From; i < m.To; i++ {
		if t.Mask[i] {
			n++
			sum += float64(t.Logp[i])
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("(%d of %d tokens sampled, mean logprob %.3f)", n, m.To-m.From, sum/float64(n))
}

// paragraph prints text beside a name, wrapped to the width.
func (v *view) paragraph(name, text string) {
	const indent = 11
	room := max(20, v.width-indent)
	for _, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		for {
			head, rest := line, ""
			if utf8.RuneCountInString(line) > room {
				runes := []rune(line)
				at := room
				for i := room; i > room/2; i-- {
					if runes[i] == ' ' {
						at = i
						break
					}
				}
				head, rest = string(runes[:at]), strings.TrimPrefix(string(runes[at:]), " ")
			}
			fmt.Fprintf(v.out, "%-*s%s\n", indent, name, printable(head))
			name = ""
			if line = rest; line == "" {
				break
			}
		}
	}
}

// printable keeps what a policy wrote from steering the terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && (r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0) {
			return '�'
		}
		return r
	}, text)
}

// checkpoint prints the settings of a model, how its policy is to be used, and the adapter that its training made, if it
// did.
func (v *view) checkpoint() error {
	for _, file := range []string{"config.json", "rcgrpo.json", "adapter/adapter_config.json"} {
		b, err := os.ReadFile(v.Path(file))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		values := map[string]any{}
		if err := json.Unmarshal(b, &values); err != nil {
			return fmt.Errorf("%s: %w", v.Path(file), err)
		}
		fmt.Fprintf(v.out, "\n%s\n", file)
		for _, name := range slices.Sorted(maps.Keys(values)) {
			text, err := json.Marshal(values[name])
			if err != nil {
				return err
			}
			fmt.Fprintf(v.out, "  %-28s %s\n", name, printable(string(text)))
		}
	}
	return v.files()
}

// page prints a page's terminal tables, or where its files lie.
func (v *view) page() error {
	for _, f := range v.Manifest.Outputs[v.port()].Files {
		if filepath.Ext(f.Name) == ".txt" {
			b, err := os.ReadFile(v.Path(f.Name))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(v.out, "\n%s", b)
			return err
		}
	}
	return v.files()
}

// port is the name under which the artifact stands in its manifest.
func (v *view) port() string {
	for port, o := range v.Manifest.Outputs {
		if o.Digest == v.Digest && o.Type == v.Type {
			return port
		}
	}
	return ""
}

// files lists the artifact's files.
func (v *view) files() error {
	fmt.Fprintln(v.out, "\nfiles")
	o := v.Manifest.Outputs[v.port()]
	list := slices.Clone(o.Files)
	if o.Aside != nil {
		list = append(list, o.Aside.Files...)
	}
	for _, f := range list {
		fmt.Fprintf(v.out, "  %10s  %.12s  %s\n", engine.BytesText(f.Bytes), f.SHA256, v.Path(f.Name))
	}
	return nil
}
