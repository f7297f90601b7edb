#!/usr/bin/env bash
# What `make run` ends with: the server, in the foreground until a signal ends it,
# with a terminal and without. LISTEN=ADDRESS:PORT is another place for it, SERVE=no
# leaves it out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
case ${SERVE:-yes} in
no | 0 | false)
	exit 0
	;;
esac
printf '\n\033[1m# The server, until Ctrl-C; in another terminal: bin/agentbox create --name dev\033[0m\n'
exec "${AGENTBOX_BIN:-bin/agentbox}" serve ${LISTEN:+--listen "$LISTEN"} "$@"
