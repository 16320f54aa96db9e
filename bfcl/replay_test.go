package bfcl_test

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl"
	"rcgrpo/bfcl/internal/py"
	"rcgrpo/internal/must"
)

// TestGoldenTrajectories replays every recorded trajectory of the official Python code. Only the records of
// testdata/unsupported.txt may differ; its columns are file, record and the first call outside the supported subset of
// Python. RCGRPO_UPDATE=1 rewrites the list.
func TestGoldenTrajectories(t *testing.T) {
	data := must.Get(bfcl.LoadData(fixtures.Benchmark(t)))(t)
	var unsupported strings.Builder
	for _, form := range []string{"ground_truth", "perturbed", "fuzz", "directed", "decode"} {
		file := "golden_" + form + ".jsonl"
		r := &replayer{data: data, settings: bfcl.Settings{Data: data, Today: bfcl.ReleaseDate}}
		if err := r.replay(bytes.NewReader(fixtures.Read(t, "bfcl/"+file))); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if r.prompting > 0 && form != "decode" {
			t.Errorf("%s: %d records have the format prompting", form, r.prompting)
		}
		if n := len(r.differing); n > 0 {
			t.Errorf("%s: %d differ:\n%s", form, n, strings.Join(r.differing[:min(40, n)], "\n"))
		}
		if r.trajectories == 0 || r.calls == 0 {
			t.Errorf("%s holds %d trajectories and %d calls", file, r.trajectories, r.calls)
		}
		for _, call := range r.unsupported {
			unsupported.WriteString(file + "\t" + call + "\n")
		}
		t.Logf("%s: %d trajectories, %d calls, %d allowed differences, %d unsupported", form, r.trajectories, r.calls,
			r.allowed, len(r.unsupported))
	}
	const list = "testdata/unsupported.txt"
	if os.Getenv("RCGRPO_UPDATE") == "1" {
		must.OK(t, os.WriteFile(list, []byte(unsupported.String()), 0o644))
	}
	want := must.Get(os.ReadFile(list))(t)
	if got := unsupported.String(); got != string(want) {
		t.Errorf("the unsupported calls differ from %s: got\n%s\nwant\n%s", list, got, want)
	}
}

// The comparison finds a wrong result.
func TestAWrongRecordDiffers(t *testing.T) {
	data := must.Get(bfcl.LoadData(fixtures.Benchmark(t)))(t)
	r := &replayer{data: data, settings: bfcl.Settings{Data: data, Today: bfcl.ReleaseDate}}
	must.OK(t, r.replay(strings.NewReader(`{"sid": "mine", "class": "MathAPI", "task": "multi_turn_base_0", `+
		`"calls": [{"call": "add(a=1, b=2)", "r": "4", "exc": null, "rt": "dict"}]}`)))
	if len(r.differing) != 1 || !strings.HasPrefix(r.differing[0], "mine add(a=1, b=2): got ") {
		t.Errorf("got %q, want one difference", r.differing)
	}
}

// replay executes the recorded trajectories of a file of JSON Lines in any of the five forms (ground truth, perturbed,
// fuzz, directed, decode), which differ in their fields, and compares the results with the recorded values.
func (r *replayer) replay(in io.Reader) error {
	lines := bufio.NewReaderSize(in, 1<<20)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			if err := r.record(line); err != nil {
				return fmt.Errorf("line %d: %w", n, err)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
}

type replayer struct {
	data     *bfcl.Data
	settings bfcl.Settings
	final    map[string]map[string]json.RawMessage // task id -> class -> final state of the ground truth
	cut      bool                                  // the current record had an unsupported call

	trajectories, calls int
	allowed             int      // text differences that do not count: some SyntaxErrors and TypeErrors, order of sets
	differing           []string // one line per other difference
	prompting           int      // records of the unimplemented format "prompting"; they are not compared
	unsupported         []string // record and first unsupported call; the rest of the record is not compared
}

// recorded has the fields of all forms.
type recorded struct {
	PID     string `json:"pid"`
	SID     string `json:"sid"`
	Name    string `json:"name"`
	ID      string `json:"id"`
	Format  string `json:"format"`
	Class   string `json:"class"`
	Task    string `json:"task"`
	Long    bool   `json:"long_context"`
	Text    string `json:"text"`
	Empty   bool   `json:"empty"`
	Exc     string
	Tools   []string            `json:"tools"`
	HeldOut map[string][]string `json:"held_out"`

	Calls         json.RawMessage `json:"calls"`
	InitialConfig json.RawMessage `json:"initial_config"`
	Turns         []recordedTurn  `json:"turns"`

	Steps      [][][]string         `json:"steps"`
	Results    [][][]recordedResult `json:"results"`
	FinalState json.RawMessage      `json:"final_state"`
	Checks     []recordedCheck      `json:"turn_checks"`
	Official   *recordedVerdict     `json:"official"`
	RState     float64              `json:"r_state"`
	RAction    float64              `json:"r_action"`
	RInjective float64              `json:"r_action_injective"`
	Reward     float64              `json:"reward"`
}

type recordedTurn struct {
	Calls   []recordedResult           `json:"calls"`
	State   map[string]json.RawMessage `json:"state"`
	Private map[string]json.RawMessage `json:"private"`
}

// recordedResult is one call with its result: text, or the digest of a long text.
type recordedResult struct {
	Call   string          `json:"call"`
	R      json.RawMessage `json:"r"`
	Result *string         `json:"result"`
	Exc    string          `json:"exc"` // "" for null
	RT     string          `json:"rt"`
	ND     bool            `json:"nd"`
}

type recordedCheck struct {
	GTEmpty    bool                `json:"gt_empty"`
	ModelEmpty bool                `json:"model_empty"`
	State      bool                `json:"state"`
	Diff       map[string][]string `json:"diff,omitempty"`
	Response   bool                `json:"response"`
	Missing    int                 `json:"missing,omitempty"`
}

type recordedVerdict struct {
	Valid     bool     `json:"valid"`
	ErrorType string   `json:"error_type,omitempty"`
	Message   string   `json:"error_message,omitempty"`
	Turn      *int     `json:"turn,omitempty"`
	Attrs     []string `json:"attrs,omitempty"`
	Missing   []any    `json:"missing_items,omitempty"`
}

func (r *replayer) record(line []byte) error {
	var rec recorded
	if err := json.Unmarshal(line, &rec); err != nil {
		return err
	}
	r.trajectories++
	r.cut = false
	switch {
	case rec.Format != "":
		return r.decode(&rec)
	case rec.PID != "":
		return r.perturbed(&rec)
	case rec.Turns != nil:
		return r.groundTruth(&rec, line)
	case rec.Class != "":
		return r.sequence(&rec, line)
	}
	return fmt.Errorf("unknown record form: none of the fields format, pid, turns and class is set")
}

func (r *replayer) differ(where, format string, args ...any) {
	r.differing = append(r.differing, where+": "+fmt.Sprintf(format, args...))
}

// digest returns the recorded form of a result: text up to limit code points, else a hash and an
// excerpt.
func digest(text string, limit int) any {
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	runes := []rune(text)
	sum := sha256.Sum256([]byte(text))
	return map[string]any{"sha256": hex.EncodeToString(sum[:]), "len": len(runes),
		"head": string(runes[:120]), "tail": string(runes[len(runes)-120:])}
}

// Fixtures contain digests of results, and of missing items, beyond these lengths in code points.
const (
	longResult  = 2000
	longMissing = 400
)

func sameJSON(a any, b json.RawMessage) bool {
	var x, y any
	raw, err := json.Marshal(a)
	if err != nil || json.Unmarshal(raw, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	p, _ := json.Marshal(x)
	q, _ := json.Marshal(y)
	return bytes.Equal(p, q)
}

// compare checks an outcome against its record, unless an earlier call of the record was
// unsupported.
func (r *replayer) compare(where, call string, got bfcl.Outcome, want recordedResult) {
	if r.cut {
		return
	}
	r.calls++
	if got.Unsupported() {
		r.unsupported = append(r.unsupported, where+"\t"+call)
		r.cut = true
		return
	}
	where += " " + call
	if got.Exception != want.Exc || got.Type != want.RT {
		r.differ(where, "got exception %q and type %q, want %q and %q (result %q)", got.Exception, got.Type,
			want.Exc, want.RT, got.Text)
		return
	}
	var same bool
	var wanted string
	if want.Result != nil {
		same, wanted = got.Text == *want.Result, *want.Result
	} else if wanted = string(want.R); strings.HasPrefix(wanted, `"`) {
		_ = json.Unmarshal(want.R, &wanted) // it is a JSON string
		same = got.Text == wanted
	} else {
		same = sameJSON(digest(got.Text, longResult), want.R)
	}
	switch {
	case same:
	case want.ND && sameWords(got.Text, wanted),
		want.Exc == "SyntaxError" && strings.HasPrefix(got.Text, "Error during execution: "),
		want.Exc == "TypeError" && !strings.Contains(wanted, "argument") &&
			strings.HasPrefix(got.Text, "Error during execution: "):
		r.allowed++
	default:
		r.differ(where, "got %q, want %q", clip(got.Text), clip(wanted))
	}
}

func clip(s string) string {
	if len(s) > 300 {
		return s[:300] + "..."
	}
	return s
}

// sameWords compares two texts without regard to the order of listed names.
func sameWords(a, b string) bool {
	words := func(s string) []string {
		w := strings.FieldsFunc(s, func(c rune) bool { return strings.ContainsRune(" ,'\"{}[]().:", c) })
		slices.Sort(w)
		return w
	}
	return slices.Equal(words(a), words(b))
}

// sameState compares a state with the recorded one after normalizing both.
func (r *replayer) sameState(where, class string, state, want json.RawMessage) {
	got, err := reprint(state)
	if err != nil {
		r.differ(where, "state of %s: %v", class, err)
		return
	}
	wanted, err := reprint(want)
	if err != nil {
		r.differ(where, "recorded state of %s: %v", class, err)
		return
	}
	if got != wanted {
		i := 0
		for i < len(got) && i < len(wanted) && got[i] == wanted[i] {
			i++
		}
		from := max(0, i-60)
		r.differ(where, "state of %s: got ...%s, want ...%s", class, clip(got[from:]), clip(wanted[from:]))
	}
}

func reprint(state json.RawMessage) (string, error) {
	v, err := py.FromJSON(state)
	if err != nil {
		return "", err
	}
	return py.JSON(v)
}

// states compares the policy's instances with recorded states and private attributes.
func (r *replayer) states(where string, e *bfcl.Episode, state, private map[string]json.RawMessage) error {
	if r.cut {
		return nil
	}
	public, err := e.State()
	if err != nil {
		return err
	}
	var hidden []json.RawMessage
	if private != nil {
		if hidden, err = e.Private(); err != nil {
			return err
		}
	}
	for i, class := range e.Task().Classes {
		if want, ok := state[class]; ok {
			r.sameState(where, class, public[i], want)
		} else {
			r.differ(where, "no state of %s is recorded", class)
		}
		if want, ok := private[class]; ok {
			r.sameState(where+" private", class, hidden[i], want)
		}
	}
	return nil
}

func stateOf(e *bfcl.Episode) (map[string]json.RawMessage, error) {
	states, err := e.State()
	if err != nil {
		return nil, err
	}
	out := map[string]json.RawMessage{}
	for i, class := range e.Task().Classes {
		out[class] = states[i]
	}
	return out, nil
}

// official returns the official task with that id.
func (r *replayer) official(id string) (*bfcl.Task, error) {
	if t := r.data.Task(id); t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("the benchmark data has no task %q", id)
}

// groundTruth replays a record of golden_ground_truth turn by turn.
func (r *replayer) groundTruth(rec *recorded, line []byte) error {
	var more struct {
		InitialState   map[string]json.RawMessage `json:"initial_state"`
		InitialPrivate map[string]json.RawMessage `json:"initial_private"`
	}
	if err := json.Unmarshal(line, &more); err != nil {
		return err
	}
	t, err := r.official(rec.ID)
	if err != nil {
		return err
	}
	settings := r.settings
	settings.MaxSteps = math.MaxInt // the ground truth has no step limit
	e, err := t.Start(settings)
	if err != nil {
		return err
	}
	if got := e.Tools(); !slices.Equal(got, rec.Tools) {
		r.differ(rec.ID, "tools: got %v, want %v", got, rec.Tools)
	}
	if len(rec.Turns) != len(t.Turns) {
		return fmt.Errorf("task %s: got %d turns in the record, want %d", rec.ID, len(rec.Turns), len(t.Turns))
	}
	if err := r.states(rec.ID+" start", e, more.InitialState, more.InitialPrivate); err != nil {
		return err
	}
	for k := range rec.Turns {
		if err := r.turn(rec, k, e); err != nil {
			return err
		}
	}
	v := e.Verdict()
	if !v.Official || v.Reward != 1 {
		r.differ(rec.ID, "the ground truth fails: %s, reward %v", v.Message, v.Reward)
	}
	return nil
}

// turn replays one turn of the ground truth.
func (r *replayer) turn(rec *recorded, k int, e *bfcl.Episode) error {
	where := fmt.Sprintf("%s turn %d", rec.ID, k)
	if held := rec.HeldOut[fmt.Sprint(k)]; held != nil {
		tools := e.Tools()
		if len(tools) < len(held) || !slices.Equal(tools[len(tools)-len(held):], held) {
			r.differ(where, "tools: got %v, want %v at the end", tools, held)
		}
	}
	turn := rec.Turns[k]
	for _, c := range turn.Calls {
		o, err := e.StepOutcomes([]string{c.Call})
		if err != nil {
			return err
		}
		r.compare(where, c.Call, o[0], c)
	}
	if err := r.states(where, e, turn.State, turn.Private); err != nil {
		return err
	}
	_, err := e.StepOutcomes(nil)
	return err
}

// perturbed replays a record of golden_perturbed.
func (r *replayer) perturbed(rec *recorded) error {
	t, err := r.official(rec.ID)
	if err != nil {
		return err
	}
	e, outcomes, err := t.Play(r.settings, rec.Steps)
	if err != nil {
		return err
	}
	for k, steps := range outcomes {
		if rec.Results != nil && (k >= len(rec.Results) || len(rec.Results[k]) != len(steps)) {
			r.differ(rec.PID, "turn %d: the record's results do not fit its steps", k)
			continue
		}
		for s, outs := range steps {
			if rec.Results == nil {
				r.calls += len(outs)
				continue
			}
			if len(rec.Results[k][s]) != len(outs) {
				r.differ(rec.PID, "turn %d step %d: got %d results, want %d", k, s, len(outs), len(rec.Results[k][s]))
				continue
			}
			for i, o := range outs {
				r.compare(fmt.Sprintf("%s turn %d", rec.PID, k), rec.Steps[k][s][i], o, rec.Results[k][s][i])
			}
		}
	}
	if err := r.finalState(rec, t, e); err != nil {
		return err
	}
	v := e.Verdict()
	r.verdict(rec, v, recordedChecks(v), recordedOfficial(v))
	return nil
}

func recordedChecks(v bfcl.Verdict) []recordedCheck {
	var out []recordedCheck
	for _, c := range v.Turns {
		one := recordedCheck{GTEmpty: c.GroundTruthEmpty, ModelEmpty: c.ModelEmpty, State: c.State,
			Response: c.Response, Missing: len(c.Missing)}
		for _, d := range c.Diff {
			if one.Diff == nil {
				one.Diff = map[string][]string{}
			}
			one.Diff[d.Class] = slices.Sorted(slices.Values(d.Attrs))
		}
		out = append(out, one)
	}
	return out
}

func recordedOfficial(v bfcl.Verdict) recordedVerdict {
	out := recordedVerdict{Valid: v.Official, ErrorType: v.ErrorType, Message: v.Message, Attrs: v.Attrs}
	if v.Turn >= 0 {
		out.Turn = &v.Turn
	}
	for _, m := range v.Missing {
		out.Missing = append(out.Missing, digest(m, longMissing))
	}
	return out
}

func (r *replayer) verdict(rec *recorded, v bfcl.Verdict, checks []recordedCheck, official recordedVerdict) {
	if r.cut {
		return
	}
	if rec.Checks != nil {
		want, _ := json.Marshal(rec.Checks)
		if got, _ := json.Marshal(checks); !bytes.Equal(got, want) {
			r.differ(rec.PID, "turn checks: got %s, want %s", clip(string(got)), clip(string(want)))
		}
	}
	if rec.Official == nil {
		return
	}
	want, _ := json.Marshal(rec.Official)
	if got, _ := json.Marshal(official); !bytes.Equal(got, want) {
		r.differ(rec.PID, "official verdict: got %s, want %s", clip(string(got)), clip(string(want)))
	}
	got := [4]float64{v.RState, v.RAction, v.RActionInjective, v.Reward}
	wanted := [4]float64{rec.RState, rec.RAction, rec.RInjective, rec.Reward}
	if got != wanted {
		r.differ(rec.PID, "r_state, r_action, r_action_injective, reward: got %v, want %v", got, wanted)
	}
}

// finalState compares the policy's final state; "=gt" denotes the final state of the ground truth.
func (r *replayer) finalState(rec *recorded, t *bfcl.Task, e *bfcl.Episode) error {
	if rec.FinalState == nil {
		return nil
	}
	var want map[string]json.RawMessage
	if err := json.Unmarshal(rec.FinalState, &want); err != nil {
		return err
	}
	for class, state := range want {
		if string(state) != `"=gt"` {
			continue
		}
		final, err := r.truthState(t)
		if err != nil {
			return err
		}
		want[class] = final[class]
	}
	return r.states(rec.PID+" end", e, want, nil)
}

func (r *replayer) truthState(t *bfcl.Task) (map[string]json.RawMessage, error) {
	if f, ok := r.final[t.ID]; ok {
		return f, nil
	}
	e, _, err := t.Play(r.settings, t.GroundTruthSteps())
	if err != nil {
		return nil, err
	}
	if r.final == nil {
		r.final = map[string]map[string]json.RawMessage{}
	}
	r.final[t.ID], err = stateOf(e)
	return r.final[t.ID], err
}

// sequence replays a record of golden_fuzz or golden_directed: calls on one class.
func (r *replayer) sequence(rec *recorded, line []byte) error {
	var more struct {
		Calls        []recordedResult `json:"calls"`
		InitialState json.RawMessage  `json:"initial_state"`
		Private      json.RawMessage  `json:"private"`
	}
	if err := json.Unmarshal(line, &more); err != nil {
		return err
	}
	name := cmp.Or(rec.SID, rec.Name)
	e, err := r.startClass(rec)
	if err != nil {
		return err
	}
	recorded := func(state json.RawMessage) map[string]json.RawMessage {
		if state == nil {
			return nil
		}
		return map[string]json.RawMessage{rec.Class: state}
	}
	if more.InitialState != nil {
		if err := r.states(name+" start", e, recorded(more.InitialState), nil); err != nil {
			return err
		}
	}
	calls := make([]string, len(more.Calls))
	for i, c := range more.Calls {
		calls[i] = c.Call
	}
	outcomes, err := e.StepOutcomes(calls)
	if err != nil {
		return err
	}
	for i, o := range outcomes {
		r.compare(name, calls[i], o, more.Calls[i])
	}
	if rec.FinalState != nil {
		return r.states(name+" end", e, recorded(rec.FinalState), recorded(more.Private))
	}
	return nil
}

// startClass starts an episode of one class with the record's state, or that of an official task.
func (r *replayer) startClass(rec *recorded) (*bfcl.Episode, error) {
	config := rec.InitialConfig
	if config == nil {
		t, err := r.official(rec.Task)
		if err != nil {
			return nil, err
		}
		config = t.InitialConfig
	}
	category := "base"
	if rec.Long {
		category = "long_context"
	}
	t := &bfcl.Task{ID: rec.Task, Category: category, Classes: []string{rec.Class}, InitialConfig: config,
		Turns: []bfcl.Turn{{}}}
	return t.Start(r.settings)
}

// decode replays a record of golden_decode.
func (r *replayer) decode(rec *recorded) error {
	if rec.Format == "prompting" {
		r.prompting++
		return nil
	}
	decoders := map[string]func(string) ([]string, error){
		"qwen_fc": bfcl.DecodeQwen, "llama31_fc": bfcl.DecodeLlama31,
	}
	decoder, ok := decoders[rec.Format]
	if !ok {
		return fmt.Errorf("unknown format %q, want qwen_fc or llama31_fc", rec.Format)
	}
	var want []string
	if err := json.Unmarshal(rec.Calls, &want); err != nil {
		return err
	}
	r.calls += len(want)
	got, err := decoder(rec.Text)
	switch {
	case (err != nil) != (rec.Exc != ""):
		r.differ(rec.Format, "%q: got error %v, want %q (calls %q)", clip(rec.Text), err, rec.Exc, got)
	case err == nil && !slices.Equal(got, want):
		r.differ(rec.Format, "%q: got %q, want %q", clip(rec.Text), got, want)
	case err == nil && bfcl.EmptyStep(got) != rec.Empty:
		r.differ(rec.Format, "%q: got empty %v, want %v", clip(rec.Text), bfcl.EmptyStep(got), rec.Empty)
	}
	return nil
}
