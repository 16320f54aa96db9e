package curate

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/dustin/go-humanize/english"

	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/stages/internal/environment"
	"rcgrpo/stages/internal/sampling"
	"rcgrpo/stages/rl"
)

// Run makes the experts and, if requested, the failures.
func (s *settings) Run(ctx context.Context, job *engine.Job) error {
	c := &curation{settings: s, job: job, byTask: map[string][]*rl.Trajectory{}, seen: map[[sha256.Size]byte]bool{}}
	if err := c.read(); err != nil {
		return err
	}
	if err := c.experts(ctx); err != nil {
		return err
	}
	if err := c.write("expert", c.expert, nil); err != nil {
		return err
	}
	if !s.mixes() {
		return nil
	}
	if err := c.rollouts(); err != nil {
		return err
	}
	failures, err := c.failures(ctx)
	if err != nil {
		return err
	}
	c.sum.Experts = len(c.expert)
	mixed := slices.Concat(c.expert, failures)
	job.Rand("order of the mixed data").Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	return c.write("mixed", mixed, &c.sum)
}

type curation struct {
	*settings
	job    *engine.Job
	bench  bfcl.Settings
	tasks  []*bfcl.Task
	expert []*rl.Trajectory
	byTask map[string][]*rl.Trajectory // distinct failed rollouts
	seen   map[[sha256.Size]byte]bool  // hashes of the conversations of the chosen episodes so far
	graded int                         // rollouts with a reward between 0 and 1
	sum    Summary
}

func (c *curation) read() (err error) {
	if c.tasks, err = sampling.ReadTasks(c.job, c.Tasks); err != nil {
		return err
	}
	for _, task := range c.tasks {
		if task.Spec != nil && c.Spoilt > 0 {
			return fmt.Errorf("task %s belongs to a program, and only experts of the benchmark's classes can be spoilt; "+
				"set spoilt = 0 and take the failures from rollouts", task.ID)
		}
	}
	c.bench, err = bfcl.SettingsFor(c.tasks, c.job.Site.BFCL)
	return err
}

// experts takes the different rollouts with reward 1, or without rollouts executes the ground truth of the tasks.
func (c *curation) experts(ctx context.Context) error {
	if len(c.Experts) == 0 {
		return c.groundTruth(ctx)
	}
	err := c.eachRollout(c.Experts, func(t *rl.Trajectory) {
		if t.Reward == 1 && c.isNew(t) {
			t.Token = rl.TokenHigh
			c.expert = append(c.expert, t)
		}
	})
	if err == nil && len(c.expert) == 0 {
		err = errors.New("no rollout in experts has reward 1; sample more (rollout: samples), or take another policy")
	}
	return err
}

// groundTruth executes the ground truth of the tasks. A ground truth without reward is an error: it would teach a
// failure as a success.
func (c *curation) groundTruth(ctx context.Context) error {
	own, err := environment.Open(ctx, environment.Options{Tasks: c.tasks, Benchmark: c.job.Site.BFCL,
		Scratch: c.job.Dir, Log: c.job.Logf})
	if err != nil {
		return err
	}
	defer own.Close()
	for i, task := range c.tasks {
		if err := ctx.Err(); err != nil {
			return err
		}
		t, err := c.play(ctx, own, task)
		if err != nil {
			return err
		}
		if t.Reward != 1 {
			return fmt.Errorf("task %s: its ground truth earns reward %v (%s), so it is no expert", task.ID, t.Reward,
				t.Failure)
		}
		t.Token = rl.TokenHigh
		c.expert = append(c.expert, t)
		c.job.Progress(i+1, len(c.tasks), "experts")
	}
	return nil
}

func (c *curation) play(ctx context.Context, own rl.Environment, task *bfcl.Task) (*rl.Trajectory, error) {
	if task.Spec == nil {
		return rl.Expert(task, c.bench)
	}
	t, err := environment.Expert(ctx, own, task, false)
	if errors.Is(err, rl.ErrAgain) {
		t, err = environment.Expert(ctx, own, task, true)
	}
	if t == nil && err == nil {
		err = fmt.Errorf("task %s: %s", task.ID, environment.NoExpert)
	}
	return t, err
}

// rollouts collects the failed rollouts of each task, each conversation once.
func (c *curation) rollouts() error {
	further := 0
	err := c.eachRollout(c.Failures, func(t *rl.Trajectory) {
		c.sum.Rollouts++
		switch {
		case t.Reward.Missing():
			c.sum.Missing++
		case t.Reward > 0 && t.Reward < 1:
			c.graded++
		case t.Reward != 0:
		case !c.isNew(t):
			c.sum.Failed++
			c.sum.Duplicates++
		default:
			c.sum.Failed++
			if len(t.Segments) > 0 {
				further++
			}
			c.byTask[t.Task] = append(c.byTask[t.Task], t)
		}
	})
	if err == nil && c.graded > 0 {
		c.job.Logf("%s", c.gradedText())
	}
	if err == nil && further > 0 {
		c.job.Logf("%s of agents with further sequences: fine-tuning learns the first sequence of each",
			english.Plural(further, "failure", ""))
	}
	return err
}

// gradedText explains the rollouts that are left out.
func (c *curation) gradedText() string {
	return fmt.Sprintf("%s left out: a reward between 0 and 1 is neither an expert's nor a failure's; let the program "+
		"return 0 for an episode that is to be a failure", english.Plural(c.graded, "rollout", ""))
}

// eachRollout calls use with each episode of the rollouts. An episode of another task is an error, because it has no
// expert.
func (c *curation) eachRollout(rollouts []artifact.Ref, use func(*rl.Trajectory)) error {
	known := map[string]*bfcl.Task{}
	for _, task := range c.tasks {
		known[task.ID] = task
	}
	for _, ref := range rollouts {
		a, err := c.job.Open(ref)
		if err != nil {
			return err
		}
		for t, err := range artifact.Rows[*rl.Trajectory](a, rl.TrajectoriesFile) {
			if err != nil {
				return err
			}
			if task := known[t.Task]; task == nil || task.Prompt != t.Prompt {
				return fmt.Errorf("the rollouts of stage.%s.%s are on task %s in prompt mode %q, which is not one of "+
					"the tasks curated here; give both stages the same tasks", ref.Kind, ref.Name, t.Task, t.Prompt)
			}
			use(t)
		}
	}
	return nil
}

// isNew reports whether no episode so far contains the same replies to the same task.
func (c *curation) isNew(t *rl.Trajectory) bool {
	var did strings.Builder
	did.WriteString(t.Task)
	for _, m := range t.Messages {
		if m.Role == rl.RoleAssistant {
			fmt.Fprintf(&did, "\x00%s\x00%q", m.Text, m.Calls) // an API model may call without a text
		}
	}
	sum := sha256.Sum256([]byte(did.String()))
	if c.seen[sum] {
		return false
	}
	c.seen[sum] = true
	return true
}

// failures returns ratio failures per expert, the share spoilt of them made from experts, the rest from rollouts.
// Each task has the same quota; other tasks fill a missing quota. With spoilt above 0 more experts are spoilt if
// there are too few failed rollouts; with spoilt = 0 that is an error.
func (c *curation) failures(ctx context.Context) ([]*rl.Trajectory, error) {
	total := int(math.Round(c.Ratio * float64(len(c.expert))))
	wantSpoilt := int(math.Round(c.Spoilt * float64(total)))
	order := c.job.Rand("order of failures").Perm(len(c.tasks))
	real := c.real(total-wantSpoilt, order)
	c.sum.Real = len(real)
	c.sum.ShortReal = total - wantSpoilt - len(real)
	if c.sum.ShortReal > 0 && c.Spoilt == 0 {
		advice := ", or allow spoilt experts (spoilt above 0)"
		if c.tasks[0].Spec != nil {
			advice = "" // their experts cannot be spoilt
		}
		if c.graded > 0 {
			advice += "; " + c.gradedText()
		}
		return nil, fmt.Errorf("%d real failures are wanted and the rollouts have %d different ones; sample more "+
			"(rollout: samples), lower ratio%s", total, len(real), advice)
	}
	spoilt, err := c.spoilt(ctx, total-len(real), order, real)
	if err != nil {
		return nil, err
	}
	c.sum.Spoilt = len(spoilt)
	failures := append(real, spoilt...)
	for _, t := range failures {
		if t.Reward != 0 {
			return nil, fmt.Errorf("task %s: a failure has reward %v", t.Task, t.Reward)
		}
		t.Token = rl.TokenLow
	}
	return failures, nil
}

// real takes n failed rollouts, one per task in turn.
func (c *curation) real(n int, order []int) []*rl.Trajectory {
	var out []*rl.Trajectory
	for round, more := 0, true; more && len(out) < n; round++ {
		more = false
		for _, i := range order {
			failed := c.byTask[c.tasks[i].ID]
			if round == 0 && len(failed) == 0 {
				c.sum.NoFailure++
			}
			if round < len(failed) && len(out) < n {
				out, more = append(out, failed[round]), true
			}
		}
	}
	return out
}

// variants bounds the spoilt episodes per task.
const variants = 64

// spoilt makes n failures from experts, one per task in turn, tasks without a real failure first.
func (c *curation) spoilt(ctx context.Context, n int, order []int, real []*rl.Trajectory) ([]*rl.Trajectory, error) {
	has := map[string]int{}
	for _, t := range real {
		has[t.Task] = 1
	}
	first := slices.Clone(order)
	slices.SortStableFunc(first, func(i, j int) int { return has[c.tasks[i].ID] - has[c.tasks[j].ID] })
	var out []*rl.Trajectory
	work := make([]int, len(c.tasks))
	for variant := range variants {
		var more []int // tasks with a failure in this round; a task without one is not tried again
		for _, i := range first {
			if len(out) == n {
				return out, nil
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			t, err := rl.Spoil(ctx, c.tasks[i], c.bench, uint64(c.job.Seed), variant, &work[i])
			if err != nil {
				return nil, err
			}
			if t == nil {
				c.sum.Unspoiled++
				continue
			}
			if more = append(more, i); c.isNew(t) {
				out = append(out, t)
				c.job.Progress(len(out), n, "spoilt experts")
			}
		}
		first = more
	}
	if len(out) == n {
		return out, nil
	}
	return nil, fmt.Errorf("%d spoilt experts are wanted and the ground truths of %d tasks give %d different ones; "+
		"lower ratio, or offer more rollouts", n, len(c.tasks), len(out))
}

func (c *curation) write(port string, rows []*rl.Trajectory, sum *Summary) error {
	dir, err := c.job.Create(port)
	if err != nil {
		return err
	}
	if err := artifact.WriteRows(dir, rl.DatasetFile, rows); err != nil || sum == nil {
		return err
	}
	return artifact.WriteJSON(dir, SummaryFile, sum)
}
