#!/bin/sh
# Trains a small policy, serves it, and calls it with the Python packages openai, inspect-ai and lm-eval.
#
# usage: bench/serve_clients.sh [install] [DIR]     DIR (default .deps/clients) gets two environments from PyPI, 1.3 GB
# together; with `install`, nothing else happens. RCGRPO (default bin/rcgrpo) is the command's path.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
command=${RCGRPO:-$here/../bin/rcgrpo}
only=
[ "${1:-}" != install ] || { only=install && shift; }
mkdir -p "${1:-$here/../.deps/clients}"
clients=$(realpath "${1:-$here/../.deps/clients}")
for packages in "inspect-ai==0.3.285 openai==3.54.0" "lm-eval[api]==0.4.13 transformers jinja2"; do
	venv="$clients/${packages%%[=[]*}"
	if [ ! -e "$venv/complete" ]; then
		python3 -m venv "$venv"
		"$venv/bin/pip" install --quiet $packages
		touch "$venv/complete"
	fi
done
[ -z "$only" ] || exit 0
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
check() { "$clients/$1/bin/python" "$here/serve_clients.py" "$2" "$(cat url)" tiny "$tokenizer"; }
check inspect-ai openai
check inspect-ai inspect-ai
check lm-eval lm-eval
