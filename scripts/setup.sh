#!/usr/bin/env bash
# Installs what building and running agentbox need on a fresh Debian machine:
# packages, and a Go toolchain that is new enough. Prints each thing it does; does
# nothing that is done already. With --test also what only tests need.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\033[1m==>\033[0m %s\n' "$*"; }
die() {
	printf 'setup: %s\n' "$1" >&2
	shift
	for line in "$@"; do printf '    %s\n' "$line" >&2; done
	exit 1
}

[ "$(uname -s)" = Linux ] || die "sandboxes run on Linux only; on this machine build the client:" "go build ./cmd/agentbox"

sudo=""
[ "$(id -u)" = 0 ] || sudo="sudo"

# need COMMAND=PACKAGE… : installs the packages whose command is missing.
need() {
	local missing=() pair
	for pair in "$@"; do
		command -v "${pair%%=*}" >/dev/null || [ -x "/usr/sbin/${pair%%=*}" ] || missing+=("${pair##*=}")
	done
	[ ${#missing[@]} -gt 0 ] || return 0
	command -v apt-get >/dev/null || die "these programs are missing and there is no apt-get to install them:" "${missing[*]}"
	if [ -n "$sudo" ] && ! command -v sudo >/dev/null; then
		die "packages are missing; run as root:" "apt-get install -y ${missing[*]}"
	fi
	say "installing Debian packages: ${missing[*]}"
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq update
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}" >/dev/null ||
		die "apt-get could not install them; run it by hand and read what it says:" "$sudo apt-get install ${missing[*]}"
}

# version_ge A B: A >= B, as dotted numbers.
version_ge() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n1)" = "$2" ]; }

go_version() { "$1" env GOVERSION 2>/dev/null | sed -n 's/^go\([0-9.]*\).*/\1/p'; }

# ensure_go leaves the directory of a fitting toolchain in .cache/goroot (empty:
# the one on PATH fits).
ensure_go() {
	local want have go
	want=$(sed -n 's/^go //p' go.mod)
	mkdir -p .cache
	for go in go /usr/local/go/bin/go; do
		command -v "$go" >/dev/null || continue
		have=$(GOTOOLCHAIN=local go_version "$go")
		if [ -n "$have" ] && version_ge "$have" "$want"; then
			if [ "$go" = go ]; then : >.cache/goroot; else echo /usr/local/go >.cache/goroot; fi
			return
		fi
	done
	if [ -s .cache/goroot ] && version_ge "$(go_version "$(cat .cache/goroot)/bin/go")" "$want"; then
		return
	fi
	need go=golang-go
	fetch_go "$want"
}

# fetch_go gets the toolchain as the module it is published as; any Go can.
fetch_go() {
	local arch mod dir out
	arch=$(dpkg --print-architecture)
	mod="golang.org/toolchain@v0.0.1-go$1.linux-$arch"
	say "fetching Go $1 through the Go module proxy (Debian's is older)"
	dir=$(mktemp -d)
	out=$(cd "$dir" && GO111MODULE=on GOTOOLCHAIN=local GOFLAGS=-modcacherw go mod download -json "$mod" 2>&1) || true
	rmdir "$dir"
	dir=$(sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p' <<<"$out")
	[ -n "$dir" ] && [ -f "$dir/bin/go" ] ||
		die "could not fetch Go $1 ($(sed -n 's/^\t"Error": "\(.*\)",*$/\1/p' <<<"$out")). Make this command work, then run make again:" \
			"cd / && GO111MODULE=on GOTOOLCHAIN=local GOFLAGS=-modcacherw go mod download -json $mod" \
			"(go env GOPROXY says where it looks; behind a proxy set HTTPS_PROXY, or GOPROXY to a mirror of Go modules)" \
			"or install Go $1 or newer by hand and put it on PATH"
	chmod -R u+w "$dir"
	chmod +x "$dir"/bin/* "$dir"/pkg/tool/*/*
	echo "$dir" >.cache/goroot
}

need make=make git=git zstd=zstd mmdebstrap=mmdebstrap gpg=gpg gpgv=gpgv
[ -e /etc/ssl/certs/ca-certificates.crt ] || { say "installing Debian packages: ca-certificates"; $sudo apt-get -qq install -y ca-certificates >/dev/null; }
if [ "$(id -u)" != 0 ]; then need newuidmap=uidmap; fi
if [ "${1:-}" = --test ]; then
	need gcc=gcc fsck.erofs=erofs-utils dockerd=docker.io skopeo=skopeo
	[ -e /usr/include/stdlib.h ] || need cc=build-essential missing-libc-headers=libc6-dev
	need node=nodejs npm=npm chromium=chromium
	python3 -c 'import ensurepip' 2>/dev/null || need missing-venv=python3-venv
fi
ensure_go
