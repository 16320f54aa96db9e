#!/bin/sh
# The fixtures' tests on another folder of the same form: models of other shapes with other weights, whose numbers transformers and peft make here.
#
# usage: bench/hf_fixtures.sh [SEED]      $PYTHON (default python3) needs the packages torch, transformers and peft, and $FIXTURES (default ../shared)
# the folder hf, whose tokenizers and templates serve again; without them it says so
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
from=$(cd "${FIXTURES:-../shared}" 2>/dev/null && pwd) && [ -d "$from/hf" ] || { echo "hf_fixtures.sh: no ${FIXTURES:-../shared}/hf here (\$FIXTURES names its folder)"; exit 0; }
"$PYTHON" -c 'import torch, transformers, peft' 2>/dev/null || { echo "hf_fixtures.sh: $PYTHON lacks torch, transformers or peft; PYTHON names another one"; exit 0; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$PYTHON" bench/hf_fixtures.py "$from" "$out" "${1:-1}"
for other in "$from"/*; do
	[ -e "$out/$(basename "$other")" ] || ln -s "$other" "$out"
done
eval "$(make -s env)"
FIXTURES="$out" go test -count=1 -tags libtorch ./stages/internal/lm ./stages/internal/checkpoint ./stages/internal/token ./stages/internal/chat
