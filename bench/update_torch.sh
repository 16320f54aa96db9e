#!/bin/sh
# Three AdamW steps of RC-GRPO on a model, ours beside an independent PyTorch file: losses, gradients and weights.
#
# usage: bench/update_torch.sh [FOLDER]      FOLDER holds the model to train (config.json and safetensors); without it a
# tiny Llama, and the shape of SmolLM2-135M with random weights. $PYTHON (default python3) needs the packages torch and
# transformers; without them it says so.
set -eu
model=${1:+$(realpath "$1")}
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
"$PYTHON" -c 'import torch, transformers' 2>/dev/null || { echo "update_torch.sh: $PYTHON lacks torch or transformers; PYTHON names another one"; exit 0; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
eval "$(make -s env)"
UPDATE_OUT="$out" UPDATE_MODEL="$model" go test -count=1 -tags libtorch,netgo,osusergo -run TestUpdatesForPyTorch ./stages/grpo
"$PYTHON" bench/update_torch.py "$out"
