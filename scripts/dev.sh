#!/usr/bin/env bash
# A server for development, in the foreground: without keys, on loopback, with the storage
# of tenants below ./data/tenants. `dev.sh proxy` also opens the egress proxy's listener on
# 127.0.0.1, with a signing key that everybody knows. Further arguments go to the server.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ "${1:-}" = proxy ]; then
	shift
	export PROXY_HOST=${PROXY_HOST:-127.0.0.1} PROXY_PORT=${PROXY_PORT:-15004} SIGNING_KEY=${SIGNING_KEY:-agentbox-development}
	echo "the egress proxy's listener: $PROXY_HOST:$PROXY_PORT, signing key $SIGNING_KEY (for development only)"
fi
export STORAGE_PATH=${STORAGE_PATH:-$PWD/data/tenants}
mkdir -p "$STORAGE_PATH"
exec "${AGENTBOX_BIN:-bin/agentbox}" serve --no-auth ${LISTEN:+--listen "$LISTEN"} "$@"
