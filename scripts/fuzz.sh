#!/usr/bin/env bash
# Fuzzes every target, or TARGET alone, for TIME each: scripts/fuzz.sh TIME [TARGET]
# Inputs that fail are kept in testdata/fuzz of the package.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/env.sh
time=${1:?how long, such as 10s}
only=${2:-}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# fuzz runs one target. The tool itself sometimes ends with its own deadline as
# the failure when the time is up just then; an input that fails is always named.
fuzz() {
	go test -run '^$' -fuzz "^$1\$" -fuzztime "$time" -fuzzminimizetime 10x "$2" </dev/null 2>&1 | tee "$log" && return
	grep -q '^    context deadline exceeded$' "$log" && ! grep -qE 'Failing input|panic|hung|_test\.go:' "$log" || return 1
	echo "== $1: no input failed; the end of its time was taken for a failure"
}

grep -rl --include='*_test.go' '^func Fuzz' cmd internal | while read -r file; do
	sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file" | while read -r target; do
		[ -z "$only" ] || [ "$only" = "$target" ] || continue
		echo "== $target in $(dirname "$file") for $time"
		fuzz "$target" "./$(dirname "$file")"
	done
done
