# Sourced: puts the Go toolchain that scripts/setup.sh found or installed on PATH.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
if [ -f "$root/.cache/goroot" ]; then
	GOROOT_FOUND=$(cat "$root/.cache/goroot")
	if [ -n "$GOROOT_FOUND" ]; then
		export PATH="$GOROOT_FOUND/bin:$PATH" GOTOOLCHAIN=local
		unset GOROOT
	fi
fi
