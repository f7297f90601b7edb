#!/usr/bin/env bash
# Runs the recipes for agent frameworks with a real server and a model that plays a
# script. The frameworks are installed by pip, again when their versions change.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/env.sh
export AGENTBOX_TEST_DIR=${AGENTBOX_TEST_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/agentbox-test}
export AGENTBOX_BIN=${AGENTBOX_BIN:-$PWD/bin/agentbox} AGENTBOX_TEST_STRICT=1
mkdir -p "$AGENTBOX_TEST_DIR"
"$AGENTBOX_BIN" --data-dir "$AGENTBOX_TEST_DIR" images build small ${MIRROR:+--mirror "$MIRROR"}
project=sdk/python wanted=sdk/python/examples/recipes/requirements.txt
venv=$AGENTBOX_TEST_DIR/recipes-$(cat $project/pyproject.toml $wanted | sha256sum | cut -c1-16)
if [ ! -e "$venv/complete" ]; then
	rm -rf "$venv"
	python3 -m venv "$venv"
	"$venv/bin/pip" install --quiet --disable-pip-version-check "./$project[grpc]" pytest -r $wanted
	touch "$venv/complete"
fi
# The package itself is the one of this checkout.
export PYTHONPATH=$PWD/$project/src
AGENTBOX_RECIPES=$venv/bin/python go test -count=1 -timeout 15m -v -run '^TestRecipes$' ./internal/e2e
