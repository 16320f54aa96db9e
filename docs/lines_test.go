package docs_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const maxColumns = 120

// longLines are files that still contain lines above the limit. No file is added to this list.
var longLines = strings.Fields(`
CONTRIBUTING.md bench/fixtures/README.md bench/fixtures/bfcl/README.md bench/fixtures/fixtures.go
bench/fixtures/fixtures_test.go bench/fixtures/hf/README.md bench/fixtures/rl/README.md bfcl/SPEC.md
bfcl/bind.go bfcl/data.go bfcl/data_test.go bfcl/drill/copy.go bfcl/drill/drill.go bfcl/drill/drill_test.go
bfcl/drill/intents.go bfcl/drill/state.go bfcl/encode_test.go bfcl/episode.go bfcl/episode_test.go
bfcl/execute.go bfcl/fuzz_test.go bfcl/golden/replay.go bfcl/internal/api/dynamic_test.go
bfcl/internal/api/gorilla_file_system.go bfcl/internal/api/gorilla_file_system_test.go
bfcl/internal/api/long_context.go bfcl/internal/api/long_context_test.go bfcl/internal/api/math_api_test.go
bfcl/internal/api/message_api.go bfcl/internal/api/message_api_test.go bfcl/internal/api/ticket_api.go
bfcl/internal/api/ticket_api_test.go bfcl/internal/api/trading_bot.go bfcl/internal/api/trading_bot_tables.go
bfcl/internal/api/trading_bot_test.go bfcl/internal/api/travel_api.go bfcl/internal/api/travel_api_calls.go
bfcl/internal/api/travel_api_tables.go bfcl/internal/api/travel_api_test.go bfcl/internal/api/twitter_api.go
bfcl/internal/api/twitter_api_test.go bfcl/internal/api/vehicle_control_api.go
bfcl/internal/api/vehicle_control_api_calls.go bfcl/internal/api/vehicle_control_api_test.go
bfcl/internal/py/eval.go bfcl/internal/py/fuzz_test.go bfcl/internal/py/literal.go bfcl/internal/py/mpmath.go
bfcl/internal/py/number.go bfcl/internal/py/parse.go bfcl/internal/py/plain.go
bfcl/internal/py/precise_test.go bfcl/internal/py/print.go bfcl/internal/py/strptime_test.go
bfcl/internal/py/text.go bfcl/internal/py/value.go bfcl/internal/py/value_test.go bfcl/merge.go bfcl/play.go
bfcl/reward.go bfcl/rewrite.go bfcl/settings.go bfcl/split.go bfcl/split_test.go bfcl/vectors_test.go
bfcl/verdict.go build/gotest/main.go build/gotest/main_test.go docs/architecture.md docs/language.md
docs/models.md docs/performance.md docs/training.md docs/tutorial.md engine/admit.go engine/adopt.go
engine/adopt_test.go engine/artifact/check.go engine/artifact/commit.go engine/artifact/doc.go
engine/artifact/gc.go engine/artifact/lock.go engine/artifact/manifest.go engine/artifact/owner.go
engine/artifact/rows_test.go engine/artifact/series.go engine/artifact/spare.go engine/artifact/spare_test.go
engine/artifact/spread.go engine/artifact/spread_test.go engine/artifact/staging.go engine/artifact/store.go
engine/artifact/store_test.go engine/artifact/use.go engine/clock_test.go engine/command.go
engine/command_test.go engine/compiled.go engine/compiled_record.go engine/compiled_test.go engine/copies.go
engine/copies_test.go engine/crash_test.go engine/data_test.go engine/decode.go engine/devices_test.go
engine/diag_write.go engine/digests.go engine/doc.go engine/effect.go engine/effect_test.go
engine/enginetest/executor.go engine/eval.go engine/experiment.go engine/fault_test.go
engine/filesystem_test.go engine/forecast.go engine/forecast_test.go engine/functions.go
engine/functions_test.go engine/holder.go engine/instances.go engine/internal/disk/disk.go
engine/internal/disk/draft.go engine/internal/disk/draft_test.go engine/invalid_test.go engine/job.go
engine/keys.go engine/keys_test.go engine/kind.go engine/kinds.go engine/ledger.go
engine/ledger_disturbed_test.go engine/ledger_test.go engine/limits.go engine/limits_test.go engine/load.go
engine/load_bench_test.go engine/load_test.go engine/load_toy_test.go engine/local.go engine/log_limit.go
engine/log_limit_test.go engine/memory.go engine/memory_test.go engine/mutation_test.go engine/node.go
engine/parse.go engine/parse_test.go engine/plan.go engine/plan_test.go engine/process.go
engine/process_test.go engine/references.go engine/run.go engine/run_attempts.go engine/run_commit.go
engine/run_diff.go engine/run_failure.go engine/run_publish.go engine/run_status.go engine/run_status_test.go
engine/run_test.go engine/run_toy_test.go engine/run_watch.go engine/schedule.go engine/schedule_test.go
engine/series.go engine/series_test.go engine/settings.go engine/site.go engine/syntax.go engine/variables.go
experiments/EFFECTS.md experiments/LOG.md experiments/effects_test.go experiments/experiments_test.go
reports/assets/README.md reports/browser_test.go reports/bundle.go reports/bundle_test.go reports/catalogue.go
reports/catalogue_test.go reports/chart.go reports/chromium_test.go reports/compose.go reports/contrast.go
reports/data.go reports/data_test.go reports/doc.go reports/evidence.go reports/figure_test.go
reports/gather.go reports/html.go reports/kind.go reports/kind_test.go reports/lanes.go reports/lanes_test.go
reports/latex.go reports/latex_test.go reports/lint_csv.go reports/lint_test.go reports/live.go
reports/live_test.go reports/machine.go reports/mean.go reports/merged_test.go reports/page_test.go
reports/proportion.go reports/provenance.go reports/reproduce.go reports/reproduce_test.go reports/sampled.go
reports/sampled_test.go reports/scores.go reports/source.go reports/stats_test.go reports/study.go
reports/study_test.go reports/synthetic_test.go reports/training.go reports/transcript.go
reports/transcript_test.go reports/verify.go reports/verify_test.go stages/adapter_test.go
stages/curate/curate.go stages/curate/curate_test.go stages/curate/run.go stages/eval/eval.go
stages/eval/eval_test.go stages/exec/command_test.go stages/exec/exec.go stages/exec/exec_test.go
stages/exec/run.go stages/exec/shell.go stages/extend_test.go stages/grpo/alarm_test.go
stages/grpo/bandit_test.go stages/grpo/batch.go stages/grpo/bench_test.go stages/grpo/conditioning.go
stages/grpo/course.go stages/grpo/gradient_test.go stages/grpo/groups.go stages/grpo/groups_test.go
stages/grpo/grpo.go stages/grpo/grpo_test.go stages/grpo/independent_test.go stages/grpo/measure.go
stages/grpo/oom_test.go stages/grpo/recorder.go stages/grpo/recorder_test.go stages/grpo/run.go
stages/grpo/steps_test.go stages/internal/chat/chat_test.go stages/internal/chat/drill.go
stages/internal/chat/episode_test.go stages/internal/chat/family.go stages/internal/chat/family_test.go
stages/internal/chat/template.go stages/internal/chat/template_test.go stages/internal/chat/tools.go
stages/internal/chat/value.go stages/internal/checkpoint/bench_test.go
stages/internal/checkpoint/checkpoint.go stages/internal/checkpoint/collect.go
stages/internal/checkpoint/layout.go stages/internal/checkpoint/lora.go stages/internal/checkpoint/memory.go
stages/internal/checkpoint/memory_test.go stages/internal/checkpoint/policy.go
stages/internal/checkpoint/policy_test.go stages/internal/checkpoint/sampling_test.go
stages/internal/checkpoint/split.go stages/internal/lm/bench_test.go stages/internal/lm/cache.go
stages/internal/lm/cache_test.go stages/internal/lm/config.go stages/internal/lm/configfile.go
stages/internal/lm/configfile_test.go stages/internal/lm/decoder.go stages/internal/lm/device_test.go
stages/internal/lm/doc.go stages/internal/lm/dropout.go stages/internal/lm/dropout_test.go
stages/internal/lm/files.go stages/internal/lm/files_test.go stages/internal/lm/finite_test.go
stages/internal/lm/layout.go stages/internal/lm/leak_test.go stages/internal/lm/lm_test.go
stages/internal/lm/long_vocabulary_test.go stages/internal/lm/lora.go stages/internal/lm/lora_test.go
stages/internal/lm/memory.go stages/internal/lm/memory_peak_test.go stages/internal/lm/memory_test.go
stages/internal/lm/model.go stages/internal/lm/parity_test.go stages/internal/lm/pass.go
stages/internal/lm/peft.go stages/internal/lm/precision_test.go stages/internal/lm/prefix.go
stages/internal/lm/prefix_test.go stages/internal/lm/restore.go stages/internal/lm/rows.go
stages/internal/lm/safetensors.go stages/internal/lm/safetensors_test.go
stages/internal/lm/shape_bench_test.go stages/internal/lm/threads_test.go stages/internal/lm/trainer.go
stages/internal/lm/transformers_test.go stages/internal/lm/values.go stages/internal/metrics/log.go
stages/internal/metrics/log_test.go stages/internal/metrics/skipped.go stages/internal/resume/checkpoints.go
stages/internal/resume/damage_test.go stages/internal/resume/log.go stages/internal/resume/resume.go
stages/internal/resume/resume_test.go stages/internal/resume/rows.go stages/internal/token/json.go
stages/internal/token/token_test.go stages/internal/token/train.go stages/internal/torch/autograd.go
stages/internal/torch/bench_test.go stages/internal/torch/composed.go
stages/internal/torch/composed_attention.go stages/internal/torch/composed_test.go
stages/internal/torch/cuda.go stages/internal/torch/cuda_test.go stages/internal/torch/data.go
stages/internal/torch/decode.go stages/internal/torch/decode_test.go stages/internal/torch/device.go
stages/internal/torch/doc.go stages/internal/torch/fused.go stages/internal/torch/matmul.go
stages/internal/torch/matmul_test.go stages/internal/torch/ops.go stages/internal/torch/scope.go
stages/internal/torch/torch_test.go stages/kill_test.go stages/layout.go stages/layout_test.go
stages/line_test.go stages/links_test.go stages/long_experts_test.go stages/memory.go stages/model/model.go
stages/model/model_test.go stages/model/run.go stages/oom_test.go stages/precision_test.go
stages/rl/advantage.go stages/rl/advantage_test.go stages/rl/alarm.go stages/rl/alarm_test.go
stages/rl/bench_test.go stages/rl/collect.go stages/rl/collect_test.go stages/rl/diagnostics.go
stages/rl/diagnostics_test.go stages/rl/doc.go stages/rl/effect.go stages/rl/expert.go stages/rl/key.go
stages/rl/limits.go stages/rl/loss.go stages/rl/loss_test.go stages/rl/merged.go stages/rl/merged_test.go
stages/rl/objective.go stages/rl/passes.go stages/rl/profile.go stages/rl/proposition.go stages/rl/replay.go
stages/rl/replay_test.go stages/rl/reward.go stages/rl/reward_test.go stages/rl/schedule.go stages/rl/split.go
stages/rl/tokens.go stages/rl/trajectory.go stages/rollout/rollout.go stages/rollout/rollout_test.go
stages/scale_test.go stages/sft/guard_test.go stages/sft/run.go stages/sft/run_test.go stages/sft/sft.go
stages/sft/sft_test.go stages/tasks/tasks.go stages/tasks/tasks_test.go
`)

func TestNoLineOfCodeOrProseExceeds120Columns(t *testing.T) {
	tracked, err := exec.Command("git", "ls-files", "*.go", "*.md").Output()
	if err != nil {
		t.Skipf("git ls-files: %v", err)
	}
	for _, path := range strings.Fields(string(tracked)) {
		if strings.Contains(path, "testdata/") || slices.Contains(longLines, path) {
			continue
		}
		text, err := os.ReadFile(path)
		if os.IsNotExist(err) { // deleted, not committed yet
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for line := range strings.Lines(string(text)) {
			n++
			row := strings.HasSuffix(path, ".md") && strings.HasPrefix(line, "|") // a table row cannot be wrapped
			if width := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); width > maxColumns && !row {
				t.Errorf("%s:%d has %d columns, want at most %d", path, n, width, maxColumns)
			}
		}
	}
}
