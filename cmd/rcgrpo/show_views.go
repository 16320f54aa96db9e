package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mitchellh/go-wordwrap"

	"rcgrpo/bfcl"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/reports"
	"rcgrpo/stages/rl"
)

// rows reads a file of rows. With --task it keeps the rows of that task.
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

// picked returns the row of --row, or the first.
func picked[T any](v *view, all []T) (T, error) {
	var none T
	if max(v.pick, 0) >= len(all) {
		return none, fmt.Errorf("row %d of %d", max(v.pick, 0), len(all))
	}
	return all[max(v.pick, 0)], nil
}

// metrics prints first and last value, range and curve of each metric and each time.
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
		t := newTable(fmt.Sprintf("%d updates", updates), "<metric", "first", "last", "least", "most", "<curve")
		for _, name := range slices.Sorted(maps.Keys(values)) {
			y := values[name]
			t.row(name, reports.Number(y[0]), reports.Number(y[len(y)-1]), reports.Number(slices.Min(y)),
				reports.Number(slices.Max(y)), sparkline(y, 24))
		}
		if err := t.write(v.out, strings.TrimSuffix(file, ".jsonl"), v.width); err != nil {
			return err
		}
	}
	return nil
}

// sparkline draws values as at most width blocks. A block is the mean of its share of the values.
func sparkline(y []float64, width int) string {
	blocks := []rune("▁▂▃▄▅▆▇█")
	width = min(width, len(y))
	if width == 0 {
		return ""
	}
	means := make([]float64, width)
	for i := range means {
		share := y[i*len(y)/width : (i+1)*len(y)/width]
		for _, x := range share {
			means[i] += x / float64(len(share))
		}
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

// tally counts episodes, those with reward 1 and those that the official checker passed.
type tally struct {
	Episodes int `json:"episodes"`
	Reward1  int `json:"reward_1"`
	Official int `json:"official"`
}

func (t *tally) add(s rl.Score) {
	t.Episodes++
	if s.Reward >= 1 {
		t.Reward1++
	}
	if s.Official {
		t.Official++
	}
}

// scores prints the share of episodes with reward 1 and of those that the official checker passed, by set, token and
// category, with Wilson intervals.
func (v *view) scores() error {
	all, err := rows(v, rl.ScoresFile, func(s rl.Score) string { return s.Task })
	if err != nil {
		return err
	}
	type group struct{ set, token, category string }
	groups := map[group]*tally{}
	for _, s := range all {
		for _, category := range []string{"", s.Category} { // "": all categories
			g := group{s.Set, s.Token, category}
			if groups[g] == nil {
				groups[g] = new(tally)
			}
			groups[g].add(s)
		}
	}
	order := slices.SortedFunc(maps.Keys(groups), func(a, b group) int {
		return cmp.Or(cmp.Compare(a.set, b.set), cmp.Compare(a.token, b.token), cmp.Compare(a.category, b.category))
	})
	t := newTable(fmt.Sprintf("%d episodes, 95 %% Wilson intervals", len(all)), "<set", "<token", "<category",
		"reward 1", "official")
	for _, g := range order {
		n := groups[g]
		t.row(g.set, g.token, cmp.Or(g.category, "all"), reports.Share(n.Reward1, n.Episodes),
			reports.Share(n.Official, n.Episodes))
	}
	if err := t.write(v.out, "scores", v.width); err != nil {
		return err
	}
	return v.passes()
}

// passes prints pass@k if the evaluation computed it.
func (v *view) passes() error {
	if _, err := os.Stat(v.Path(rl.PassesFile)); err != nil || v.task != "" {
		return nil
	}
	t := newTable("pass@k, unbiased", "<set", "<category", "k", "tasks", "samples", "reward 1", "official")
	for p, err := range artifact.Rows[rl.Pass](v.Artifact, rl.PassesFile) {
		if err != nil {
			return err
		}
		t.row(p.Set, p.Category, p.K, p.Tasks, p.Samples, reports.Number(p.Reward), reports.Number(p.Official))
	}
	return t.write(v.out, "pass@k", v.width)
}

// tasks prints the number of tasks by category, and one task with its requests and ground truth.
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
		t := newTable(fmt.Sprintf("%d tasks", len(all)), "<category", "tasks", "families")
		for _, name := range slices.Sorted(maps.Keys(count)) {
			t.row(name, count[name], len(families[name]))
		}
		if err := t.write(v.out, "tasks", v.width); err != nil || len(all) == 0 {
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

// trajectories prints the number of trajectories by origin, token and stop reason, and one as a conversation.
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
		if err := trajectoryTable(all).write(v.out, v.Type, v.width); err != nil || len(all) == 0 {
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

func trajectoryTable(all []rl.Trajectory) *table {
	type group struct{ origin, token, stop string }
	type counts struct{ n, reward, calls, errors int }
	groups := map[group]*counts{}
	for _, t := range all {
		g := group{t.Origin, t.Token, t.Stop}
		if groups[g] == nil {
			groups[g] = new(counts)
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
	t := newTable(fmt.Sprintf("%d trajectories", len(all)), "<origin", "<token", "<stop", "reward 1", "calls",
		"call errors")
	for _, g := range order {
		n := groups[g]
		t.row(g.origin, g.token, g.stop, reports.Share(n.reward, n.n), n.calls, n.errors)
	}
	return t
}

// paragraphIndent is the column of texts; names are printed to the left of it.
const paragraphIndent = 11

// conversation prints the messages of a trajectory. If the tokens are recorded, each message has the number of sampled
// tokens and their mean logprob.
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
		if m.Role == rl.RoleAssistant { // the policy learns its own replies
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

// tokens prints the text that the policy reads. Learned tokens are in double brackets.
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

// strip prints a character for each token: a dot for a given token, a block for a sampled one. The block is higher, and
// redder, the less likely the token was.
func (v *view) strip(strip string) {
	for line := range slices.Chunk([]rune(strip), max(20, v.width-paragraphIndent)) {
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
		fmt.Fprintf(v.out, "%*s%s\n", paragraphIndent, "", text)
	}
}

// sampledText returns the number of sampled tokens of a message and their mean logprob; "" if there are none.
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

// paragraph prints a wrapped text to the right of a name.
func (v *view) paragraph(name, text string) {
	room := max(20, v.width-paragraphIndent)
	for _, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		for _, line := range strings.Split(wordwrap.WrapString(line, uint(room)), "\n") {
			runes := []rune(line)
			for ok := true; ok; ok = len(runes) > 0 { // a word may be longer than a line
				n := min(room, len(runes))
				fmt.Fprintf(v.out, "%-*s%s\n", paragraphIndent, name, printable(string(runes[:n])))
				name, runes = "", runes[n:]
			}
		}
	}
}

// checkpoint prints the settings of a model, of its use as a policy and of its adapter, if it has one.
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

// page prints the page as text if it has that form, otherwise its files.
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

// port returns the port of the artifact.
func (v *view) port() string {
	for port, o := range v.Manifest.Outputs {
		if o.Digest == v.Digest && o.Type == v.Type {
			return port
		}
	}
	return ""
}

// files lists the files of the artifact.
func (v *view) files() error {
	fmt.Fprintln(v.out, "\nfiles")
	o := v.Manifest.Outputs[v.port()]
	list := slices.Clone(o.Files)
	if o.Times != nil {
		list = append(list, o.Times.Files...)
	}
	for _, f := range list {
		fmt.Fprintf(v.out, "  %10s  %.12s  %s\n", lang.BytesText(f.Bytes), f.SHA256, v.Path(f.Name))
	}
	return nil
}
