#!/usr/bin/env bash
# Checks limits on a host with cgroup v2, in every mode: as root, as an ordinary
# user in a delegated unit, and as one without (where asking for a limit must be
# refused). Then, as root, volumes on a file system with project quotas, which not
# every kernel has. Wants a tree that is built (`make test-cgroup2` does that),
# systemd, mkfs.ext4, and an ordinary user who may use sudo.
#
# Programs: bin/agentbox, bin/{cgroup,volume,e2e}.test. Images: AGENTBOX_TEST_DIR
# (default ~/.cache/agentbox-test) has the image "small"; it is built when missing.
# Verdicts go to standard output, everything to bin/cgroup2.log; the exit status is
# 0 when all modes passed.
set -eu # not pipefail: mode looks at the status itself
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() { printf 'cgroup2: %s\n' "$*" >&2; exit 2; }
[ "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs ] || die "this host does not use cgroup v2 alone (see: stat -fc %T /sys/fs/cgroup)"
[ "$(id -u)" != 0 ] || die "run this as an ordinary user who may use sudo: the modes of both are checked"
sudo -n true 2>/dev/null || sudo -v || die "sudo is needed, for the checks as root"
for f in agentbox cgroup.test volume.test e2e.test; do [ -x bin/$f ] || die "bin/$f is missing: make test-cgroup2"; done

export AGENTBOX_BIN=$PWD/bin/agentbox
export AGENTBOX_TEST_DIR=${AGENTBOX_TEST_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/agentbox-test}
mkdir -p "$AGENTBOX_TEST_DIR"
failed=()
: >bin/cgroup2.log

# mode NAME PACKAGE TESTS E2E COMMAND…: runs tests of a package, then end to end
# tests, below COMMAND and shows how they end.
mode() {
	local name=$1 package=$2 tests=$3 e2e=$4 began=$SECONDS
	shift 4
	printf '\n==> %s\n' "$name"
	# shellcheck disable=SC2016 # the inner shell expands them
	"$@" env AGENTBOX_BIN="$AGENTBOX_BIN" AGENTBOX_TEST_DIR="$AGENTBOX_TEST_DIR" \
		sh -c 'cat /proc/self/cgroup
			cd "internal/$1" && "../../bin/$1.test" -test.v -test.run "$2" && cd ../e2e &&
			../../bin/e2e.test -test.v -test.timeout 60m -test.run "$3"' sh "$package" "$tests" "$e2e" 2>&1 |
		tee -a bin/cgroup2.log |
		{ grep --line-buffered -E '^--- |^ +--- FAIL|^0::|^PASS|^FAIL|_test.go|panic' || true; }
	[ "${PIPESTATUS[0]}" = 0 ] || failed+=("$name")
	printf '    %d s\n' $((SECONDS - began))
}

bin/agentbox --data-dir "$AGENTBOX_TEST_DIR" images ls | grep -q '^small ' ||
	bin/agentbox --data-dir "$AGENTBOX_TEST_DIR" images build small ${MIRROR:+--mirror "$MIRROR"}

# Owners and laid out programs are per user: root gets a directory of its own with
# the same images.
rootdir=$(mktemp -d /tmp/abXXXX)
trap 'sudo rm -rf "$rootdir"' EXIT
cp -r "$AGENTBOX_TEST_DIR/images" "$rootdir/"
sudo chown -R 0:0 "$rootdir"

limits=(cgroup . '^Test(POS07|CPULimitHolds|B071_Verdict|BACK04_Doctor|BACK08)$|^TestPOS07_')
quotas=(volume '^TestQuota$' '^TestQuotasOfProjects$')
user_dir=$AGENTBOX_TEST_DIR
AGENTBOX_TEST_DIR=$rootdir
mode "root" "${limits[@]}" sudo
mode "root, project quotas" "${quotas[@]}" sudo
AGENTBOX_TEST_DIR=$user_dir
mode "ordinary user, delegated scope" "${limits[@]}" systemd-run --user --scope -q -p Delegate=yes
mode "ordinary user, not delegated" "${limits[@]}" env

left=$(find /sys/fs/cgroup -type d -path '*/agentbox/*' | head)
[ -z "$left" ] || failed+=("control groups are left: $left")
if [ ${#failed[@]} -gt 0 ]; then
	printf '\nFAILED: %s\n' "${failed[@]}"
	exit 1
fi
printf '\nall modes passed on Linux %s, %s\n' "$(uname -r)" "$(systemctl --version | head -n1)"
