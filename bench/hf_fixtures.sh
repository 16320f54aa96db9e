#!/bin/sh
# Runs the tests of the fixtures on other models of the same form: other shapes and weights, whose expected numbers
# transformers and peft compute here.
#
# usage: bench/hf_fixtures.sh [SEED]      $PYTHON (default python3) needs the packages torch, transformers and peft;
# without them the script reports that and ends. The tokenizers and templates are those of $FIXTURES/hf, or of ../shared/hf, or of bench/fixtures/hf.
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
from=${FIXTURES:-../shared}
[ -d "$from/hf" ] || from=bench/fixtures
"$PYTHON" -c 'import torch, transformers, peft' 2>/dev/null || { echo "hf_fixtures.sh: $PYTHON lacks torch, transformers or peft; PYTHON names another one"; exit 0; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$PYTHON" bench/hf_fixtures.py "$from" "$out" "${1:-1}"
eval "$(make -s env)"
FIXTURES="$out" go test -count=1 -tags libtorch,netgo,osusergo ./stages/internal/lm ./stages/internal/checkpoint ./stages/internal/token ./stages/internal/chat
