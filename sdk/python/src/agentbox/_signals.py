"""Lets ``with`` blocks end when the program is told to end by SIGTERM.

Python ends at once then, without leaving the blocks, and sandboxes would be left to
their idle time. While there are such blocks SIGTERM raises SystemExit instead, unless
the program has a handler of its own.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType

_lock = threading.Lock()
_blocks = 0
_ours = False


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def begin() -> None:
    """A block begins."""
    global _blocks, _ours
    with _lock:
        _blocks += 1
        # Only the main thread may set handlers.
        if not _ours and threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _end)
            _ours = True


def end() -> None:
    """A block ended."""
    global _blocks, _ours
    with _lock:
        _blocks -= 1
        if _ours and not _blocks and threading.current_thread() is threading.main_thread():
            if signal.getsignal(signal.SIGTERM) is _end:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _ours = False
