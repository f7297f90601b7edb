#!/usr/bin/env bash
# Fuzzes every target, or TARGET alone, for TIME each: scripts/fuzz.sh TIME [TARGET]
# Inputs that fail are kept in testdata/fuzz of the package.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/env.sh
time=${1:?how long, such as 10s}
only=${2:-}
grep -rl --include='*_test.go' '^func Fuzz' cmd internal | while read -r file; do
	sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$file" | while read -r target; do
		[ -z "$only" ] || [ "$only" = "$target" ] || continue
		echo "== $target in $(dirname "$file") for $time"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x "./$(dirname "$file")" </dev/null
	done
done
