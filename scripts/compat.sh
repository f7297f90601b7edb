#!/usr/bin/env bash
# Runs the test suites of real programs in sandboxes: scripts/compat.sh ci|full
# What has run is remembered in .cache/compat.json as long as the binary, the
# image and the driver are the same, so a run that was stopped goes on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/env.sh
mode=${1:?ci or full}
export AGENTBOX_TEST_DIR=${AGENTBOX_TEST_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/agentbox-test}
export AGENTBOX_BIN=$PWD/bin/agentbox AGENTBOX_TEST_STRICT=1
export AGENTBOX_COMPAT=$mode AGENTBOX_COMPAT_STATE=$PWD/.cache/compat.json
mkdir -p "$AGENTBOX_TEST_DIR" .cache
exec go test -count=1 -timeout 90m -v -run TestRealPrograms ./internal/e2e/compat
