package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"

	"rcgrpo/bfcl"
	"rcgrpo/engine/artifact"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

// Result is the result of a stage that sampled from an endpoint, with the inputs of its episodes.
type Result struct {
	Store     *artifact.Store
	Manifest  *artifact.Manifest
	Endpoint  string               // content of EndpointFile
	Tasks     []*artifact.Artifact // in the order of the setting
	Benchmark string               // folder of the benchmark's data
}

// recorded contains the ports of a result.
type recorded struct {
	rows   []Row
	cost   Cost
	played []*rl.Trajectory
}

// Replay plays the episodes of a result again from its recorded calls, without a request to the API. It returns the
// number of recorded calls, and one sentence for each request, response, episode or score that does not follow from
// the record.
// The error reports that nothing can be replayed.
func (c *Result) Replay(ctx context.Context) (calls int, faults []string, err error) {
	endpoint, err := parseSettings([]byte(c.Endpoint))
	if err != nil {
		return 0, nil, err
	}
	s := Sampling{Limits: blocks.DefaultLimits()}
	for name, to := range map[string]*int{"samples": &s.Samples, "limits.steps": &s.Limits.Steps} {
		if err := json.Unmarshal([]byte(c.Manifest.Parts["settings."+name]), to); err != nil {
			return 0, nil, fmt.Errorf("the manifest has no setting %s: %w", name, err)
		}
	}
	r, err := c.read()
	if err != nil {
		return 0, nil, err
	}
	var tasks []*bfcl.Task
	for _, set := range c.Tasks {
		rows, err := artifact.AllRows[*bfcl.Task](set, bfcl.TasksFile)
		if err != nil {
			return 0, nil, err
		}
		if tasks = append(tasks, rows...); len(tasks) > len(r.played) {
			break // a stranger's record may name the same tasks any number of times
		}
	}
	rollouts, err := rl.Rollouts(tasks, s.Samples, "")
	if err != nil || len(rollouts) != len(r.played) {
		return len(r.rows), []string{fmt.Sprintf("there are %d trajectories, want %d of each of %d tasks", len(r.played),
			s.Samples, len(tasks))}, nil
	}
	m := &Model{client: &Client{settings: endpoint, limits: &Calls{Parallel: 1}, calls: newCallRecord(r.rows)}}
	again, err := play(ctx, m, c.Benchmark, s.Limits, rollouts, func(*rl.Trajectory) {})
	if err != nil {
		return 0, nil, err
	}
	faults = slices.Concat(r.wrongRows(endpoint), r.wrongEpisodes(m, again))
	scores, err := c.wrongScores(r.played)
	return len(r.rows), append(faults, scores...), err
}

// read reads the ports calls and trajectories.
func (c *Result) read() (*recorded, error) {
	r := &recorded{}
	calls, err := c.Store.Open(c.Manifest, "calls")
	if err != nil {
		return nil, err
	}
	if err := calls.ReadJSON(CostFile, &r.cost); err != nil {
		return nil, fmt.Errorf("%s: %w", CostFile, err)
	}
	if r.rows, err = artifact.AllRows[Row](calls, CallsFile); err != nil {
		return nil, err
	}
	trajectories, err := c.Store.Open(c.Manifest, "trajectories")
	if err != nil {
		return nil, err
	}
	r.played, err = artifact.AllRows[*rl.Trajectory](trajectories, rl.TrajectoriesFile)
	return r, err
}

// wrongRows returns a sentence for each row that its response contradicts, and for a wrong sum.
func (r *recorded) wrongRows(s *Settings) (faults []string) {
	for i := range r.rows {
		if err := r.rows[i].check(s, r.cost.Price); err != nil {
			faults = append(faults, fmt.Sprintf("%s: %v", r.rows[i].Call, err))
		}
	}
	if p := r.cost.Price; p.Input < 0 || p.Output < 0 {
		faults = append(faults, fmt.Sprintf("%s records the prices $%g and $%g", CostFile, p.Input, p.Output))
	}
	if !r.cost.equal(Sum(r.rows, r.cost.Price)) {
		faults = append(faults, CostFile+" is not the sum of the calls")
	}
	return faults
}

// wrongEpisodes returns a sentence for each request with another digest than the recorded one, each episode with
// another course or verdict, and each reply that no episode reads.
func (r *recorded) wrongEpisodes(m *Model, again []*rl.Trajectory) []string {
	faults := m.client.calls.differences()
	for _, err := range m.Failed() {
		faults = append(faults, err.Error())
	}
	for i, t := range again {
		if t.Stop != rl.StopError || len(m.Failed()) == 0 {
			if text := difference(r.played[i], t); text != "" {
				faults = append(faults, fmt.Sprintf("%s, member %d: %s", t.Task, t.Member, text))
			}
		}
	}
	if len(m.Failed()) == 0 { // an episode that ended early leaves replies unread
		for _, row := range m.client.calls.unread() {
			faults = append(faults, fmt.Sprintf("%s: no episode reads this reply", row.Call))
		}
	}
	return faults
}

// wrongScores compares the scores of an evaluation with its trajectories.
func (c *Result) wrongScores(played []*rl.Trajectory) (faults []string, err error) {
	if c.Manifest.Outputs["scores"].Type != "scores" {
		return nil, nil // a rollout
	}
	a, err := c.Store.Open(c.Manifest, "scores")
	if err != nil {
		return nil, err
	}
	scores, err := artifact.AllRows[rl.Score](a, rl.ScoresFile)
	if err != nil {
		return nil, err
	}
	judged := slices.DeleteFunc(played, func(t *rl.Trajectory) bool { return t.Reward.Missing() })
	if len(judged) != len(scores) {
		return []string{fmt.Sprintf("there are %d scores, want %d, those of the trajectories", len(scores), len(judged))}, nil
	}
	for i, t := range judged {
		if want := t.Score(scores[i].Set, scores[i].Greedy); scores[i] != want {
			faults = append(faults, fmt.Sprintf("%s, sample %d: the score is %+v, that of the trajectory %+v", t.Task, t.Member,
				scores[i], want))
		}
	}
	return faults, nil
}

// check compares a row with what follows from its response.
func (r *Row) check(s *Settings, p Price) error {
	if r.Dollars < 0 || r.Outcome != OutcomeReply && r.Usage != (Usage{}) {
		return fmt.Errorf("the row records $%g and %+v with the outcome %q", r.Dollars, r.Usage, r.Outcome)
	}
	switch r.Outcome {
	case OutcomeReply:
	case OutcomeTooLong, OutcomeRefused:
		if got := failure(r.Status, []byte(r.Response)); got != r.Outcome || r.Status == http.StatusOK {
			return fmt.Errorf("the row records %q, its response is %q", r.Outcome, got)
		}
		return nil
	default:
		return nil
	}
	a, err := readReply(apis[s.API], []byte(r.Response))
	if err != nil {
		return fmt.Errorf("the recorded response cannot be read: %w", err)
	}
	if a.usage != r.Usage || a.model != r.Model || a.stop != r.Stop {
		return fmt.Errorf("the row records %+v of %q (%s), its response has %+v of %q (%s)", r.Usage, r.Model, r.Stop,
			a.usage, a.model, a.stop)
	}
	if want := p.cost(a.usage); !near(r.Dollars, want) {
		return fmt.Errorf("the row records $%g, its usage costs $%g", r.Dollars, want)
	}
	return nil
}

// near reports whether two sums of dollars are equal up to rounding, which differs between processors.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1, math.Abs(a)) }

func (c Cost) equal(o Cost) bool {
	same := slices.Equal(c.Models, o.Models) && near(c.Dollars, o.Dollars)
	c.Models, o.Models, c.Dollars, o.Dollars = nil, nil, 0, 0
	return same && fmt.Sprint(c) == fmt.Sprint(o)
}

// difference names the first difference between a recorded trajectory and the replayed one; "" if they are equal.
func difference(recorded, again *rl.Trajectory) string {
	verdict := func(t *rl.Trajectory) string {
		return fmt.Sprintf("reward %v, official verdict %v, failure %q, stop %q", t.Reward, t.Official, t.Failure, t.Stop)
	}
	if a, b := verdict(recorded), verdict(again); a != b {
		return fmt.Sprintf("the record has %s; the replay has %s", a, b)
	}
	for i := range min(len(recorded.Messages), len(again.Messages)) {
		if a, b := recorded.Messages[i], again.Messages[i]; !equalJSON(a, b) {
			return fmt.Sprintf("message %d of the record is %.200q (%s), that of the replay %.200q (%s)", i+1, a.Text, a.Role,
				b.Text, b.Role)
		}
	}
	if !equalJSON(recorded, again) {
		return "the trajectory of the record is not that of the replay"
	}
	return ""
}

func equalJSON(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
