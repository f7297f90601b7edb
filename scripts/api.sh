#!/usr/bin/env bash
# Sends a real server requests that Schemathesis makes from the OpenAPI document,
# right ones and wrong ones: scripts/api.sh CASES. No answer is a 5xx, and each is as
# the document says. Schemathesis is installed once, by pip, with checked hashes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/env.sh
export AGENTBOX_TEST_DIR=${AGENTBOX_TEST_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/agentbox-test}
export AGENTBOX_BIN=$PWD/bin/agentbox AGENTBOX_TEST_STRICT=1
venv=$PWD/.cache/api-$(sha256sum scripts/api/requirements.txt | cut -c1-16)
if [ ! -e "$venv/complete" ]; then
	rm -rf "$venv"
	python3 -m venv "$venv"
	"$venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r scripts/api/requirements.txt
	touch "$venv/complete"
fi
AGENTBOX_SCHEMATHESIS=$venv/bin/schemathesis AGENTBOX_API_CASES=${1:-1500} go test -count=1 -timeout 60m -v -run '^TestAPI04$' ./internal/e2e
