"""The frames of the worker protocol: parsing with the checks of `docs/worker-protocol.md`, and encoding.

`frames.json` has the schemas of the frames that a worker receives. Unknown fields are errors.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, TypeAlias

from .model import parse_time

Frame: TypeAlias = dict[str, Any]
"""A parsed frame: the envelope with its payload."""

# Longest frame in bytes.
FRAME_LEN_MAX = 4 << 20
# Most characters of an error's message.
MESSAGE_LEN_MAX = 16 << 10
_DOCUMENT = json.loads(files(__package__).joinpath("frames.json").read_text("utf-8"))
_SCHEMAS: dict[str, Any] = _DOCUMENT["schemas"]
_TYPES = frozenset(_DOCUMENT["types"])


class BadFrame(Exception):
    """A frame that cannot be read. `part` says which check failed; `id` and `type` are there if they could be read."""

    def __init__(self, part: str, message: str, frame: Any = None, code: str = "E.CMD.UNKNOWN") -> None:
        super().__init__(message)
        self.part = part
        self.message = message[:MESSAGE_LEN_MAX]
        self.code = code
        known = frame if isinstance(frame, dict) else {}
        self.id = known.get("id") if isinstance(known.get("id"), str) else None
        self.type = known.get("type") if isinstance(known.get("type"), str) else None


def parse(data: str | bytes) -> Frame:
    """Checks the envelope first, then the payload that its type selects."""
    size = len(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data)
    if size > FRAME_LEN_MAX:
        raise BadFrame("frame.size", f"the frame has {size} bytes; send at most {FRAME_LEN_MAX}")
    try:
        frame = json.loads(data, parse_constant=_not_json)
    except (ValueError, RecursionError) as error:
        raise BadFrame("frame.json", f"the frame is not JSON: {error}") from None
    if not isinstance(frame, dict):
        raise BadFrame("frame.json", "the frame is not a JSON object")
    problem = _check(_SCHEMAS["envelope"], frame, "")
    if problem:
        raise BadFrame("envelope", problem, frame)
    kind = frame["type"]
    if kind not in _TYPES:
        raise BadFrame("envelope.type", f"the type {kind!r} is unknown", frame)
    schema = _SCHEMAS.get(kind)
    problem = _check(schema, frame["payload"], "payload") if schema else None
    if problem:
        raise BadFrame("payload", problem, frame)
    if kind == "cmd.dispatch":
        problem = _chain_problem(frame["payload"])
        if problem:
            raise BadFrame("payload", problem, frame, "E.DISPATCH.INVALID_METADATA")
    return frame


def encode(frame: Frame) -> str:
    """The text of a frame."""
    return json.dumps(frame, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _not_json(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _chain_problem(dispatch: dict[str, Any]) -> str | None:
    """What is wrong with the middleware fields of a dispatch."""
    host, chain, index = dispatch.get("host_node_id"), dispatch.get("middleware_chain"), dispatch.get("chain_index")
    node = dispatch["node_id"]
    if not chain:
        return None if index is None else "chain_index is set without a middleware_chain"
    if host is None:
        return "host_node_id is missing; a middleware_chain requires it"
    if (index is None) != (host == node):
        return "chain_index must be set for a middleware, and absent for the host"
    if index is not None and (index >= len(chain) or chain[index] != node):
        return "chain_index does not name this node in the middleware_chain"
    return None


# The part of JSON Schema that the frames use.


def _check(schema: dict[str, Any], value: Any, path: str) -> str | None:
    """What is wrong with a value. None: nothing."""
    here = path or "the frame"
    kinds = schema.get("type")
    if kinds is not None and not any(_is_a(kind, value) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        return f"{here} must be {kinds if isinstance(kinds, str) else ' or '.join(kinds)}"
    if "oneOf" in schema and value not in [option.get("const") for option in schema["oneOf"]]:
        return f"{here} has an unknown value"
    if isinstance(value, str):
        return _check_text(schema, value, here)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        is_in = schema.get("minimum", value) <= value <= schema.get("maximum", value)
        return None if is_in else f"{here} is out of range"
    if isinstance(value, list):
        return _check_list(schema, value, path)
    return _check_object(schema, value, path) if isinstance(value, dict) else None


def _check_text(schema: dict[str, Any], value: str, here: str) -> str | None:
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        return f"{here} has {len(value)} characters"
    if schema.get("format") == "date-time":
        try:
            parse_time(value)
        except ValueError:
            return f"{here} is not a time"
    return None


def _check_list(schema: dict[str, Any], value: list[Any], path: str) -> str | None:
    if len(value) > schema.get("maxItems", len(value)):
        return f"{path} has {len(value)} entries"
    problems = (_check(schema.get("items", {}), item, f"{path}[{at}]") for at, item in enumerate(value))
    return next(filter(None, problems), None)


def _check_object(schema: dict[str, Any], value: dict[str, Any], path: str) -> str | None:
    known, prefix = schema.get("properties", {}), f"{path}." if path else ""
    for name in schema.get("required", []):
        if name not in value:
            return f"{prefix}{name} is missing"
    if schema.get("additionalProperties") is False:
        unknown = next((name for name in value if name not in known), None)
        if unknown is not None:
            return f"{prefix}{unknown} is unknown"
    problems = (_check(known[name], item, prefix + name) for name, item in value.items() if name in known)
    return next(filter(None, problems), None)


def _is_a(kind: str, value: Any) -> bool:
    if kind == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    kinds: dict[str, Any] = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
    return isinstance(value, kinds[kind])
