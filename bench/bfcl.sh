#!/bin/sh
# Times the replay of all 800 ground truths, as policy and as reference with all checks: the official Python and ours, in
# turns on one core, and prints the medians of every turn with their ratio.
#
# usage: bench/bfcl.sh [TURNS]
#
# Needs Go and .deps/bfcl (make build), python3 with pip, and the fixtures' bench/bfcl_python.py ($FIXTURES,
# default ../shared). The official package comes from PyPI by name, into .deps/bfcl-python.
set -eu
cd "$(dirname "$0")/.."
script=${FIXTURES:-../shared}/bench/bfcl_python.py
if [ ! -e "$script" ]; then
	echo "bench/bfcl.sh: $script is not there, so the official Python is not timed (set FIXTURES)"
	exit 0
fi
official=.deps/bfcl-python
if [ ! -d "$official" ]; then
	python3 -m pip install --quiet --no-deps --target "$official.part" bfcl-eval==2026.3.23 mpmath==1.3.0
	mv "$official.part" "$official"
fi
one_core() { if command -v taskset >/dev/null; then taskset -c 0 "$@"; else "$@"; fi; }
median() { python3 -c 'import json,sys; print(json.load(sys.stdin)["replay_and_check_median_s"])'; }
tests=$(mktemp -d)
trap 'rm -rf "$tests"' EXIT
go test -c -o "$tests/bfcl.test" ./bfcl
for turn in $(seq "${1:-3}"); do
	theirs=$(one_core python3 "$script" "$official" | median)
	ours=$(one_core "$tests/bfcl.test" -test.run '^$' -test.bench ReplayAndCheck -test.count 3 |
		awk '/^Benchmark/ { print $3 / 1e9 }' | sort -g | sed -n 2p)
	python3 -c "print(f'turn $turn: Python $theirs s, ours $ours s, {$theirs/$ours:.1f} x')"
done
