# make help lists the targets. Everything runs from the repository's root.
#
# Tools are pinned, each in a module of its own, in .tools/*/go.mod: they are built when
# first used and kept in Go's build cache, so there is nothing to install, and no tool in
# PATH that differs between machines. A single module would have to make their requirements
# agree, and each would be built from versions that its authors never tested.

.DEFAULT_GOAL := help

GO            ?= go
tool           = $(GO) tool -modfile=.tools/$(1)/go.mod $(1)
BUF            = $(call tool,buf)
SQLC           = $(call tool,sqlc)
GOLANGCI_LINT  = $(call tool,golangci-lint)
BENCHSTAT      = $(call tool,benchstat)
HELM           = $(call tool,helm)

folders = sed 's|/[^/]*$$||' | sort -u

# Modules of our own below the root: they keep heavy dependencies of tests and
# benchmarks out of the module that people import.
MODULES = $(shell git ls-files --cached --others --exclude-standard '*/go.mod' | \
	grep -v '^\.tools/' | $(folders))

# This module only pins a rival's program, and has nothing to test.
TESTED = $(filter-out dataplane/benchmarks/ratelimit,$(MODULES))

# The race detector slows a test down about tenfold. Tests that work on a single goroutine,
# count allocations or need full speed run without it: .ci/unraced lists them.
UNRACED = .ci/unraced

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

.PHONY: setup
setup: ## Install what the tests need: MariaDB, MySQL, Redis, Valkey, Restate, client packages, Chromium
	sh deploy/install/deps.sh

.PHONY: build
build: ## Build every binary into bin/
	$(GO) build -o bin/ ./dataplane/cmd/... ./controlplane/cmd/...
	$(GO) build -o bin/weir-local ./deploy/local

# Building keeps the processors busy and installing the network and the disk.
.PHONY: run
run: ## Run everything on this machine: two regions, real servers (ARGS=...)
	@$(MAKE) --no-print-directory -j2 build servers
	exec ./bin/weir-local $(ARGS)

.PHONY: servers
servers:
	sh deploy/install/deps.sh --run

.PHONY: first-run
first-run: setup ## Time a new user's first decision and first rollout, on a bare Debian (root, mmdebstrap)
	bash deploy/firstrun/run.sh $(ARGS)

# Many tests wait for servers, schedules and timeouts, so one more test runs at a time than
# there are cores. Packages begin in the given order. The packages that take longest come
# first, because otherwise one of them would end alone.
AT_ONCE := $(shell expr 1 + $$(getconf _NPROCESSORS_ONLN))
LONGEST  = ./restate/handlers ./dataplane ./dataplane/mysqlcounts ./schema ./deploy/scale ./dataplane/sim

# These prove how regions behave while some part is slow or gone. On a machine that is busy
# with other packages all parts are slow.
ALONE = ./deploy/faults

# Tests of SQL run on MariaDB and on MySQL, and tests of whole systems on one of them. The
# commit's hash chooses, so that a failure repeats. SQL=mariadb, mysql or both overrides it.
SQL ?= $(if $(filter %0 %2 %4 %6 %8 %a %c %e,$(shell git rev-parse HEAD)),mariadb,mysql)

# make test and make soak play histories of drawn faults from a seed that the commit's hash gives, so that each commit
# plays other histories, and a failure repeats. make test plays a fixed number of them, and make soak as many as an hour
# allows. make test draws the values of property tests from the same seed.
HUNT_FROM ?= $(shell printf '%d' 0x$$(git rev-parse HEAD | cut -c1-8))

# Tests that need a Redis use the system's, Valkey 9 and Redis 8 by turns: the name of a test decides together with
# the same number. REDIS=redis, valkey or redis8 overrides it.
REDIS ?= $(HUNT_FROM)

.PHONY: hunt
hunt: ## Search histories of drawn faults for a broken invariant (ARGS=...)
	$(GO) -C dataplane/hunt run . $(ARGS)

.PHONY: hunt-proof
hunt-proof: ## Hunt for each planted bug; a bug that is not found is a failure
	$(GO) -C dataplane/hunt run . --planted planted --seeds 2000 $(ARGS)

# Every test once under the race detector or, if .ci/unraced lists it, without it; some with both. Then
# the whole system. Each of its tests starts all the processes; two packages at a time find room.
# Modules below deploy/ read files outside of themselves, which Go's cache does not track.
.PHONY: test
test: setup ## Run every test; a skipped test is a failure
	$(GO) vet ./...
	@$(UNRACED) alone >/dev/null
	@echo "whole systems run on $(SQL) (SQL=mariadb, mysql or both to choose)"
	@echo "turn $(REDIS) of Redis, Valkey 9 and Redis 8 (REDIS=redis, valkey or redis8 to choose)"
	WEIR_LONG=1 WEIR_HUNT_FROM=$(HUNT_FROM) RAPID_SEED=$(HUNT_FROM) WEIR_SQL_TURN=$(SQL) WEIR_REDIS=$(REDIS) GO="$(GO)" .ci/test \
	  -- -race -vet=off -skip "$$($(UNRACED) alone)" -p $(AT_ONCE) -parallel $(AT_ONCE) -timeout 30m $(LONGEST) $$($(GO) list ./... | grep -v -e /deploy/e2e -e /deploy/faults) \
	  -- -race -vet=off -parallel $(AT_ONCE) -timeout 30m $(ALONE) \
	  -- -vet=off -run "$$($(UNRACED) tests)" -timeout 15m $$($(UNRACED) packages) \
	  $(foreach module,$(TESTED),-- -C $(module) $(if $(filter deploy/%,$(module)),-count=1) -timeout 20m ./...) \
	  -- -count=1 -p 2 -vet=off -timeout 15m ./deploy/e2e/...

.PHONY: soak
soak: setup ## Run the long forms of tests, on both databases (one takes an hour)
	WEIR_SOAK=1 WEIR_SQL_TURN=both WEIR_REDIS=$(REDIS) GO="$(GO)" .ci/test -- -run Soak -count=1 -p 1 -timeout 180m ./...
	$(GO) -C dataplane/hunt run . --seeds 0 --for 1h --from $(HUNT_FROM)

# One run for a look. To compare: make bench COUNT=10, keep out/bench.txt as a.txt,
# change something, make bench COUNT=10 BASE=a.txt. Modules under dataplane/ are the
# rivals.
BENCH ?= .
COUNT ?= 1
.PHONY: bench
bench: ## Run the benchmarks (BENCH=regexp COUNT=n BASE=file-to-compare-with)
	mkdir -p out
	for module in . $(filter dataplane/%,$(MODULES)); do \
	  case $$module in .) packages="./dataplane/... ./deploy/scale" ;; *) packages=./... ;; esac; \
	  $(GO) test -C $$module -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) $$packages || exit; \
	done >out/bench.txt || { cat out/bench.txt; exit 1; }
	$(BENCHSTAT) $(BASE) out/bench.txt

.PHONY: bench-node
bench-node: ## Measure a server's CPU a decision, by each way into weir-node (ARGS=...)
	$(GO) -C dataplane/benchmarks/node run . $(ARGS)

# sqlc leaves the output of a removed statement file behind, so its folder is emptied
# first, once the statements are known to compile.
.PHONY: generate
generate: ## Write shared/gen from schema/, queries/, shared/proto/ and the programs that draw and list
	$(SQLC) compile
	rm -rf shared/gen/sql
	$(SQLC) generate
	$(BUF) generate shared/proto --template shared/proto/buf.gen.yaml --output shared/gen/proto --exclude-path shared/proto/weir/relay --exclude-path shared/proto/kuadrant --exclude-path shared/proto/envoy
	$(BUF) generate shared/proto --template shared/proto/buf.gen.grpc.yaml --output shared/gen/proto --path shared/proto/weir/relay --path shared/proto/kuadrant
	$(BUF) generate shared/proto --template shared/proto/buf.gen.openapi.node.yaml --output shared/gen/openapi --path shared/proto/weir/v1
	$(BUF) generate shared/proto --template shared/proto/buf.gen.openapi.control.yaml --output shared/gen/openapi --path shared/proto/weir/control
	mkdir -p shared/gen/pictures shared/gen/reference
	$(GO) run ./dataplane/guides/draw shared/gen/pictures
	$(GO) run ./deploy/reference shared/gen/reference

.PHONY: verify
verify: generate ## Check that committed files are generated, formatted, tidy and vetted
	GO='$(GO)' MODULES='$(MODULES)' sh .ci/verify

# Released names must stay on the wire; before the first release there is nothing to
# compare with.
.PHONY: lint
lint: ## Run the linters (.golangci.yml, shared/proto/buf.yaml, shared/words)
	$(BUF) lint shared/proto
	@release=$$(git describe --tags --abbrev=0 2>/dev/null) || exit 0; set -x; \
	$(BUF) breaking shared/proto --against ".git#tag=$$release,subdir=shared/proto"
	$(GOLANGCI_LINT) run --allow-parallel-runners ./...
	$(GO) run ./shared/words

.PHONY: words
words: ## Compare the language of comments and pages with its targets (ARGS='-worst 20')
	$(GO) run ./shared/words $(ARGS)

# Not in `make test`: Helm brings Kubernetes' whole client along, minutes to compile.
chart = deploy/kubernetes/weir
.PHONY: helm
helm: ## Lint the chart and render it with Helm itself, for every example
	set -e; for values in deploy/kubernetes/examples/*.yaml; do \
	  $(HELM) lint --strict --quiet $(chart) -f $$values; \
	  $(HELM) template eu $(chart) --namespace limits -f $$values >/dev/null; \
	done

.PHONY: images
images: ## Build the images and run their programs (root, buildah)
	sh deploy/docker/check.sh

.PHONY: release
release: ## Build a release into out/release: programs, checksums, bills of materials
	$(GO) run ./deploy/release

.PHONY: clean
clean: ## Remove build outputs; Go's caches stay
	rm -rf bin out
