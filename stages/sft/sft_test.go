package sft

import (
	"strings"
	"testing"

	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
)

// load decodes one stage from a file and returns it with its diagnostics.
func load(t *testing.T, kind, body string) (lang.Stage, string) {
	t.Helper()
	x, diags := enginetest.Load(t, append(Kinds(), enginetest.Given(map[string]string{"checkpoint": "checkpoint",
		"dataset": "dataset"})),
		"stage \"given\" \"g\" {}\nstage \""+kind+"\" \"s\" {\npolicy = stage.given.g.checkpoint\ndata = "+
			"[stage.given.g.dataset]\n"+body+"\n}\n")
	n := enginetest.Node(x, kind)
	if n == nil {
		return nil, enginetest.Mistakes(diags)
	}
	return n.Stage, enginetest.Mistakes(diags)
}

func TestDefaultsAreThePapers(t *testing.T) {
	stage, mistakes := load(t, "sft", "")
	if s, ok := stage.(*sft); !ok || s.Epochs != 2 || s.Batch != 16 || s.LR != 1e-5 || s.Schedule.Shape != "cosine" {
		t.Errorf("sft: got %+v %s", stage, mistakes)
	}
	stage, mistakes = load(t, "rctp-ft", "")
	if s, ok := stage.(*rctp); !ok || s.Epochs != 5 || s.Batch != 16 || s.Tokens.Position != "first_user" ||
		s.Tokens.Init != "mean" {
		t.Errorf("rctp-ft: got %+v %s", stage, mistakes)
	}
}

func TestValuesOutOfRangeAreRefused(t *testing.T) {
	for _, tc := range []struct{ kind, body, want string }{
		{"sft", "epochs = 0", "at least once; got 0"},
		{"sft", "batch = 0", "at least one trajectory; got 0"},
		{"sft", "context = -1", "or 0 for all; got -1"},
		{"sft", "lr = -1", "above 0; got -1"},
		{"sft", "optimizer {\n host = \"all\"\n}", `write host = "moments"`},
		{"sft", "precision = \"bf16\"\nlr = 1e-4\noptimizer {\n host = \"all\"\n}\nlora {\n rank = 1\n alpha = 1\n}",
			`write host = "moments"`},
		{"rctp-ft", "optimizer {\n host = \"disk\"\n}", "moments"},
		{"sft", "micro_batch = -1", "got micro_batch = -1"},
		{"sft", "schedule {\nfinal = 2\n}", "got 2"},
		{"sft", "optimizer {\nbeta2 = 1\n}", "got 1"},
		{"sft", "optimizer {\neps = -1\n}", "eps must be at least 0; got -1"},
		{"sft", "optimizer {\nclip_norm = -1\n}", "clip_norm must be at least 0; got -1"},
		{"sft", "optimizer {\nweight_decay = -1\n}", "weight_decay must be at least 0; got -1"},
		{"sft", "tokens {}", "tokens"},
		{"sft", "lora {\nalpha = 1\n}", "rank"},
		{"sft", "lora {\nrank = 1\nalpha = 1\n}",
			"lr = 1e-05 is a rate for all weights. A low-rank adapter usually learns at 0.0001 to 0.0005"},
		{"rctp-ft", "lr = 2e-5\nlora {\nrank = 1\nalpha = 1\n}", "lr = 2e-05 is a rate for all weights"},
		{"sft", "lora {\nrank = 0\nalpha = 1\n}", "rank of at least 1; got 0"},
		{"sft", "lora {\nrank = 1\nalpha = 0\n}", "alpha must be above 0, or the adapter changes nothing; got 0"},
		{"rctp-ft", "lora {\nrank = 1\nalpha = 1\ntargets = [\"qkv\"]\n}",
			"The projections of a layer are q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj; got \"qkv\""},
		{"rctp-ft", "lora {\nrank = 1\nalpha = 1\ntargets = [\"q_proj\", \"q_proj\"]\n}",
			"targets contains \"q_proj\" twice"},
		{"rctp-ft", "lora {\nrank = 1\nalpha = 1\ntargets = []\n}", "omit targets for all of them"},
		{"rctp-ft", "tokens {\ninit = \"noise\"\n}", "got \"noise\""},
		{"rctp-ft", "tokens {\nposition = \"last\"\n}", "last"},
		// usual rates of an adapter, and a low rate for all weights
		{"sft", "lr = 1e-4\nlora {\nrank = 1\nalpha = 1\n}", ""},
		{"sft", "lr = 5e-5\nlora {\nrank = 1\nalpha = 1\n}", ""},
		{"sft", "lr = 1e-7", ""},
	} {
		if _, got := load(t, tc.kind, tc.body); !strings.Contains(got, tc.want) || tc.want == "" && got != "" {
			t.Errorf("%s, %q: got %q, want it to say %q", tc.kind, tc.body, got, tc.want)
		}
	}
}
