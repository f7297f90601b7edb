# Reads what "go test -v" prints and keeps what is worth reading: failures with
# what they said, skips with their reasons, and the line of each package.
function flush_all(  t) { for (t in said) printf "%s", said[t]; split("", said) }
raw { print; next }
/^(panic:|fatal error:|SIGQUIT|WARNING: DATA RACE)/ { flush_all(); raw = 1; print; next }
/^=== (RUN|NAME|CONT|PAUSE) / { now = $3; next }
/^ *--- (PASS|FAIL|SKIP): / {
	name = $3
	if ($2 == "FAIL:") printf "%s%s\n", said[name], $0
	if ($2 == "SKIP:") {
		reason = said[name]
		sub(/^ *[^ ]*: /, "", reason)
		gsub(/\n */, " ", reason)
		sub(/ +$/, "", reason)
		printf "skipped %s: %s\n", name, reason
	}
	delete said[name]
	next
}
/^    / && now != "" { said[now] = said[now] $0 "\n"; next }
/^PASS$/ { next }
/\[no test files\]$/ { next }
{ print; fflush() }
END { if (!raw) flush_all() }
