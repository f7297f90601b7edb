# agentbox: `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.ONESHELL:
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := help

# One set of flags everywhere: another one recompiles gVisor (3 CPU minutes).
export CGO_ENABLED := 0
export GOFLAGS := -trimpath -buildvcs=false
export GOTOOLCHAIN ?= auto
# Where Debian packages for images come from; empty: the host's own apt sources.
export MIRROR ?=

GOARCH_NATIVE = $(shell go env GOARCH)
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# Names the sources of the guest agent. It is no version of agentbox: images are
# keyed by the agent's content, and each commit would have them laid out anew.
GUEST_BUILD = $(shell go list -deps -f '{{if not .Standard}}{{$$d := .Dir}}{{range .GoFiles}}{{$$d}}/{{.}} {{end}}{{end}}' ./cmd/agentbox-guest | xargs cat | sha256sum | cut -c1-12)
EMBED := internal/programs/embedded
GO_SOURCES = $(shell find cmd internal images -name '*.go' -not -path '*/embedded/*' 2>/dev/null) go.mod go.sum

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  \033[1m%-14s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Everyday

.PHONY: setup
setup: ## Install what building and running need (Debian packages, Go); says what it does
	@scripts/setup.sh

.PHONY: run
run: ## Set up, build, make the default image, take a tour of real jobs and serve until Ctrl-C (SERVE=no: only the tour)
	@scripts/setup.sh
	. scripts/env.sh
	$(MAKE) --no-print-directory build
	scripts/tour.sh
	exec scripts/serve.sh

.PHONY: test
test: ## Set up, build, and run every check that a change must pass
	@scripts/setup.sh --test
	. scripts/env.sh
	$(MAKE) --no-print-directory build
	scripts/test.sh

.PHONY: build
build: bin/agentbox ## Build bin/agentbox, one static file

##@ Building blocks

bin/agentbox-engine: $(GO_SOURCES)
	@echo "building $@ (the first time compiles gVisor: some minutes)"
	go build -ldflags "-s -w" -o $@ ./cmd/agentbox-engine

bin/agentbox-guest: $(GO_SOURCES)
	@echo "building $@"
	go build -ldflags "-s -w -X main.build=$(GUEST_BUILD)" -o $@ ./cmd/agentbox-guest

# The two programs, compressed, as the embed build tag wants them.
$(EMBED)/%.zst: bin/%
	@mkdir -p $(EMBED)
	zstd -q -f -12 --long=27 -T0 -o $@ $<
	sha256sum <$< | cut -c1-16 >$(EMBED)/$*.id

bin/agentbox: $(GO_SOURCES) $(EMBED)/agentbox-engine.zst $(EMBED)/agentbox-guest.zst
	@echo "building $@"
	go build -tags embed -ldflags "-s -w -X agentbox/internal/cli.version=$(VERSION)" -o $@ ./cmd/agentbox

.PHONY: cross
cross: ## Compile for linux/arm64 and, client only, for darwin
	GOOS=linux GOARCH=arm64 go build -o /dev/null ./cmd/agentbox
	GOOS=linux GOARCH=arm64 go build -o /dev/null ./cmd/agentbox-guest
	GOOS=linux GOARCH=arm64 go build -o /dev/null ./cmd/agentbox-engine
	GOOS=darwin GOARCH=arm64 go build -o /dev/null ./cmd/agentbox

.PHONY: proto
proto: ## Generate internal/gen and the stubs of sdk/python from proto/ (needs protobuf-compiler)
	GOBIN=$(CURDIR)/bin go install google.golang.org/protobuf/cmd/protoc-gen-go connectrpc.com/connect/v2/cmd/protoc-gen-connect-go
	PATH="$(CURDIR)/bin:$$PATH" protoc -I proto --go_out=. --go_opt=module=agentbox proto/agentbox/guest/v1/*.proto
	PATH="$(CURDIR)/bin:$$PATH" protoc -I proto $(foreach p,go connect-go,--$(p)_out=. --$(p)_opt=module=agentbox,Msandbox/v1/sandbox.proto='agentbox/internal/gen/sandbox/v1;sandboxv1') proto/sandbox/v1/*.proto proto/grpc/health/v1/*.proto
	scripts/proto/python.sh

.PHONY: reference
reference: ## Write docs/CONFIG.md and docs/openapi.json anew, after a change of what they say
	go test ./internal/config ./internal/server/rest -run IsCurrent -update

.PHONY: example-python
example-python: ## Run the Python example of gRPC with the server at localhost:50051 (bin/agentbox serve --no-auth)
	scripts/example.sh

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin dist $(EMBED)/*.zst $(EMBED)/*.id

##@ Longer checks

.PHONY: lint
lint: ## golangci-lint, with the tools of tools/go.mod
	go tool -modfile=tools/go.mod golangci-lint run ./...

.PHONY: bench
bench: build ## Measure create, exec, memory and throughput, beside Docker and mkfs.erofs where they are
	scripts/bench.sh

.PHONY: fuzz
fuzz: ## Fuzz every target for 10 minutes (FUZZTIME=…, TARGET=Fuzz…)
	scripts/fuzz.sh $${FUZZTIME:-10m} $${TARGET:-}

.PHONY: test-compat
test-compat: build ## Run all test suites of real programs in sandboxes (resumable)
	scripts/compat.sh full

.PHONY: soak
soak: build ## Long cycles with kills at random moments; reports what is left behind
	scripts/soak.sh

.PHONY: chaos
chaos: build ## Kill the server and what runs at random moments, and at each failpoint (KILLS=300; resumable)
	scripts/chaos.sh

.PHONY: test-api
test-api: build ## Requests made from the OpenAPI document, sent to a real server (CASES=10000)
	scripts/api.sh $${CASES:-10000}

.PHONY: test-recipes
test-recipes: build ## The recipes for agent frameworks, with a model that plays a script (installs the frameworks)
	scripts/recipes.sh

.PHONY: test-cgroup2
test-cgroup2: build ## On a host with cgroup v2: limits as root and as an ordinary user, project quotas
	go test -c -o bin/cgroup.test ./internal/cgroup
	go test -c -o bin/volume.test ./internal/volume
	go test -c -o bin/e2e.test ./internal/e2e
	scripts/cgroup2.sh
