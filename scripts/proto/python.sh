#!/usr/bin/env bash
# Makes sdk/python's stubs of proto/sandbox/v1 (part of make proto). The generators
# are installed once, by pip.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
venv=$PWD/.cache/proto-$(sha256sum scripts/proto/requirements.txt | cut -c1-16)
if [ ! -e "$venv/complete" ]; then
	rm -rf "$venv"
	python3 -m venv "$venv"
	"$venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: -r scripts/proto/requirements.txt
	touch "$venv/complete"
fi
out=sdk/python/src
PATH="$venv/bin:$PATH" "$venv/bin/python" -m grpc_tools.protoc -I proto \
	--python_out=$out --grpc_python_out=$out --mypy_out=$out --mypy_grpc_out=$out proto/sandbox/v1/sandbox.proto
