#!/bin/sh
# Plays the ground truths of the benchmark's 800 tasks through `rcgrpo mcp bfcl` with the official MCP package of Python,
# and compares results and verdicts with ours.
#
# usage: bench/mcp_clients.sh [PYTHON]     PYTHON has the package mcp 2.3.0; without it, the script installs the package
# from PyPI into a virtual environment.
set -eu
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
python=${1:-}
if [ -z "$python" ]; then
	python3 -m venv "$out/venv"
	"$out/venv/bin/pip" install --quiet mcp==2.3.0
	python=$out/venv/bin/python
fi
RCGRPO_MCP_PYTHON=$python RCGRPO_MCP_EVERY=1 go test -count 1 -v -run TestPythonClientOfTheProtocol ./cmd/rcgrpo
