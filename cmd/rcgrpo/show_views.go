package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/mitchellh/go-wordwrap"

	"rcgrpo/bfcl"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/reports"
	"rcgrpo/reports/page"
	"rcgrpo/stages/rl"
)

// rows reads a file of rows. With --task it keeps the rows of that task. one is the row of --row, by default the first.
func rows[T any](v *view, file string, task func(T) string) (all []T, one T, err error) {
	for row, err := range artifact.Rows[T](v.Artifact, file) {
		if err != nil {
			return nil, one, err
		}
		if v.task == "" || task(row) == v.task {
			all = append(all, row)
		}
	}
	switch {
	case v.task != "" && len(all) == 0:
		return nil, one, fmt.Errorf("no row of task %s", v.task)
	case v.pick >= len(all):
		return nil, one, fmt.Errorf("row %d of %d", v.pick, len(all))
	case len(all) > 0:
		one = all[max(v.pick, 0)]
	}
	return all, one, nil
}

// metrics prints first and last value, range and curve of each metric and each time.
func (v *view) metrics(rows string) error {
	for _, file := range []string{rows, rl.TimesFile} {
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
			least, most := slices.Min(y), slices.Max(y)
			t.row(name, page.Number(y[0]), page.Number(y[len(y)-1]), page.Number(least), page.Number(most),
				page.Sparkline(y, least, most, 24))
		}
		if err := t.write(v.out, strings.TrimSuffix(file, ".jsonl"), v.width); err != nil {
			return err
		}
	}
	return nil
}

// groups are counts of rows by three words.
type groups[V any] map[[3]string]*V

// of returns the counts of a group. The zero counts of a new group are added.
func (m groups[V]) of(a, b, c string) *V {
	key := [3]string{a, b, c}
	if m[key] == nil {
		m[key] = new(V)
	}
	return m[key]
}

func (m groups[V]) sorted() [][3]string {
	return slices.SortedFunc(maps.Keys(m), func(a, b [3]string) int { return slices.Compare(a[:], b[:]) })
}

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
func (v *view) scores(file string) error {
	all, _, err := rows(v, file, func(s rl.Score) string { return s.Task })
	if err != nil {
		return err
	}
	counts := groups[tally]{}
	for _, s := range all {
		counts.of(s.Set, s.Token, "").add(s) // all categories
		counts.of(s.Set, s.Token, s.Category).add(s)
	}
	t := newTable(fmt.Sprintf("%d episodes, 95 %% Wilson intervals", len(all)), "<set", "<token", "<category",
		"reward 1", "official")
	for _, g := range counts.sorted() {
		n := counts[g]
		t.row(g[0], g[1], cmp.Or(g[2], "all"), page.Share(n.Reward1, n.Episodes), page.Share(n.Official, n.Episodes))
	}
	if err := t.write(v.out, "scores", v.width); err != nil {
		return err
	}
	return v.passes()
}

func (v *view) passes() error {
	if _, err := os.Stat(v.Path(rl.PassesFile)); err != nil || v.task != "" {
		return nil
	}
	t := newTable("pass@k, unbiased", "<set", "<category", "k", "tasks", "samples", "reward 1", "official")
	for p, err := range artifact.Rows[rl.Pass](v.Artifact, rl.PassesFile) {
		if err != nil {
			return err
		}
		t.row(p.Set, p.Category, p.K, p.Tasks, p.Samples, page.Number(p.Reward), page.Number(p.Official))
	}
	return t.write(v.out, "pass@k", v.width)
}

func (v *view) tasks(file string) error {
	all, t, err := rows(v, file, func(t *bfcl.Task) string { return t.ID })
	if err != nil {
		return err
	}
	if v.pick < 0 && v.task == "" {
		families := map[string][]string{} // of each task, by category
		for _, t := range all {
			families[t.Category] = append(families[t.Category], t.Family)
		}
		table := newTable(fmt.Sprintf("%d tasks", len(all)), "<category", "tasks", "families")
		for _, category := range slices.Sorted(maps.Keys(families)) {
			table.row(category, len(families[category]), len(unique(families[category])))
		}
		if err := table.write(v.out, "tasks", v.width); err != nil || len(all) == 0 {
			return err
		}
	}
	fmt.Fprintf(v.out, "\n%s  %s, family %s", t.ID, t.Category, t.Family)
	if t.Spec != nil {
		fmt.Fprintln(v.out)
		v.paragraph("task", string(t.Spec))
		return nil
	}
	fmt.Fprintf(v.out, ", classes %s\n", strings.Join(t.Classes, ", "))
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
func (v *view) trajectories(file string) error {
	all, t, err := rows(v, file, func(t rl.Trajectory) string { return t.Task })
	if err != nil {
		return err
	}
	if v.pick < 0 {
		if err := trajectoryTable(all).write(v.out, v.Type, v.width); err != nil || len(all) == 0 {
			return err
		}
	}
	v.conversation(&t)
	return nil
}

func trajectoryTable(all []rl.Trajectory) *table {
	counts := groups[struct{ n, reward, calls, errors int }]{}
	for _, t := range all {
		n := counts.of(t.Origin, t.Token, t.Stop)
		n.n++
		if t.Reward >= 1 {
			n.reward++
		}
		n.calls += t.Calls
		n.errors += t.Errors
	}
	t := newTable(fmt.Sprintf("%d trajectories", len(all)), "<origin", "<token", "<stop", "reward 1", "calls",
		"call errors")
	for _, g := range counts.sorted() {
		n := counts[g]
		t.row(g[0], g[1], g[2], page.Share(n.reward, n.n), n.calls, n.errors)
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
	sequences := t.Sequences()
	for i, sequence := range sequences {
		if i > 0 {
			fmt.Fprintf(v.out, "\nsequence %d of %d: its first request continues no earlier reply\n", i+1, len(sequences))
		}
		v.messages(sequence)
	}
	if v.layout != nil {
		v.tokens(t)
	}
}

// messages prints the messages of a sequence.
func (v *view) messages(t *rl.Trajectory) {
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
		if strip := reports.TokenStrip(t, m); strip != "" {
			v.paragraph("", sampledText(t, m))
			v.paragraph("", strip)
		}
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

// sampledText describes the sampled tokens of a message, which has at least one.
func sampledText(t *rl.Trajectory, m rl.Message) string {
	n, sum := 0, 0.0
	for i := m.From; i < m.To; i++ {
		if t.Mask[i] {
			n++
			sum += float64(t.Logp[i])
		}
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
func (v *view) checkpoint(string) error {
	for _, file := range []string{"config.json", "rcgrpo.json", "adapter/adapter_config.json"} {
		b, err := os.ReadFile(v.Path(file))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		values := map[string]json.RawMessage{}
		if err := json.Unmarshal(b, &values); err != nil {
			return fmt.Errorf("%s: %w", v.Path(file), err)
		}
		fmt.Fprintf(v.out, "\n%s\n", file)
		for _, name := range slices.Sorted(maps.Keys(values)) {
			fmt.Fprintf(v.out, "  %-28s %s\n", name, printable(string(values[name])))
		}
	}
	return v.files()
}

func (v *view) files() error {
	fmt.Fprintln(v.out, "\nfiles")
	for _, o := range v.Manifest.Outputs {
		if o.Digest != v.Digest || o.Type != v.Type {
			continue
		}
		list := slices.Clone(o.Files)
		if o.Times != nil {
			list = append(list, o.Times.Files...)
		}
		for _, f := range list {
			fmt.Fprintf(v.out, "  %10s  %.12s  %s\n", lang.BytesText(f.Bytes), f.SHA256, v.Path(f.Name))
		}
		break // another port may have the same content
	}
	return nil
}
