package bfcl

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"rcgrpo/bfcl/internal/api"
	"rcgrpo/bfcl/internal/py"
)

// Play runs a whole trajectory: turns of steps of calls, as decoded model output. Empty steps are dropped. A trajectory
// with another number of turns than the task is force-terminated; turns beyond the task's are not executed. The step
// limit does not apply, because the steps have been made.
func (t *Task) Play(s Settings, turns [][][]string) (*Episode, error) {
	p, err := t.play(s, turns)
	if err != nil {
		return nil, err
	}
	return p.episode, nil
}

// played is an episode with the outcomes of its calls: turns, steps, calls; nil for a step dropped as empty.
type played struct {
	episode  *Episode
	outcomes [][][]outcome
}

func (t *Task) play(s Settings, turns [][][]string) (*played, error) {
	s.MaxSteps, s.MaxCalls = math.MaxInt, 0
	e, err := t.Start(s)
	if err != nil {
		return nil, err
	}
	p := &played{episode: e}
	for _, steps := range turns {
		if e.Done() {
			break
		}
		var outs [][]outcome
		for _, calls := range steps {
			if emptyStep(calls) {
				outs = append(outs, nil)
			} else {
				outs = append(outs, e.step(calls))
			}
		}
		e.endTurn()
		p.outcomes = append(p.outcomes, outs)
	}
	e.turns = len(turns)
	return p, nil
}

// Report counts what Replay did.
type Report struct {
	Trajectories int
	Calls        int
	Allowed      int      // texts of SyntaxErrors, exotic TypeErrors and hash orders that differ, which is allowed
	Differing    []string // one line for each other difference from the recorded values
	Scores       []Score  // by category, of the forms that have verdicts
}

// Replay runs recorded trajectories: JSON Lines, gzipped or not, in any of the five forms of the golden fixtures (ground
// truth, perturbed, fuzz, directed, decode), told apart by their fields. It writes one line per trajectory to out with
// the same fields as computed here, when out is not nil, and compares with the recorded values.
func Replay(d *Data, in io.Reader, out io.Writer) (Report, error) {
	r := &replayer{data: d, settings: Settings{Data: d, Today: ReleaseDate}}
	buffered := bufio.NewReaderSize(in, 1<<20)
	var src io.Reader = buffered
	if magic, _ := buffered.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unzipped, err := gzip.NewReader(buffered)
		if err != nil {
			return r.report, fmt.Errorf("replay: %w", err)
		}
		src = unzipped
	}
	if out != nil {
		w := bufio.NewWriter(out)
		defer w.Flush()
		r.out = w
	}
	lines := bufio.NewReaderSize(src, 1<<20)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			if err := r.record(line); err != nil {
				return r.report, fmt.Errorf("replay: line %d: %w", n, err)
			}
		}
		if err == io.EOF {
			r.report.Scores = r.tally.Scores()
			return r.report, nil
		}
		if err != nil {
			return r.report, fmt.Errorf("replay: line %d: %w", n, err)
		}
	}
}

// ReplayFile is Replay on files; outPath may be "" for none. The output appears whole or not at all.
func ReplayFile(d *Data, inPath, outPath string) (Report, error) {
	in, err := os.Open(inPath)
	if err != nil {
		return Report{}, fmt.Errorf("replay: %w", err)
	}
	defer in.Close()
	if outPath == "" {
		return Replay(d, in, nil)
	}
	aside := outPath + ".part"
	out, err := os.Create(aside)
	if err != nil {
		return Report{}, fmt.Errorf("replay: %w", err)
	}
	defer os.Remove(aside)
	var w io.WriteCloser = out
	if strings.HasSuffix(outPath, ".gz") {
		w = gzip.NewWriter(out)
	}
	report, err := Replay(d, in, w)
	if err != nil {
		out.Close()
		return report, err
	}
	if w != out {
		if err := w.Close(); err != nil {
			out.Close()
			return report, fmt.Errorf("replay: %s: %w", outPath, err)
		}
	}
	if err := out.Close(); err != nil {
		return report, fmt.Errorf("replay: %s: %w", outPath, err)
	}
	return report, os.Rename(aside, outPath)
}

type replayer struct {
	data     *Data
	settings Settings
	report   Report
	tally    Tally
	out      io.Writer
	final    map[string]map[string]string // task id -> class -> final state of the ground truth
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
	Exc     *string
	Tools   []string            `json:"tools"`
	HeldOut map[string][]string `json:"held_out"`

	Calls         json.RawMessage            `json:"calls"`
	InitialConfig json.RawMessage            `json:"initial_config"`
	InitialState  map[string]json.RawMessage `json:"-"`
	Turns         []recordedTurn             `json:"turns"`

	Steps      [][][]string               `json:"steps"`
	Results    [][][]recordedResult       `json:"results"`
	FinalState json.RawMessage            `json:"final_state"`
	Private    map[string]json.RawMessage `json:"-"`
	Checks     []recordedCheck            `json:"turn_checks"`
	Official   *recordedVerdict           `json:"official"`
	RState     float64                    `json:"r_state"`
	RAction    float64                    `json:"r_action"`
	RInjective float64                    `json:"r_action_injective"`
	Reward     float64                    `json:"reward"`
}

type recordedTurn struct {
	Calls   []recordedResult           `json:"calls"`
	State   map[string]json.RawMessage `json:"state"`
	Private map[string]json.RawMessage `json:"private"`
}

// recordedResult is one call with its result: text, or the digest of a long one.
type recordedResult struct {
	Call   string          `json:"call"`
	R      json.RawMessage `json:"r"`
	Result *string         `json:"result"`
	Exc    *string         `json:"exc"`
	RT     *string         `json:"rt"`
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
	r.report.Trajectories++
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
	return fmt.Errorf("the record has none of the fields format, pid, turns and class, so its form is unknown")
}

func (r *replayer) differ(where, format string, args ...any) {
	r.report.Differing = append(r.report.Differing, where+": "+fmt.Sprintf(format, args...))
}

func (r *replayer) write(v any) error {
	if r.out == nil {
		return nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := r.out.Write(b.Bytes())
	return err
}

// digest is the recorded form of a result: the text, or what identifies a long one.
func digest(text string, limit int) any {
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	runes := []rune(text)
	sum := sha256.Sum256([]byte(text))
	return map[string]any{"sha256": hex.EncodeToString(sum[:]), "len": len(runes), "head": string(runes[:120]), "tail": string(runes[len(runes)-120:])}
}

// longResult is the length in code points above which fixtures hold a digest; longMissing the one of missing items.
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

// compare checks one outcome against the record of its call.
func (r *replayer) compare(where, call string, got outcome, want recordedResult) {
	r.report.Calls++
	where += " " + call
	exc, rt := deref(want.Exc), deref(want.RT)
	if got.exception != exc || got.kind != rt {
		r.differ(where, "got exception %q and type %q, want %q and %q (result %q)", got.exception, got.kind, exc, rt, got.text)
		return
	}
	var same bool
	var wanted string
	if want.Result != nil {
		same, wanted = got.text == *want.Result, *want.Result
	} else if wanted = string(want.R); strings.HasPrefix(wanted, `"`) {
		_ = json.Unmarshal(want.R, &wanted) // it is a JSON string
		same = got.text == wanted
	} else {
		same = sameJSON(digest(got.text, longResult), want.R)
	}
	switch {
	case same:
	case want.ND && sameWords(got.text, wanted),
		exc == "SyntaxError" && strings.HasPrefix(got.text, "Error during execution: "),
		exc == "TypeError" && !strings.Contains(wanted, "argument") && strings.HasPrefix(got.text, "Error during execution: "):
		r.report.Allowed++
	default:
		r.differ(where, "got %q, want %q", clip(got.text), clip(wanted))
	}
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func clip(s string) string {
	if len(s) > 300 {
		return s[:300] + "..."
	}
	return s
}

// sameWords compares two texts without the order of what they list.
func sameWords(a, b string) bool {
	words := func(s string) []string {
		w := strings.FieldsFunc(s, func(c rune) bool { return strings.ContainsRune(" ,'\"{}[]().:", c) })
		slices.Sort(w)
		return w
	}
	return slices.Equal(words(a), words(b))
}

// sameState compares the dump of an instance with the recorded one, byte for byte after both went through one printer.
func (r *replayer) sameState(where, class string, attrs []api.Attr, want json.RawMessage) {
	got, err := stateJSON(attrs)
	if err != nil {
		r.differ(where, "state of %s: %v", class, err)
		return
	}
	v, err := py.FromJSON(want)
	if err != nil {
		r.differ(where, "recorded state of %s: %v", class, err)
		return
	}
	wanted, err := py.JSON(v)
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

// states compares all instances of a side with recorded states and private attributes.
func (r *replayer) states(where string, s *side, state, private map[string]json.RawMessage) {
	for i, class := range s.scene.task.Classes {
		if want, ok := state[class]; ok {
			r.sameState(where, class, s.instances[i].State(), want)
		} else {
			r.differ(where, "no state of %s is recorded", class)
		}
		if want, ok := private[class]; ok {
			r.sameState(where+" private", class, s.instances[i].Private(), want)
		}
	}
}

func stateOf(s *side) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for i, class := range s.scene.task.Classes {
		if text, err := stateJSON(s.instances[i].State()); err == nil {
			out[class] = json.RawMessage(text)
		}
	}
	return out
}

// official finds an official task or complains.
func (r *replayer) official(id string) (*Task, error) {
	if t := r.data.Task(id); t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("the benchmark's data has no task %q", id)
}

type resultOut struct {
	Call   string  `json:"call"`
	Result string  `json:"result"`
	Exc    *string `json:"exc"`
	RT     *string `json:"rt"`
}

func newResultOut(call string, o outcome) resultOut {
	out := resultOut{Call: call, Result: o.text}
	if o.exception != "" {
		out.Exc = &o.exception
	} else {
		out.RT = &o.kind
	}
	return out
}

// groundTruth replays a record of golden_ground_truth: the recorded calls as policy, turn by turn.
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
	e, err := t.Start(r.settings)
	if err != nil {
		return err
	}
	if got := e.Tools(); !slices.Equal(got, rec.Tools) {
		r.differ(rec.ID, "tools: got %v, want %v", got, rec.Tools)
	}
	if len(rec.Turns) != len(t.Turns) {
		return fmt.Errorf("task %s: the record has %d turns, the task %d", rec.ID, len(rec.Turns), len(t.Turns))
	}
	r.states(rec.ID+" start", e.model, more.InitialState, more.InitialPrivate)
	type turnOut struct {
		Calls []resultOut                `json:"calls"`
		State map[string]json.RawMessage `json:"state"`
	}
	out := struct {
		ID           string                     `json:"id"`
		Tools        []string                   `json:"tools"`
		InitialState map[string]json.RawMessage `json:"initial_state"`
		Turns        []turnOut                  `json:"turns"`
		Valid        bool                       `json:"valid"`
		Reward       float64                    `json:"reward"`
	}{ID: rec.ID, Tools: e.Tools(), InitialState: stateOf(e.model)}
	for k, turn := range rec.Turns {
		where := fmt.Sprintf("%s turn %d", rec.ID, k)
		if held := rec.HeldOut[fmt.Sprint(k)]; held != nil {
			tools := e.Tools()
			if len(tools) < len(held) || !slices.Equal(tools[len(tools)-len(held):], held) {
				r.differ(where, "tools: got %v, want %v at the end", tools, held)
			}
		}
		var one turnOut
		for _, c := range turn.Calls {
			o := e.step([]string{c.Call})[0]
			e.steps = 0 // the ground truth knows no steps
			r.compare(where, c.Call, o, c)
			one.Calls = append(one.Calls, newResultOut(c.Call, o))
		}
		e.steps = len(turn.Calls)
		r.states(where, e.model, turn.State, turn.Private)
		one.State = stateOf(e.model)
		out.Turns = append(out.Turns, one)
		e.endTurn()
	}
	v := e.Verdict()
	if !v.Official || v.Reward != 1 {
		r.differ(rec.ID, "the ground truth fails: %s, reward %v", v.Message, v.Reward)
	}
	r.tally.Add(t.Category, v)
	out.Valid, out.Reward = v.Official, v.Reward
	return r.write(out)
}

// perturbed replays a record of golden_perturbed.
func (r *replayer) perturbed(rec *recorded) error {
	t, err := r.official(rec.ID)
	if err != nil {
		return err
	}
	p, err := t.play(r.settings, rec.Steps)
	if err != nil {
		return err
	}
	for k, steps := range p.outcomes {
		if rec.Results != nil && (k >= len(rec.Results) || len(rec.Results[k]) != len(steps)) {
			r.differ(rec.PID, "turn %d: the record's results do not fit its steps", k)
			continue
		}
		for s, outs := range steps {
			if rec.Results == nil {
				r.report.Calls += len(outs)
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
	final := stateOf(p.episode.model)
	if err := r.finalState(rec, t, p.episode); err != nil {
		return err
	}
	v := p.episode.Verdict()
	r.tally.Add(t.Category, v)
	checks, official := recordedChecks(v), recordedOfficial(v)
	r.verdict(rec, v, checks, official)
	return r.write(map[string]any{
		"pid": rec.PID, "id": rec.ID, "steps": rec.Steps, "results": resultsOut(rec.Steps, p.outcomes), "final_state": final,
		"turn_checks": checks, "official": official, "r_state": v.RState, "r_action": v.RAction,
		"r_action_injective": v.RActionInjective, "reward": v.Reward,
	})
}

func resultsOut(steps [][][]string, outcomes [][][]outcome) [][][]resultOut {
	out := make([][][]resultOut, len(outcomes))
	for k := range outcomes {
		out[k] = make([][]resultOut, len(outcomes[k]))
		for s, outs := range outcomes[k] {
			for i, o := range outs {
				out[k][s] = append(out[k][s], newResultOut(steps[k][s][i], o))
			}
		}
	}
	return out
}

func recordedChecks(v Verdict) []recordedCheck {
	var out []recordedCheck
	for _, c := range v.Turns {
		one := recordedCheck{GTEmpty: c.GroundTruthEmpty, ModelEmpty: c.ModelEmpty, State: c.State, Response: c.Response, Missing: len(c.Missing)}
		for _, d := range c.Diff {
			if one.Diff == nil {
				one.Diff = map[string][]string{}
			}
			one.Diff[d.Class] = d.sorted()
		}
		out = append(out, one)
	}
	return out
}

func recordedOfficial(v Verdict) recordedVerdict {
	out := recordedVerdict{Valid: v.Official, ErrorType: v.ErrorType, Message: v.Message, Attrs: v.Attrs}
	if v.Turn >= 0 {
		out.Turn = &v.Turn
	}
	for _, m := range v.Missing {
		out.Missing = append(out.Missing, digest(m, longMissing))
	}
	return out
}

func (r *replayer) verdict(rec *recorded, v Verdict, checks []recordedCheck, official recordedVerdict) {
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
	got, wanted := [4]float64{v.RState, v.RAction, v.RActionInjective, v.Reward}, [4]float64{rec.RState, rec.RAction, rec.RInjective, rec.Reward}
	if got != wanted {
		r.differ(rec.PID, "r_state, r_action, r_action_injective, reward: got %v, want %v", got, wanted)
	}
}

// finalState compares the policy's final state; "=gt" stands for the one the ground truth leads to.
func (r *replayer) finalState(rec *recorded, t *Task, e *Episode) error {
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
		want[class] = json.RawMessage(final[class])
	}
	r.states(rec.PID+" end", e.model, want, nil)
	return nil
}

func (r *replayer) truthState(t *Task) (map[string]string, error) {
	if f, ok := r.final[t.ID]; ok {
		return f, nil
	}
	e, err := t.Start(r.settings)
	if err != nil {
		return nil, err
	}
	for _, turn := range t.Turns {
		for _, call := range turn.GroundTruth {
			e.reference.run(call)
		}
	}
	out := map[string]string{}
	for class, state := range stateOf(e.reference) {
		out[class] = string(state)
	}
	if r.final == nil {
		r.final = map[string]map[string]string{}
	}
	r.final[t.ID] = out
	return out, nil
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
	name := rec.SID
	if name == "" {
		name = rec.Name
	}
	config := rec.InitialConfig
	if config == nil {
		t, err := r.official(rec.Task)
		if err != nil {
			return err
		}
		config = t.InitialConfig
	}
	category := "base"
	if rec.Long {
		category = "long_context"
	}
	t := &Task{ID: rec.Task, Category: category, Classes: []string{rec.Class}, InitialConfig: config, Turns: []Turn{{}}}
	e, err := t.Start(r.settings)
	if err != nil {
		return err
	}
	if more.InitialState != nil {
		r.sameState(name+" start", rec.Class, e.model.instances[0].State(), more.InitialState)
	}
	var outs []resultOut
	for _, c := range more.Calls {
		o := e.model.run(c.Call)
		r.compare(name, c.Call, o, c)
		outs = append(outs, newResultOut(c.Call, o))
	}
	if rec.FinalState != nil {
		r.sameState(name+" end", rec.Class, e.model.instances[0].State(), rec.FinalState)
	}
	if more.Private != nil {
		r.sameState(name+" end private", rec.Class, e.model.instances[0].Private(), more.Private)
	}
	return r.write(map[string]any{"sid": rec.SID, "name": rec.Name, "class": rec.Class, "task": rec.Task, "long_context": rec.Long,
		"calls": outs, "final_state": stateOf(e.model)[rec.Class]})
}

// decode replays a record of golden_decode.
func (r *replayer) decode(rec *recorded) error {
	decoders := map[string]func(string) ([]string, error){
		"prompting": DecodePrompting, "qwen_fc": DecodeQwen, "llama31_fc": DecodeLlama31,
	}
	decoder, ok := decoders[rec.Format]
	if !ok {
		return fmt.Errorf("unknown format %q, want prompting, qwen_fc or llama31_fc", rec.Format)
	}
	var want []string
	if err := json.Unmarshal(rec.Calls, &want); err != nil {
		return err
	}
	r.report.Calls += len(want)
	got, err := decoder(rec.Text)
	switch {
	case (err != nil) != (rec.Exc != nil):
		r.differ(rec.Format, "%q: got error %v, want %q (calls %q)", clip(rec.Text), err, deref(rec.Exc), got)
	case err == nil && !slices.Equal(got, want):
		r.differ(rec.Format, "%q: got %q, want %q", clip(rec.Text), got, want)
	case err == nil && emptyStep(got) != rec.Empty:
		r.differ(rec.Format, "%q: got empty %v, want %v", clip(rec.Text), emptyStep(got), rec.Empty)
	}
	out := map[string]any{"format": rec.Format, "text": rec.Text, "calls": got, "exc": nil, "empty": err == nil && emptyStep(got)}
	if err != nil {
		out["exc"], out["empty"] = py.AsException(err).Class, nil
	}
	return r.write(out)
}
