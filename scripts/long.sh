# What the long runs share; sourced by soak.sh and chaos.sh after env.sh.
export AGENTBOX_TEST_DIR=${AGENTBOX_TEST_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/agentbox-test}
export AGENTBOX_BIN=$PWD/bin/agentbox AGENTBOX_ENGINE=$PWD/bin/agentbox-engine AGENTBOX_GUEST=$PWD/bin/agentbox-guest
export AGENTBOX_TEST_STRICT=1 AGENTBOX_SOAK=1
mkdir -p "$AGENTBOX_TEST_DIR" .cache
binary=$(sha256sum bin/agentbox | cut -c1-16)

# long_begin NAME [again]: steps that passed before are noted in .cache/NAME.
long_begin() {
	state=.cache/$1
	if [ "${2:-}" = again ]; then rm -f "$state"; fi
	touch "$state"
	for image in small default; do
		bin/agentbox --data-dir "$AGENTBOX_TEST_DIR" images ls | grep -q "^$image " ||
			bin/agentbox --data-dir "$AGENTBOX_TEST_DIR" images build $image ${MIRROR:+--mirror "$MIRROR"}
	done
}

# step WHAT TEST PACKAGE: a step that passed is not run again for the same binary.
step() {
	if grep -qxF "$1" "$state"; then
		echo "== $1: passed before"
		return
	fi
	echo "== $1"
	go test -count=1 -timeout 90m -v -run "^$2\$" "$3"
	echo "$1" >>"$state"
}
