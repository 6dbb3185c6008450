"""Frames are checked as the protocol says: the envelope first, then the payload."""

from __future__ import annotations

import json
from typing import Any

import pytest

from laneway.frames import FRAME_LEN_MAX, BadFrame, parse

DISPATCH: dict[str, Any] = {
    "run_id": "r", "task_id": "t", "node_id": "n", "node_type": "k", "package_name": "p", "package_version": "1",
    "parameters": {}, "constraints": {},
}  # fmt: skip


def frame(kind: str = "cmd.dispatch", payload: Any = DISPATCH, **more: Any) -> str:
    sender = {"role": "scheduler", "id": "s"}
    head = {"type": kind, "id": "f", "ts": "2030-01-01T00:00:00Z", "tenant": "acme", "sender": sender}
    return json.dumps({**head, "payload": payload, **more})


def test_valid_frames_are_read() -> None:
    assert parse(frame(corr="t", seq=1, ack={"request": True}))["payload"] == DISPATCH
    assert parse(frame("ack", {"ok": True, "for": "x", "info": "lease_ms=1"}).encode())["type"] == "ack"
    assert parse(frame(corr=None, seq=None))["corr"] is None


@pytest.mark.parametrize(
    ("data", "part"),
    [
        ("garbage", "frame.json"),
        ("[1]", "frame.json"),
        ("NaN", "frame.json"),
        (b"\xff\xfe\x00", "frame.json"),
        ("[" * 100_000, "frame.json"),
        ("{}", "envelope"),
        (frame(extra=1), "envelope"),
        (frame(seq=-1), "envelope"),
        (frame(seq="1"), "envelope"),
        (frame(ts="soon"), "envelope"),
        (frame(sender={"role": "boss", "id": "s"}), "envelope"),
        (frame(payload=[]), "envelope"),
        (frame("cmd.unknown"), "envelope.type"),
        (frame(payload={**DISPATCH, "extra": 1}), "payload"),
        (frame(payload={**DISPATCH, "constraints": {"timeout_ms": 0}}), "payload"),
        (frame(payload={**DISPATCH, "task_id": ""}), "payload"),
        (frame(payload={k: v for k, v in DISPATCH.items() if k != "node_type"}), "payload"),
        (frame(payload={**DISPATCH, "resource_refs": [{"resource_id": "r"}]}), "payload"),
    ],
)
def test_invalid_frames_name_the_part_that_is_wrong(data: str | bytes, part: str) -> None:
    with pytest.raises(BadFrame) as caught:
        parse(data)
    assert (caught.value.part, caught.value.code) == (part, "E.CMD.UNKNOWN")


def test_a_frame_that_is_too_long_is_not_read() -> None:
    with pytest.raises(BadFrame) as caught:
        parse(" " * (FRAME_LEN_MAX + 1))
    assert caught.value.part == "frame.size"


@pytest.mark.parametrize(
    "fields",
    [
        {"chain_index": 0},
        {"middleware_chain": ["n"]},
        {"middleware_chain": ["m"], "host_node_id": "n", "chain_index": 0},
        {"middleware_chain": ["m"], "host_node_id": "h"},
        {"middleware_chain": ["m"], "host_node_id": "h", "chain_index": 0},
        {"middleware_chain": ["n"], "host_node_id": "h", "chain_index": 1},
    ],
)
def test_middleware_fields_must_agree(fields: dict[str, Any]) -> None:
    with pytest.raises(BadFrame) as caught:
        parse(frame(payload={**DISPATCH, **fields}))
    assert caught.value.code == "E.DISPATCH.INVALID_METADATA"
    parse(frame(payload={**DISPATCH, "middleware_chain": ["m", "n"], "host_node_id": "h", "chain_index": 1}))
    parse(frame(payload={**DISPATCH, "middleware_chain": ["m"], "host_node_id": "n"}))


def test_an_error_about_a_frame_can_name_it() -> None:
    with pytest.raises(BadFrame) as caught:
        parse(frame(extra=1))
    assert (caught.value.id, caught.value.type) == ("f", "cmd.dispatch")
