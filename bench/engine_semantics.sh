#!/usr/bin/env bash
# The ten situations of ../shared/bench/engine_semantics.sh ($FIXTURES names another folder) with rcgrpo beside the tools
# that are installed: its probes as they are, with a pipeline of `exec` stages for rcgrpo.
#   usage: bench/engine_semantics.sh          prints the Markdown table; bin/rcgrpo must be built ($BIN names another folder)
set -uo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
fixtures=$(cd "$here" && cd "${FIXTURES:-../shared}" && pwd) || exit 1
probes=$fixtures/bench/engine_semantics.sh
export PATH="${BIN:-$here/bin}:$PATH"
table=$(mktemp)
sed '/^names=/,$d' "$probes" >"$table"
# shellcheck disable=SC1090
source "$table"
trap 'rm -rf "$ROOT" "$table"' EXIT

# The bodies name src.txt, a.txt and b.txt: what a stage reads becomes its variable, what it writes stays a name in the
# folder it starts in. The log of its runs lies beside the experiment, so it is named by its whole path.
stage() { # NAME INPUT-FILE INPUT-EXPRESSION OUTPUT-FILE BODY
  local body="echo x >> $PWD/log.$1; ${5//$2/\\\"\$src\\\"}"
  printf 'stage "exec" "%s" {\n  command = ["sh", "-c", "%s"]\n  inputs  = { src = %s }\n  outputs = { out = "%s" }\n}\n' "$1" "$body" "$3" "$4"
}
eval "$(declare -f pipeline | sed '1s/pipeline/pipeline_of_others/')"
pipeline() {
  [ "$1" = rcgrpo ] || { pipeline_of_others "$@"; return; }
  { printf 'experiment {\n}\n'; stage a src.txt 'file("src.txt")' a.txt "$2"; stage b a.txt stage.exec.a.out b.txt "$3"; } >pipeline.hcl
}
eval "$(declare -f go | sed '1s/go/go_of_others/')"
go() { if [ "$1" = rcgrpo ]; then rcgrpo run pipeline.hcl >run.log 2>&1; else go_of_others "$1"; fi; }

# An unfinished output of rcgrpo never appears in the tree: the kill waits for the line of the log instead. It hits the
# engine's group; the stage goes on in its own and is adopted, so that it runs once (twice where it was hit too).
eval "$(declare -f p_kill | sed '1s/p_kill/p_kill_of_others/')"
p_kill() {
  [ "$1" = rcgrpo ] || { p_kill_of_others "$1"; return; }
  fresh; pipeline "$1" 'echo half > a.txt; sleep 3; echo whole > a.txt' "$B"
  setsid rcgrpo run pipeline.hcl >run.log 2>&1 & local p=$!
  for _ in $(seq 100); do [ -f log.a ] && break; sleep 0.1; done; sleep 0.2; kill -9 -- "-$p" 2>/dev/null; wait $p 2>/dev/null
  go "$1"; local rc=$?
  if [ "$(cat b.txt 2>/dev/null)" = half ]; then echo "HALF-WRITTEN OUTPUT ACCEPTED"; elif [ $rc -ne 0 ]; then echo "refuses"; elif [ "$(cat b.txt)" = whole ] && [ "$(runs a)" -le 2 ]; then echo "recovers"; else echo "WRONG: $(runs a) runs, $(cat b.txt)"; fi
}
eval "$(declare -f p_two | sed '1s/p_two/p_two_of_others/')"
p_two() {
  [ "$1" = rcgrpo ] || { p_two_of_others "$1"; return; }
  fresh; pipeline "$1" 'sleep 2; cp src.txt a.txt' "$B"
  (go "$1"; echo $? >rc1) & sleep 0.8; rcgrpo run pipeline.hcl >run2.log 2>&1; echo $? >rc2; wait
  if [ "$(cat rc1 rc2 | tr -d '\n')" != 00 ]; then echo "one fails"; elif [ "$(runs a)$(runs b)" = 11 ]; then echo "runs once"; else echo "runs twice"; fi
}
tools+=(rcgrpo)
sed -n '/^names=/,$p' "$probes" >"$table"
# shellcheck disable=SC1090
source "$table"
