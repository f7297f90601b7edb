#!/usr/bin/env bash
# Makes dist/ anew: programs for linux/amd64 and linux/arm64, clients for darwin, Debian
# packages, and SHA256SUMS. `make dist` calls it with VERSION and GUEST_BUILD. The same
# source gives the same bytes, with the same Go, zstd and dpkg: times are those of
# SOURCE_DATE_EPOCH (default: of the commit). Another architecture compiles gVisor anew.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/env.sh
: "${VERSION:?}" "${GUEST_BUILD:?}"
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)} LC_ALL=C TZ=UTC
umask 022
for tool in zstd dpkg-deb; do
	command -v $tool >/dev/null || { echo "dist: $tool is missing: apt-get install ${tool/-deb/}" >&2; exit 1; }
done
dist=$PWD/dist work=$PWD/.cache/dist embed=$PWD/internal/programs/embedded
rm -rf "$dist" "$work"
mkdir -p "$dist" "$work"
say() { printf '\033[1m==>\033[0m %s\n' "$*"; }

# A version of Debian's begins with a digit; one that is none sorts before all that are,
# and what comes before a release (1.0.0-rc1) before it.
debversion=${VERSION#v}
debversion=${debversion/-rc/\~rc}
[[ $debversion == [0-9]*.* ]] || debversion=0~$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S).$debversion
debversion=${debversion//-/+}

# program OS ARCH OUTPUT [FLAGS…]
program() {
	local os=$1 arch=$2 output=$3
	shift 3
	GOOS=$os GOARCH=$arch go build "$@" -o "$output" ./cmd/agentbox
}
link="-s -w -X agentbox/internal/cli.version=$VERSION"

# linux ARCH: the program with its two others in it.
linux() {
	local arch=$1 dir=$work/$1 name
	mkdir -p "$dir"
	GOOS=linux GOARCH=$arch go build -ldflags "-s -w" -o "$dir/agentbox-engine" ./cmd/agentbox-engine
	GOOS=linux GOARCH=$arch go build -ldflags "-s -w -X main.build=$GUEST_BUILD" -o "$dir/agentbox-guest" ./cmd/agentbox-guest
	for name in agentbox-engine agentbox-guest; do
		zstd -q -f -12 --long=27 -T2 -o "$dir/$name.zst" "$dir/$name"
		sha256sum <"$dir/$name" | cut -c1-16 >"$dir/$name.id"
	done
	# In place of those that a build for this machine left.
	printf '{"Replace": {%s}}\n' "$(for name in agentbox-engine agentbox-guest; do
		printf '"%s": "%s", ' "$embed/$name.zst" "$dir/$name.zst" "$embed/$name.id" "$dir/$name.id"
	done | sed 's/, $//')" >"$dir/overlay.json"
	program linux "$arch" "$dist/agentbox-linux-$arch" -tags embed -overlay "$dir/overlay.json" -ldflags "$link"
}

# deb ARCH: what the package has, where Debian has such things.
deb() {
	local arch=$1 root=$work/deb-$1 share
	share=$root/usr/share/doc/agentbox
	DESTDIR=$root PREFIX=/usr ZSH_FUNCTIONS=vendor-completions scripts/install.sh "$dist/agentbox-linux-$arch" "$work/manual"
	install -D -m 644 deploy/config.toml "$root/etc/agentbox/config.toml"
	install -D -m 644 LICENSE "$share/copyright"
	gzip -9nc CHANGELOG.md >"$share/changelog.gz"
	install -d "$root/DEBIAN"
	install -m 755 deploy/debian/postinst deploy/debian/prerm deploy/debian/postrm "$root/DEBIAN"
	echo /etc/agentbox/config.toml >"$root/DEBIAN/conffiles"
	(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
	sed -e "s/@VERSION@/$debversion/" -e "s/@ARCH@/$arch/" -e "s/@SIZE@/$(du -sk --apparent-size "$root/usr" | cut -f1)/" deploy/debian/control >"$root/DEBIAN/control"
	find "$root" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
	dpkg-deb --root-owner-group -Zxz -z3 --threads-max=1 --build "$root" "$dist/agentbox_${debversion}_$arch.deb" >/dev/null
}

go run ./internal/manual "$work/manual"
for arch in ${ARCHS:-amd64 arm64}; do
	say "linux/$arch"
	linux "$arch"
	deb "$arch"
done
for arch in ${DARWIN_ARCHS-amd64 arm64}; do
	say "darwin/$arch, client only"
	program darwin "$arch" "$dist/agentbox-darwin-$arch" -ldflags "$link"
done
(cd "$dist" && sha256sum -- * >SHA256SUMS)
rm -rf "$work"
ls -l "$dist"
