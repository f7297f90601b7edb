from __future__ import annotations

from collections.abc import Iterator

import pytest

from agentbox.rpc import Sandbox


@pytest.fixture
def sandbox(url: str) -> Iterator[Sandbox]:
    """A sandbox with a session."""
    with Sandbox(url) as made:
        made.create()
        yield made
