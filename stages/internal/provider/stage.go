package provider

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/hashicorp/hcl/v2"

	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/stages/internal/sampling"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/blocks"
)

// Calls bound the calls of a stage that samples from an endpoint. They are in no key.
type Calls struct {
	// each seed of the stage makes no further call once its calls have cost this much; required unless the price is 0
	Budget float64 `hcl:"budget,optional" unit:"dollars"`
	// how many episodes call the API at once
	Parallel int `hcl:"parallel,optional" unit:"episodes"`
	// how often a call is sent at most before its episode fails
	Attempts int `hcl:"attempts,optional"`
	// the time that one attempt of a call may take
	Timeout time.Duration `hcl:"timeout,optional"`

	At map[string]hcl.Range `hcl:",ranges"`
}

// Unread returns the settings of rollout and eval that a policy does not read: those of the other sort of policy.
func Unread(endpoint bool) blocks.Effects {
	e := blocks.Effects{}
	e.Add(endpoint, "the endpoint decides how its model samples", "token", "temperature", "top_p", "limits.reply",
		"limits.context", "precision")
	e.Add(!endpoint, "a checkpoint is sampled without calls", "calls.budget", "calls.parallel", "calls.attempts",
		"calls.timeout")
	return e
}

// DefaultCalls returns 8 episodes at once and 8 attempts of 20 minutes.
func DefaultCalls() *Calls { return &Calls{Parallel: 8, Attempts: 8, Timeout: 20 * time.Minute} }

// Check reports values out of range.
func (c *Calls) Check() (diags hcl.Diagnostics) {
	bad := blocks.Mistakes(&diags)
	bad(c.Budget < 0, "Negative budget", c.At["budget"], "The calls of a stage cost at least 0 dollars; got %v.", c.Budget)
	// Short replies can ask for results of 8 MiB in each episode, which a server chooses.
	bad(c.Parallel < 1 || c.Parallel > 200, "Episodes out of range", c.At["parallel"],
		"Between 1 and 200 episodes are played at once; got %d.", c.Parallel)
	bad(c.Attempts < 1, "Attempts out of range", c.At["attempts"], "A call is made at least once; got %d.", c.Attempts)
	bad(c.Timeout <= 0, "Timeout out of range", c.At["timeout"], "An attempt has time above 0; got %v.", c.Timeout)
	return diags
}

// Sampling configures the episodes of a stage that samples from an endpoint.
type Sampling struct {
	Policy  artifact.Ref
	Samples int // per task
	Limits  *blocks.Limits
	Calls   *Calls
}

// recordFile is the record in the scratch folder of a running stage.
const recordFile = "calls.jsonl"

// Run plays the tasks, writes the ports trajectories and calls, and returns the trajectories in the order of the tasks.
// Calls that an earlier attempt of the stage recorded are not repeated. If a call gets no reply, the stage fails after
// its other episodes.
func (s Sampling) Run(ctx context.Context, job *engine.Job, tasks []*bfcl.Task) ([]*rl.Trajectory, error) {
	m, price, err := s.open(job)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if n := len(m.Rows()); n > 0 {
		job.Logf("%d attempts of earlier runs are recorded", n)
	}
	rollouts, err := rl.Rollouts(tasks, s.Samples, "")
	if err != nil {
		return nil, err
	}
	trajectories, err := play(ctx, m, job.Site.BFCL, s.Limits, rollouts, sampling.Progress(job, len(rollouts)))
	cost := Sum(m.Rows(), price)
	job.Logf("%d attempts, %d replies, $%.4f", cost.Attempts, cost.Replies, cost.Dollars)
	if failed := m.Failed(); err == nil && len(failed) > 0 {
		err = fmt.Errorf("%s got no reply; a new run repeats only these calls. The first: %w",
			english.Plural(len(failed), "episode", ""), failed[0])
	}
	if err != nil {
		return nil, err
	}
	if _, err := rl.Rewarded(trajectories); err != nil {
		return nil, err
	}
	return trajectories, errors.Join(writeCalls(job, m.Rows(), cost), sampling.WriteTrajectories(job, trajectories))
}

// open opens the endpoint of a stage.
func (s Sampling) open(job *engine.Job) (*Model, Price, error) {
	a, err := job.Open(s.Policy)
	if err != nil {
		return nil, Price{}, err
	}
	set, err := ReadSettings(a)
	if err == nil {
		err = set.checkMaker(job.Maker(s.Policy))
	}
	if err != nil {
		return nil, Price{}, err
	}
	site := job.Site.APIs[set.Key]
	price, err := set.PriceOf(site.Prices)
	if err != nil {
		return nil, price, err
	}
	if price != (Price{}) && s.Calls.Budget == 0 {
		return nil, price, fmt.Errorf("%s costs $%v and $%v for a million tokens of input and output: write calls "+
			"{ budget = DOLLARS }; `rcgrpo plan` prints the expected cost", set.Model, price.Input, price.Output)
	}
	rate := &Rate{Requests: site.RequestsPerMinute, Tokens: site.TokensPerMinute, Logf: job.Logf}
	client, err := newClient(set, s.Calls, price, rate, filepath.Join(job.Dir, recordFile), job.Logf)
	return &Model{client: client}, price, err
}

// play plays episodes with a model, whose tools are described in the folder of the benchmark's data.
func play(ctx context.Context, m *Model, benchmark string, limits *blocks.Limits, episodes []rl.Rollout,
	finished func(*rl.Trajectory)) ([]*rl.Trajectory, error) {
	if benchmark == "" {
		return nil, errors.New("an API model reads the documents of the benchmark's tools: set the " +
			"folder of its data in the site file, data { bfcl = \"...\" }, or run `make build`")
	}
	data, err := bfcl.LoadData(benchmark)
	if err != nil {
		return nil, err
	}
	m.documents = data
	settings := bfcl.Settings{Today: bfcl.ReleaseDate}
	for _, e := range episodes {
		if e.Task.Spec != nil {
			return nil, fmt.Errorf("task %s: API models play tasks of the benchmark and drills only, not "+
				"those of a program", e.Task.ID)
		}
		if e.Task.Official() { // drills have the order of the class table
			settings.Data = data
		}
	}
	collector := &rl.Collector{Policy: m, Environment: rl.Benchmark(settings, *limits)}
	trajectories, _, err := collector.Collect(ctx, episodes, func(_ int, t *rl.Trajectory) error {
		finished(t)
		text, err := encode(t)
		return errors.Join(err, m.client.keyless(t), m.client.calls.check(0, len(text)))
	})
	return trajectories, err
}

func writeCalls(job *engine.Job, rows []Row, cost Cost) error {
	dir, err := job.Create("calls")
	if err != nil {
		return err
	}
	return errors.Join(artifact.WriteRows(dir, CallsFile, rows), artifact.WriteJSON(dir, CostFile, cost))
}
