// Package views prints artifacts for a person: metrics, scores, tasks, trajectories and checkpoints. It prints rows as
// CSV.
package views

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/mitchellh/go-wordwrap"

	"rcgrpo/bfcl"
	"rcgrpo/cmd/rcgrpo/internal/output"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
	"rcgrpo/reports"
	"rcgrpo/reports/page"
	"rcgrpo/stages"
	"rcgrpo/stages/rl"
)

// View prints an artifact for a person.
type View struct {
	*artifact.Artifact
	Out    io.Writer
	Width  int
	Pick   int                                 // index of the row of --row; negative: a summary and the first row
	Task   string                              // --task
	Pieces func(*rl.Trajectory) []stages.Piece // --policy: splits a trajectory into the text that the policy reads
}

// views maps artifact types to their file of rows, if any, and their view. Other types are shown as a list of files.
var views = map[string]struct {
	rows string
	show func(v *View, rows string) error
}{
	"metrics":      {rl.MetricsFile, (*View).metrics},
	"scores":       {rl.ScoresFile, (*View).scores},
	"tasks":        {bfcl.TasksFile, (*View).tasks},
	"trajectories": {rl.TrajectoriesFile, (*View).trajectories},
	"dataset":      {rl.DatasetFile, (*View).trajectories},
	"checkpoint":   {"", (*View).checkpoint},
}

// RowsFile returns the file of rows of an artifact type; "" if the type has none.
func RowsFile(kind string) string { return views[kind].rows }

// Print prints the artifact.
func (v *View) Print() error {
	m := v.Manifest
	fmt.Fprintf(v.Out, "%s  %s %.12s\nmade %s in %s, %s\n", m.Address, v.Type, v.Digest,
		m.Started.Local().Format("2006-01-02 15:04:05"), runs.DurationText(m.Seconds), v.Dir)
	if of, ok := views[v.Type]; ok {
		return of.show(v, of.rows)
	}
	return v.files()
}

// rows reads a file of rows. With --task it keeps the rows of that task. one is the row of --row, by default the first.
func rows[T any](v *View, file string, task func(T) string) (all []T, one T, err error) {
	for row, err := range artifact.Rows[T](v.Artifact, file) {
		if err != nil {
			return nil, one, err
		}
		if v.Task == "" || task(row) == v.Task {
			all = append(all, row)
		}
	}
	switch {
	case v.Task != "" && len(all) == 0:
		return nil, one, fmt.Errorf("no row of task %s", v.Task)
	case v.Pick >= len(all):
		return nil, one, fmt.Errorf("row %d of %d", v.Pick, len(all))
	case len(all) > 0:
		one = all[max(v.Pick, 0)]
	}
	return all, one, nil
}

// metrics prints first and last value and range of each metric and each time.
func (v *View) metrics(rows string) error {
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
		t := output.NewTable(english.Plural(updates, "update", ""), "<metric", "first", "last", "least", "most")
		for _, name := range slices.Sorted(maps.Keys(values)) {
			y := values[name]
			t.Row(name, page.Number(y[0]), page.Number(y[len(y)-1]), page.Number(slices.Min(y)), page.Number(slices.Max(y)))
		}
		if err := t.Write(v.Out, strings.TrimSuffix(file, ".jsonl"), v.Width); err != nil {
			return err
		}
	}
	return nil
}

// Groups are counts of rows by three words.
type Groups[V any] map[[3]string]*V

// Of returns the counts of a group. The zero counts of a new group are added.
func (m Groups[V]) Of(a, b, c string) *V {
	key := [3]string{a, b, c}
	if m[key] == nil {
		m[key] = new(V)
	}
	return m[key]
}

// Sorted returns the words of all groups.
func (m Groups[V]) Sorted() [][3]string {
	return slices.SortedFunc(maps.Keys(m), func(a, b [3]string) int { return slices.Compare(a[:], b[:]) })
}

// Tally counts episodes: all, those with reward 1, and those that the official checker passed.
type Tally struct {
	Episodes int `json:"episodes"`
	Reward1  int `json:"reward_1"`
	Official int `json:"official"`
}

// Add counts an episode.
func (t *Tally) Add(s rl.Score) {
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
func (v *View) scores(file string) error {
	all, _, err := rows(v, file, func(s rl.Score) string { return s.Task })
	if err != nil {
		return err
	}
	counts := Groups[Tally]{}
	for _, s := range all {
		counts.Of(s.Set, s.Token, "").Add(s) // all categories
		counts.Of(s.Set, s.Token, s.Category).Add(s)
	}
	t := output.NewTable(english.Plural(len(all), "episode", "")+", 95 % Wilson intervals", "<set", "<token", "<category",
		"reward 1", "official")
	for _, g := range counts.Sorted() {
		n := counts[g]
		t.Row(g[0], g[1], cmp.Or(g[2], "all"), page.Share(n.Reward1, n.Episodes), page.Share(n.Official, n.Episodes))
	}
	if err := t.Write(v.Out, "scores", v.Width); err != nil {
		return err
	}
	return v.passes()
}

func (v *View) passes() error {
	if _, err := os.Stat(v.Path(rl.PassesFile)); err != nil || v.Task != "" {
		return nil
	}
	t := output.NewTable("pass@k, unbiased", "<set", "<category", "k", "tasks", "samples", "reward 1", "official")
	for p, err := range artifact.Rows[rl.Pass](v.Artifact, rl.PassesFile) {
		if err != nil {
			return err
		}
		t.Row(p.Set, p.Category, p.K, p.Tasks, p.Samples, page.Number(p.Reward), page.Number(p.Official))
	}
	return t.Write(v.Out, "pass@k", v.Width)
}

func (v *View) tasks(file string) error {
	all, t, err := rows(v, file, func(t *bfcl.Task) string { return t.ID })
	if err != nil {
		return err
	}
	if v.Pick < 0 && v.Task == "" {
		families := map[string][]string{} // of each task, by category
		for _, t := range all {
			families[t.Category] = append(families[t.Category], t.Family)
		}
		table := output.NewTable(english.Plural(len(all), "task", ""), "<category", "tasks", "families")
		for _, category := range slices.Sorted(maps.Keys(families)) {
			table.Row(category, len(families[category]), len(slices.Compact(slices.Sorted(slices.Values(families[category])))))
		}
		if err := table.Write(v.Out, "tasks", v.Width); err != nil || len(all) == 0 {
			return err
		}
	}
	fmt.Fprintf(v.Out, "\n%s  %s, family %s", t.ID, t.Category, t.Family)
	if t.Spec != nil {
		fmt.Fprintln(v.Out)
		v.paragraph("task", string(t.Spec))
		return nil
	}
	fmt.Fprintf(v.Out, ", classes %s\n", strings.Join(t.Classes, ", "))
	for i, turn := range t.Turns {
		fmt.Fprintf(v.Out, "\nturn %d\n", i+1)
		v.paragraph("user", turn.User)
		for _, call := range turn.GroundTruth {
			v.paragraph("call", call)
		}
	}
	return nil
}

// trajectories prints the number of trajectories by origin, token and stop reason, and one as a conversation.
func (v *View) trajectories(file string) error {
	all, t, err := rows(v, file, func(t *rl.Trajectory) string { return t.Task })
	if err != nil {
		return err
	}
	if v.Pick < 0 {
		if err := trajectoryTable(all).Write(v.Out, v.Type, v.Width); err != nil || len(all) == 0 {
			return err
		}
	}
	v.conversation(t)
	return nil
}

func trajectoryTable(all []*rl.Trajectory) *output.Table {
	counts := Groups[struct{ n, reward, calls, errors int }]{}
	for _, t := range all {
		n := counts.Of(t.Origin, t.Token, t.Stop)
		n.n++
		if t.Reward >= 1 {
			n.reward++
		}
		n.calls += t.Calls
		n.errors += t.Errors
	}
	t := output.NewTable(english.Plural(len(all), "trajectory", ""), "<origin", "<token", "<stop", "reward 1", "calls",
		"call errors")
	for _, g := range counts.Sorted() {
		n := counts[g]
		t.Row(g[0], g[1], g[2], page.Share(n.reward, n.n), n.calls, n.errors)
	}
	return t
}

// paragraphIndent is the column of texts; names are printed to the left of it.
const paragraphIndent = 11

// conversation prints the messages of a trajectory. If the tokens are recorded, each message has the number of sampled
// tokens and their mean logprob.
func (v *View) conversation(t *rl.Trajectory) {
	fmt.Fprintf(v.Out, "\n%s  %s, member %d, origin %s", t.Task, t.Category, t.Member, t.Origin)
	if t.Token != "" {
		fmt.Fprintf(v.Out, ", token %s", t.Token)
	}
	fmt.Fprintf(v.Out, "\nreward %g (state %g, action %g), official %v, stop %s, %s, %s\n", t.Reward, t.RState,
		t.RAction, t.Official, t.Stop, english.Plural(t.Calls, "call", ""), english.Plural(t.Errors, "error", ""))
	for _, text := range []string{t.Failure, t.Refusal, t.Spoilt} {
		if text != "" {
			fmt.Fprintln(v.Out, text)
		}
	}
	sequences := t.Sequences()
	for i, sequence := range sequences {
		if i > 0 {
			fmt.Fprintf(v.Out, "\nsequence %d of %d: its first request continues no earlier reply\n", i+1, len(sequences))
		}
		v.messages(sequence)
	}
	if v.Pieces != nil {
		v.tokens(t)
	}
}

// messages prints the messages of a sequence.
func (v *View) messages(t *rl.Trajectory) {
	turn := -1
	for _, m := range t.Messages {
		if m.Turn != turn {
			turn = m.Turn
			fmt.Fprintf(v.Out, "\nturn %d\n", turn+1)
		}
		text := cmp.Or(m.Text, strings.Join(m.Calls, "\n"))
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

// tokens prints the text that the policy reads. Tokens of the mask are in double brackets.
func (v *View) tokens(t *rl.Trajectory) {
	masked, all := 0, 0
	var text strings.Builder
	for _, p := range v.Pieces(t) {
		all += p.Tokens
		if p.Mask {
			masked += p.Tokens
			p.Text = "[[" + p.Text + "]]"
		}
		text.WriteString(p.Text)
	}
	fmt.Fprintf(v.Out, "\n%d tokens, %d of them of the mask, in [[ ]]\n", all, masked)
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
func (v *View) paragraph(name, text string) {
	room := max(20, v.Width-paragraphIndent)
	for _, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		for _, line := range strings.Split(wordwrap.WrapString(line, uint(room)), "\n") {
			runes := []rune(line)
			for ok := true; ok; ok = len(runes) > 0 { // a word may be longer than a line
				n := min(room, len(runes))
				fmt.Fprintf(v.Out, "%-*s%s\n", paragraphIndent, name, string(runes[:n]))
				name, runes = "", runes[n:]
			}
		}
	}
}

// checkpoint prints the settings of a model, of its use as a policy and of its adapter, if it has one.
func (v *View) checkpoint(string) error {
	for _, file := range []string{"config.json", "rcgrpo.json", "adapter/adapter_config.json"} {
		b, err := v.Read(file)
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
		fmt.Fprintf(v.Out, "\n%s\n", file)
		for _, name := range slices.Sorted(maps.Keys(values)) {
			fmt.Fprintf(v.Out, "  %-28s %s\n", name, string(values[name]))
		}
	}
	return v.files()
}

func (v *View) files() error {
	fmt.Fprintln(v.Out, "\nfiles")
	for _, o := range v.Manifest.Outputs {
		if o.Digest != v.Digest || o.Type != v.Type {
			continue
		}
		list := slices.Clone(o.Files)
		if o.Times != nil {
			list = append(list, o.Times.Files...)
		}
		for _, f := range list {
			fmt.Fprintf(v.Out, "  %10s  %.12s  %s\n", lang.BytesText(f.Bytes), f.SHA256, v.Path(f.Name))
		}
		break // another port may have the same content
	}
	return nil
}
