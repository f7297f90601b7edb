"""Files of this machine that take the place of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentbox._local import replacing


def test_two_at_once(tmp_path: Path) -> None:
    target, plain = tmp_path / "target", tmp_path / "plain"
    plain.touch()
    with replacing(target) as one:
        one.write(b"one" * 1000)
        with replacing(target) as two:
            two.write(b"two")
        assert target.read_bytes() == b"two"
    assert target.read_bytes() == b"one" * 1000
    assert target.stat().st_mode == plain.stat().st_mode
    assert sorted(p.name for p in tmp_path.iterdir()) == ["plain", "target"]


def test_nothing_is_left_after_an_error(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("old")
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error), replacing(target) as f:
            f.write(b"new")
            raise error
    assert target.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["target"]
