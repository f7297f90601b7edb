#!/usr/bin/env bash
# The long runs: sandboxes through their lives again and again with kills at random
# moments, a million files, large transfers, hundreds of starts of interpreters. A
# step that passed is not run again for the same binary: scripts/soak.sh [again]
# AGENTBOX_SEED=N repeats the random choices of a run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/env.sh
. scripts/long.sh
long_begin "soak-$binary" "${1:-}"

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
step "10,000 commands leave nothing in the daemon" TestMemoryOfManyCommands ./internal/e2e
step "100 clients on 20 sandboxes for a minute" TestManyClients ./internal/e2e
step "100 cycles of one process" TestCyclesOfOneProcess ./internal/e2e/soak
step "500 cycles, 50 killed" TestCycles ./internal/e2e/soak
step "100 clients on 20 sandboxes" TestServiceClients ./internal/e2e/soak
step "rows of the service at full size" 'TestB(010_Session|030_REST|048|074|076|080|083|084|163|167|179|180|200|252)' ./internal/e2e
step "2 GiB through REST to a reader of 10 MiB/s" TestB095_REST ./internal/e2e
step "what people do with a network" TestFlows ./internal/e2e
step "100,000 generated hosts: what policy and dialler make of them" TestVerdicts ./internal/egress/dial
step "1,000 connections of one sandbox at once" TestNET26_Flood ./internal/e2e
step "40 sandboxes with ports at once" TestB176 ./internal/e2e
step "100 kills during create, 100 during destroy" 'TestF0[34]' ./internal/e2e
step "200 creates over connections that break" TestF25 ./internal/e2e
step "1,000 lives of sandboxes for 4 clients" TestL01 ./internal/e2e
step "load on one daemon" 'TestL(05|07|09|16)' ./internal/e2e
step "20 minutes of mixed work, a kill every 2, beside 50 idle sandboxes for 10" 'TestL(03|15)' ./internal/e2e
