#!/bin/sh
# Training, log-probabilities and generation of our decoder beside transformers' on the same machine, in turns: the fixtures'
# bench/lm_torch.py and BenchmarkShape, the same shapes and threads, limited to AVX2 and, where the machine has it, to
# AVX-512. Prints the processor's flags, and tokens/s and our ratio per instruction set; TURNS (default 3) is how often, the
# median counts.
#
# usage: bench/lm.sh      SETS (default "avx2 avx512"), SIZES (default "4M 100M SmolLM2"), THREADS (default 2);
#                         $PYTHON (default python3) needs torch and transformers, without them it says so
set -eu
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3} THREADS=${THREADS:-2} TURNS=${TURNS:-3} SIZES=${SIZES:-4M 100M SmolLM2}
script="${FIXTURES:-../shared}/bench/lm_torch.py"
"$PYTHON" -c 'import torch, transformers' 2>/dev/null || { echo "lm.sh: $PYTHON has no torch and transformers; PYTHON names another one"; exit 0; }
[ -e "$script" ] || { echo "lm.sh: no fixtures: $script does not exist"; exit 0; }
flags=$(grep -m 1 ^flags /proc/cpuinfo | tr ' ' '\n' | grep -E '^(avx|fma|bmi2)' | tr '\n' ' ')
case $flags in *avx512f*) both="avx2 avx512" ;; *) both=avx2 ;; esac
eval "$(make -s env)"
export OMP_NUM_THREADS="$THREADS"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
[ -n "${LM_TEST:-}" ] || { LM_TEST=$out/lm.test; go test -c -tags libtorch,netgo,osusergo -o "$LM_TEST" ./stages/internal/lm; }
echo "$(grep -m 1 '^model name' /proc/cpuinfo | sed 's/.*: //'), $(nproc) processors: $flags"
for set in ${SETS:-$both}; do
  case $set in
  avx2) export RCGRPO_CPU=avx2 ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 ;;
  avx512) unset ATEN_CPU_CAPABILITY ONEDNN_MAX_CPU_ISA MKL_ENABLE_INSTRUCTIONS; export RCGRPO_CPU=avx512 ;;
  esac
  for turn in $(seq "$TURNS"); do
    for size in $SIZES; do
      wrapper=
      case $size in
      4M) shape= ;;
      100M) shape="--hidden 768 --layers 12 --heads 12 --kv-heads 4 --mlp 2048 --vocab 16384 --batch 8" ;;
      SmolLM2) wrapper=bench/smollm2_torch.py && shape="--hidden 576 --layers 30 --heads 9 --kv-heads 3 --mlp 1536 --vocab 49152 --batch 8" ;;
      esac
      "$LM_TEST" -test.run '^$' -test.bench "BenchmarkShape/^$size\$" -test.benchtime "${REPEATS:-3}x" >>"$out/$set.ours"
      "$PYTHON" $wrapper "$script" --threads "$THREADS" --repeats "${REPEATS:-3}" $shape >>"$out/$set.$size"
    done
  done
  "$PYTHON" - "$out" "$set" "$SIZES" <<'PY'
import json, pathlib, re, statistics, sys

out, set, sizes = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3].split()
ours, theirs = {}, {}
for line in (out / f"{set}.ours").read_text().splitlines():
    if m := re.match(r"BenchmarkShape/(\w+)/(\w+)\S*\s.*?([\d.e+]+) tokens/s", line):
        ours.setdefault((m[1], m[2]), []).append(float(m[3]))
for size in sizes:
    text = (out / f"{set}.{size}").read_text()
    decoder, at = json.JSONDecoder(), 0
    while (at := text.find("{", at)) >= 0:
        run, at = decoder.raw_decode(text, at)
        for what in ("train", "logprobs", "generate"):
            theirs.setdefault((size, what), []).append(run[what]["tokens_per_s"])
print(f"\n{set}:\n\n| size | what | bar | ours, tokens/s | transformers, tokens/s | ratio |")
print("|---|---|---:|---:|---:|---:|")
for (size, what), runs in ours.items():
    a, b = statistics.median(runs), statistics.median(theirs[size, what])
    bar = 1.0 if what != "generate" else 2.5 if size == "4M" else 1.2
    print(f"| {size} | {what} | {bar} | {a:,.0f} | {b:,.0f} | {a / b:.2f} |")
PY
done
