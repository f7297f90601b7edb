#!/usr/bin/env bash
# Runs a command as a client of a server: the one that AGENTBOX_URL names, else one of
# its own, without keys and on loopback, that ends with it and leaves nothing behind:
#
#	scripts/with-server.sh COMMAND [ARG…]
#
# The command has AGENTBOX_URL and, for the server of its own, AGENTBOX_GRPC_URL.
# IMAGE (default small) is what sandboxes are made of.
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: with-server.sh COMMAND [ARG…]" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ -n "${AGENTBOX_URL:-}" ]; then
	exec "$@"
fi
agentbox=${AGENTBOX_BIN:-$here/bin/agentbox} image=${IMAGE:-small}
images=${AGENTBOX_TEST_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/agentbox-test}
if ! "$agentbox" --data-dir "$images" images inspect "$image" >/dev/null 2>&1; then
	"$agentbox" --data-dir "$images" images build "$image" ${MIRROR:+--mirror "$MIRROR"} >&2
fi
# Short: paths of sockets below it are limited.
dir=$(mktemp -d "${TMPDIR:-/tmp}/ab.XXXXXX")
chmod 711 "$dir"
for shared in images engine guest; do
	mkdir -p "$images/$shared"
	ln -s "$images/$shared" "$dir/$shared"
done
server='' status=0
end() {
	if [ -n "$server" ]; then
		kill "$server" 2>/dev/null || true
		wait "$server" || true
	fi
	rm -rf "$dir"
}
trap end EXIT
mkfifo "$dir/says"
env -u AGENTBOX_API_KEY "$agentbox" serve --no-auth --ephemeral --listen 127.0.0.1:0 --grpc-listen 127.0.0.1:0 --data-dir "$dir" \
	--sandbox-image "$image" --grpc-image "$image" >"$dir/says" 2>"$dir/log" &
server=$!
while read -r line; do
	[[ $line =~ serves\ (http://[^ ]+) ]] && AGENTBOX_URL=${BASH_REMATCH[1]}
	[[ $line == try:* ]] && break
done <"$dir/says"
[ -n "${AGENTBOX_URL:-}" ] || { cat "$dir/log" >&2; exit 1; }
export AGENTBOX_URL AGENTBOX_GRPC_URL=$AGENTBOX_URL
"$@" || status=$?
exit $status
