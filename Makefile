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
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# Names the sources of the guest agent. It is no version of agentbox: images are
# keyed by the agent's content, and each commit would have them laid out anew.
GUEST_BUILD = $(shell go list -deps -f '{{if not .Standard}}{{$$d := .Dir}}{{range .GoFiles}}{{$$d}}/{{.}} {{end}}{{end}}' ./cmd/agentbox-guest | xargs cat | sha256sum | cut -c1-12)
EMBED := internal/programs/embedded
GO_SOURCES = $(shell find cmd internal images -name '*.go' -not -path '*/embedded/*' 2>/dev/null) go.mod go.sum

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  \033[1m%-17s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST)

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
cross: ## Compile for linux/arm64, the command line also for darwin, the Go client for 32 bits
	GOOS=linux GOARCH=arm64 go build -o /dev/null ./cmd/agentbox
	GOOS=linux GOARCH=arm64 go build -o /dev/null ./cmd/agentbox-guest
	GOOS=linux GOARCH=arm64 go build -o /dev/null ./cmd/agentbox-engine
	GOOS=darwin GOARCH=arm64 go build -o /dev/null ./cmd/agentbox
	cd sdk/go
	GOOS=linux GOARCH=arm go build ./...

.PHONY: proto
proto: ## Generate code from proto/: internal/gen, and the stubs of sdk/ (needs protobuf-compiler and npm)
	GOBIN=$(CURDIR)/bin go install google.golang.org/protobuf/cmd/protoc-gen-go connectrpc.com/connect/v2/cmd/protoc-gen-connect-go
	export PATH="$(CURDIR)/bin:$$PATH"
	protoc -I proto --go_out=. --go_opt=module=agentbox proto/agentbox/guest/v1/*.proto
	protoc -I proto $(call go_stubs,agentbox,internal/gen) proto/sandbox/v1/*.proto proto/grpc/health/v1/*.proto
	scripts/proto/python.sh
	npm --prefix sdk/typescript ci
	npm --prefix sdk/typescript run generate
	cd sdk/go && protoc -I ../../proto $(call go_stubs,agentbox/sdk/go,) ../../proto/sandbox/v1/*.proto

# go_stubs MODULE,DIRECTORY: messages and clients below a directory of a module.
go_stubs = $(foreach p,go connect-go,--$(p)_out=. --$(p)_opt=module=$(1),Msandbox/v1/sandbox.proto='$(1)$(if $(2),/$(2))/sandbox/v1;sandboxv1')

.PHONY: reference
reference: ## Write docs/CONFIG.md and docs/openapi.json anew, after a change of what they say
	go test ./internal/config ./internal/server/rest -run IsCurrent -update
	node sdk/typescript/scripts/types.mjs

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin dist $(EMBED)/*.zst $(EMBED)/*.id .cache/manual .cache/dist sdk/typescript/dist sdk/typescript/node_modules

##@ Clients and development

.PHONY: sync
sync: ## Install what the project and its clients depend on: Debian packages, Go modules, npm packages
	@scripts/setup.sh --test
	. scripts/env.sh
	go mod download
	go -C sdk/go mod download
	npm --prefix sdk/typescript ci --no-audit --no-fund

.PHONY: example-python
example-python: ## Run the Python example of gRPC with the server at localhost:50051 (bin/agentbox serve --no-auth)
	scripts/example.sh

.PHONY: build-sandbox
build-sandbox: build ## Make the default image of sandboxes, which sessions of gRPC have, too
	bin/agentbox images build default $${MIRROR:+--mirror "$$MIRROR"}

.PHONY: build-ts
build-ts: ## Build the client in TypeScript
	cd sdk/typescript
	npm ci --no-audit --no-fund
	npm run build

.PHONY: build-python
build-python: ## Build the client in Python: a wheel in dist/python
	python3 -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist/python sdk/python

.PHONY: test-ts
test-ts: build ## Build, pack and install the client in TypeScript; run its examples and tests, also in a browser
	$(CLIENT_TESTS) -run TypeScript ./internal/e2e

.PHONY: test-python
test-python: build ## Build the client in Python, install it in an empty environment and run its tests and examples there
	$(CLIENT_TESTS) -run 'TestPythonClient|_Python$$' ./internal/e2e

# Tests of clients, each with servers of their own and the images of make test.
CLIENT_TESTS = . scripts/env.sh; export AGENTBOX_TEST_DIR=$${AGENTBOX_TEST_DIR:-$${XDG_CACHE_HOME:-$$HOME/.cache}/agentbox-test}; \
	bin/agentbox --data-dir "$$AGENTBOX_TEST_DIR" images build small $${MIRROR:+--mirror "$$MIRROR"}; \
	AGENTBOX_BIN=$(CURDIR)/bin/agentbox AGENTBOX_ENGINE=$(CURDIR)/bin/agentbox-engine AGENTBOX_GUEST=$(CURDIR)/bin/agentbox-guest AGENTBOX_TEST_STRICT=1 go test -count=1 -timeout 20m -v

.PHONY: dev
dev: build ## A server for development: no keys, loopback, storage of tenants below ./data/tenants (LISTEN=127.0.0.1:9000)
	exec scripts/dev.sh

.PHONY: dev-proxy
dev-proxy: build ## The same with the egress proxy's listener on 127.0.0.1:15004 and a signing key for development
	exec scripts/dev.sh proxy

.PHONY: proxy
proxy: ## The egress proxy is part of the server: says how to have its listener
	@echo "There is no egress proxy to run alone: it judges connections by what the server knows of its"
	echo "sandboxes, and is part of it. make dev-proxy runs both; for a server of your own set PROXY_HOST"
	echo "(egress.proxy_host) and SIGNING_KEY: docs/OPERATIONS.md, docs/NETWORK.md."
	exit 1

.PHONY: test-integration
test-integration: build ## Tests of the clients in Go against a running server: AGENTBOX_URL, else one of their own
	scripts/with-server.sh go -C sdk/go test -count=1 ./...

.PHONY: example-go
example-go: build ## Run the examples of the client in Go
	scripts/with-server.sh go -C sdk/go run ./examples/quickstart
	scripts/with-server.sh sh -c 'go -C sdk/go run ./examples/session "$$AGENTBOX_URL"'

.PHONY: benchmark
benchmark: build ## Latency and memory of sessions over gRPC (FLAGS="--skip memory --max-concurrent 10"); the whole is make bench
	scripts/with-server.sh go -C sdk/go run ./examples/benchmark $${FLAGS:-}

.PHONY: install-gvisor
install-gvisor: build ## gVisor is built in: check that it works on this machine
	bin/agentbox doctor

##@ Releases

# Where make install puts things; DESTDIR goes before it, for packages.
export PREFIX ?= /usr/local
export DESTDIR ?=

.PHONY: install
install: build ## Install the program, units of systemd, completions and the manual (PREFIX=/usr/local, DESTDIR=)
	rm -rf .cache/manual
	go run ./internal/manual .cache/manual
	scripts/install.sh bin/agentbox .cache/manual

.PHONY: uninstall
uninstall: ## Remove what make install put there; data, settings and what runs stay
	scripts/install.sh --remove

.PHONY: dist
dist: ## Make dist/: programs for Linux (amd64, arm64) and macOS, Debian packages, SHA256SUMS (ARCHS=amd64 for one)
	VERSION='$(VERSION)' GUEST_BUILD='$(GUEST_BUILD)' scripts/dist.sh

##@ Longer checks

.PHONY: lint
lint: ## golangci-lint, with the tools of tools/go.mod
	go tool -modfile=tools/go.mod golangci-lint run ./...
	cd sdk/go
	go tool -modfile=../../tools/go.mod golangci-lint run --config ../../.golangci.yml ./...

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
