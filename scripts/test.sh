#!/usr/bin/env bash
# Every check that a change must pass; `make test` runs it after the build.
#
# AGENTBOX_TEST_DIR holds the images that tests share (default
# ~/.cache/agentbox-test); it is filled on first use.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/env.sh
began=$SECONDS
step() { printf '\n\033[1m==> %s\033[0m (%ds)\n' "$*" $((SECONDS - began)); }

export AGENTBOX_TEST_DIR=${AGENTBOX_TEST_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/agentbox-test}
export AGENTBOX_BIN=$PWD/bin/agentbox AGENTBOX_ENGINE=$PWD/bin/agentbox-engine AGENTBOX_GUEST=$PWD/bin/agentbox-guest
# Tests that need a machine like this one fail rather than skip when it lacks something.
export AGENTBOX_TEST_STRICT=1
mkdir -p "$AGENTBOX_TEST_DIR"

step "go vet"
go vet ./...
(cd sdk/go && go vet ./...)
unformatted=$(gofmt -l cmd internal images sdk/go)
[ -z "$unformatted" ] || { echo "not formatted: $unformatted"; exit 1; }

step "compile for linux/arm64 and darwin"
make --no-print-directory cross

step "test images"
for image in small; do
	bin/agentbox --data-dir "$AGENTBOX_TEST_DIR" images build $image ${MIRROR:+--mirror "$MIRROR"}
done

# tests runs go test and shows failures, and skips with their reasons.
tests() { go test -v "$@" 2>&1 | awk -f scripts/tests.awk; }

# gVisor and what links it run without the race detector: instrumenting it takes
# longer than all the rest.
race=$(go list -f '{{.ImportPath}} {{join .Deps " "}}' ./... | grep -v -e gvisor.dev/ -e ^agentbox/internal/e2e | cut -d' ' -f1)
slow=$(go list -f '{{.ImportPath}} {{join .Deps " "}}' ./... | grep gvisor.dev/ | cut -d' ' -f1 | grep -v ^agentbox/internal/e2e)

step "short tests with the race detector"
CGO_ENABLED=1 tests -short -race -timeout 20m $race

step "fuzz targets, 10 s each"
scripts/fuzz.sh 10s

step "the back end's conformance"
tests -short -count=1 -timeout 20m $slow

step "end to end, with the real binary"
# One package at a time: they measure the machine.
tests -p 1 -count=1 -timeout 30m $(go list ./internal/e2e/... | grep -v /e2e/compat)

step "recipes for agent frameworks (the first time installs the frameworks)"
scripts/recipes.sh

step "requests made from the OpenAPI document (the first time installs Schemathesis)"
scripts/api.sh 1500

step "test suites of real programs (the first time makes their image: a minute or more)"
scripts/compat.sh ci
