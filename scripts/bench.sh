#!/usr/bin/env bash
# Measures what sandboxes cost, beside Docker and runc where there is a Docker
# engine, and making root file systems beside mkfs.erofs; the table also goes to
# .cache/bench.json. Run it on a quiet machine.
# BENCH_FLAGS=-quick takes few samples, BENCH_FLAGS="-only files" one part.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/env.sh
dir=${AGENTBOX_TEST_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/agentbox-test}
mkdir -p "$dir" .cache
bin/agentbox --data-dir "$dir" images ls | grep -q '^small ' ||
	bin/agentbox --data-dir "$dir" images build small ${MIRROR:+--mirror "$MIRROR"}
go build -tags embed -o bin/bench ./internal/bench
bin/bench -data-dir "$dir" -image small -json .cache/bench.json ${BENCH_FLAGS:-}
