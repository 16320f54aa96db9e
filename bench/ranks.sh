#!/bin/sh
# Two processes of one thread beside one process, on drills with a model of 4 M weights: seconds of a rollout and of an
# rc-grpo training, and the share of the time in which the rank that waits least is in collective operations: the exchange
# of data and what the uneven shares of an update leave. The bars on two quiet cores: rollout 1.6, training 1.4. The times
# include the start of the processes.
#
# usage: bench/ranks.sh      TURNS (default 3) is how often, the median counts; UPDATES (default 16)
set -eu
cd "$(dirname "$0")/.."
TURNS=${TURNS:-3} UPDATES=${UPDATES:-16}
[ -x bin/rcgrpo-torch ] || { echo "ranks.sh: run make build first"; exit 1; }
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
mkdir -m 700 "$out/leases"
export RCGRPO_LEASES="${RCGRPO_LEASES:-$out/leases}"
cat >"$out/site.hcl" <<HCL
store { path = "$out/store" }
HCL
cat >"$out/x.hcl" <<HCL
variable "processes" { type = number }
experiment { seeds = [1] }
stage "tasks" "drills" {
  source = "drills"
  train  = 40
  test   = 5
  pool   = 5
}
stage "curate" "data" { tasks = stage.tasks.drills.train }
stage "model" "random" {
  corpus = [stage.curate.data.expert]
  vocab  = 2048
  architecture {
    family    = "qwen2"
    hidden    = 256
    layers    = 4
    heads     = 4
    kv_heads  = 2
    mlp       = 704
    rope_base = 10000
    context   = 2048
  }
}
stage "rollout" "samples" {
  policy  = stage.model.random.checkpoint
  tasks   = stage.tasks.drills.train
  samples = 32
  limits {
    steps   = 4
    reply   = 32
    context = 1024
  }
  resources {
    cpus      = var.processes
    processes = var.processes
  }
}
stage "rc-grpo" "arm" {
  policy         = stage.model.random.checkpoint
  tasks          = stage.tasks.drills.train
  updates        = $UPDATES
  batch          = 8
  group          = 5
  gradient_parts = 2
  limits {
    steps   = 4
    reply   = 32
    context = 1024
  }
  resources {
    cpus      = var.processes
    processes = var.processes
  }
}
HCL
for turn in $(seq "$TURNS"); do
  for n in 1 2; do
    for stage in rollout.samples rc-grpo.arm; do
      bin/rcgrpo run "$out/x.hcl" --site "$out/site.hcl" --var processes=$n --target stage.$stage --replace stage.$stage \
        >"$out/log" 2>&1 || { cat "$out/log"; exit 1; }
      python3 - "$out/store" stage.$stage $n >>"$out/times" <<'PY'
import json, pathlib, sys

store, address, n = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
found = []
for path in store.glob("results/**/*.json"):
    m = json.loads(path.read_text())
    if m.get("address", "").startswith(address):
        found.append(m)
m = max(found, key=lambda m: m["started"])
r = m.get("ranks")
assert (r["count"] if r else 1) == int(n), m
print(address, n, m["seconds"], min(r["waited_seconds"]) / m["seconds"] if r else 0)
PY
    done
  done
done
python3 - "$out/times" <<'PY'
import collections, pathlib, statistics, sys

seconds, waited = collections.defaultdict(list), collections.defaultdict(list)
for line in pathlib.Path(sys.argv[1]).read_text().splitlines():
    address, n, s, w = line.split()
    seconds[address, n].append(float(s))
    waited[address, n].append(float(w))
for address, bar in ("stage.rollout.samples", 1.6), ("stage.rc-grpo.arm", 1.4):
    one, two = (statistics.median(seconds[address, n]) for n in "12")
    print(f"{address}: one process {one:.2f} s, two {two:.2f} s: {one / two:.2f} times (bar {bar}); "
          f"the slower rank waits {100 * statistics.median(waited[address, '2']):.1f} % of the time")
PY
