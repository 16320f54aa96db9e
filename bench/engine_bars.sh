#!/usr/bin/env bash
# Holds the engine against its bars: rows of bench/engine_baselines.sh, and what that script does not measure - the first
# plan after an edit, a plan with nothing to do, how a run with nothing to do grows, and what modules cost.
#
# usage: bench/engine_bars.sh ROWS.tsv      rcgrpo must be in the PATH
# knobs: RUNS=5; BIG=100000, the stages at the end of the growth (the first run of so many takes minutes; 0 leaves it out)
set -euo pipefail
export LC_ALL=C
rows=$1
RUNS=${RUNS:-5}; BIG=${BIG:-100000}
gen=$(cd "$(dirname "$0")" && pwd)/engine_gen
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
export HOME=$root
gtime=$(type -P time || true)

# stages N -> a folder of N stages that are up to date
stages() {
  local dir=$root/$1 i
  [ -d "$dir" ] || {
    mkdir -p "$dir/in" "$dir/out"
    for ((i = 1; i <= $1; i++)); do echo "$i" >"$dir/in/s$i"; done
    "$gen" "$dir" "$1" fan
    (cd "$dir" && rcgrpo run stages.hcl && rcgrpo run stages.hcl) >"$root/log" || { tail "$root/log" >&2; exit 1; }
  }
  echo "$dir"
}
# composed -> a folder with 10,000 stages in chains of 100: flat.hcl, and in 100 modules: root.hcl
composed() {
  local dir=$root/composed
  mkdir -p "$dir"
  printf 'store {\n  path = ".store"\n}\n' >"$dir/site.hcl"
  awk -v dir="$dir" '
    function stage(file, name, text, input) {
      printf "stage \"exec\" \"%s\" {\n  command = [\"sh\", \"-c\", \"%s > $out\"]\n", name, text >file
      printf "  inputs  = { %s }\n  outputs = { out = \"%s\" }\n}\n", input, name >file
    }
    BEGIN {
      flat = dir "/flat.hcl"; root = dir "/root.hcl"
      print "experiment {\n}" >flat; print "experiment {\n}" >root
      for (m = 1; m <= 100; m++) {
        file = dir "/m" m ".hcl"
        printf "module \"m%d\" {\n  source = \"m%d.hcl\"\n}\n", m, m >root
        for (i = 1; i <= 100; i++) {
          input = i > 1 ? "src = stage.exec.s" (i - 1) ".out" : ""
          stage(file, "s" i, "echo " m " " i, input)
          gsub("exec.s", "exec.s" m "_", input)
          stage(flat, "s" m "_" i, "echo " m " " i, input)
        }
        ends = ends sprintf("i%d = module.m%d.stage.exec.s100.out, ", m, m)
        flatEnds = flatEnds sprintf("i%d = stage.exec.s%d_100.out, ", m, m)
        close(file)
      }
      stage(root, "all", "cat $i1", ends); stage(flat, "all", "cat $i1", flatEnds)
    }'
  echo "$dir"
}
# seconds DIR PREPARE COMMAND -> median of RUNS
seconds() {
  local r a b
  for ((r = 0; r <= RUNS; r++)); do
    (cd "$1" && sh -c "$2")
    a=$(date +%s%N); (cd "$1" && sh -c "$3 >/dev/null 2>&1"); b=$(date +%s%N)
    ((r == 0)) || echo $((b - a)) # the first one warms up
  done | sort -n | awk '{v[NR] = $1 / 1e9} END {print v[int((NR + 1) / 2)]}'
}
# mib DIR COMMAND -> peak resident set
mib() {
  [ -n "$gtime" ] || { echo 0; return; }
  (cd "$1" && "$gtime" -q -f %M -o "$root/rss" sh -c "$2 >/dev/null 2>&1"; awk '{print $1 / 1024}' "$root/rss")
}
# row TOOL CASE N COLUMN -> a value of the table, nothing when it is not there
row() { awk -F'\t' -v t="$1" -v c="$2" -v n="$3" -v f="$4" '$1 == t && $2 == c && $3 == n {print $f}' "$rows"; }
# ratio CASE N -> our time by ninja's
ratio() { awk -v a="$(row extra "$1" "$2" 4)" -v b="$(row ninja "$1" "$2" 4)" 'BEGIN {if (a > 0 && b > 0) print a / b}'; }
# bar TEXT LIMIT VALUE UNIT
bar() {
  awk -v text="$1" -v limit="$2" -v value="$3" -v unit="$4" 'BEGIN {
    if (value == "") {printf "| %s | ≤ %s%s | - | not measured |\n", text, limit, unit; exit}
    printf "| %s | ≤ %s%s | %.3g%s | %s |\n", text, limit, unit, value, unit, value <= limit + 0 ? "met" : "NOT MET"
  }'
}

thousand=$(stages 1000); many=$(stages 10000)
edit="sed -i \"s/echo 5000[0-9]* > /echo 5000\$(date +%N) > /\" stages.hcl" # one command, another time each
printf '\n| bar | limit | measured | |\n|---|---|---|---|\n'
bar "nothing to do, 10,000 stages, by ninja's time" 1.0 "$(ratio null 10000)" " ×"
bar "… peak memory" 64 "$(row extra null 10000 8)" " MiB"
bar "nothing to do, 1,000 stages" 15 "$(row extra null 1000 4 | awk '{print $1 * 1000}')" " ms"
bar "plan of 1,000 stages with nothing to do" 50 "$(seconds "$thousand" true "rcgrpo plan stages.hcl" | awk '{print $1 * 1000}')" " ms"
bar "first plan after an edit, 10,000 stages" 2.5 "$(seconds "$many" "$edit" "rcgrpo plan stages.hcl")" " s"
bar "… peak memory" 512 "$( (cd "$many" && sh -c "$edit"); mib "$many" "rcgrpo plan stages.hcl")" " MiB"
bar "cold, 1,000 stages in turns, by ninja's time" 5.0 "$(ratio duel 1000)" " ×"
bar "cold, chain of 200, by ninja's time" 5.0 "$(ratio chain 200)" " ×"
composed=$(composed)
flat=$(seconds "$composed" true "rcgrpo plan flat.hcl"); nested=$(seconds "$composed" true "rcgrpo plan root.hcl")
bar "plan of 10,000 stages in 100 modules, by the flat file" 1.2 "$(awk -v a="$nested" -v b="$flat" 'BEGIN {print a / b}')" " ×"
growth=
if ((BIG > 0)); then
  big=$(stages "$BIG")
  small=$(seconds "$thousand" true "rcgrpo run stages.hcl"); large=$(seconds "$big" true "rcgrpo run stages.hcl")
  growth=$(awk -v a="$small" -v b="$large" -v n="$BIG" 'BEGIN {print log(b / a) / log(n / 1000)}')
  echo "nothing to do: $small s with 1,000 stages, $large s and $(mib "$big" "rcgrpo run stages.hcl") MiB with $BIG" >&2
fi
bar "nothing to do, exponent of growth from 1,000 stages to ${BIG/#0/many}" 1.05 "$growth" ""
