#!/bin/sh
# Our code writes model folders and adapters, also those of whole stages, and transformers and peft load them. Logits
# must be equal, and no weight may be missing or unexpected.
#
# usage: bench/transformers.sh      $PYTHON (default python3) needs the packages torch, transformers and peft; without
# them it says so
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
"$PYTHON" -c 'import torch, transformers, peft' 2>/dev/null || { echo "transformers.sh: $PYTHON lacks torch, transformers or peft; PYTHON names another one"; exit 0; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
eval "$(make -s env)"
TRANSFORMERS_OUT="$out" go test -count=1 -tags libtorch,netgo,osusergo -run 'TestFoldersForTransformers|TestAdaptersOfStages' ./stages/internal/lm ./stages
"$PYTHON" bench/transformers_load.py "$out"
