#!/usr/bin/env python3
"""A small worker that conforms, or has one fault that its environment names: the measure of the suite itself.

It shows what a worker has to do. It is not an SDK: no TLS, no packages, no resources, no middlewares.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
import uuid
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from frame_check import problem
from handlers import HANDLERS, TICK, Canceled, Failure, has, say
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, WebSocketException

Json = dict[str, Any]
Key = tuple[str, int]

PARALLEL_MAX, RESENDS_MAX, BAD_FRAMES_MAX = 4, 6, 32
FRAME_BYTES_MAX, ENVELOPE_BYTES_MAX = 4 << 20, 8 << 10
HEARTBEAT, HANDSHAKE_LIMIT, DRAIN_LIMIT = 5.0, 15.0, 30.0


@dataclass
class Run:
    """A running attempt."""

    dispatch: Json
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    why: str | None = None
    until: float | None = None


@dataclass
class Kept:
    """A frame that is kept until it is acknowledged."""

    frame: Json
    outcome: bool
    due: float
    resends: int = 0
    key: Key | None = None
    run_id: str | None = None


class Worker:
    """The worker: one connection at a time, and state that outlives it."""

    def __init__(self) -> None:
        self.name = os.environ["LANEWAY_WORKER"]
        self.boot_id = uuid.uuid4().hex
        self.instance = uuid.uuid4().hex[:8]
        self.numbers = 0
        self.runs: dict[Key, Run] = {}
        self.waiting: dict[str, Json] = {}
        self.taken: dict[str, int] = {}
        self.kept: dict[str, Kept] = {}
        self.feedback: list[Json] = []
        self.lease, self.lease_until = 3 * HEARTBEAT, float("inf")
        self.draining, self.drain_until = False, float("inf")
        self.failures = 0
        self.code: int | None = None
        self.token = self.read_token()
        self.last_result: Json = {}
        self.leaked: list[ClientConnection] = []
        self.end_session()

    def end_session(self) -> None:
        """Forgets what belongs to a connection."""
        self.socket: ClientConnection | None = None
        self.outgoing: asyncio.Queue[str | None] = asyncio.Queue()
        self.up = self.closing = False
        self.seen: set[str] = set()
        self.beats: dict[str, float] = {}
        self.next_beat = float("inf")
        self.handshake = self.register = ""
        self.register_sent = 0.0
        self.greet_until = float("inf")
        self.bad_frames = 0
        self.kept = {id: kept for id, kept in self.kept.items() if kept.outcome}
        if has("result-forgotten"):
            self.kept.clear()
        if has("result-forgotten-at-random"):
            self.kept = {id: kept for id, kept in self.kept.items() if random.random() > 0.05}
        if has("duplicate-runs-after-reconnect"):
            self.taken.clear()
        if has("lease-ignored-while-disconnected"):
            self.lease_until = float("inf")

    # Connections.

    async def run(self) -> int:
        """Connects again and again until the worker has drained or was superseded."""
        ticking = asyncio.ensure_future(self.tick_forever())
        while self.code is None:
            if self.draining and not self.runs and not self.kept:
                break
            try:
                await self.session()
            except (OSError, InvalidHandshake, WebSocketException, asyncio.TimeoutError):
                pass
            self.end_session()
            if has("cut-stops-tasks"):
                for key in list(self.runs):
                    self.stop(key, "lease")
            if self.draining and has("drain-needs-a-connection"):
                break
            wait = min(30.0, 0.5 * 2 ** (0 if has("backoff-constant") else min(self.failures, 6)))
            self.failures += 1
            until = time.monotonic() + (0 if has("backoff-none") else wait * (1 - random.random() / 2))
            while time.monotonic() < until and self.code is None and not self.is_drained():
                await asyncio.sleep(TICK)
        ticking.cancel()
        return self.code or 0

    def is_drained(self) -> bool:
        """True when a draining worker has nothing left."""
        return self.draining and (has("drain-drops-results") or not self.kept) and not self.runs

    def read_token(self) -> str | None:
        """The token: of the file, or of the environment."""
        path = os.environ.get("LANEWAY_TOKEN_FILE")
        if path:
            with open(path, encoding="utf-8") as file:
                return file.read().strip()
        return os.environ.get("LANEWAY_TOKEN")

    async def session(self) -> None:
        """One connection."""
        if not has("token-read-once"):
            self.token = self.read_token()
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        url = os.environ["LANEWAY_URL"].replace("http", "ws", 1) + "/v1/workers/connect"
        limit = (1 << 20) if has("message-1-mib") else (4 << 20)
        patience = None if has("upgrade-waits-forever") else 10
        options: Json = {"ping_interval": None, "max_size": limit, "open_timeout": patience, "close_timeout": 1, "proxy": None}
        async with connect(url, additional_headers=headers, **options) as socket:
            self.socket = socket
            if has("ping-ignored"):
                _drop_pings(socket)
            writing = asyncio.ensure_future(self.write(socket))
            try:
                self.greet()
                async for message in socket:
                    self.handle(message)
                    if self.closing:
                        break
            finally:
                self.outgoing.put_nowait(None)
                await writing

    async def write(self, socket: ClientConnection) -> None:
        """Writes frames until the connection or the session ends."""
        try:
            while (text := await self.outgoing.get()) is not None:
                await socket.send(text)
            if has("connection-leaked"):
                self.leaked.append(socket)
                socket.close = socket.wait_closed = _nothing  # type: ignore[method-assign]
            await socket.close()
        except WebSocketException:
            pass

    def close(self) -> None:
        """Closes the connection after what was sent."""
        self.closing = True
        self.outgoing.put_nowait(None)

    def greet(self) -> None:
        """Sends the handshake."""
        self.greet_until = float("inf") if has("handshake-waits-forever") else time.monotonic() + HANDSHAKE_LIMIT
        auth: Json = {"mode": "token", "token": None if has("token-not-in-the-frame") else self.token}
        worker = {"id": self.name, "version": "0.0.0", "hostname": "reference"}
        frame = self.frame("handshake", {"protocol": 1, "auth": auth, "worker": worker}, ack={"request": True})
        self.handshake = frame["id"]
        self.send(frame)
        if has("register-early"):
            self.send_register()

    def send_register(self) -> None:
        """Sends the registration with everything that this process still has."""
        keys = set(self.runs) | {kept.key for kept in self.kept.values() if kept.key}
        keys |= {(task, dispatch["seq"]) for task, dispatch in self.waiting.items()}
        tasks = [{"task_id": task, "seq": seq} for task, seq in sorted(keys)]
        features = [f"kind:{kind}" for kind in HANDLERS]
        payload = {
            "capabilities": {"concurrency": {"max_parallel": PARALLEL_MAX}, "runtimes": ["python"], "features": features},
            "packages": [],
            "boot_id": uuid.uuid4().hex if has("boot-id-new") else self.boot_id,
            "tasks": [] if has("tasks-not-listed") else tasks,
        }
        frame = self.frame("register", payload, ack={"request": True})
        self.register, self.register_sent = frame["id"], time.monotonic()
        self.send(frame)
        if has("results-early"):
            self.rewind()

    def registered(self) -> None:
        """The session is up."""
        if self.up:
            return
        self.up, self.greet_until = True, float("inf")
        self.failures = self.failures if has("backoff-never-reset") else 0
        sent = time.monotonic() if has("lease-from-the-ack") else self.register_sent
        self.lease_until = sent + self.lease
        self.next_beat = time.monotonic()
        say("ready")
        feedback, self.feedback = self.feedback, []
        for frame in feedback:
            self.send(frame)
        self.rewind()

    # Frames.

    def frame(self, kind: str, payload: Json, **fields: Any) -> Json:
        """A frame of this worker."""
        self.numbers += 1
        frame = {
            "type": kind,
            "id": "frame-1" if has("result-id-reused") else f"{kind}-{self.instance}-{self.numbers}",
            "ts": datetime.now(timezone.utc).isoformat(),
            "tenant": "default",
            "sender": {"role": "worker", "id": self.name},
            "payload": payload,
        }
        frame.update({name: value for name, value in fields.items() if value is not None})
        return frame

    def send(self, frame: Json) -> None:
        """Sends a frame on the current connection."""
        if not self.closing:
            self.outgoing.put_nowait(encoded(frame))

    def keep(self, frame: Json, key: Key | None, run_id: str | None) -> None:
        """Sends an outcome, and keeps it until it is acknowledged."""
        if not self.up and has("result-lost-while-disconnected"):
            return
        rejection = frame["type"] == "error" and frame["payload"]["code"] == "E.CMD.CONCURRENCY_VIOLATION"
        if not (rejection and has("rejection-not-kept")):
            self.kept[frame["id"]] = Kept(frame, True, time.monotonic() + self.resend_wait(0), key=key, run_id=run_id)
        if self.up:
            self.send(frame)

    def resend_wait(self, resends: int) -> float:
        """200 ms, 400 ms, … 5 s, shortened by up to a quarter."""
        if has("resend-at-once"):
            return 0.02
        return min(5.0, 0.2 * 2**resends) * (1 - random.random() / 4)

    def rewind(self, which: Any = lambda kept: True) -> None:
        """Sends kept frames again now, ordered by seq."""
        for kept in sorted(filter(which, self.kept.values()), key=lambda kept: kept.frame.get("seq") or 0):
            kept.resends, kept.due = 0, time.monotonic() + self.resend_wait(0)
            self.send(kept.frame)

    def ack(self, frame: Json, info: str | None = None) -> None:
        """Acknowledges a frame if it asks for that."""
        if (frame.get("ack") or {}).get("request"):
            payload: Json = {"ok": True, "for": frame["id"]}
            if info:
                payload["info"] = info
            fields = {"corr": frame.get("corr"), "seq": frame.get("seq"), "ack": {"for": frame["id"]}}
            self.send(self.frame("ack", payload, **fields))

    def error(self, code: str, message: str, corr: str | None) -> None:
        """An error about a frame. It is not kept."""
        self.send(self.frame("error", {"code": code, "message": message}, corr=corr))

    def handle(self, message: str | bytes) -> None:
        """Handles a message of the server."""
        frame, wrong = problem(message)
        if wrong:
            return self.handle_bad(frame, wrong)
        self.bad_frames = 0
        foreign = frame["tenant"] != "default" or frame["sender"]["role"] != "scheduler"
        if foreign and not has("tenant-ignored"):
            return self.error("E.SESSION.DENIED", "the frame is not one of this connection's scheduler", frame["id"])
        kind = frame["type"]
        if kind == "ack":
            self.acknowledged(frame)
        elif kind == "error":
            self.error_received(frame)
        elif kind == "cmd.dispatch":
            self.dispatched(frame)
        elif kind == "cmd.cancel":
            self.canceled(frame)
        elif kind == "cmd.drain":
            self.ack(frame)
            if not has("drain-command-ignored"):
                self.drain(frame["payload"].get("limit_ms"))
        else:
            self.error("E.CMD.UNKNOWN", f"this worker does not take frames of type {kind}", frame["id"])
        return None

    def handle_bad(self, frame: Json, wrong: str) -> None:
        """An invalid frame: many in a row end the connection."""
        self.bad_frames += 1
        if frame.get("type") not in ("ack", "error") or has("bad-answer-answered"):
            if not has("bad-frame-silent"):
                corr = frame.get("id") if isinstance(frame.get("id"), str) else None
                self.error("E.CMD.UNKNOWN", wrong, corr)
        limit = 1 if has("bad-frame-ends") else BAD_FRAMES_MAX
        if self.bad_frames >= limit and not has("bad-frames-endless"):
            self.close()

    def acknowledged(self, frame: Json) -> None:
        """The server acknowledged a frame."""
        payload = frame["payload"]
        about, ok = payload["for"], payload.get("ok", True)
        for part in (payload.get("info") or "").split():
            name, _, value = part.partition("=")
            if name == "lease_ms" and value.isdigit() and int(value):
                self.lease = int(value) / 1000
        if about in self.beats:
            if not has("lease-not-renewed"):
                self.lease_until = self.beats.pop(about) + self.lease
        elif about == self.handshake and not self.register:
            self.send_register() if ok else self.close()
        elif about == self.register:
            if ok:
                self.registered()
            elif has("rejection-ends"):
                self.end(4)
            else:
                self.close()
        elif about in self.kept and not has("result-resent-forever"):
            kept = self.kept.pop(about)
            if has("duplicate-runs-after-end") and kept.key:
                self.taken.pop(kept.key[0], None)

    def error_received(self, frame: Json) -> None:
        """The server sent an error."""
        code, corr, seq = frame["payload"]["code"], frame.get("corr"), frame.get("seq")
        if code == "E.SESSION.STALE_BINDING" and corr is None:
            if has("superseded-ignored"):
                return self.close()
            say("denied E.SESSION.STALE_BINDING")
            return self.end(3)
        if code == "E.SESSION.STALE_BINDING" and not has("stale-ignored"):
            if not has("stale-outcome-kept"):
                self.kept = {id: kept for id, kept in self.kept.items() if kept.key != (corr, seq) and id != corr}
            for key in list(self.runs):
                if key[0] == corr and (seq in (None, key[1]) or has("stale-seq-ignored")):
                    self.stop(key, "stale")
        elif code == "E.RESULT.SEQ_GAP" and not has("gap-ignored"):
            run = next((kept.run_id for kept in self.kept.values() if kept.key and kept.key[0] == corr), corr)
            self.rewind(lambda kept: kept.run_id == run)
        elif code == "E.AUTH.INVALID_TOKEN" and has("token-denied-ends"):
            self.end(3)
        elif code.startswith("E.AUTH.") or (code == "E.SESSION.DENIED" and not self.up):
            self.close()
        elif corr and (code in ("E.CMD.UNKNOWN", "E.SESSION.DENIED") or has("result-dropped-by-an-error")):
            self.kept.pop(corr, None)
        return None

    def end(self, code: int) -> None:
        """The worker ends for good."""
        self.code = code
        self.close()

    # Tasks.

    def dispatched(self, frame: Json) -> None:
        """A task to run."""
        payload = frame["payload"]
        key: Key = (payload["task_id"], frame.get("seq") or 0)
        if not self.up and not self.register:
            return self.error("E.SESSION.DENIED", "the session is not registered yet", frame["id"])
        self.registered()
        newest = self.taken.get(key[0])
        doubled = key in self.runs or newest == key[1] or any(kept.key == key for kept in self.kept.values())
        if has("duplicate-id-runs"):
            doubled = frame["id"] in self.seen
        self.seen.add(frame["id"])
        if doubled and not has("duplicate-runs"):
            if not has("duplicate-not-acked"):
                self.ack(frame)
            return self.rewind(lambda kept: kept.key == key)
        if newest is not None and newest > key[1] and not has("older-attempt-runs"):
            return self.ack(frame, "E.SESSION.STALE_BINDING")
        self.ack(frame)
        rejection = self.rejection(key, payload)
        if rejection:
            code, message = rejection
            fields = {"corr": key[0], "seq": key[1], "ack": {"request": True}}
            return self.keep(self.frame("error", {"code": code, "message": message}, **fields), key, payload["run_id"])
        self.taken[key[0]] = max(key[1], newest or 0)
        older = next((one for one in self.runs if one[0] == key[0] and one != key), None)
        if older and not has("newer-attempt-at-once"):
            self.waiting[key[0]] = {**payload, "seq": key[1]}
            return self.stop(older, "stale")
        return self.begin(key, payload)

    def rejection(self, key: Key, payload: Json) -> tuple[str, str] | None:
        """Why a task cannot run here."""
        if payload.get("middleware_chain") and not payload.get("host_node_id") and not has("metadata-unchecked"):
            return "E.DISPATCH.INVALID_METADATA", "a chain requires a host"
        if payload["node_type"] not in HANDLERS:
            return None if has("unknown-kind-silent") else ("E.CMD.UNKNOWN", f"there is no handler for {payload['node_type']}")
        if payload.get("resource_refs") and not has("resource-refs-ignored"):
            return "E.RESOURCE.MISSING", "this worker has no resources"
        others = [run for one, run in self.runs.items() if one[0] != key[0]]
        full = len(others) + len(self.waiting) >= PARALLEL_MAX and not has("parallel-ignored")
        wanted = payload.get("concurrency_key")
        held = wanted and any(run.dispatch.get("concurrency_key") == wanted for run in others)
        if full or (held and not has("concurrency-key-ignored")) or (self.draining and not has("drain-takes-tasks")):
            return "E.CMD.CONCURRENCY_VIOLATION", "the worker takes no such task now"
        return None

    def begin(self, key: Key, payload: Json) -> None:
        """Starts an attempt."""
        if payload["node_type"] not in HANDLERS:
            return
        run = self.runs[key] = Run(payload)
        limit = payload["constraints"].get("timeout_ms")
        if limit is not None and not has("timeout-ignored"):
            run.until = time.monotonic() + limit / 1000
        asyncio.ensure_future(self.attempt(key, run))

    async def attempt(self, key: Key, run: Run) -> None:
        """Runs a handler, and sends the outcome."""
        payload, began = run.dispatch, time.monotonic()
        say(f"run {key[0]} {payload['node_type']}")
        outcome: Json
        try:
            result = await HANDLERS[payload["node_type"]](self, key, run)
            outcome = {"status": "SUCCEEDED", "result": result}
        except Canceled:
            outcome = {"status": "STOPPED"}
        except Failure as failure:
            outcome = failed("failed", str(failure), failure.retryable)
        say(f"end {key[0]}")
        if self.runs.get(key) is run:
            del self.runs[key]
        self.ended(key, run, outcome, int((time.monotonic() - began) * 1000))
        waiting = self.waiting.pop(key[0], None)
        if waiting:
            self.begin((key[0], waiting["seq"]), waiting)

    def ended(self, key: Key, run: Run, outcome: Json, took_ms: int) -> None:
        """Sends the outcome of an attempt."""
        run_id = run.dispatch["run_id"]
        fields: Json = {"corr": key[0], "seq": key[1], "ack": {"request": True}}
        if run.why == "stale" and not has("newer-attempt-reports-older"):
            return
        if outcome["status"] == "STOPPED" and run.why in ("lease", "drain"):
            if not has("lease-outcome-missing"):
                payload = {"code": "E.RUNNER.CANCELLED", "message": f"stopped by the {run.why}"}
                self.keep(self.frame("error", payload, **fields), key, run_id)
            return
        if outcome["status"] == "STOPPED":
            error = {"code": "E.RUNNER.CANCELLED", "message": "the task was stopped"}
            outcome = {"status": "CANCELLED", "result": {}, "error": error}
            if run.why == "timeout":
                outcome = failed("E.TIMEOUT", "the task took longer than timeout_ms", True)
            elif has("cancel-fails"):
                outcome = failed("failed", "the task was stopped", True)
        if has("result-of-another-task"):
            outcome, self.last_result = {**outcome, "result": self.last_result}, {"other": key[0]}
        payload = {"run_id": run_id, "task_id": key[0], "duration_ms": took_ms, **outcome}
        if has("result-extra-field"):
            payload["worker"] = self.name
        if has("result-unasked"):
            fields["ack"] = {"request": False}
        if len(encoded(payload).encode()) > FRAME_BYTES_MAX - ENVELOPE_BYTES_MAX and not has("result-too-long"):
            payload = {"run_id": run_id, "task_id": key[0], **failed("result_too_long", "the result fits in no frame", False)}
        self.keep(self.frame("result", payload, **fields), key, run_id)
        if has("result-doubled"):
            self.keep(self.frame("result", payload, **fields), key, run_id)

    def report(self, key: Key, run: Run, **fields: Any) -> None:
        """Sends feedback, or keeps it for the next connection."""
        payload = {"run_id": run.dispatch["run_id"], "task_id": key[0], "stage": "running", **fields}
        frame = self.frame("feedback", payload, corr=key[0], seq=key[1])
        self.send(frame) if self.up else self.feedback.append(frame)

    def canceled(self, frame: Json) -> None:
        """The server cancels attempts."""
        task, seq = frame["payload"]["task_id"], frame.get("seq")
        keys = [key for key in self.runs if key[0] == task and (seq in (None, key[1]) or has("cancel-seq-ignored"))]
        if keys or not has("cancel-not-acked"):
            self.ack(frame)
        for key in keys:
            if not has("cancel-ignored"):
                self.stop(key, "canceled")

    def stop(self, key: Key, why: str) -> None:
        """Asks an attempt to stop."""
        run = self.runs[key]
        if run.why is None or why == "stale":
            run.why = why
        run.stop.set()

    # Time.

    def drain(self, limit_ms: int | None = None) -> None:
        """Takes no more tasks, and ends when everything is delivered."""
        limit = DRAIN_LIMIT if limit_ms is None or has("drain-limit-ignored") else limit_ms / 1000
        self.draining, self.drain_until = True, min(self.drain_until, time.monotonic() + limit)
        if self.up:
            self.next_beat = time.monotonic()

    async def tick_forever(self) -> None:
        """Handles the passing of time."""
        while True:
            await asyncio.sleep(TICK)
            self.tick(time.monotonic())

    def tick(self, now: float) -> None:
        """Leases, limits, heartbeats and resends."""
        self.check_limits(now)
        if self.socket is None or self.closing:
            return
        if (self.is_drained() and not (has("drain-needs-a-registration") and not self.up)) or now >= self.greet_until:
            return self.close()
        if not self.up:
            return None
        if now >= self.lease_until and not has("lease-idle-ignored"):
            return self.close()
        if now >= self.next_beat:
            self.beat(now)
        for kept in list(self.kept.values()):
            if now < kept.due or has("result-not-resent"):
                continue
            if kept.resends >= RESENDS_MAX and not has("resend-without-end"):
                return self.close()
            kept.resends += 1
            kept.due = now + self.resend_wait(kept.resends)
            if has("result-new-id"):
                kept.frame = {**kept.frame, "id": f"again-{uuid.uuid4().hex[:8]}"}
            self.send(kept.frame)
        return None

    def check_limits(self, now: float) -> None:
        """Stops attempts whose time is over."""
        for key, run in list(self.runs.items()):
            if now >= self.lease_until - self.lease / 3 and not has("lease-ignored"):
                self.stop(key, "lease")
            if now >= self.drain_until:
                self.stop(key, "drain")
            if run.until is not None and now >= run.until:
                self.stop(key, "timeout")

    def beat(self, now: float) -> None:
        """Sends a heartbeat."""
        metrics: Json = {"inflight": 0 if has("heartbeat-counts-nothing") else len(self.runs)}
        if self.draining:
            metrics["draining"] = True
        frame = self.frame("heartbeat", {"healthy": not self.draining, "metrics": metrics}, ack={"request": True})
        self.beats[frame["id"]] = now
        self.next_beat = now + HEARTBEAT
        self.send(frame)


def encoded(value: Json) -> str:
    """JSON without escapes, which would make it longer."""
    return json.dumps(value, ensure_ascii=has("result-too-long"))


def failed(code: str, message: str, retryable: bool) -> Json:
    """The outcome of a failure."""
    outcome: Json = {"status": "FAILED", "result": {}, "error": {"code": code, "message": message}}
    if not has("retryable-missing"):
        outcome["metadata"] = {"retryable": retryable}
    return outcome


async def _nothing(*arguments: Any) -> None: ...


def _drop_pings(socket: ClientConnection) -> None:
    """Makes the library silent about pings."""
    send_frame = socket.protocol.send_frame

    def send(frame: Any) -> None:
        if frame.opcode.name != "PONG":
            send_frame(frame)

    socket.protocol.send_frame = send  # type: ignore[method-assign]


async def main() -> int:
    """Runs the worker until SIGTERM has drained it."""
    worker = Worker()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.drain)
    return await worker.run()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
