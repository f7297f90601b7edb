#!/usr/bin/env bash
# The long runs: sandboxes through their lives again and again with kills at random
# moments, a million files, large transfers, hundreds of starts of interpreters. A
# step that passed is not run again for the same binary: scripts/soak.sh [again]
# AGENTBOX_SEED=N repeats the random choices of a run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/env.sh
export AGENTBOX_TEST_DIR=${AGENTBOX_TEST_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/agentbox-test}
export AGENTBOX_BIN=$PWD/bin/agentbox AGENTBOX_ENGINE=$PWD/bin/agentbox-engine AGENTBOX_GUEST=$PWD/bin/agentbox-guest
export AGENTBOX_TEST_STRICT=1 AGENTBOX_SOAK=1
mkdir -p "$AGENTBOX_TEST_DIR" .cache
binary=$(sha256sum bin/agentbox | cut -c1-16)
state=.cache/soak-$binary
if [ "${1:-}" = again ]; then rm -f "$state"; fi
touch "$state"

for image in small default; do
	bin/agentbox --data-dir "$AGENTBOX_TEST_DIR" images ls | grep -q "^$image " ||
		bin/agentbox --data-dir "$AGENTBOX_TEST_DIR" images build $image ${MIRROR:+--mirror "$MIRROR"}
done

step() {
	if grep -qxF "$1" "$state"; then
		echo "== $1: passed before"
		return
	fi
	echo "== $1"
	go test -count=1 -timeout 60m -v -run "^$2\$" "$3"
	echo "$1" >>"$state"
}
step "interpreters start 400 times" TestB237 ./internal/e2e
step "what the names of images promise" '(TestAliases|TestB259|TestB262)' ./internal/e2e
step "1,000,000 files" TestRES06_Million ./internal/e2e
step "an image of 1,000,000 files" TestMillionEntries ./internal/image
step "50 hosts killed at random moments" 'TestGuest$/^HostCrash' ./internal/runtime/gvisor
step "a slow watcher, 300,000 files" TestSlowWatcher ./internal/e2e
step "files of 4 GiB and more" TestLargeFiles ./internal/e2e
step "a directory of 100,000" TestManyEntries ./internal/e2e
step "outputs of 100,000 hostile files" TestFS10 ./internal/e2e
step "50 uploads of 100 MiB, cut" TestFS17 ./internal/e2e
step "3,000 reads of a file that is replaced" TestB120 ./internal/e2e
step "a minute of output that nobody reads" TestB124 ./internal/e2e
step "2 GiB to a reader of 10 MiB/s" TestB095 ./internal/e2e
step "4 x 1 GiB in and out at once" TestTransfersAtOnce ./internal/e2e
step "100 cycles of one process" TestCyclesOfOneProcess ./internal/e2e/soak
step "500 cycles, 50 killed" TestCycles ./internal/e2e/soak
step "chaos: 120 kills under load" TestChaos ./internal/e2e/soak
