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
bold='' plain=''
[ ! -t 1 ] || { bold=$'\033[1m' plain=$'\033[0m'; }
printf '\n%s# The server, until Ctrl-C; in another terminal: bin/agentbox create --name dev%s\n' "$bold" "$plain"
exec "${AGENTBOX_BIN:-bin/agentbox}" serve ${LISTEN:+--listen "$LISTEN"} "$@"
