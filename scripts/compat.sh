#!/usr/bin/env bash
# Runs the test suites of real programs in sandboxes: scripts/compat.sh ci|full
# ci runs the short list, anew each time. full runs all, and remembers what has run
# in .cache/compat.json as long as the binary, the image and the driver are the
# same: a run that was stopped goes on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/env.sh
export AGENTBOX_COMPAT=${1:?ci or full} AGENTBOX_COMPAT_STATE=
export AGENTBOX_TEST_DIR=${AGENTBOX_TEST_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/agentbox-test}
export AGENTBOX_BIN=$PWD/bin/agentbox AGENTBOX_TEST_STRICT=1
mkdir -p "$AGENTBOX_TEST_DIR" .cache
verbose=()
if [ "$AGENTBOX_COMPAT" = full ]; then
	AGENTBOX_COMPAT_STATE=$PWD/.cache/compat.json
	verbose=(-v)
fi
exec go test -count=1 -timeout 90m "${verbose[@]}" ./internal/e2e/compat
