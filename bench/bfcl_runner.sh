#!/bin/sh
# Runs the unmodified official runner of bfcl-eval against our server, and compares its verdicts with those of eval: the
# Qwen and Llama FC handlers with layout = "bfcl", and a handler that uses the template of the model's folder
# (bench/bfcl_own.py) with the plain layout. The models are a script that makes planned mistakes, and one that learns 40
# tasks here. Llama's template is read from $FIXTURES (default ../shared).
#
# usage: bench/bfcl_runner.sh [install] [VENV [N]]     VENV (default .deps/bfcl-runner) is made from PyPI if it is
# missing, 450 MB; with `install`, nothing else happens. Only every N-th task is played (default 1: all 800)
set -eu
cd "$(dirname "$0")/.."
only=
[ "${1:-}" != install ] || { only=install && shift; }
venv=${1:-.deps/bfcl-runner}
if [ ! -e "$venv/complete" ]; then
	python3 -m venv "$venv"
	"$venv/bin/pip" install --quiet --no-deps bfcl-eval==2026.3.23
	"$venv/bin/pip" install --quiet openai==3.54.0 transformers requests tqdm typer tabulate overrides tenacity pandas \
		numpy python-dotenv filelock mpmath==1.3.0 pydantic httpx jinja2
	touch "$venv/complete"
fi
[ -z "$only" ] || exit 0
BFCL_RUNNER=$(realpath "$venv")/bin/python BFCL_EVERY=${2:-1}
export BFCL_RUNNER BFCL_EVERY
eval "$(make -s env)"
go test -tags libtorch,netgo,osusergo ./stages/internal/serve -run TestTheOfficialRunner -v -count=1 -timeout 3h
