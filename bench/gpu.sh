#!/usr/bin/env bash
# Everything that only a GPU can show. On one: the fused operations, flash attention and AdamW; every fixture of
# bench/fixtures/hf in float32 and bfloat16; attention of variable lengths against segments, and the price of a fixed
# order of sums; whether updates repeat bit for bit, with the moments on the host and with several processes on the
# device too; parked episodes; the gap between sampled and recomputed log-probabilities; NCCL of one rank; then tokens/s
# and share of the limits (docs/training.md 4) of updates, prompts and decoding of a model of random weights in the shape
# of Qwen2.5-7B, with as many layers as fit, the seconds of steps with moments on the host, and peaks against the plan. On
# several: NCCL against Gloo, an update on 1, 2, 4 and 8, and ranks that are killed.
#
# usage: bench/gpu.sh     LIBTORCH=DIR is a libtorch 2.11.0 with CUDA 13; without it the one of $PYTHON (default python3)
#        RCGRPO_DEVICE=cpu bench/gpu.sh    the same steps through a GPU's operations on the CPU, a tiny shape: the script's own test
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3} DEVICE=${RCGRPO_DEVICE:-cuda} DEVICES=2
if [ "$DEVICE" != cpu ]; then
  nvidia-smi -L >/dev/null 2>&1 || { echo "gpu.sh: nvidia-smi finds no GPU; skipped"; exit 0; }
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
  : "${LIBTORCH:=$("$PYTHON" -c 'import os, torch; print(os.path.dirname(torch.__file__))' 2>/dev/null || true)}"
  [ -e "${LIBTORCH:-}/lib/libtorch_cuda.so" ] || { echo "gpu.sh: no libtorch_cuda.so in '${LIBTORCH:-}/lib'; LIBTORCH names a libtorch 2.11.0 with CUDA 13, such as the folder of the Python package torch" 1>&2; exit 1; }
  export LIBTORCH
  DEVICES=$(nvidia-smi -L | wc -l)
  RCGRPO_DEVICE_MEMORY=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | awk 'NR == 1 { printf "%.0f", $1 * 1048576 }')
  export RCGRPO_DEVICE_MEMORY
fi
eval "$(make -s env ${LIBTORCH:+LIBTORCH="$LIBTORCH"})"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
for package in stages/internal/torch stages/internal/lm stages; do
  go test -c -tags libtorch,netgo,osusergo -o "$out/$(basename "$package").test" "./$package"
done
# part TITLE PACKAGE TESTS runs tests and prints what they log; a failure ends the script
part() {
  echo "== $1"
  (cd "$2" && "$out/$(basename "$2").test" -test.v -test.timeout 60m -test.run "$3" |
    sed -n 's/^ *[a-z_0-9]*_test.go:[0-9]*: //p; /^--- /p; /^  *--- FAIL/p; /^FAIL/p')
}
unset RCGRPO_DEVICE
if [ "$DEVICE" != cpu ]; then
  export RCGRPO_DEVICE="$DEVICE" RCGRPO_DEVICES="$DEVICES"
fi
part "the fused operations" stages/internal/torch 'Composed|Sampled|BFloat16'
part "attention: variable lengths and segments" stages/internal/torch 'AttentionOnADevice'
part "NCCL and Gloo, 1 to $DEVICES devices" stages/internal/torch 'ExchangeOnDevices'
part "the fixtures, float32 and bfloat16" stages/internal/lm 'Reference'
part "updates repeat, also with several processes on the device" stages/internal/lm 'UpdatesOnADevice|UpdatesOfSeveralRanks'
part "episodes are parked; sampled against recomputed log-probabilities" stages/internal/lm 'EpisodesOnADevice|SamplerGapOnADevice'
part "tokens/s, steps and peaks" stages/internal/lm 'TrainingAndDecodingOnADevice|LimitsAreThose'
part "an update on 1 to $DEVICES devices" stages/internal/lm 'UpdatesOnSeveralDevices'
if [ "$DEVICES" -gt 1 ]; then
  unset RCGRPO_DEVICE
  if [ "$DEVICE" != cpu ]; then
    export RCGRPO_TEST_RESOURCES="gpus = 2"
  fi
  part "ranks are killed and stopped" stages 'FailuresOfRanks/(a_rank_is_killed|rank_0_is_killed|the_supervisor_is_killed|the_run_is_stopped)$'
fi
