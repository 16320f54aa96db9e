#!/bin/sh
# Compares the time of an RC-GRPO training on drills that a Python program plays with that on the same built-in drills.
#
# usage: bench/own_drills.sh     RCGRPO (default bin/rcgrpo) is the command; bench/bfcl.sh installs the official classes
# into .deps/bfcl-python.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
command=$(realpath "${RCGRPO:-$here/../bin/rcgrpo}")
classes=$(realpath "$here/../.deps/bfcl-python")
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export RCGRPO_LEASES="$out/leases" PYTHONDONTWRITEBYTECODE=1
cd "$out"
mkdir program
cp "$here/own_drills.py" program
printf 'store {\n  path = "store"\n}\nexecutor "local" {\n  cpus = 2\n}\n' > site.hcl
cat > x.hcl <<END
experiment {}
stage "tasks" "drills" {
  source = "drills"
  train  = 40
  test   = 0
  seed   = 1
}
stage "curate" "data" {
  tasks = stage.tasks.drills.train
  seed  = 1
}
stage "model" "random" {
  seed         = 1
  corpus       = [stage.curate.data.expert]
  vocab        = 512
  architecture = { family = "qwen2", hidden = 128, layers = 3, heads = 4, kv_heads = 2, mlp = 384, rope_base = 1000, context = 768 }
}
stage "sft" "warm" {
  seed   = 1
  policy = stage.model.random.checkpoint
  data   = [stage.curate.data.expert]
  epochs = 40
  lr     = 2e-3
}
END
"$command" run --site site.hcl x.hcl > log || { cat log; exit 1; }
"$command" show --json tasks.drills.train x.hcl --site site.hcl |
	python3 -c 'import json,sys; [print(json.dumps(r)) for r in json.load(sys.stdin)[0]["rows"]]' > program/tasks.jsonl
cat >> x.hcl <<END
stage "tasks" "python" {
  source  = "command"
  program = dir("program")
  command = ["python3", "own_drills.py"]
  env     = { PYTHONPATH = "$classes", PYTHONDONTWRITEBYTECODE = "1" }
  train   = 40
  test    = 0
  seed    = 1
}
defaults "rc-grpo" {
  seed    = 1
  policy  = stage.sft.warm.checkpoint
  updates = 8
  batch   = 8
  group   = 6
  lr      = 1e-4
  limits  = { steps = 6, reply = 60, context = 768 }
  resources { cpus = 2 } # one after another
}
END
for i in 1 2 3; do
	for source in drills python; do
		printf 'stage "rc-grpo" "%s_%d" {\n  tasks = stage.tasks.%s.train\n  keep  = %d\n}\n' $source $i $source $i >> x.hcl
	done
done
"$command" run --site site.hcl x.hcl > log || { cat log; exit 1; }
"$command" show --json 'rc-grpo.*.metrics' x.hcl --site site.hcl | python3 -c '
import json, statistics, sys
times, rewards = {}, {}
for stage in json.load(sys.stdin):
    source = stage["address"].split(".")[-1].split("_")[0]
    times.setdefault(source, []).append(stage["seconds"])
    rewards.setdefault(source, []).append([r["values"]["reward"] for r in stage["rows"]])
print("rewards are equal:", rewards["drills"] == rewards["python"], [round(r, 2) for r in rewards["drills"][0]])
for source, all in times.items():
    print(source, "seconds of 8 updates, with the start of the stage:", " ".join(f"{t:.1f}" for t in all))
print("python / built-in: %.2f (median of 3 runs)" % (statistics.median(times["python"]) / statistics.median(times["drills"])))
'
