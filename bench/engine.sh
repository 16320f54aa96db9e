#!/bin/sh
# Times rcgrpo beside make, ninja, go-task and Snakemake, as far as they are installed, and prints the table of the
# fixtures' bench/engine_baselines.sh ($FIXTURES, default ../shared; RUNS and other knobs as there).
#
# usage: bench/engine.sh [out.tsv]      bin/rcgrpo must be built ($BIN names another folder)
set -eu
cd "$(dirname "$0")/.."
here=$(pwd)
PATH="${BIN:-$here/bin}:$PATH"
export PATH EXTRA_GEN="$here/bench/engine_gen" EXTRA_CMD="$(cat bench/engine_cmd)" EXTRA_WIPE="$(cat bench/engine_wipe)"
exec bash "${FIXTURES:-../shared}/bench/engine_baselines.sh" "$@"
