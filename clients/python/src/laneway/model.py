"""What the generated modules are built from: times, durations, the decoding of answers and the encoding of requests."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote

Time: TypeAlias = str | datetime
"""A point in time in a request: RFC 3339, or a datetime. A datetime without a zone is local time."""
Duration: TypeAlias = str | timedelta
"""A duration in a request: text with units such as `1h30m`, or a timedelta."""
Fields: TypeAlias = Mapping[str, "tuple[str, Callable[[Any], Any] | None]"]
"""The fields of an answer by their names in JSON: the attribute, and what decodes the value."""

T = TypeVar("T")
M = TypeVar("M", bound="Model")


@dataclass(frozen=True)
class Model:
    """An object of an answer. Fields that this version does not know are ignored."""

    @classmethod
    def _fields(cls) -> Fields:
        raise NotImplementedError

    @classmethod
    def from_json(cls: type[M], data: Any) -> M:
        """The object for parsed JSON."""
        values = {}
        for name, (attribute, decode) in cls._fields().items():
            value = data.get(name)
            if value is not None:
                values[attribute] = decode(value) if decode else value
        return cls(**values)


def list_of(decode: Callable[[Any], T]) -> Callable[[Any], list[T]]:
    """Decodes a list."""
    return lambda items: [decode(item) for item in items]


def maybe(decode: Callable[[Any], T]) -> Callable[[Any], T | None]:
    """Decodes an answer that may have no body."""
    return lambda data: None if data is None else decode(data)


def anything(data: Any) -> Any:
    """JSON as it is."""
    return data


def nothing(data: Any) -> None:
    """An answer without a body."""


def text(data: Any) -> str:
    """An answer that is text."""
    return str(data)


def segment(value: str) -> str:
    """A name or an id in a path. `reset` and dots would mean something else there."""
    quoted = quote(value, safe="")
    if value == "reset" or set(value) == {"."}:
        return "".join(f"%{byte:02X}" for byte in value.encode())
    return quoted


def parse_time(value: str) -> datetime:
    """A time of RFC 3339. Python 3.10 reads neither `Z` nor fractions of any length."""
    match = re.fullmatch(r"([^.]*?)(?:\.(\d+))?(Z|z|[+-]\d\d:\d\d)", value)
    if not match:
        raise ValueError(f"not a time: {value!r}")
    whole, fraction, zone = match.groups()
    micros = (fraction or "0")[:6].ljust(6, "0")
    return datetime.fromisoformat(f"{whole}.{micros}{'+00:00' if zone in 'Zz' else zone}")


def format_time(value: Time) -> str:
    """A time for a request."""
    if isinstance(value, str):
        return value
    return value.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


def format_duration(value: Duration) -> str:
    """A duration for a request."""
    if isinstance(value, str):
        return value
    return f"{round(value.total_seconds() * 1000)}ms"


def encode(value: Any) -> bytes:
    """The JSON of a request. The server stores payloads byte for byte, so the same value always gives the same bytes."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_encode_other).encode()


def query_values(query: Mapping[str, Any]) -> list[tuple[str, str | int | float | bool | None]]:
    """The parameters of a query; those without a value are left out, and lists are repeated."""
    pairs: list[tuple[str, str | int | float | bool | None]] = []
    for name, value in query.items():
        if value is None:
            continue
        values = value if isinstance(value, (list, tuple)) else [value]
        pairs.extend((name, _query_text(item)) for item in values)
    return pairs


def _query_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(_encode_other(value)) if isinstance(value, (datetime, timedelta)) else str(value)


def _encode_other(value: Any) -> Any:
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, timedelta):
        return format_duration(value)
    raise TypeError(f"{type(value).__name__} is not JSON: {value!r}")
