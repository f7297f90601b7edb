#!/usr/bin/env bash
# Fuzzes every target, or TARGET alone, for TIME each: scripts/fuzz.sh TIME [TARGET]
# As many at once as there are processors, each with one worker; TARGET has them
# all. Inputs that fail are kept in testdata/fuzz of the package.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/env.sh
time=${1:?how long, such as 10s}
only=${2:-}
at_once=$(nproc) workers=1
[ -z "$only" ] || { workers=$at_once at_once=1; }

# fuzz runs one target and says how far it came: on a busy machine that may be
# within the inputs that were there, before any of its own. The tool itself sometimes ends
# with its own deadline as the failure when the time is up just then; an input
# that fails is always named.
fuzz() {
	local target=$1 dir=$2 log count status=ok
	log=$(mktemp)
	if ! go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x -parallel "$workers" "./$dir" </dev/null >"$log" 2>&1; then
		grep -q '^    context deadline exceeded$' "$log" && ! grep -qE 'Failing input|panic|hung|_test\.go:' "$log" || status=FAIL
	fi
	[ $status = ok ] || cat "$log"
	count=$(sed -n 's/^fuzz: elapsed: [^,]*, \(.*\)/\1/p' "$log" | tail -1)
	case $count in
	gathering*) count="no new inputs in this time ($count)" ;;
	'') count="no count" ;;
	esac
	printf '%s\t%s in %s for %s: %s\n' $status "$target" "$dir" "$time" "$count"
	rm -f "$log"
	[ $status = ok ]
}
export -f fuzz
export time workers

targets=$(grep -rlE --include='*_test.go' '^func Fuzz' cmd internal | while read -r file; do
	sed -n "s#^func \(Fuzz[A-Za-z0-9_]*\)(.*#\1 $(dirname "$file")#p" "$file"
done | { [ -z "$only" ] && cat || grep "^$only "; }) || { echo "fuzz: there is no target $only" >&2; exit 2; }
xargs -P "$at_once" -L 1 bash -c 'fuzz "$0" "$1"' <<<"$targets"
