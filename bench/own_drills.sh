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
  form   = "single"
  train  = 40
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
  epochs = 18
  batch  = 8
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
  updates = 12
  batch   = 8
  group   = 6
  lr      = 1e-4
  limits  = { steps = 6, reply = 60, context = 768 }
  resources { cpus = 2 } # one after another
}
END
measure() { # prints seconds, and seconds of all processors
	python3 -c '
import resource, subprocess, sys, time
begun = time.time()
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(f"{time.time() - begun:.2f} {used.ru_utime + used.ru_stime:.2f}")' "$@"
}
arms() {
	for i in 1 2 3; do
		for source in drills python; do "$@" $source $i; done
	done
}
stage() {
	printf 'stage "rc-grpo" "%s_%d" {\n  tasks = stage.tasks.%s.train\n  keep  = %d\n}\n' "$1" "$2" "$1" "$2" >> x.hcl
}
timed() {
	echo "$1 $(measure "$command" run --site site.hcl x.hcl --target "rc-grpo.$1_$2")" >> times
}
arms stage
"$command" run --site site.hcl x.hcl --target tasks.python > log || { cat log; exit 1; }
arms timed
"$command" show --json 'rc-grpo.*.metrics' x.hcl --site site.hcl | python3 -c '
import json, statistics, sys
rewards, times = {}, {}
for stage in json.load(sys.stdin):
    source = stage["address"].split(".")[-1].split("_")[0]
    rewards.setdefault(source, []).append([r["values"]["reward"] for r in stage["rows"]])
for source, all in rewards.items(): # not quite equal, because calls that cannot be read have other errors
    print(source, "reward of each update:", *(round(r, 2) for r in all[0]))
for line in open("times"):
    source, wall, cpu = line.split()
    times.setdefault(source, []).append((float(wall), float(cpu)))
for k, what in enumerate(["seconds", "seconds of all processors"]):
    for source, all in times.items():
        print(source, what, "of 12 updates and the start:", " ".join(f"{t[k]:.1f}" for t in all))
    ratio = statistics.median(t[k] for t in times["python"]) / statistics.median(t[k] for t in times["drills"])
    print(f"python / built-in, {what}: {ratio:.2f} (median of 3 runs)")
'
