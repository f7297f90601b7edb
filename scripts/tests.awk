# Reads what "go test -v" prints and keeps what is worth reading: failures with
# what they said, skips with their reasons, the head of a panic or of a report of
# the race detector, and the line of each package.
BEGIN { most = 60 } # lines of such a head: the reason and the first stacks
function flush_all(  t) { for (t in said) printf "%s", said[t]; split("", said) }
/^(panic:|fatal error:|SIGQUIT|WARNING: DATA RACE)/ && !crash { flush_all(); crash = $1; lines = 0 }
crash == "WARNING:" && /^==================$/ { crash = "" }
crash && /^(FAIL|ok  )\t/ { crash = ""; now = "" }
crash && !/^ *--- FAIL: / {
	if (/^=== (RUN|NAME|CONT|PAUSE) /) next
	if (++lines <= most) print
	if (lines == most + 1) print "... and so on"
	next
}
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
END { flush_all() }
