#!/usr/bin/env bash
# Installs a built agentbox: scripts/install.sh BINARY MANUAL, with the directory that
# internal/manual wrote. `make install` calls it; so does scripts/dist.sh for packages.
# scripts/install.sh --remove takes it all away again.
# PREFIX (default /usr/local) is where it will be, DESTDIR (default nothing) goes before
# it, for packages and tests. Nothing is enabled, started or overwritten in /etc.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")/..
prefix=${PREFIX:-/usr/local}
to=${DESTDIR:-}$prefix
zsh=$to/share/zsh/${ZSH_FUNCTIONS:-site-functions}/_agentbox

if [ "${1:-}" = --remove ]; then
	rm -f "$to/bin/agentbox" "$to"/lib/systemd/{system,user}/agentbox.service "$zsh" "$to"/share/man/man1/agentbox{,-*}.1.gz \
		"$to/share/bash-completion/completions/agentbox" "$to/share/fish/vendor_completions.d/agentbox.fish"
	exit 0
fi
binary=${1:?the program} manual=${2:?the directory of the manual}

# unit FILE DIRECTORY: a unit of systemd that calls the program where it will be.
unit() {
	install -d "$2"
	sed "s#^ExecStart=[^ ]*/agentbox #ExecStart=$prefix/bin/agentbox #" "$1" >"$2/agentbox.service"
	chmod 644 "$2/agentbox.service"
}

install -D -m 755 "$binary" "$to/bin/agentbox"
unit "$here/deploy/agentbox.service" "$to/lib/systemd/system"
unit "$here/deploy/agentbox.user.service" "$to/lib/systemd/user"
install -D -m 644 "$manual/agentbox.bash" "$to/share/bash-completion/completions/agentbox"
install -D -m 644 "$manual/_agentbox" "$zsh"
install -D -m 644 "$manual/agentbox.fish" "$to/share/fish/vendor_completions.d/agentbox.fish"
install -d "$to/share/man/man1"
for page in "$manual"/man1/*.1; do
	gzip -9nc "$page" >"$to/share/man/man1/$(basename "$page").gz"
	chmod 644 "$to/share/man/man1/$(basename "$page").gz"
done
