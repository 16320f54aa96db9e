//go:build libtorch

package stages

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"rcgrpo/bfcl"
	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/objective"
)

// line is a minimal pipeline from tasks to scores. The stages named refused must fail.
var line = expand(`
experiment {
  seeds = [1, 2]
}

locals {
  inits = { sft = stage.sft.warm.checkpoint, rctp = stage.rctp-ft.warm.checkpoint }
}

defaults "rollout" "grpo" "rc-grpo" "eval" {
  LIMITS 3 24 640
}

defaults "grpo" "rc-grpo" {
  tasks   = stage.tasks.drills.train
  updates = 2
  batch   = 2
  group   = 3
  lr      = 1e-3
}

stage "tasks" "drills" {
  source = "drills"
  train  = 10
  test   = 2
  pool   = 5
}

stage "tasks" "merged" {
  source = "drills"
  prompt = "merged"
  train  = 3
  test   = 2
  pool   = 5
}

stage "curate" "merged" {
  tasks  = stage.tasks.merged.train
  spoilt = 1
}

stage "rollout" "merged" {
  policy = stage.rctp-ft.merged.checkpoint
  tasks  = stage.tasks.merged.train
}

stage "rctp-ft" "merged" {
  policy = stage.sft.base.checkpoint
  data   = [stage.curate.merged.mixed]
  batch  = 3
  lr     = 1e-3
}

stage "eval" "modes" {
  policy = stage.rctp-ft.merged.checkpoint
  tasks  = [stage.tasks.drills.test, stage.tasks.merged.test]
}

stage "tasks" "corpus" {
  source = "drills"
  form   = "single"
  train  = 30
  seed   = 0
}

stage "curate" "corpus" {
  tasks = stage.tasks.corpus.train
}

MODEL

stage "sft" "base" {
  seed   = 0
  policy = stage.model.random.checkpoint
  data   = [stage.curate.corpus.expert]
  epochs = 4
  batch  = 4
  lr     = 2e-2
  schedule { shape = "constant" }
}

stage "rollout" "explore" {
  policy = stage.sft.base.checkpoint
  tasks  = stage.tasks.drills.train
}

stage "curate" "data" {
  tasks    = stage.tasks.drills.train
  failures = [stage.rollout.explore.trajectories]
  spoilt   = 0.5
}

stage "sft" "warm" {
  policy = stage.sft.base.checkpoint
  data   = [stage.curate.data.expert]
  batch  = 5
  lr     = 1e-3
}

stage "rctp-ft" "warm" {
  policy = stage.sft.base.checkpoint
  data   = [stage.curate.data.mixed]
  epochs = 1
  batch  = 5
  lr     = 1e-3
  tokens {
    position = "before_each_action"
    init     = "copy:<|assistant|>"
  }
}

stage "sft" "again" { # forgets to condition
  policy = stage.rctp-ft.warm.checkpoint
  data   = [stage.curate.data.expert]
  epochs = 1
  batch  = 10
  lr     = 1e-4
}

stage "grpo" "arm" {
  for_each = local.inits
  policy   = each.value
  loss { aggregate = "trajectory_mean" }
  ratio { level = "token" }
  kl { estimator = "exact" }
}

stage "rc-grpo" "arm" {
  for_each = local.inits
  policy   = each.value
  forecast {
    tasks   = 4
    samples = 4
  }
  evaluate {
    tasks = stage.tasks.drills.test
    every = 2
  }
  tokens {
    position = "before_each_action"
    init     = "copy:<|assistant|>"
  }
}

stage "grpo" "penalty" {
  policy  = stage.sft.warm.checkpoint
  group   = 2
  keep    = 2
  zero_variance = "resample"
  kl {
    place     = "reward"
    estimator = "k1"
  }
}

stage "eval" "arm" {
  for_each = {
    grpo = stage.grpo.arm["rctp"].checkpoint
    rc   = stage.rc-grpo.arm["sft"].checkpoint
    sft  = stage.sft.warm.checkpoint
  }
  policy   = each.value
  tasks    = [stage.tasks.drills.test, stage.tasks.drills.test_new]
}

stage "eval" "nucleus" { # of one token: what greedy takes
  policy      = stage.sft.warm.checkpoint
  tasks       = [stage.tasks.drills.test, stage.tasks.drills.test_new]
  temperature = 1
  top_p       = 1e-6
}

stage "eval" "sampled" {
  policy      = stage.rc-grpo.arm["rctp"].checkpoint
  tasks       = [stage.tasks.drills.test]
  token       = "low"
  temperature = 1
  samples     = 2
  k           = [1, 2]
}

stage "grpo" "refused" {
  policy  = stage.sft.warm.checkpoint
  updates = 1
  tokens { high = 1 }
}

stage "eval" "refused" {
  policy = stage.sft.warm.checkpoint
  tasks  = [stage.tasks.drills.test]
  token  = "high"
}

stage "rc-grpo" "refused" {
  policy  = stage.rctp-ft.warm.checkpoint
  updates = 1
  tokens { position = "first_user" }
}
`)

// played is an experiment that was run: the folder of each port by its address, and the error of each refused
// stage.
type played struct {
	ports   map[string]string
	refused map[string]string
}

// play runs the line's stages one after the other, those of one seed or, with seed 0, all.
func play(t *testing.T, seed int64) played {
	t.Helper()
	root := t.TempDir()
	model := strings.Replace(tinyModel, "curate.data", "curate.corpus", 1)
	x := loaded(t, root, strings.Replace(line, "MODEL", model, 1))
	p := played{map[string]string{}, map[string]string{}}
	for _, n := range x.Nodes {
		stem, at, seeded := strings.Cut(n.Address, "@")
		if seed != 0 && seeded && at != string(rune('0'+seed)) {
			continue
		}
		err := tryNode(t, n, root, nil)
		if n.Name == "refused" {
			if err == nil {
				t.Errorf("%s ran", n.Address)
			} else {
				p.refused[stem] = err.Error()
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", n.Address, err)
		}
		for port := range n.Outputs {
			p.ports[n.Address+"."+port] = filepath.Join(root, n.Address, port)
		}
	}
	return p
}

// digests returns the digests of the ports, without times.
func (p played) digests(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for address, dir := range p.ports {
		if err := os.Remove(filepath.Join(dir, rl.TimesFile)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		digest := must.Get(artifact.Digest(dir))(t)
		out[address] = digest
	}
	return out
}

func rows[T any](t *testing.T, dir, file string) []T {
	t.Helper()
	var out []T
	for row, err := range artifact.ReadRows[T](filepath.Join(dir, file)) {
		must.OK(t, err)
		out = append(out, row)
	}
	return out
}

func TestPipelineFromTasksToEvaluation(t *testing.T) {
	p := play(t, 0)
	t.Run("what is refused says why", p.checkRefusals)
	t.Run("a checkpoint knows its condition", p.checkConditions)
	t.Run("updates are on-policy", p.checkMetrics)
	t.Run("forecast and evaluation while training", p.checkMeasures)
	t.Run("arms of a seed see the same tasks", p.checkOrder)
	t.Run("tool results are the environment's", p.checkResults)
	t.Run("scores are complete", p.checkScores)
	t.Run("both prompt modes", p.checkModes)
	t.Run("a nucleus of one token is greedy", p.checkNucleus)
	t.Run("equal seeds, equal bytes", func(t *testing.T) {
		first, again := p.digests(t), play(t, 1).digests(t)
		for address, digest := range first {
			if strings.Contains(address, "@2.") {
				continue
			}
			if again[address] != digest {
				t.Errorf("%s has other bytes in a second run", address)
			}
			// The certificates of two seeds may be equal: they count shared values only.
			if stem, port, seeded := strings.Cut(address, "@1."); seeded && port != "certificate" &&
				first[stem+"@2."+port] == digest {
				t.Errorf("%s has the same bytes under seed 2", address)
			}
		}
	})
}

func (p played) checkRefusals(t *testing.T) {
	for address, want := range map[string]string{
		"stage.grpo.refused": "this policy has never used reward tokens; start from rctp-ft",
		"stage.eval.refused": `token = "high", but this policy has never used reward tokens; set token = "none"`,
		"stage.rc-grpo.refused": "the policy's reward tokens were trained at before_each_action; they cannot be used at " +
			"first_user",
	} {
		must.Contain(t, p.refused[address], want)
	}
}

func (p played) checkNucleus(t *testing.T) {
	greedy := rows[rl.Trajectory](t, p.ports[`stage.eval.arm["sft"]@1.trajectories`], rl.TrajectoriesFile)
	nucleus := rows[rl.Trajectory](t, p.ports[`stage.eval.nucleus@1.trajectories`], rl.TrajectoriesFile)
	if len(greedy) == 0 || len(greedy) != len(nucleus) {
		t.Fatalf("got %d and %d episodes", len(greedy), len(nucleus))
	}
	for i := range greedy {
		if !slices.Equal(greedy[i].IDs, nucleus[i].IDs) {
			t.Errorf("%s: other tokens than the greedy ones", greedy[i].Task)
		}
	}
}

func (p played) checkConditions(t *testing.T) {
	each, copied := rl.BeforeEachAction, "copy:<|assistant|>"
	for address, want := range map[string]checkpoint.Meta{
		`stage.model.random`: {Layout: checkpoint.Drill},
		`stage.sft.base`:     {Layout: checkpoint.Drill},
		`stage.sft.warm@1`:   {Layout: checkpoint.Drill},
		`stage.rctp-ft.warm@1`: {Layout: checkpoint.Drill, Position: each, Condition: rl.TokenHigh, Trained: true,
			Rows: copied},
		`stage.sft.again@1`:       {Layout: checkpoint.Drill, Position: each, Trained: true, Rows: copied},
		`stage.grpo.arm["sft"]@1`: {Layout: checkpoint.Drill},
		`stage.grpo.arm["rctp"]@1`: {Layout: checkpoint.Drill, Position: each, Condition: rl.TokenHigh, Trained: true,
			Rows: copied},
		`stage.rc-grpo.arm["sft"]@1`: {Layout: checkpoint.Drill, Position: each, Condition: rl.TokenHigh, Trained: true,
			Rows: copied},
		`stage.rc-grpo.arm["rctp"]@1`: {Layout: checkpoint.Drill, Position: each, Condition: rl.TokenHigh, Trained: true,
			Rows: copied},
	} {
		got := must.Get(checkpoint.ReadMeta(p.ports[address+".checkpoint"]))(t)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v", address, got, want)
		}
	}
}

func (p played) checkMetrics(t *testing.T) {
	widest := 0.0
	for _, address := range slices.Sorted(maps.Keys(p.ports)) {
		if !strings.Contains(address, "grpo.") || !strings.HasSuffix(address, ".metrics") {
			continue
		}
		metrics := rows[rl.Metric](t, p.ports[address], rl.MetricsFile)
		for _, m := range append(metrics, rows[rl.Metric](t, p.ports[address], rl.TimesFile)...) {
			for name := range m.Values {
				if _, ok := objective.MetricNamed(name); !ok {
					t.Errorf("%s: %s is logged and has no row in the metrics table", address, name)
				}
			}
		}
		if len(metrics) != 2 {
			t.Fatalf("%s: %d rows, want 2", address, len(metrics))
		}
		for i, m := range metrics {
			v := m.Values
			if m.Update != i+1 {
				t.Errorf("%s: row %d is of update %d", address, i, m.Update)
			}
			if ratio, ok := v["log_ratio_max"]; ok {
				t.Errorf("%s, update %d: the largest log ratio is logged, %v, although an update of one step has only 0",
					address, m.Update, ratio)
			}
			if gap, ok := v["sampler_gap"]; !ok || gap >= 1e-3 || gap == 0 {
				t.Errorf("%s, update %d: sampled and recomputed log-probabilities differ by %v, want less than 1e-3, but "+
					"rounding", address, m.Update, gap)
			}
			if p50, p95, p99 := v["sampler_gap_p50"], v["sampler_gap_p95"], v["sampler_gap_p99"]; p50 > p95 || p95 > p99 ||
				p99 > v["sampler_gap"] || p95 == 0 {
				t.Errorf("%s, update %d: quantiles of the distance %v, %v, %v, largest %v", address, m.Update, p50, p95, p99,
					v["sampler_gap"])
			}
			widest = max(widest, v["sampler_gap"])
			if kl := v["kl_exact"]; i == 0 && math.Abs(kl) > 1e-12 || i > 0 && !(kl > 0) && v["grad_norm"] > 0 &&
				metrics[0].Values["grad_norm"] > 1e-6 {
				t.Errorf("%s, update %d: divergence %v to the reference policy", address, m.Update, kl)
			}
			if v["entropy"] <= 0 || v["tokens"] <= v["sampled_tokens"] {
				t.Errorf("%s, update %d: %v", address, m.Update, v)
			}
		}
	}
	t.Logf("log-probabilities as sampled and as recomputed differ by %.2g at most", widest)
	losses := rows[rl.Metric](t, p.ports["stage.sft.base.metrics"], rl.MetricsFile)
	if n := len(losses); n != 32 || !(losses[n-1].Values["loss"] < 0.7*losses[0].Values["loss"]) {
		t.Errorf("sft: %d updates, loss from %v to %v", len(losses), losses[0].Values["loss"],
			losses[len(losses)-1].Values["loss"])
	}
}

func (p played) checkMeasures(t *testing.T) {
	for _, arm := range []string{"sft", "rctp"} {
		metrics := rows[rl.Metric](t, p.ports[`stage.rc-grpo.arm["`+arm+`"]@1.metrics`], rl.MetricsFile)
		first, second := metrics[0].Values, metrics[1].Values
		share, ok := first["forecast_zero_variance"]
		if low, high := first["forecast_low"], first["forecast_high"]; !ok || low > share || share > high ||
			share != first["forecast_all_right"]+first["forecast_all_wrong"] {
			t.Errorf("%s: forecast %v in [%v, %v], all right %v, all wrong %v", arm, share, low, high,
				first["forecast_all_right"], first["forecast_all_wrong"])
		}
		for _, m := range metrics {
			p.checkGap(t, arm, m)
		}
		_, again := second["forecast_zero_variance"]
		_, early := first["eval_reward"]
		reward, ok := second["eval_reward"]
		if again || early || !ok || reward != 0 && reward != 1 {
			t.Errorf("%s: evaluation %v of one task after update 2 (there: %v); after update 1: %v; a second forecast: %v",
				arm, reward, ok, early, again)
		}
	}
}

// checkGap computes the gap of an update from its trajectories.
func (p played) checkGap(t *testing.T, arm string, m rl.Metric) {
	sum, n := map[string]float64{}, map[string]float64{}
	for _, tr := range p.trajectories(t, `stage.rc-grpo.arm["`+arm+`"]@1`) {
		if tr.Update == m.Update {
			sum[tr.Token] += float64(tr.Reward)
			n[tr.Token]++
		}
	}
	gap, logged := m.Values["token_gap"]
	both := n[rl.TokenHigh] > 0 && n[rl.TokenLow] > 0
	if want := sum[rl.TokenHigh]/n[rl.TokenHigh] - sum[rl.TokenLow]/n[rl.TokenLow]; logged != both || both &&
		math.Abs(gap-want) > 1e-12 {
		t.Errorf("%s, update %d: gap %v (logged: %v), want %v of %v episodes", arm, m.Update, gap, logged, want, n)
	}
}

func (p played) trajectories(t *testing.T, address string) []*rl.Trajectory {
	t.Helper()
	return rows[*rl.Trajectory](t, p.ports[address+".trajectories"], rl.TrajectoriesFile)
}

func (p played) checkOrder(t *testing.T) {
	type place struct {
		update int
		task   string
		member int
	}
	order := func(address string) (places []place, tokens map[string]int) {
		tokens = map[string]int{}
		for _, tr := range p.trajectories(t, address) {
			places = append(places, place{tr.Update, tr.Task, tr.Member})
			tokens[tr.Token]++
		}
		return places, tokens
	}
	want, tokens := order(`stage.grpo.arm["sft"]@1`)
	if len(want) != 12 || tokens[rl.TokenNone] != 12 {
		t.Errorf("grpo after sft: %d episodes, tokens %v; want 12 without", len(want), tokens)
	}
	for address, both := range map[string]bool{`stage.grpo.arm["rctp"]@1`: false, `stage.rc-grpo.arm["sft"]@1`: true,
		`stage.rc-grpo.arm["rctp"]@1`: true} {
		got, tokens := order(address)
		if !slices.Equal(got, want) {
			t.Errorf("%s: tasks %v, want %v", address, got, want)
		}
		if tokens[rl.TokenNone] != 0 || (tokens[rl.TokenLow] > 0) != both || tokens[rl.TokenHigh] == 0 {
			t.Errorf("%s: tokens %v", address, tokens)
		}
	}
	other, _ := order(`stage.grpo.arm["sft"]@2`)
	if slices.Equal(other, want) {
		t.Error("two seeds see the same tasks in the same order")
	}
	if kept := p.trajectories(t, "stage.grpo.penalty@1"); len(kept) != 4 || kept[0].Update != 2 {
		t.Errorf("keep = 2: %d trajectories, want the 4 of update 2", len(kept))
	}
}

// checkResults executes the calls of every rollout again.
func (p played) checkResults(t *testing.T) {
	tasks := map[string]*bfcl.Task{}
	for _, task := range rows[*bfcl.Task](t, p.ports["stage.tasks.drills@1.train"], bfcl.TasksFile) {
		tasks[task.ID] = task
	}
	results := 0
	for _, address := range []string{"stage.rollout.explore@1", `stage.grpo.arm["sft"]@1`,
		`stage.rc-grpo.arm["rctp"]@1`} {
		for _, tr := range p.trajectories(t, address) {
			e := must.Get(tasks[tr.Task].Start(bfcl.Settings{Today: bfcl.ReleaseDate, MaxSteps: 3}))(t)
			for i, m := range tr.Messages {
				switch {
				case m.Role == rl.RoleUser && m.Text != e.User():
					t.Errorf("%s, %s: the user says %q, want %q", address, tr.Task, m.Text, e.User())
				case m.Role == rl.RoleAssistant && i+1 < len(tr.Messages):
					want, _, err := e.Step(m.Calls)
					must.OK(t, err)
					if next := tr.Messages[i+1]; next.Role == rl.RoleTool && !slices.Equal(next.Results(), want) {
						t.Errorf("%s, %s: the calls %q got %q, want %q", address, tr.Task, m.Calls, next.Results(), want)
					} else if next.Role == rl.RoleTool {
						results += len(want)
					} else if len(want) > 0 {
						t.Errorf("%s, %s: the results of %q are missing", address, tr.Task, m.Calls)
					}
				}
			}
		}
	}
	if results < 10 {
		t.Errorf("%d tool results in all rollouts; the policy hardly calls anything, so this shows nothing", results)
	}
}

func (p played) checkModes(t *testing.T) {
	var sets []string
	for _, s := range rows[rl.Score](t, p.ports["stage.eval.modes@1.scores"], rl.ScoresFile) {
		sets = append(sets, s.Set)
		if (s.Prompt == bfcl.PromptMerged) != (s.Set == "test merged") || s.Prompt != "" && s.Official {
			t.Errorf("got %+v", s)
		}
	}
	if want := []string{"test", "test", "test merged", "test merged"}; !slices.Equal(sets, want) {
		t.Errorf("sets: got %v, want %v", sets, want)
	}
	for _, tr := range p.trajectories(t, "stage.rollout.merged@1") {
		if tr.Prompt != bfcl.PromptMerged || tr.Tools[len(tr.Tools)-1] != bfcl.DoneTool ||
			!strings.HasPrefix(tr.Messages[0].Text, "Step 1: ") {
			t.Errorf("got %q, tools %v, first message %q", tr.Prompt, tr.Tools, tr.Messages[0].Text)
		}
	}
	mixed := rows[*rl.Trajectory](t, p.ports["stage.curate.merged@1.mixed"], rl.DatasetFile)
	for _, tr := range mixed {
		if last := tr.Messages[len(tr.Messages)-1]; last.Text != bfcl.DoneCall ||
			(tr.Token == rl.TokenHigh) != (tr.Reward == 1) {
			t.Errorf("%s %s: reward %v under %s, ends with %q", tr.Origin, tr.Task, tr.Reward, tr.Token, last.Text)
		}
	}
	if len(mixed) != 6 {
		t.Errorf("%d rows, want 3 experts and 3 failures", len(mixed))
	}
}

func (p played) checkScores(t *testing.T) {
	for address, want := range map[string]struct {
		token  string
		sets   []string
		greedy bool
	}{
		`stage.eval.arm["sft"]@1`:  {rl.TokenNone, []string{"test", "test", "test_new", "test_new"}, true},
		`stage.eval.arm["grpo"]@1`: {rl.TokenHigh, []string{"test", "test", "test_new", "test_new"}, true},
		`stage.eval.arm["rc"]@1`:   {rl.TokenHigh, []string{"test", "test", "test_new", "test_new"}, true},
		`stage.eval.sampled@1`:     {rl.TokenLow, []string{"test", "test", "test", "test"}, false},
	} {
		var sets []string
		samples := map[int]int{}
		for _, s := range rows[rl.Score](t, p.ports[address+".scores"], rl.ScoresFile) {
			sets = append(sets, s.Set)
			samples[s.Sample]++
			if s.Token != want.token || s.Greedy != want.greedy || s.Tokens == 0 {
				t.Errorf("%s: %+v, want token %q, greedy %t", address, s, want.token, want.greedy)
			}
		}
		if !slices.Equal(sets, want.sets) || samples[1] != map[bool]int{true: 0, false: 2}[want.greedy] {
			t.Errorf("%s: sets %v, samples %v; want %v", address, sets, samples, want.sets)
		}
	}
	sampled := p.ports["stage.eval.sampled@1.scores"]
	want := rl.Passes(rows[rl.Score](t, sampled, rl.ScoresFile), []int{1, 2})
	if got := rows[rl.Pass](t, sampled, rl.PassesFile); !slices.Equal(got, want) || len(got) < 2 || got[0].K != 1 ||
		got[0].Samples != 2 {
		t.Errorf("pass@k: got %+v, want %+v", got, want)
	}
	text := must.Get(os.ReadFile(filepath.Join(p.ports["stage.curate.data@1.mixed"], "summary.json")))(t)
	var sum map[string]int
	must.OK(t, json.Unmarshal(text, &sum))
	if sum["experts"] != 10 || sum["real"] != 5 || sum["spoilt"] != 5 {
		t.Errorf("mixed data: %v, want 10 experts, 5 real failures and 5 spoilt", sum)
	}
}
