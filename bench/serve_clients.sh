#!/bin/sh
# Trains a small policy, serves it, and calls it with the Python packages openai, inspect-ai and lm-eval.
#
# usage: bench/serve_clients.sh PYTHON...     each interpreter runs the checks of the packages that it has: openai
# 3.54.0, inspect-ai 0.3.285, lm-eval[api] 0.4.13 with transformers. RCGRPO (default bin/rcgrpo) is the command.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
command=$(realpath "${RCGRPO:-$here/../bin/rcgrpo}")
out=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$out"' EXIT
export RCGRPO_LEASES="$out/leases" HF_HUB_OFFLINE=1
cat > "$out/site.hcl" <<'END'
store {
  path = "store"
}
END
cat > "$out/x.hcl" <<'END'
experiment {
}
stage "tasks" "drills" {
  source = "drills"
  train  = 40
  test   = 1
  seed   = 1
}
stage "curate" "data" {
  tasks = stage.tasks.drills.train
  seed  = 1
}
stage "model" "random" {
  seed   = 1
  corpus = [stage.curate.data.expert]
  vocab  = 340
  architecture {
    family    = "qwen2"
    hidden    = 128
    layers    = 4
    heads     = 4
    kv_heads  = 2
    mlp       = 384
    rope_base = 1000
    context   = 1024
  }
}
stage "sft" "warm" {
  seed   = 1
  policy = stage.model.random.checkpoint
  data   = [stage.curate.data.expert]
  epochs = 6
  lr     = 2e-3
}
END
cd "$out"
"$command" run --site site.hcl x.hcl
"$command" serve sft.warm.checkpoint x.hcl --site site.hcl --name tiny > url & server=$!
until [ -s url ]; do kill -0 "$server"; sleep 0.1; done
tokenizer=$(dirname "$(find store -name tokenizer.json -path '*objects*' | tail -n 1)")
for python; do
	"$python" "$here/serve_clients.py" "$(cat url)" tiny "$tokenizer"
done
