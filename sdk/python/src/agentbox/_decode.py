"""Reads records of :mod:`agentbox.models` out of JSON."""

from __future__ import annotations

import base64
import dataclasses
import re
import types
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from agentbox.errors import ServerError

T = TypeVar("T")


def decode(kind: type[T], data: object) -> T:
    """Makes a record of what the server sent. Fields that the record does not have are left out."""
    key: Any = kind
    try:
        record: T = _record(key)(data)
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise ServerError(f"the server's answer is no {kind.__name__}: {e!r}") from e
    return record


@cache
def _record(kind: Any) -> Callable[[Any], Any]:
    """How a record is read, worked out once."""
    return _reader(kind)


def _reader(kind: Any) -> Callable[[Any], Any]:
    """How a value of a type is read."""
    if dataclasses.is_dataclass(kind):
        return _record_reader(kind)
    origin, args = get_origin(kind), get_args(kind)
    if origin is list:
        item = _reader(args[0])
        return lambda v: [item(x) for x in v]
    if origin is dict:
        item = _reader(args[1])
        return lambda v: {str(k): item(x) for k, x in v.items()}
    if origin in (Union, types.UnionType):
        some = _reader(next(a for a in args if a is not types.NoneType))
        return lambda v: None if v is None else some(v)
    if kind is datetime:
        return parse_time
    if kind is bytes:
        return base64.b64decode
    if kind is float:
        return float
    if kind in (int, str, bool):
        return lambda v: _expect(kind, v)
    if kind is Any or origin is Literal:
        return lambda v: v  # a server may know words that this package does not
    raise AssertionError(f"no reader for {kind}")


def _record_reader(kind: Any) -> Callable[[Any], Any]:
    hints = get_type_hints(kind)
    fields = []
    for f in dataclasses.fields(kind):
        needed = f.default is dataclasses.MISSING
        fields.append((f.name, f.metadata.get("name", f.name), needed, _reader(hints[f.name])))

    def read(data: Any) -> Any:
        values = {}
        for name, key, needed, reader in fields:
            if needed or key in data:
                values[name] = reader(data[key])
        return kind(**values)

    return read


def _expect(kind: type[Any], value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


_FRACTION = re.compile(r"\.(\d+)")


def parse_time(text: str) -> datetime:
    """Reads a time of RFC 3339; what is less than a microsecond is cut off."""
    text = _FRACTION.sub(lambda m: "." + m[1][:6].ljust(6, "0"), text)
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
