#!/bin/sh
# Training, log-probabilities and generation of our decoder beside transformers' on the same machine, in turns: the fixtures'
# bench/lm_torch.py and BenchmarkShape, the same shapes and threads. Prints tokens/s and our ratio; TURNS (default 3) is how
# often, the median counts.
#
# usage: bench/lm.sh      THREADS (default 2); $PYTHON (default python3) needs torch and transformers, without them it says so
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3} THREADS=${THREADS:-2} TURNS=${TURNS:-3}
script="${FIXTURES:-../shared}/bench/lm_torch.py"
"$PYTHON" -c 'import torch, transformers' 2>/dev/null || { echo "lm.sh: $PYTHON has no torch and transformers; PYTHON names another one"; exit 0; }
[ -e "$script" ] || { echo "lm.sh: no fixtures: $script does not exist"; exit 0; }
eval "$(make -s env)"
export OMP_NUM_THREADS="$THREADS"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
go test -c -tags libtorch -o "$out/lm.test" ./stages/internal/lm
for turn in $(seq "$TURNS"); do
  "$out/lm.test" -test.run '^$' -test.bench BenchmarkShape -test.benchtime 3x >>"$out/ours"
  "$PYTHON" "$script" --threads "$THREADS" --repeats 3 >>"$out/4M"
  "$PYTHON" "$script" --threads "$THREADS" --repeats 3 --hidden 768 --layers 12 --heads 12 --kv-heads 4 --mlp 2048 --vocab 16384 --batch 8 >>"$out/100M"
done
"$PYTHON" - "$out" <<'PY'
import json, pathlib, re, statistics, sys

out = pathlib.Path(sys.argv[1])
ours, theirs = {}, {}
for line in (out / "ours").read_text().splitlines():
    if m := re.match(r"BenchmarkShape/(\w+)/(\w+)\S*\s.*?([\d.e+]+) tokens/s", line):
        ours.setdefault((m[1], m[2]), []).append(float(m[3]))
for size in ("4M", "100M"):
    text = (out / size).read_text()
    decoder, at = json.JSONDecoder(), 0
    while (at := text.find("{", at)) >= 0:
        run, end = decoder.raw_decode(text, at)
        at = end
        for what in ("train", "logprobs", "generate"):
            theirs.setdefault((size, what), []).append(run[what]["tokens_per_s"])
bars = {"train": (1, 1), "logprobs": (1, 1), "generate": (3, 1.2)}
print("| size | what | ours, tokens/s | transformers, tokens/s | ratio | bar |")
print("|---|---|---:|---:|---:|---:|")
for (size, what), runs in ours.items():
    a, b = statistics.median(runs), statistics.median(theirs[size, what])
    print(f"| {size} | {what} | {a:,.0f} | {b:,.0f} | {a / b:.2f} | {bars[what][size == '100M']} |")
PY
