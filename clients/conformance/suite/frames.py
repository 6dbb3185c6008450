"""Frames: how the suite builds its own, how it checks those of the adapter against the schemas, and how patterns match them."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

Json = dict[str, Any]

TENANT = "default"
# The longest frame of the protocol, in bytes.
FRAME_BYTES_MAX = 4 << 20
# Every type that a worker may send.
WORKER_TYPES = frozenset(
    ["handshake", "register", "heartbeat", "ack", "error", "feedback", "result", "pkg.event"]
    + ["middleware.next_request", "resource.data"]
)
SCHEMA_FOLDER = Path(__file__).resolve().parents[3] / "docs" / "schema" / "ws"


class Schemas:
    """The schemas of `docs/schema/ws`, one for the envelope and one for the payload of each type."""

    def __init__(self, folder: Path = SCHEMA_FOLDER):
        self._validators: dict[str, Draft202012Validator] = {}
        for path in sorted(folder.glob("ws.*.schema.json")):
            name = path.name[len("ws.") : -len(".schema.json")]
            self._validators[name] = Draft202012Validator(json.loads(path.read_text()))
        if "envelope" not in self._validators:
            raise FileNotFoundError(f"{folder} has no schema of the envelope")

    def offence(self, frame: Any) -> str | None:
        """What is wrong with a frame, or None."""
        for name, part in (("envelope", frame), (None, None)):
            if name is None:
                name, part = frame["type"], frame["payload"]
            validator = self._validators.get(name)
            if validator is None:
                return f"there is no frame of type {name!r}"
            error = next(validator.iter_errors(part), None)
            if error is not None:
                return f"{name}{error.json_path[1:]}: {error.message}"
        return _bad_time(frame["ts"])


def _bad_time(text: str) -> str | None:
    try:
        # Python 3.10 does not know `Z`, and takes three or six digits of a second only.
        head, _, rest = text.replace("Z", "+00:00").replace("z", "+00:00").partition(".")
        digits = len(rest) - len(rest.lstrip("0123456789"))
        offset = rest[digits:] if rest else ""
        when = datetime.fromisoformat(head + offset)
    except ValueError:
        return f"ts {text!r} is not a time of RFC 3339"
    return None if when.tzinfo is not None else f"ts {text!r} has no offset"


class Builder:
    """Builds the frames of the server."""

    def __init__(self) -> None:
        self._numbers = 0

    def frame(self, kind: str, payload: Json, **fields: Any) -> Json:
        """A frame of this type. `fields` are fields of the envelope; those that are None are left out."""
        self._numbers += 1
        frame: Json = {
            "type": kind,
            "id": f"s-{self._numbers}",
            "ts": datetime.now(timezone.utc).isoformat(),
            "tenant": TENANT,
            "sender": {"role": "scheduler", "id": "scheduler-control"},
            "payload": payload,
        }
        frame.update({name: value for name, value in fields.items() if value is not None})
        return frame

    def ack(self, frame: Json, ok: bool = True, info: str | None = None) -> Json:
        """The acknowledgement of a frame of the adapter."""
        payload: Json = {"ok": ok, "for": frame["id"]}
        if info:
            payload["info"] = info
        return self.frame("ack", payload, ack={"for": frame["id"]})

    def dispatch(self, task: str, seq: int, kind: str, parameters: Json, **more: Any) -> Json:
        """A task. `more` are fields of the payload."""
        payload = {
            "run_id": more.pop("run_id", None) or task,
            "task_id": task,
            "node_id": task,
            "node_type": kind,
            "package_name": "builtin",
            "package_version": "0",
            "parameters": parameters,
            "constraints": more.pop("constraints", None) or {},
        }
        payload.update({name: value for name, value in more.items() if value is not None})
        return self.frame("cmd.dispatch", payload, corr=task, seq=seq, ack={"request": True})

    def cancel(self, task: str, run_id: str, seq: int | None) -> Json:
        """A cancel of one attempt, or of all attempts at the task."""
        payload = {"run_id": run_id, "task_id": task, "reason": "the scenario asks for it"}
        return self.frame("cmd.cancel", payload, corr=task, seq=seq, ack={"request": True})

    def error(self, code: str, message: str | None, corr: str | None, seq: int | None) -> Json:
        """An error of the server."""
        payload = {"code": code, "message": message or "the scenario sends this error"}
        return self.frame("error", payload, corr=corr, seq=seq)


def acknowledged_id(frame: Json) -> str | None:
    """The id of the frame that an `ack` acknowledges."""
    return (frame.get("ack") or {}).get("for") or frame["payload"].get("for")


def mismatch(pattern: Any, value: Any, at: str = "") -> str | None:
    """Why a value does not match a pattern, or None. Objects match when all fields of the pattern match."""
    if isinstance(pattern, dict) and len(pattern) == 1 and next(iter(pattern)).startswith("$"):
        return _matcher_mismatch(*next(iter(pattern.items())), value, at)
    if isinstance(pattern, dict):
        if not isinstance(value, dict):
            return f"{at or 'the frame'} is {value!r}, not an object"
        for name, wanted in pattern.items():
            below = f"{at}.{name}" if at else name
            if isinstance(wanted, dict) and "$absent" in wanted:
                if value.get(name) is not None:
                    return f"{below} is {value[name]!r}, not absent"
                continue
            if name not in value:
                return f"{below} is missing"
            found = mismatch(wanted, value[name], below)
            if found:
                return found
        return None
    return None if pattern == value else f"{at} is {value!r}, not {pattern!r}"


def _matcher_mismatch(name: str, wanted: Any, value: Any, at: str) -> str | None:
    if name == "$any":
        return None
    if name == "$exactly":
        return None if value == wanted else f"{at} is {value!r}, not exactly {wanted!r}"
    if name == "$one_of":
        return None if value in wanted else f"{at} is {value!r}, not one of {wanted!r}"
    if name == "$contains":
        missing = [item for item in wanted if item not in (value or [])]
        return f"{at} lacks {missing!r}" if missing else None
    if name == "$about":
        near = isinstance(value, (int, float)) and abs(value - wanted) < 1e-3
        return None if near else f"{at} is {value!r}, not about {wanted!r}"
    if name == "$has_text":
        return None if isinstance(value, str) and wanted in value else f"{at} is {value!r}, without {wanted!r}"
    raise ValueError(f"there is no matcher {name}")
