# Everything a clean clone needs: Go, a C++17 compiler, python3 with pip, Linux on x86-64.
#
#   make demo    builds, runs the four-arm experiment on two cores and says where its page lies
#   make test    everything that is checked before a change goes in
#   make build   bin/rcgrpo (no cgo) and bin/rcgrpo-torch (the same main over libtorch)
#   make bench   the benchmarks: the official Python of BFCL, other engines and transformers beside ours, and what the engine must hold
#   make crash   the long variants of the tests that kill: 1,000 kills of engines and stages (KILLS=N), 200 of trainings
#   make images  the pictures of docs/images, from PAGE (the demo's, unless named)
#   make browser opens PAGE in Chromium with the network off: charts, colours, widths, accessibility
#   make changes changes 200 random bytes of the artifacts behind the demo's page, one after the other: each must be found
#   make env     prints the exports with which plain `go build -tags libtorch` works: eval "$(make env)"
#   make clean   removes what make built; .deps (downloads) stays, `rm -rf .deps` removes that too
#
# LIBTORCH=DIR uses a libtorch 2.11.0 that is already there (a folder with lib/ and include/; the folder of an installed
# Python package torch is one) instead of fetching it.

ROOT     := $(CURDIR)
DEPS     := $(ROOT)/.deps
LIBTORCH ?= $(DEPS)/libtorch
PYTHON   ?= python3
GO       ?= go
STATICCHECK := $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2

# gotch asks the linker for these; none is needed on a CPU, and an empty archive satisfies it. libtorch.so itself only
# pulls in CUDA.
EMPTY    := $(DEPS)/empty
ARCHIVES := torch cuda cudart cublas cudnn caffe2_nvrtc nvrtc-builtins nvrtc nvToolsExt c10_cuda torch_cuda

export CGO_CXXFLAGS := -Wno-deprecated-declarations -include $(ROOT)/build/compat.h -I$(LIBTORCH)/include -I$(LIBTORCH)/include/torch/csrc/api/include
export CGO_LDFLAGS  := -L$(EMPTY) -L$(LIBTORCH)/lib -Wl,-rpath,$(LIBTORCH)/lib -Wl,--allow-shlib-undefined
export BFCL_DATA    ?= $(DEPS)/bfcl

.PHONY: demo test build bench crash images browser changes clean env deps axe lint
.DEFAULT_GOAL := build

demo: build
	bin/rcgrpo run experiments/drills.hcl

# Both binaries carry the digest of what they were built from: the engine starts no other torch binary than its own.
build: deps
	@source=$$(find . -name .deps -prune -o -name .git -prune -o -type f \( -name '*.go' -o -name '*.[ch]' -o -name go.mod -o -path './reports/assets/*' \) -print | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -c1-16) && \
	CGO_ENABLED=0 $(GO) build -ldflags "-X rcgrpo/engine.SourceDigest=$$source" -o bin/rcgrpo ./cmd/rcgrpo && \
	$(GO) build -tags libtorch -ldflags "-X rcgrpo/engine.SourceDigest=$$source" -o bin/rcgrpo-torch ./cmd/rcgrpo

# The race detector runs over everything that is plain Go. The tensor packages run without it: it cannot see into
# libtorch, slows every call across the border, and their Go side is one locked thread. What costs ten times as much under
# it and is skipped or smaller there (`raced` in the tests) is whole in the second line. The last line is about main over
# libtorch; its sessions of many commands stay with the binary without cgo, which starts in a hundredth of the time.
# All four run, whatever fails; build/gotest counts a test once and ends with one line: passed, failed, skipped.
test: build lint axe
	@GO=$(GO) GORACE=atexit_sleep_ms=0 $(GO) run ./build/gotest -race ./... \
		-- ./cmd/rcgrpo ./docs ./reports \
		-- -tags libtorch ./stages/... ./experiments \
		-- -tags libtorch -skip '^(TestScripts|TestSixteenRuns.*)$$' ./cmd/rcgrpo

# No file is left out with the tag, so what is checked with it is checked; that everything builds without it, `build` shows.
lint: deps
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt changes: $$unformatted"; exit 1; }
	@untagged=$$(grep -rlE --include='*.go' --exclude-dir=.deps '^//go:build.*!libtorch' .); test -z "$$untagged" || { echo "built only without libtorch, so never checked here: $$untagged"; exit 1; }
	$(GO) vet -tags libtorch ./...
	$(STATICCHECK) -tags libtorch ./...

# Where npm is, the browser test of the pages looks for faults of accessibility too.
axe:
	@command -v npm >/dev/null && $(PYTHON) build/fetch.py axe $(DEPS) || echo "axe-core is not here: the accessibility of pages is not checked"

PAGE ?= experiments/drills.html

images:
	REPORTS_SHOTS=$(abspath $(PAGE)) $(GO) test -count=1 -run TestScreenshots ./reports

browser: axe
	RCGRPO_PAGE=$(abspath $(PAGE)) $(GO) test -count=1 -run TestPageInABrowser -v ./reports

changes: build
	@mkdir -p out
	bin/rcgrpo report experiments/drills.hcl -bundle out/demo.tar.gz
	RCGRPO_BUNDLE=$(ROOT)/out/demo.tar.gz $(GO) test -count=1 -timeout 60m -run TestChangesOfABundle -v ./cmd/rcgrpo

bench: build
	bench/bfcl.sh
	bench/transformers.sh
	bench/hf_fixtures.sh
	bench/engine.sh
	bench/lm.sh
	$(GO) test -run '^$$' -bench . -benchmem ./engine ./bfcl/... ./stages/rl ./stages/internal/token
	$(GO) test -tags libtorch -run '^$$' -bench . -benchmem ./stages/internal/... ./stages/grpo

KILLS ?= 1000

crash: build
	RCGRPO_CRASH=$(KILLS) $(GO) test -count=1 -timeout 60m -run TestKilledRunsConverge -v ./engine
	RCGRPO_CRASH=100 $(GO) test -tags libtorch -count=1 -timeout 60m -run TestKilledTrainingEndsInTheSameBytes -v ./stages

env: deps
	@echo "export CGO_CXXFLAGS='$(CGO_CXXFLAGS)'"
	@echo "export CGO_LDFLAGS='$(CGO_LDFLAGS)'"
	@echo "export BFCL_DATA='$(BFCL_DATA)'"

clean:
	rm -rf bin out

deps: $(EMPTY)
	@$(if $(filter $(DEPS)/libtorch,$(LIBTORCH)),$(PYTHON) build/fetch.py libtorch $(DEPS) 1>&2,test -e $(LIBTORCH)/lib/libtorch_cpu.so || { echo "LIBTORCH=$(LIBTORCH) holds no lib/libtorch_cpu.so" 1>&2; exit 1; })
	@$(PYTHON) build/fetch.py bfcl $(DEPS) 1>&2

$(EMPTY):
	@mkdir -p $(EMPTY).part && for a in $(ARCHIVES); do ar rcs $(EMPTY).part/lib$$a.a; done && mv $(EMPTY).part $(EMPTY)
