from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def url() -> str:
    """Address of the server that AGENTBOX_URL names."""
    if "AGENTBOX_URL" not in os.environ:
        pytest.skip("AGENTBOX_URL names no server to test with")
    return os.environ["AGENTBOX_URL"]
