"""Makes the blocking client, src/agentbox/_sync, from the asynchronous one in _async.

    python tools/unasync.py          # writes it
    python tools/unasync.py --check  # fails if it is not current
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "src" / "agentbox"

#: Words of the asynchronous client and what they are in the blocking one, in order.
RULES = [
    (r"async (def|with|for) ", r"\1 "),
    (r"\bawait ", ""),
    (r"\bAwaitable\[([^\[\]]+)\]", r"\1"),
    (r"import AsyncIterable, AsyncIterator, Awaitable, Callable", "import Callable, Iterator"),
    (r"import AsyncIterator, Awaitable, Callable", "import Callable, Iterator"),
    (r"\bAsyncGenerator\[(\w+), None\]", r"Generator[\1, None, None]"),
    (r"\b__a(enter|exit|iter|next)__", r"__\1__"),
    (r"\baclos(e|ing)\b", r"clos\1"),
    (r"\baiter_bytes\b", "iter_bytes"),
    (r"\bAsync([A-Z]\w*)", r"\1"),
    (r"\bseveral tasks\b", "several threads"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\b_aio\b", "_blocking"),
    (r"\b_async\b", "_sync"),
    (r"\basynchronous\b", "blocking"),
]

HEAD = "# Made from {} by tools/unasync.py: change that one.\n"


def blocking(text: str) -> str:
    """A module of the blocking client."""
    for pattern, replacement in RULES:
        text = re.sub(pattern, replacement, text)
    return text


def main() -> int:
    """Writes the modules, or compares them."""
    check = "--check" in sys.argv[1:]
    stale = []
    made = {}
    for source in sorted((ROOT / "_async").glob("*.py")):
        text = blocking(source.read_text())
        if source.name == "__init__.py":
            text = '"""The blocking client."""\n'
        made[ROOT / "_sync" / source.name] = HEAD.format(f"_async/{source.name}") + text
    for target, text in made.items():
        if check and (not target.exists() or target.read_text() != text):
            stale.append(target)
        elif not check:
            target.parent.mkdir(exist_ok=True)
            target.write_text(text)
    for target in set((ROOT / "_sync").glob("*.py")) - set(made):
        stale.append(target) if check else target.unlink()
    for target in stale:
        print(f"{target} is not current: run python tools/unasync.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
