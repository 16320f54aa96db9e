#!/usr/bin/env bash
# Everything that needs a GPU, in one line: the fused operations, flash attention and AdamW on CUDA; every fixture of
# bench/fixtures/hf in float32 and bfloat16; whether updates repeat bit for bit, with the moments on the host and with
# several processes on one device too; parked episodes; then tokens/s and share of the limits (docs/training.md 4) of updates, prompts and decoding of a model of random
# weights in the shape of Qwen2.5-7B, with as many layers as fit.
#
# usage: bench/gpu.sh     LIBTORCH=DIR is a libtorch 2.11.0 with CUDA 13; without it the one of $PYTHON (default python3)
#        RCGRPO_DEVICE=cpu bench/gpu.sh    the same steps through a GPU's operations on the CPU, a tiny shape: the script's own test
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3} DEVICE=${RCGRPO_DEVICE:-cuda}
if [ "$DEVICE" != cpu ]; then
  nvidia-smi -L >/dev/null 2>&1 || { echo "gpu.sh: nvidia-smi finds no GPU; skipped"; exit 0; }
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
  : "${LIBTORCH:=$("$PYTHON" -c 'import os, torch; print(os.path.dirname(torch.__file__))' 2>/dev/null || true)}"
  [ -e "${LIBTORCH:-}/lib/libtorch_cuda.so" ] || { echo "gpu.sh: no libtorch_cuda.so in '${LIBTORCH:-}/lib'; LIBTORCH names a libtorch 2.11.0 with CUDA 13, such as the folder of the Python package torch" 1>&2; exit 1; }
  export LIBTORCH
  RCGRPO_DEVICE_MEMORY=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | awk 'NR == 1 { printf "%.0f", $1 * 1048576 }')
  export RCGRPO_DEVICE_MEMORY
fi
eval "$(make -s env ${LIBTORCH:+LIBTORCH="$LIBTORCH"})"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
go test -c -tags libtorch -o "$out/torch.test" ./stages/internal/torch
go test -c -tags libtorch -o "$out/lm.test" ./stages/internal/lm
if [ "$DEVICE" = cpu ]; then unset RCGRPO_DEVICE; else export RCGRPO_DEVICE="$DEVICE"; fi
echo "== the fused operations"
(cd stages/internal/torch && "$out/torch.test" -test.run 'Composed|Sampled|BFloat16')
echo "== the fixtures, float32 and bfloat16"
(cd stages/internal/lm && "$out/lm.test" -test.v -test.run 'Reference' | grep -E '^(---|PASS|FAIL)|off at most')
echo "== updates repeat, also with several processes on the device; episodes are parked"
(cd stages/internal/lm && "$out/lm.test" -test.v -test.run 'UpdatesOnADevice|UpdatesOfSeveralRanks|EpisodesOnADevice' | grep -E '^ *(---|PASS|FAIL)|_test.go')
echo "== tokens/s"
(cd stages/internal/lm && "$out/lm.test" -test.v -test.timeout 30m -test.run 'TrainingAndDecodingOnADevice|LimitsAreThose' | sed -n 's/^ *device_test.go:[0-9]*: //p; /^---/p; /^FAIL/p')
