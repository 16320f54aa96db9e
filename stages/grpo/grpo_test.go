package grpo

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
	"rcgrpo/stages/rl/objective"
)

// load decodes one stage from a file and returns its node, nil if it is invalid, and its diagnostics.
func load(t *testing.T, kind, body string) (*lang.Node, string) {
	t.Helper()
	x, diags := enginetest.Load(t, append(Kinds(), enginetest.Given(map[string]string{"checkpoint": "checkpoint",
		"tasks": "tasks"})),
		"stage \"given\" \"g\" {}\nstage \""+kind+"\" \"s\" {\npolicy = stage.given.g.checkpoint\ntasks = "+
			"stage.given.g.tasks\n"+body+"\n}\n")
	return enginetest.Node(x, kind), enginetest.Mistakes(diags)
}

// valid decodes one stage without diagnostics.
func valid(t *testing.T, kind, body string) *lang.Node {
	t.Helper()
	node, mistakes := load(t, kind, body)
	if mistakes != "" {
		t.Fatalf("%s, %q: %s", kind, body, mistakes)
	}
	return node
}

func TestDefaultsAreThePapers(t *testing.T) {
	g := valid(t, "grpo", "").Stage.(*grpo)
	if g.Group != 5 || g.Batch != 64 || g.LR != 1e-6 || g.KL.Beta != 0.1 || g.Ratio.Level != "trajectory" ||
		g.Tokens.High != nil {
		t.Errorf("grpo: got %+v", g.settings)
	}
	c := valid(t, "rc-grpo", "").Stage.(*conditioned)
	if c.Group != 5 || c.Batch != 256 || c.Tokens.High != 0.5 || c.Tokens.Allocation != "iid" {
		t.Errorf("rc-grpo: got %+v, %+v", c.settings, c.Tokens)
	}
}

func TestValuesOutOfRangeAreRefused(t *testing.T) {
	for _, tc := range []struct{ kind, body, want string }{
		{"grpo", "tokens {\nhigh = 0\n}", ""},
		{"grpo", "tokens {\nhigh = 1\n}", ""},
		{"grpo", "tokens {\nhigh = 0.5\n}", "Use rc-grpo to draw tokens"},
		{"grpo", "tokens {\nhigh = -1\n}", "got -1"},
		{"grpo", "group = 1", "at least 2; got 1"},
		{"grpo", "updates = 0", "at least one update; got 0"},
		{"grpo", "batch = 0", "at least one task; got 0"},
		{"grpo", "batch = 9223372036854775807", "batch is at most 10000000; got 9223372036854775807"},
		{"grpo", "batch = 3000000\ngroup = 4", "at most 10000000 episodes; got 3000000 tasks with 4 each"},
		{"grpo", "updates = 3037000500", "updates is at most 10000000"},
		{"grpo", "lr = 0", "above 0; got 0"},
		{"grpo", "temperature = 0", "at least 0.001; got 0"},
		{"grpo", "top_p = 0", "at most 1; got 0"},
		{"grpo", "top_p = 0.9\nsampler_correction {\nmode = \"token\"\n}", "set top_p = 1 or mode = \"off\""},
		{"grpo", "sampler_correction {\nmode = \"token\"\ncap = 0.5\n}", "cap is at least 1; got 0.5"},
		{"grpo", "sampler_correction {\ncap = 3\n}", "Setting without effect"},
		{"grpo", "micro_batch = 0", "got micro_batch = 0"},
		{"grpo", "gradient_parts = 0", "at least one part; got gradient_parts = 0"},
		{"grpo", "gradient_parts = 65", "an optimizer step has 64 of them; got gradient_parts = 65"},
		{"grpo", "gradient_parts = 8\nminibatches = 4", "an optimizer step has 4 of them"},
		{"grpo", "keep = -1", "got -1"},
		{"grpo", "optimizer {\nbeta2 = 1\n}", "below 1; got 1"},
		{"grpo", "kl {\nestimator = \"exact\"\nplace = \"reward\"\n}", "place = \"loss\""},
		{"grpo", "clip {\nlow = 1.5\n}", "low lies between 0 and 1; got 1.5"},
		{"grpo", "loss {\naggregate = \"constant\"\n}", "divides by scale, which must be above 0; got 0"},
		{"grpo", "kl {\nbeta = -1\n}", "leaving the reference policy; got -1"},
		{"grpo", "advantage {\nddof = 2\n}", "0 (population) or 1 (sample); got 2"},
		{"grpo", "advantage {\neps = -1\n}", "cannot be negative; got -1"},
		{"rc-grpo", "lora {\nrank = 1\nalpha = 1\n}",
			"lr = 1e-06 is a rate for all weights. A low-rank adapter usually learns at 1e-05 to 5e-05"},
		{"grpo", "lora {\nrank = -2\nalpha = 1\n}", "rank of at least 1; got -2"},
		{"rc-grpo", "lora {\nrank = 1\nalpha = 1\ntargets = [\"lm_head\"]\n}", "got \"lm_head\""},
		{"grpo", "forecast {\ntasks = 1\nsamples = 5\n}", "at least 2 tasks; got 1"},
		{"grpo", "forecast {\ntasks = 9\nsamples = 5\n}", "group of 5"},
		{"grpo", "evaluate {\ntasks = stage.given.g.tasks\nevery = 0\n}", "at least 1; got 0"},
		{"grpo", "evaluate {\ntasks = stage.given.g.tasks\nevery = 2\ntemperature = -1\n}", "got -1"},
		{"grpo", "group = 1\nadvantage {\nddof = 1\nlone = \"zero\"\n}", "Setting without effect"},
		{"grpo", "reward_term \"length\" {\nweight = -0.01\n}", ""},
		{"grpo", "reward_term \"beauty\" {\nweight = 1\n}", "no reward term \"beauty\"; known are length"},
		{"grpo", "reward_term \"length\" {\nweight = 0\n}", "remove the block or set a weight"},
		{"rc-grpo", strings.Repeat("reward_term \"length\" {\nweight = 1\n}\n", 2), "add up the weights in one block"},
		{"rc-grpo", "tokens {\nhigh = 1.5\n}", "between 0 and 1; got 1.5"},
		{"rc-grpo", "tokens {\nbaseline = \"arm\"\n}", "got \"arm\""},
		{"grpo", "tokens {\nhigh = 1\nbaseline = \"token\"\n}", "baseline"},
		{"rc-grpo", "tokens {\ninit = \"zeros\"\n}", "got \"zeros\""},
		{"rc-grpo", "group = 0", "at least 2; got 0"},
	} {
		if _, got := load(t, tc.kind, tc.body); !strings.Contains(got, tc.want) || tc.want == "" && got != "" {
			t.Errorf("%s, %q: got %q, want it to say %q", tc.kind, tc.body, got, tc.want)
		}
	}
}

func TestFileOverridesProfile(t *testing.T) {
	for name, tc := range map[string]struct {
		body string
		want func(o *objective.Objective)
	}{
		"alone": {`profile = "dr_grpo"`, func(*objective.Objective) {}},
		"a block names one more": {"clip {\nhigh = 0.3\n}\npasses = 2\nprofile = \"dr_grpo\"",
			func(o *objective.Objective) { o.Clip.High, o.Passes = 0.3, 2 }},
		"the paper's value wins over the profile's": {"ratio {\nlevel = \"trajectory\"\n}\nprofile = \"dr_grpo\"",
			func(o *objective.Objective) { o.Ratio.Level = "trajectory" }},
	} {
		want := must.Get(objective.ProfileNamed("dr_grpo"))(t)
		tc.want(&want)
		got := valid(t, "grpo", tc.body).Stage.(*grpo).Objective
		if !reflect.DeepEqual(got.Advantage, want.Advantage) || got.Ratio.Level != want.Ratio.Level ||
			got.Clip.High != want.Clip.High || got.Clip.Low != want.Clip.Low ||
			got.Loss.Scale != 1024 || got.KL.Beta != 0 {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
	_, mistakes := load(t, "grpo", `profile = "ver1"`)
	must.Contain(t, mistakes, `did you mean verl`)
}

func TestKeyContainsTheValuesOfAProfileNotItsName(t *testing.T) {
	paper, written := settingsText(t, `profile = "paper"`), settingsText(t, "")
	if paper != written {
		t.Error("profile = \"paper\" and no profile at all differ in the key")
	}
	trl, byHand := settingsText(t, "profile = \"trl\"\npasses = 2"), settingsText(t, `
		passes = 2
		advantage {
			ddof    = 1
			eps     = 1e-4
		}
		ratio {
			level     = "token"
			log_clamp = 0
		}
		loss {
			aggregate = "token_mean"
		}
		kl {
			beta = 0
		}`)
	if trl != byHand {
		t.Errorf("profile = \"trl\":\n%s\nwritten out:\n%s", trl, byHand)
	}
	verl := settingsText(t, `profile = "verl"`)
	must.Contain(t, verl, "minibatches = 256\n")
	if verl == written {
		t.Error("profile = \"verl\" changes nothing in the key")
	}
}

// The key of a file without reward terms has no trace of them; a term and its weight are in the key.
func TestRewardTermsEnterTheKeyOfTheirFilesOnly(t *testing.T) {
	if got := settingsText(t, ""); strings.Contains(got, "reward_term") {
		t.Errorf("a file without a term has %s in its key", got)
	}
	got := settingsText(t, "reward_term \"length\" {\nweight = -0.01\n}")
	must.Contain(t, got, "reward_term[0].name = \"length\"\n", "reward_term[0].weight = -0.01\n")
}

// Help lists every term in the comment of its name.
func TestHelpNamesEveryRewardTerm(t *testing.T) {
	for _, s := range Kinds()[0].Describe().Settings {
		for _, name := range objective.RewardTermNames() {
			if s.Name == "reward_term.name" && !strings.Contains(s.Doc, name+" is ") {
				t.Errorf("%s: %q does not explain %s", s.Name, s.Doc, name)
			}
		}
	}
}

// A kind with more settings than a reader can survey has gained some that no profile sets and no shipped file uses. The
// labels of blocks are names and no settings.
func TestAGRPOStageHasAtMost70Settings(t *testing.T) {
	n := 0
	for _, s := range Kinds()[0].Describe().Settings {
		if !strings.HasPrefix(s.Type, "block") && s.Type != "label" {
			n++
		}
	}
	if n > 70 {
		t.Errorf("got %d settings", n)
	}
}

func TestTokenWeightsAreAdvisedInBF16OnGPUs(t *testing.T) {
	for name, tc := range map[string]struct {
		body string
		gpus int
		want bool
	}{
		"float32":             {"", 1, false},
		"bf16 on the CPU":     {"precision = \"bf16\"", 0, false},
		"bf16 on a GPU":       {"precision = \"bf16\"", 1, true},
		"with the correction": {"precision = \"bf16\"\nsampler_correction {\nmode = \"token\"\n}", 1, false},
		"with a nucleus":      {"precision = \"bf16\"\ntop_p = 0.9", 1, false},
	} {
		if got := valid(t, "grpo", tc.body).Stage.(*grpo).Advice(tc.gpus); (got != "") != tc.want {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// settingsText returns the settings that enter the key of a grpo stage.
func settingsText(t *testing.T, body string) string {
	t.Helper()
	var text strings.Builder
	for _, s := range valid(t, "grpo", body).Settings {
		if s.InKey {
			fmt.Fprintf(&text, "%s = %s\n", s.Name, s.Value)
		}
	}
	return text.String()
}
