#!/bin/sh
# Plays the ground truths of the benchmark's 800 tasks through `rcgrpo mcp bfcl` with the official MCP package of
# Python, and compares results and verdicts with ours. An agent with the packages mcp and openai plays drills.
#
# usage: bench/mcp_clients.sh [PYTHON]     PYTHON has the packages mcp 2.3.0 and openai 3.54.0; without it, the script
# installs them from PyPI into a virtual environment.
set -eu
cd "$(dirname "$0")/.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
python=${1:-}
if [ -z "$python" ]; then
	python3 -m venv "$out/venv"
	"$out/venv/bin/pip" install --quiet mcp==2.3.0 openai==3.54.0
	python=$out/venv/bin/python
fi
export RCGRPO_MCP_PYTHON=$python RCGRPO_MCP_EVERY=1
go test -count 1 -v -run 'TestPythonClientOfTheProtocol|TestAgentWithPythonsPackages' ./cmd/rcgrpo \
	./stages/internal/agent
