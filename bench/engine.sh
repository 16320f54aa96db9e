#!/usr/bin/env bash
# Times rcgrpo on graphs of trivial commands beside Snakemake and DVC, as far as they are in the PATH (python3 -m venv DIR;
# DIR/bin/pip install snakemake dvc), and compares rcgrpo with its bars.
#
# usage: bench/engine.sh      bin/rcgrpo must be built ($BIN names another folder)
# knobs: RUNS=5, of rcgrpo; the other tools run once; OTHERS=0 leaves them out
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
PATH="${BIN:-$PWD/bin}:$PATH"
RUNS=${RUNS:-5} OTHERS=${OTHERS:-1}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
export HOME=$root DVC_NO_ANALYTICS=1

# graph DIR N fan|chain: N stages that write a small file each, for all tools; ours in files of 2,500 stages, because an HCL
# file has at most 1 MiB
graph() {
  mkdir -p "$1/in"
  (
    cd "$1"
    for ((i = 1; i <= $2; i++)); do echo "$i" >"in/s$i"; done
    printf 'store {\n  path = ".store"\n}\n' >site.hcl
    awk -v n="$2" -v shape="$3" 'BEGIN {
      print "experiment {\n}" >"stages0.hcl"; print "stages:" >"dvc.yaml"
      printf "rule all:\n    input: expand(\"out/s{i}\", i=range(1, %d))\n", n + 1 >"Snakefile"
      for (i = 1; i <= n; i++) {
        chained = shape == "chain" && i > 1
        source = chained ? "out/s" (i - 1) : "in/s" i
        input = chained ? "stage.exec.s" (i - 1) ".out" : "file(\"in/s" i "\")"
        ours = "stages" int(i / 2500) ".hcl"
        printf "stage \"exec\" \"s%d\" {\n  command = [\"sh\", \"-c\", \"echo %d > $out\"]\n", i, i >ours
        printf "  inputs  = { src = %s }\n  outputs = { out = \"out/s%d\" }\n}\n", input, i >ours
        printf "rule s%d:\n    input: \"%s\"\n    output: \"out/s%d\"\n", i, source, i >"Snakefile"
        printf "    shell: \"echo %d > {output}\"\n", i >"Snakefile"
        printf "  s%d:\n    cmd: echo %d > out/s%d\n    deps: [%s]\n    outs: [out/s%d]\n", i, i, i, source, i >"dvc.yaml"
      }
    }'
  )
}

# seconds RUNS DIR PREPARE COMMAND -> median
seconds() {
  local r a b
  for ((r = 0; r < $1; r++)); do
    (cd "$2" && eval "$3")
    a=$(date +%s%N)
    (cd "$2" && eval "$4" >"$root/log" 2>&1) || { tail -5 "$root/log" >&2; return 1; }
    b=$(date +%s%N)
    echo $((b - a))
  done | sort -n | awk '{v[NR] = $1 / 1e9} END {print v[int((NR + 1) / 2)]}'
}

# others DIR [PREPARE] -> columns of Snakemake and DVC; without PREPARE, each has run before
others() {
  local tool command text=
  for tool in snakemake dvc; do
    command="snakemake --quiet all --cores 2 all"
    [ "$tool" = snakemake ] || command="dvc repro --quiet"
    if ((OTHERS)) && command -v "$tool" >/dev/null; then
      text+=" | $(seconds 1 "$1" "${2:-$command >/dev/null 2>&1}" "$command" | awk '{printf "%.3g s", $1}')"
    else
      text+=" | -"
    fi
  done
  echo "$text"
}

# bar TEXT LIMIT VALUE UNIT [OTHERS]
bar() {
  awk -v text="$1" -v limit="$2" -v value="$3" -v unit="$4" -v others="${5:- | - | -}" 'BEGIN {
    printf "| %s | %s %s | %.3g %s%s | %s |\n", text, limit, unit, value, unit, others,
      value <= limit + 0 ? "met" : "NOT MET"
  }'
}

wipe='rm -rf .store .snakemake .dvc/cache .dvc/tmp dvc.lock out; mkdir out'
run='rcgrpo run .'
graph "$root/fan" 1000 fan
graph "$root/chain" 200 chain
graph "$root/many" 10000 fan
! command -v dvc >/dev/null || for d in fan chain; do (cd "$root/$d" && dvc init --no-scm --quiet); done
printf '| case | bar | rcgrpo | Snakemake | DVC | |\n|---|---|---|---|---|---|\n'
bar "cold run of 1,000 stages" 10 "$(seconds "$RUNS" "$root/fan" "$wipe" "$run")" s "$(others "$root/fan" "$wipe")"
bar "nothing to do, 1,000 stages" 0.35 "$(seconds "$RUNS" "$root/fan" "$run >/dev/null" "$run")" s "$(others "$root/fan")"
bar "cold chain of 200" 3 "$(seconds "$RUNS" "$root/chain" "$wipe" "$run")" s "$(others "$root/chain" "$wipe")"
(cd "$root/many" && mkdir out && $run >"$root/log")
bar "nothing to do, 10,000 stages" 3.5 "$(seconds "$RUNS" "$root/many" true "$run")" s
gtime=$(type -P time || true)
[ -z "$gtime" ] || bar "… peak memory" 300 \
  "$(cd "$root/many" && "$gtime" -q -f %M -o "$root/rss" $run >"$root/log"; awk '{print $1 / 1024}' "$root/rss")" MiB
