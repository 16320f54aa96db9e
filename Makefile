# A clean clone needs Go, a C++17 compiler, python3 with pip, and Linux on x86-64.
#
#   make demo    builds, runs the four-arm experiment on two cores and prints the path of its page
#   make smollm2 fetches SmolLM2-135M-Instruct (93 MB) and runs experiments/smollm2_first.hcl; it resumes after a stop
#   make test    the tests of all packages in a quarter of an hour on two cores; GOTEST=-slow names the slowest
#   make check   all checks: make test, staticcheck, the long tests (must.Long), race detector, fuzzing, in 36 to 45 minutes
#   make build   bin/rcgrpo (no cgo) and bin/rcgrpo-torch (the same command with libtorch)
#   make bench   the benchmarks, beside BFCL's Python, other engines and transformers, and the bars of the engine
#   make crash   long variants of the kill tests: 1,000 kills of engines and stages (KILLS=N), 200 of trainings, 100 of
#                processes that call an API, 100 of ranks, supervisors and their engines (RANK_KILLS=N), 200 on a Slurm
#                cluster (SLURM_KILLS=N), all failures of clusters, 1,000 jobs; 1,000 episodes with faults of programs,
#                MCP servers and agents
#   make images  the pictures of docs/images, from PAGE (default: the demo's); REPORTS_FIGURE=ID: that figure
#   make browser opens PAGE in Chromium without a network: charts, colours, widths, accessibility
#   make changes changes 200 random bytes of the artifacts behind the demo's page; verify must find each
#   make env     prints the environment for `go build -tags libtorch`: eval "$(make env)"
#   make clean   removes the build; the downloads in .deps stay
#
# LIBTORCH=DIR uses an installed libtorch 2.11.0 instead of a download: a folder with lib/ and include/, such as the one
# of the Python package torch.

ROOT     := $(CURDIR)
DEPS     := $(ROOT)/.deps
LIBTORCH ?= $(DEPS)/libtorch
PYTHON   ?= python3
GO       ?= go
STATICCHECK := $(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2

# gotch links these libraries. A CPU needs none, so empty archives replace them.
EMPTY    := $(DEPS)/empty
ARCHIVES := torch cuda cudart cublas cudnn caffe2_nvrtc nvrtc-builtins nvrtc nvToolsExt c10_cuda torch_cuda

# Both binaries are built without the C parts of Go's packages net and os/user. So each package is compiled once for
# them, for vet and for the tests.
PURE    := netgo,osusergo
TENSORS := libtorch,$(PURE)

export CGO_CXXFLAGS := -specs=$(ROOT)/build/gxx.specs -Wno-deprecated-declarations -include $(ROOT)/build/compat.h -I$(LIBTORCH)/include -I$(LIBTORCH)/include/torch/csrc/api/include
export CGO_LDFLAGS  := -L$(EMPTY) -L$(LIBTORCH)/lib -Wl,-rpath,$(LIBTORCH)/lib -Wl,--allow-shlib-undefined
export BFCL_DATA    ?= $(DEPS)/bfcl
export PATH         := $(PATH):$(DEPS)/bin

.PHONY: demo smollm2 test check build bench crash images browser changes clean env deps axe vet lint
.DEFAULT_GOAL := build

demo: build
	bin/rcgrpo run experiments/drills.hcl

# The documents of the tools are in the benchmark's data, which a site file names. A folder without the file is of a
# download that was interrupted by hand.
GGUF := $(DEPS)/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf

smollm2: $(GGUF) build
	@printf 'data {\n  bfcl = "%s/bfcl"\n}\n' '$(abspath $(DEPS))' >'$(DEPS)/site.hcl'
	bin/rcgrpo run experiments/smollm2_first.hcl --var model='$(abspath $<)' --site '$(DEPS)/site.hcl'

$(GGUF):
	@rm -rf '$(@D)'
	@$(PYTHON) build/fetch.py smollm2 '$(DEPS)'

# Both binaries contain the digest of their sources: the engine starts only a torch binary with the same digest.
build: deps
	@source=$$(find . -name .deps -prune -o -name .git -prune -o -type f \( -name '*.go' -o -name '*.[ch]' -o -name '*.cpp' -o -name go.mod -o -path './reports/page/assets/*' \) -print | LC_ALL=C sort | xargs sha256sum | sha256sum | cut -c1-16) && \
	CGO_ENABLED=0 $(GO) build -tags $(PURE) -ldflags "-X rcgrpo/engine.SourceDigest=$$source" -o bin/rcgrpo ./cmd/rcgrpo && \
	$(GO) build -tags $(TENSORS) -ldflags "-X rcgrpo/engine.SourceDigest=$$source" -o bin/rcgrpo-torch ./cmd/rcgrpo

# The second run starts many processes of the command, as bin/rcgrpo without libtorch: a process with it starts slowly.
# The third one has the race detector, on packages that compile soon. build/gotest counts a test once and prints one
# summary line. GOTEST=-slow makes it print the slowest tests.
RACE   := GORACE=atexit_sleep_ms=0 -short -race
GOTEST ?=
TESTS  := -short -tags=$(TENSORS) -skip='^TestSixteenRuns' ./... \
	-- CGO_ENABLED=0 -short -tags=$(PURE) -run='^(TestScripts|TestSixteenRuns)' ./cmd/rcgrpo \
	-- $(RACE) ./engine/artifact ./engine/sched ./stages/rl

# In make check, the race detector runs on the packages that start goroutines, but not on the tensor packages: it does
# not see libtorch, slows every call of it, and their Go code runs on one locked thread. docs/makefile_test.go checks the
# list.
RACED := ./bfcl ./cmd/rcgrpo/... ./engine ./engine/artifact ./engine/machine ./engine/plan ./engine/proc \
	./engine/remote ./engine/runs ./engine/sched ./engine/slurm ./reports/live ./stages ./stages/rl \
	./stages/internal/agent ./stages/internal/environment ./stages/internal/provider ./stages/internal/serve

# Targets that read what strangers write: PACKAGE:TARGET:INPUTS. In make check each invents that many inputs, which take
# about 20 seconds on two idle cores. A number, not a time: where a time ends, Go 1.26 may report its own deadline as a
# failure of the target. The inputs to shorten an interesting one are limited, because nothing is tried meanwhile.
FUZZED := stages/internal/serve:FuzzRequests:60000 stages/internal/provider:FuzzReplies:6000 \
	stages/internal/environment:FuzzAnswers:150000 stages/internal/environment:FuzzServers:150000 \
	engine/remote:FuzzRecords:6000 engine/artifact:FuzzManifests:12000 engine/lang:FuzzLoad:2500 \
	stages/internal/jinja:FuzzParse:600000 stages/internal/gguf:FuzzOpen:60000
FUZZ := $(foreach f,$(FUZZED),-- CGO_ENABLED=0 -tags=$(PURE) -run='^$$' -fuzz='^$(word 2,$(subst :, ,$(f)))$$' \
	-fuzztime=$(word 3,$(subst :, ,$(f)))x -fuzzminimizetime=10x ./$(firstword $(subst :, ,$(f))))

test: build vet axe
	@GO=$(GO) $(GO) run ./build/gotest $(GOTEST) -- $(TESTS)

# All lists run even after failures. -check adds the tests that -short leaves out.
check: build lint axe
	@GO=$(GO) $(GO) run ./build/gotest -check $(GOTEST) -- $(TESTS) -- $(RACE) $(RACED) $(FUZZ)

# With the tag all files are checked; `build` also compiles without it.
vet: deps
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt changes: $$unformatted"; exit 1; }
	@untagged=$$(grep -rlE --include='*.go' --exclude-dir=.deps '^//go:build.*!libtorch' .); test -z "$$untagged" || { echo "built only without libtorch, so not checked here: $$untagged"; exit 1; }
	$(GO) vet -tags $(TENSORS) ./...

lint: vet
	$(STATICCHECK) -tags $(TENSORS) ./...

# With npm, the browser test also checks the accessibility of pages.
axe:
	@command -v npm >/dev/null && $(PYTHON) build/fetch.py axe $(DEPS) || echo "no axe-core: the accessibility of pages is not checked"

PAGE ?= experiments/drills.html

images:
	REPORTS_SHOTS=$(abspath $(PAGE)) $(GO) test -count=1 -run TestScreenshots ./reports

browser: axe
	RCGRPO_PAGE=$(abspath $(PAGE)) $(GO) test -count=1 -run TestPageInABrowser -v ./reports

changes: build
	@mkdir -p out
	bin/rcgrpo report experiments/drills.hcl --bundle out/demo.tar.gz
	RCGRPO_BUNDLE=$(ROOT)/out/demo.tar.gz $(GO) test -count=1 -timeout 60m -run TestChangesOfABundle -v ./cmd/rcgrpo

bench: build
	bench/bfcl.sh
	bench/own_drills.sh
	bench/transformers.sh
	bench/update_torch.sh
	bench/hf_fixtures.sh
	bench/engine.sh
	bench/lm.sh
	bench/ranks.sh
	bench/remote.sh
	bench/serve.sh
	$(GO) test -run '^$$' -bench . -benchmem ./engine ./bfcl/... ./stages/rl ./stages/internal/token \
		./cmd/rcgrpo/internal/lsp
	$(GO) test -tags $(TENSORS) -run '^$$' -bench . -benchmem ./stages/internal/... ./stages/grpo

KILLS ?= 1000
RANK_KILLS ?= 100
SLURM_KILLS ?= 200

crash: build
	RCGRPO_CRASH=$(KILLS) $(GO) test -count=1 -timeout 60m -run TestKilledRunsConverge -v ./engine
	RCGRPO_CRASH=100 $(GO) test -count=1 -timeout 60m -run TestKilledCallsEndInTheSameScores -v ./stages
	RCGRPO_CRASH=1000 $(GO) test -count=1 -timeout 60m -run TestFaultsOf -v ./stages/internal/environment ./stages/internal/agent
	RCGRPO_CRASH=100 $(GO) test -tags $(TENSORS) -count=1 -timeout 60m -run TestKilledTrainingEndsInTheSameBytes -v ./stages
	RCGRPO_CRASH=$(RANK_KILLS) $(GO) test -tags $(TENSORS) -count=1 -timeout 120m -run TestKilledRanksEndInTheSameBytes -v ./stages
	SLURM_KILLS=$(SLURM_KILLS) SLURM_STAGES=1000 $(GO) test -count=1 -timeout 120m -v ./engine/slurm

env: deps
	@echo "export CGO_CXXFLAGS='$(CGO_CXXFLAGS)'"
	@echo "export CGO_LDFLAGS='$(CGO_LDFLAGS)'"
	@echo "export BFCL_DATA='$(BFCL_DATA)'"

clean:
	rm -rf bin out

deps: $(EMPTY)
	@$(if $(filter $(DEPS)/libtorch,$(LIBTORCH)),$(PYTHON) build/fetch.py libtorch $(DEPS) 1>&2,test -e $(LIBTORCH)/lib/libtorch_cpu.so || { echo "LIBTORCH=$(LIBTORCH) has no lib/libtorch_cpu.so" 1>&2; exit 1; })
	@$(PYTHON) build/fetch.py bfcl $(DEPS) 1>&2

$(EMPTY):
	@mkdir -p $(EMPTY).part && for a in $(ARCHIVES); do ar rcs $(EMPTY).part/lib$$a.a; done && mv $(EMPTY).part $(EMPTY)
