#!/usr/bin/env bash
# A short tour of real jobs in sandboxes, which `make run` takes before it serves.
# Each step prints the command it runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
box=bin/agentbox
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

bold='' dim='' plain=''
[ ! -t 1 ] || { bold=$'\033[1m' dim=$'\033[2m' plain=$'\033[0m'; }
step() { printf '\n%s# %s%s\n' "$bold" "$*" "$plain"; }
show() {
	local word line=
	for word in "$@"; do
		case $word in
		'' | *[!a-zA-Z0-9_./:=@%+,-]*) word="'${word//\'/\'\\\'\'}'" ;; # as people write it
		esac
		line+=" $word"
	done
	printf '%s$%s%s\n' "$dim" "$line" "$plain"
	"$@"
}

step "The default image: made once, from Debian packages"
if ! $box images ls | grep -q '^default '; then
	show $box images build default ${MIRROR:+--mirror "$MIRROR"}
fi
show $box images ls

step "A program in a fresh sandbox"
show $box run -- python3 -c 'print(6*7)'

step "Another kernel: gVisor, not the host's"
show $box run -- sh -c 'uname -a; dmesg | head -n 3'

step "Input goes in"
printf '%s$ echo hi | %s run -i -- cat%s\n' "$dim" "$box" "$plain"
echo hi | $box run -i -- cat

step "A C program: copied in, built and run; its results are collected"
cat >"$dir/primes.c" <<'C'
#include <stdio.h>
int main(void) {
	int n = 0;
	for (int i = 2; n < 10000; i++) {
		int p = 1;
		for (int d = 2; d * d <= i && p; d++) p = i % d != 0;
		if (p && ++n == 10000) printf("the 10000th prime is %d\n", i);
	}
}
C
show $box run --copy "$dir/primes.c:/workspace/primes.c" --output-dir "$dir/out" -- \
	sh -c 'cc -O2 -o primes primes.c && ./primes | tee /mnt/user-data/outputs/answer.txt'
show cat "$dir/out/answer.txt"

step "Limits hold: time"
show $box run --timeout 1s -- sleep 60 || echo "exit status $?"

step "Limits hold: memory"
show $box run --memory 256m -- python3 -c 'b = bytearray(10**9)' || echo "exit status $?"

step "Limits hold: a fork bomb is turned away, the sandbox goes on"
show $box run --timeout 1m --pids 64 -- bash -c 'for i in $(seq 100); do sleep 3 & done 2>&1 | head -n 1; echo still here'

step "No network in the sandbox"
show $box run -- python3 -c '
import socket
try:
    socket.create_connection(("192.0.2.1", 80), timeout=3)
    print("connected?!")
except OSError as e:
    print("no way out:", e)'

step "The verdict, for programs"
show $box run --json -- sh -c 'echo out; echo err >&2; exit 3' || echo "exit status $?"

printf '\nNext: %s run -it for a shell, %s doctor for what this machine can do, %s --help.\n' "$box" "$box" "$box"
