package experiments

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
	"rcgrpo/stages/rl"
	"rcgrpo/stages/rl/objective"
)

// tasksKept bounds the tasks of each set at pretended scale.
const tasksKept = 40

// playPretended runs a file of this folder up to its pages at pretended scale, in the folder dir with its store. Tasks,
// data sets and pages come from the stages themselves, from fewer tasks. The stages that need tensors are scripted.
func playPretended(t *testing.T, dir, file string) *plan.Plan {
	t.Helper()
	vars := variables(t, file)
	for name, value := range map[string]string{"seeds": "[1, 2]", "take": fmt.Sprint(tasksKept), "batch": "6",
		"parts": "2", "batches": `{ grpo = 4, rc = 6, small = 4, large = 6 }`} {
		if strings.Contains(read(t, file), fmt.Sprintf("variable %q", name)) {
			vars[name] = value
		}
	}
	for _, path := range must.Get(filepath.Glob("*.hcl"))(t) { // with the modules
		must.OK(t, os.WriteFile(filepath.Join(dir, path), []byte(read(t, path)), 0o600))
	}
	site := filepath.Join(dir, "pretended_site.hcl")
	must.OK(t, os.WriteFile(site, fmt.Appendf(nil, `
		store { path = %q }
		data { bfcl = %q }
		executor "local" {
			cpus = 2
			gpus = ["0", "1"]
		}`, filepath.Join(dir, "store"), fixtures.Benchmark(t)), 0o600))
	x := loaded(t, lang.Source{Path: filepath.Join(dir, file), Vars: vars, Site: site})
	for _, n := range x.Nodes {
		switch n.Kind.Name {
		case "report", "curate", "endpoint":
		case "tasks":
			keepFew(n.Stage)
		default:
			kind := *n.Kind
			kind.Length = nil // it takes settings of the kind
			n.Kind, n.Stage = &kind, &scripted{Stage: n.Stage, node: n}
		}
	}
	store := must.Get(artifact.Open(x.Site.StorePath))(t)
	p := must.Get(plan.New(x, store, plan.Options{}))(t)
	must.OK(t, engine.Run(t.Context(), p, engine.Options{Executor: here{}}, func(e runs.Event) {
		if e.Failure != nil {
			t.Log(e.Address, e.Failure.Text)
		}
	}))
	return must.Get(plan.New(x, store, plan.Options{}))(t) // with the results
}

// here runs every stage in this process.
type here struct{}

func (here) Execute(ctx context.Context, w *engine.Work, observe func(runs.Event)) error {
	return w.ExecuteHere(ctx, observe)
}

// keepFew lowers the numbers of drills of a stage of kind tasks. Its key and the page keep the numbers of the file.
func keepFew(stage lang.Stage) {
	settings := reflect.ValueOf(stage).Elem()
	for _, name := range []string{"Train", "Test", "Pool"} {
		field := settings.FieldByName(name)
		field.SetInt(min(field.Int(), tasksKept))
	}
}

// scripted plays a stage that needs tensors: its artifacts have the schemas of the stage. Episodes are those of the
// ground truth or of planned mistakes, so rewards are the environment's own verdicts. The chances of success follow a
// logistic curve over the difficulty of the task's family, and the values of groups follow from the rewards. Entropies,
// divergences and norms are invented.
type scripted struct {
	lang.Stage
	node  *lang.Node
	bench bfcl.Settings // of the tasks
	model string        // behind the endpoint; "" without one
}

// Labels returns the labels of the stage behind the script.
func (s *scripted) Labels() lang.Labels {
	if l, ok := s.Stage.(lang.Labeled); ok {
		return l.Labels()
	}
	return lang.Labels{}
}

// policy is the content of a scripted checkpoint.
type policy struct {
	Of    string  // address of the stage, so that policies differ
	Skill float64 // log odds of success on a task of average difficulty, without token
	Gap   float64 // difference of the log odds between the tokens
	Token string  // condition at inference
}

const policyFile = "policy.json"

func (s *scripted) Run(_ context.Context, job *engine.Job) error {
	p, err := s.policy(job)
	if err != nil {
		return err
	}
	r := job.Rand("scripted " + s.node.Address)
	luck := 0.3 * r.NormFloat64()
	switch kind := s.node.Kind.Name; kind {
	case "model":
		p = policy{Skill: -2 + luck}
		if len(s.node.Files) == 0 { // random weights
			p.Skill = -7
		}
		err = s.writeConfig(job)
	case "sft", "rctp-ft":
		p.Skill += (1+luck-p.Skill)*0.6 + 0.1*s.number("epochs")
		if kind == "rctp-ft" {
			p.Gap, p.Token = 1.5, rl.TokenHigh
		}
		err = s.fineTune(job, r)
	case "grpo", "rc-grpo":
		after := policy{Skill: p.Skill + 0.8 + 0.4*luck, Gap: p.Gap, Token: p.Token}
		if kind == "rc-grpo" {
			after.Skill, after.Token = after.Skill+0.5, rl.TokenHigh
		}
		err = s.reinforce(job, r, p, after)
		p = after
	case "rollout", "eval":
		return s.sample(job, r, p)
	default:
		return fmt.Errorf("no script for stages of kind %s", kind)
	}
	if err != nil {
		return err
	}
	p.Of = s.node.Address
	text, err := json.Marshal(p)
	return errors.Join(err, write(job, "checkpoint", policyFile, text))
}

// write writes a file of an output.
func write(job *engine.Job, port, file string, text []byte) error {
	dir, err := job.Create(port)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, file), text, 0o600)
}

// writeRows writes a file of rows of an output.
func writeRows[T any](job *engine.Job, port, file string, rows []T) error {
	dir, err := job.Create(port)
	if err != nil {
		return err
	}
	return artifact.WriteRows(dir, file, rows)
}

// readJSON decodes a file.
func readJSON(path string, v any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// writeConfig writes the description of a model: that of its folder, or of the architecture with random weights.
func (s *scripted) writeConfig(job *engine.Job) error {
	text := fmt.Appendf(nil, `{"model_type": "qwen2", "num_hidden_layers": %v, "hidden_size": %v}`,
		s.number("architecture.layers"), s.number("architecture.hidden"))
	for _, folder := range s.node.Files {
		var err error
		if text, err = os.ReadFile(filepath.Join(folder.Path, "config.json")); err != nil {
			return err
		}
	}
	return write(job, "checkpoint", "config.json", text)
}

// policy reads the policy that the stage starts from; zero without one.
func (s *scripted) policy(job *engine.Job) (p policy, err error) {
	for _, in := range s.inputs("policy") {
		a, err := job.Open(in)
		if err != nil {
			return p, err
		}
		if in.Type == "endpoint" {
			var e struct{ Model string }
			err = readJSON(a.Path("endpoint.json"), &e)
			s.model, p.Skill = e.Model, 0.3+0.1*float64(len(a.Ref.Key)) // models differ
		} else {
			err = readJSON(a.Path(policyFile), &p)
		}
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// inputs returns the inputs of a setting: "tasks", "tasks[0]", …
func (s *scripted) inputs(setting string) (refs []artifact.Ref) {
	for _, in := range s.node.Inputs {
		if name, _, _ := strings.Cut(in.Setting, "["); name == setting {
			refs = append(refs, in.Ref)
		}
	}
	return refs
}

// setting returns the canonical value of a setting, or another if the stage has no such setting.
func (s *scripted) setting(name, otherwise string) string {
	for _, own := range s.node.Settings {
		if own.Name == name {
			return own.Value
		}
	}
	return otherwise
}

// number returns a setting, 0 without it.
func (s *scripted) number(name string) (v float64) {
	json.Unmarshal([]byte(s.setting(name, "0")), &v)
	return v
}

// tasks reads the tasks of a setting, each with the port it comes from.
func (s *scripted) tasks(job *engine.Job, setting string) (tasks []*bfcl.Task, ports []string, err error) {
	for _, ref := range s.inputs(setting) {
		a, err := job.Open(ref)
		if err != nil {
			return nil, nil, err
		}
		for task, err := range artifact.Rows[*bfcl.Task](a, bfcl.TasksFile) {
			if err != nil {
				return nil, nil, err
			}
			port := ref.Port
			if task.Prompt == bfcl.PromptMerged {
				port += " " + bfcl.PromptMerged
			}
			tasks, ports = append(tasks, task), append(ports, port)
		}
	}
	if s.bench = (bfcl.Settings{Today: bfcl.ReleaseDate}); len(tasks) > 0 && tasks[0].Prompt == bfcl.PromptMerged {
		s.bench.Data, err = benchmark(job.Site.BFCL)
	}
	return tasks, ports, err
}

// benchmark loads the benchmark once for all scripts.
func benchmark(dir string) (*bfcl.Data, error) {
	load, _ := benchmarks.LoadOrStore(dir, sync.OnceValues(func() (*bfcl.Data, error) { return bfcl.LoadData(dir) }))
	return load.(func() (*bfcl.Data, error))()
}

var benchmarks sync.Map // functions by folder

// chance is the probability of success on a task under a token.
func (p policy) chance(task *bfcl.Task, token string) float64 {
	odds := p.Skill - 8*(float64(crc32.ChecksumIEEE([]byte(task.Family)))/math.MaxUint32-0.5)
	switch token {
	case rl.TokenHigh:
		odds += p.Gap / 2
	case rl.TokenLow:
		odds -= p.Gap / 2
	}
	return 1 / (1 + math.Exp(-odds))
}

// sample writes the episodes of a rollout or an evaluation, and their scores.
func (s *scripted) sample(job *engine.Job, r *rand.Rand, p policy) error {
	tasks, ports, err := s.tasks(job, "tasks")
	if err != nil {
		return err
	}
	token := strings.Trim(s.setting("token", ""), `"`)
	switch token {
	case "checkpoint", "":
		token = p.Token
	case "none":
		token = rl.TokenNone
	}
	greedy := s.node.Kind.Name == "eval" && s.number("temperature") == 0
	var played []*rl.Trajectory
	var scores []rl.Score
	for i, task := range tasks {
		for n := range int(s.number("samples")) {
			luck := r.Float64()
			if greedy {
				luck = 0.3 + 0.4*luck
			}
			e, err := s.episode(task, luck < p.chance(task, token), n)
			if err != nil {
				return err
			}
			e.Token, e.Member = token, n
			e.Logp = make([]float32, len(e.IDs))
			for at, own := range e.Mask {
				if own {
					e.Logp[at] = -0.3 * float32(r.ExpFloat64())
				}
			}
			played, scores = append(played, &e), append(scores, e.Score(ports[i], greedy))
		}
	}
	err = errors.Join(s.writeCost(job, len(played)), writeRows(job, "trajectories", rl.TrajectoriesFile, played))
	if err != nil || s.node.Kind.Name != "eval" {
		return err
	}
	return writeRows(job, "scores", rl.ScoresFile, scores)
}

// writeCost writes the sum of the calls of an API model. OpenAI changed its model during the calls.
func (s *scripted) writeCost(job *engine.Job, episodes int) error {
	if s.node.Outputs["calls"] == "" {
		return nil
	}
	models := s.model
	if day, ok := strings.CutSuffix(models, "2025-12-11"); ok {
		models += `", "` + day + "2025-12-12"
	}
	return write(job, "calls", "cost.json", fmt.Appendf(nil, `{"dollars": %v, "attempts": %d, "replies": %d,
		"input": %d, "output": %d, "models": ["%s"], "first": "2026-11-20T09:00:00Z", "last": "2026-11-21T10:00:00Z"}`,
		12.3+float64(len(s.model)), 9*episodes, 8*episodes, 50_000*episodes, 900*episodes, models))
}

// episodes caches the episodes of all scripts: by task, prompt, success and variant.
var episodes sync.Map

// episode plays the ground truth of a task, or planned mistakes that fail. Every four characters are a token.
func (s *scripted) episode(task *bfcl.Task, right bool, variant int) (rl.Trajectory, error) {
	if right {
		variant = -1
	}
	key := fmt.Sprint(task.ID, task.Prompt, variant)
	if known, ok := episodes.Load(key); ok {
		return known.(rl.Trajectory), nil
	}
	var e *rl.Trajectory
	var err error
	if !right {
		e, err = rl.Spoil(context.Background(), task, s.bench, 1, variant, new(int))
	}
	if err == nil && e == nil { // also a task that cannot be spoilt
		e, err = rl.Expert(task, s.bench)
	}
	if err != nil {
		return rl.Trajectory{}, err
	}
	e.Origin, e.Spoilt = rl.OriginPolicy, ""
	for i := range e.Messages {
		m := &e.Messages[i]
		m.From = len(e.Mask)
		e.Mask = append(e.Mask, slices.Repeat([]bool{m.Role == rl.RoleAssistant}, 1+len(m.Text)/4)...)
		m.To = len(e.Mask)
	}
	e.IDs = make([]int32, len(e.Mask))
	episodes.Store(key, *e)
	return *e, nil
}

// fineTune writes the curve of a fine-tuning.
func (s *scripted) fineTune(job *engine.Job, r *rand.Rand) error {
	updates := int(10 * s.number("epochs"))
	var rows []rl.Metric
	for u := 1; u <= updates; u++ {
		left := math.Exp(-3 * float64(u) / float64(updates))
		rows = append(rows, rl.Metric{Update: u, Values: map[string]float64{"loss": 0.1 + 2*left + 0.05*r.Float64(),
			"entropy": 0.2 + left + 0.02*r.Float64(), "grad_norm": 0.3 + left*r.Float64(), "lr": s.number("lr"),
			"mask_tokens": 4000}})
	}
	return writeMetrics(job, rows)
}

// reinforce writes the curve of a training whose policy goes from before to after.
func (s *scripted) reinforce(job *engine.Job, r *rand.Rand, before, after policy) error {
	heldOut, _, err := s.tasks(job, "evaluate.tasks")
	if err != nil {
		return err
	}
	tasks, _, err := s.tasks(job, "tasks") // the last call names the benchmark of the episodes
	if err != nil {
		return err
	}
	updates, group, heat := int(s.number("updates")), int(s.number("group")), s.number("temperature")
	advantage := objective.PaperObjective().Advantage
	advantage.Scale, advantage.Eps = "group_std", 1e-6
	var rows []rl.Metric
	best, most, every := policy{}, -1.0, int(s.number("evaluate.every"))
	for u := 1; u <= updates; u++ {
		t := float64(u) / float64(updates)
		now := policy{Skill: before.Skill + t*(after.Skill-before.Skill)/heat, Gap: before.Gap * (1 - 0.7*t),
			Token: after.Token}
		var played []*rl.Trajectory
		var rewards []float64
		var members []int
		for g := range int(s.number("batch")) {
			task := tasks[r.IntN(len(tasks))]
			for n, token := range s.tokens(job, now, u, task, group) {
				e, err := s.episode(task, r.Float64() < now.chance(task, token), n)
				if err != nil {
					return err
				}
				e.Token, e.Member, e.Update = token, n, u
				played, rewards, members = append(played, &e), append(rewards, float64(e.Reward)), append(members, g)
			}
		}
		v := objective.GroupsOf(played, group).Diagnose()
		objective.DescribeEpisodes(played, v)
		v["mean_abs_advantage"], v["effective_sample_size"] = objective.AdvantageSizes(advantage.Of(members, nil, rewards))
		inventTensorMetrics(v, r, t, heat, s.number("lr"))
		if samples := int(s.number("forecast.samples")); samples > 0 && u == 1 {
			s.forecast(v, r, now, tasks, samples, group)
		}
		if every > 0 && u%every == 0 {
			solved := 0
			for _, task := range heldOut {
				if r.Float64() < now.chance(task, now.Token) {
					solved++
				}
			}
			v["eval_reward"] = float64(solved) / float64(len(heldOut))
			v["eval_official"] = v["eval_reward"]
			if v["eval_reward"] > most {
				best, most = now, v["eval_reward"]
			}
		}
		rows = append(rows, rl.Metric{Update: u, Values: v})
	}
	err = errors.Join(writeRows(job, "trajectories", rl.TrajectoriesFile, []rl.Trajectory(nil)), writeMetrics(job, rows))
	if every == 0 {
		return err
	}
	best.Of = s.node.Address
	text, encodeErr := json.Marshal(best)
	return errors.Join(err, encodeErr, write(job, "best", policyFile, text))
}

// tokens returns the reward token of each member of a group.
func (s *scripted) tokens(job *engine.Job, p policy, update int, task *bfcl.Task, group int) []string {
	if s.node.Kind.Name == "grpo" {
		return slices.Repeat([]string{p.Token}, group)
	}
	return rl.DrawTokens(strings.Trim(s.setting("tokens.allocation", ""), `"`), s.number("tokens.high"), group,
		uint64(job.Seed), update, task.ID)
}

// inventTensorMetrics adds the values that depend on probabilities of tokens.
func inventTensorMetrics(v map[string]float64, r *rand.Rand, t, heat, rate float64) {
	kl := 0.02 * t * (1 + 0.3*r.Float64())
	for name, value := range map[string]float64{"entropy": heat*(0.3-0.15*t) + 0.05*v["sigma2"] + 0.005*r.NormFloat64(),
		"kl": kl, "kl_k1": kl * (1 + 0.3*r.NormFloat64()), "kl_k2": kl, "kl_k3": kl, "kl_exact": kl, "kl_weight": 0.1,
		"loss": 0.01 * r.NormFloat64(), "grad_norm": math.Exp(-1 + 0.3*r.NormFloat64()), "lr": rate, "skipped": 0,
		"sampler_gap": 1e-6, "sampler_gap_p50": 1e-8, "sampler_gap_p95": 1e-7, "sampler_gap_p99": 5e-7,
		"groups_sampled": 12} {
		v[name] = value
	}
}

// forecast adds the forecast of the first update from samples of every task.
func (s *scripted) forecast(v map[string]float64, r *rand.Rand, p policy, tasks []*bfcl.Task, samples, group int) {
	high := 1.0
	if s.node.Kind.Name == "rc-grpo" {
		high = s.number("tokens.high")
	}
	var all []objective.TaskSample
	for _, task := range tasks {
		one := objective.TaskSample{High: samples, Low: samples}
		for range samples {
			if r.Float64() < p.chance(task, rl.TokenHigh) {
				one.HighRight++
			}
			if r.Float64() < p.chance(task, rl.TokenLow) {
				one.LowRight++
			}
		}
		all = append(all, one)
	}
	f := objective.ForecastZeroVariance(all, rl.AllocationIID, group, high)
	v["forecast_zero_variance"], v["forecast_all_right"], v["forecast_all_wrong"] = f.ZeroVariance, f.AllRight, f.AllWrong
	v["forecast_low"], v["forecast_high"] = f.Band(int(s.number("batch")))
}

// writeMetrics writes a curve and its times.
func writeMetrics(job *engine.Job, rows []rl.Metric) error {
	var times []rl.Metric
	for _, row := range rows {
		times = append(times, rl.Metric{Update: row.Update, Values: map[string]float64{"rollout_s": 0.4, "update_s": 0.2,
			"tokens_per_s": 9000}})
	}
	return errors.Join(writeRows(job, "metrics", rl.TimesFile, times), writeRows(job, "metrics", rl.MetricsFile, rows))
}
