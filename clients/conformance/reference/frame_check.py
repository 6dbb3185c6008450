"""The form of the server's frames, as far as the reference worker needs it: without the schemas, to be independent of them."""

from __future__ import annotations

import json
from typing import Any

from handlers import has

Json = dict[str, Any]

TEXT, OBJECT, NUMBER = str, dict, int
# The fields that the reference worker reads, by type of frame.
FIELDS: dict[str, dict[str, type]] = {
    "ack": {"for": TEXT},
    "error": {"code": TEXT, "message": TEXT},
    "cmd.dispatch": {"run_id": TEXT, "task_id": TEXT, "node_id": TEXT, "node_type": TEXT, "parameters": OBJECT, "constraints": OBJECT},
    "cmd.cancel": {"run_id": TEXT, "task_id": TEXT},
    "cmd.drain": {},
    "pkg.install": {},
    "pkg.uninstall": {},
    "middleware.next_response": {},
    "resource.read": {},
}
# Fields that may be left out, of the frames that the reference worker reads in full.
OPTIONAL: dict[str, set[str]] = {
    "ack": {"ok", "info"},
    "error": {"remediation", "context"},
    "cmd.dispatch": {"package_name", "package_version", "concurrency_key", "affinity", "resource_refs", "host_node_id"}
    | {"middleware_chain", "chain_index", "traceparent", "tracestate"},
    "cmd.cancel": {"reason"},
    "cmd.drain": {"reason", "limit_ms"},
}
ENVELOPE = {"type", "id", "ts", "tenant", "sender", "payload", "corr", "seq", "ack", "flags"}


def problem(message: str | bytes) -> tuple[Json, str | None]:
    """A frame, and what is wrong with it. Of a message that is no object at all, the frame is empty."""
    try:
        frame = json.loads(message) if isinstance(message, str) else None
    except ValueError:
        frame = None
    if not isinstance(frame, dict):
        return {}, "the message is not a JSON object in a text message"
    sender = frame.get("sender")
    texts = all(isinstance(frame.get(name), str) for name in ("type", "id", "ts", "tenant"))
    if not texts or not isinstance(sender, dict) or not isinstance(frame.get("payload"), dict):
        return frame, "the envelope lacks a field"
    fields = FIELDS.get(frame["type"])
    if fields is None:
        return frame, f"a worker does not take frames of type {frame['type']}"
    optional = OPTIONAL.get(frame["type"], set()) - ({"traceparent"} if has("trace-unknown") else set())
    unknown = (set(frame) - ENVELOPE) | (set(frame["payload"]) - set(fields) - optional)
    if unknown and frame["type"] in OPTIONAL and not has("unknown-fields-taken"):
        return frame, f"there is no field {sorted(unknown)[0]}"
    for name, kind in fields.items():
        if not isinstance(frame["payload"].get(name), kind):
            return frame, f"payload.{name} is not valid"
    return frame, None
