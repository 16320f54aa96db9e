//go:build libtorch

package stages

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/internal/lm"
	"rcgrpo/stages/internal/torch"
	"rcgrpo/stages/rl"
)

// adapters is an experiment whose trainings train adapters, each on the merged weights of the one before.
var adapters = expand(tinyStart + `
stage "sft" "all" {
  policy = stage.model.random.checkpoint
  data   = [stage.curate.data.expert]
  batch  = 2
  lr     = 1e-2
  lora {
    rank  = 4
    alpha = 8
  }
}

stage "rctp-ft" "some" {
  policy = stage.sft.all.checkpoint
  data   = [stage.curate.data.mixed]
  epochs = 2
  batch  = 4
  lr     = 1e-2
  lora {
    rank    = 2
    alpha   = 2
    targets = ["q_proj", "v_proj"]
  }
}

stage "rc-grpo" "arm" {
  policy  = stage.rctp-ft.some.checkpoint
  tasks   = stage.tasks.drills.train
  updates = 3
  batch   = 2
  group   = 3
  lr      = 1e-2
  kl { estimator = "exact" }
  lora {
    rank  = 2
    alpha = 4
  }
  evaluate {
    tasks = stage.tasks.drills.test
    every = 1
  }
  LIMITS 2 8 400
}

stage "grpo" "after" {
  policy  = stage.rc-grpo.arm.checkpoint
  tasks   = stage.tasks.drills.train
  updates = 1
  batch   = 1
  group   = 2
  lr      = 1e-5
  lora {
    rank  = 1
    alpha = 1
  }
  LIMITS 2 8 400
}

stage "eval" "last" {
  policy = stage.grpo.after.checkpoint
  tasks  = [stage.tasks.drills.test]
  LIMITS 2 8 400
}
`)

// TestAdaptersOfStages: the checkpoint of a training with lora holds the merged weights, and in its folder the
// adapter that turns the weights before into them. bench/transformers.sh has peft load these adapters.
func TestAdaptersOfStages(t *testing.T) {
	dir := t.TempDir()
	for _, n := range loaded(t, dir, adapters).Nodes {
		runNode(t, n, dir, nil)
	}
	for _, tc := range []struct {
		stage, base string
		moved       []string // projections
		rows        int      // of the vocabulary
	}{
		{"sft.all@1", "model.random", lm.Projections, 0},
		{"rctp-ft.some@1", "sft.all@1", []string{"q_proj", "v_proj"}, 2},
		{"rc-grpo.arm@1", "rctp-ft.some@1", lm.Projections, 2},
	} {
		merged := filepath.Join(dir, "stage."+tc.stage, "checkpoint")
		base := filepath.Join(dir, "stage."+tc.base, "checkpoint")
		before, after := opened(t, base), opened(t, merged)
		a, err := lm.LoadAdapter(filepath.Join(merged, checkpoint.AdapterFolder), before)
		if err != nil {
			t.Fatalf("%s: %v", tc.stage, err)
		}
		defer a.Close()
		if text, err := os.ReadFile(filepath.Join(merged, checkpoint.AdapterFolder, "adapter_config.json")); err != nil ||
			!strings.Contains(string(text), `"lora_dropout": 0,`) {
			t.Errorf("%s: %s (%v), want a dropout of 0", tc.stage, text, err)
		}
		was, got, want := weights(t, before), weights(t, a.Model()), weights(t, after)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the adapter on its base is another model than the checkpoint", tc.stage)
		}
		if slices.Equal(was, got) {
			t.Errorf("%s: the adapter changes nothing", tc.stage)
		}
		moved, rows := changes(before.Config(), was, want)
		if !slices.Equal(moved, slices.Sorted(slices.Values(tc.moved))) || rows != tc.rows {
			t.Errorf("%s: %v and %d rows have moved, want %v and %d", tc.stage, moved, rows, tc.moved, tc.rows)
		}
		forPeft(t, strings.TrimSuffix(tc.stage, "@1"), merged, base, after)
	}
	curve := rows[rl.Metric](t, filepath.Join(dir, "stage.rc-grpo.arm@1", "metrics"), rl.MetricsFile)
	if first, last := curve[0].Values["kl_exact"], curve[len(curve)-1].Values["kl_exact"]; first != 0 || last <= 0 {
		t.Errorf("divergence to the model without adapter: %v before the first update, want 0; %v before the last, want "+
			"more", first, last)
	}
	for _, m := range curve {
		if gap := m.Values["sampler_gap"]; gap >= 1e-3 || gap == 0 {
			t.Errorf("update %d: sampled against recomputed %v, want less than 1e-3", m.Update, gap)
		}
	}
	best := filepath.Join(dir, "stage.rc-grpo.arm@1", "best", checkpoint.AdapterFolder)
	if files, err := os.ReadDir(best); err != nil || len(files) != 2 {
		t.Errorf("the best policy has no adapter: %v, %v", files, err)
	}
}

func opened(t *testing.T, dir string) *lm.Model {
	t.Helper()
	m := must.Get(lm.Load(dir, torch.CPU, lm.Buffers{}))(t)
	t.Cleanup(func() { m.Close() })
	return m
}

func weights(t *testing.T, m *lm.Model) []float32 {
	t.Helper()
	return must.Get(m.Weights())(t)
}

// changes are the projections that differ in any layer, and how many rows of a tied embedding, in the order of
// the flat buffer: the embedding, the projections of each layer, then vectors, which no adapter changes ("").
func changes(c lm.Config, a, b []float32) (projections []string, rows int) {
	at := 0
	differ := func(n int) bool {
		at += n
		return !slices.Equal(a[at-n:at], b[at-n:at])
	}
	for range c.Vocab {
		if differ(c.Hidden) {
			rows++
		}
	}
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	moved := map[string]bool{}
	for range c.Layers {
		for i, n := range []int{q, kv, kv, q, c.MLP, c.MLP, c.MLP} {
			if differ(n * c.Hidden) {
				moved[lm.Projections[i]] = true
			}
		}
	}
	if differ(len(a) - at) {
		moved[""] = true
	}
	for name := range moved {
		projections = append(projections, name)
	}
	slices.Sort(projections)
	return projections, rows
}

// forPeft writes the adapter of a checkpoint and logits of the merged model for bench/transformers.sh.
func forPeft(t *testing.T, name, merged, base string, m *lm.Model) {
	t.Helper()
	out := os.Getenv("TRANSFORMERS_OUT")
	if out == "" {
		return
	}
	q := lm.Sequence{IDs: make([]int32, 60), Mask: make([]bool, 60)}
	for i := range q.IDs {
		q.IDs[i], q.Mask[i] = int32((i*i*7+3*i+1)%m.Config().Vocab), i > 0
	}
	stats := must.Get(m.Stats(t.Context(), []lm.Sequence{q}, nil, 1))(t)
	kept := filepath.Join(out, name+"-base")
	must.OK(t, os.CopyFS(kept, os.DirFS(base)))
	for folder, from := range map[string]string{name: merged, name +
		"-lora": filepath.Join(merged, checkpoint.AdapterFolder)} {
		ours := map[string]any{"rows": m.Config().Vocab, "input_ids": q.IDs, "logprobs": stats.Logp}
		if folder != name {
			ours["base"] = kept
		}
		text, err := json.Marshal(ours)
		if err == nil {
			err = os.CopyFS(filepath.Join(out, folder), os.DirFS(from))
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(out, folder, "ours.json"), text, 0o600)
		}
		must.OK(t, err)
	}
}
