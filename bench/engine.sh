#!/bin/sh
# Times rcgrpo beside make, ninja, go-task and Snakemake, as far as they are installed: prints the table of the fixtures'
# bench/engine_baselines.sh ($FIXTURES, default ../shared; RUNS and other knobs as there), then for each bar of the engine
# what was measured and whether it is met (bench/engine_bars.sh, with knobs of its own).
#
# hyperfine (a package of Debian) times a command alone; where it is missing, the loop of that script adds about 2 ms to each
# time, a fifth of a run with nothing to do among 1,000 stages.
#
# usage: bench/engine.sh [out.tsv]      bin/rcgrpo must be built ($BIN names another folder)
set -eu
cd "$(dirname "$0")/.."
here=$(pwd)
PATH="${BIN:-$here/bin}:$PATH"
export PATH EXTRA_GEN="$here/bench/engine_gen" EXTRA_CMD="$(cat bench/engine_cmd)" EXTRA_WIPE="$(cat bench/engine_wipe)"
baselines=${FIXTURES:-../shared}/bench/engine_baselines.sh
[ -e "$baselines" ] || { echo "bench/engine.sh: no $baselines here (\$FIXTURES names the fixtures' folder); left out"; exit 0; }
rows=${1:-$(mktemp)}
bash "$baselines" "$rows"
bench/engine_bars.sh "$rows"
[ $# -gt 0 ] || rm -f "$rows"
