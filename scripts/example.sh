#!/usr/bin/env bash
# Runs the Python example of gRPC, in an environment of its own that pip makes once.
# It wants an `agentbox serve --no-auth` on this machine.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv=$PWD/.cache/example-$(sha256sum sdk/python/pyproject.toml | cut -c1-16)
if [ ! -e "$venv/complete" ]; then
	rm -rf "$venv"
	python3 -m venv "$venv"
	"$venv/bin/pip" install --quiet --disable-pip-version-check --editable "sdk/python[grpc]"
	touch "$venv/complete"
fi
exec "$venv/bin/python" sdk/python/examples/sandbox_v1/example.py
