#!/usr/bin/env bash
# Kills at random moments: of the server at mixed work (KILLS, default 300), of what
# takes part in a sandbox's life, and at each failpoint. A run that was interrupted
# goes on where it was, with the same seed, for the same binary:
# scripts/chaos.sh [again]; AGENTBOX_SEED=N repeats the random choices of a run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/env.sh
. scripts/long.sh
export AGENTBOX_CHAOS_KILLS=${KILLS:-300} AGENTBOX_CHAOS_STATE=$PWD/.cache/chaos-$binary
if [ "${1:-}" = again ]; then rm -f "$AGENTBOX_CHAOS_STATE"; fi
long_begin "chaos-steps-$binary" "${1:-}"

step "the daemon dies and fails at each failpoint" 'TestF20_.*' ./internal/e2e
step "ready with 20 sandboxes" TestF01 ./internal/e2e
step "$AGENTBOX_CHAOS_KILLS kills of the daemon at mixed work" TestServiceKills ./internal/e2e/soak
step "120 kills of sandboxes and their owners under load" TestChaos ./internal/e2e/soak
