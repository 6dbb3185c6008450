"""The worker's side of the worker protocol as a state machine without sockets and clocks: frames, ends of attempts and time
go in, actions come out.

`worker.py` carries the actions out. Nothing here blocks, so every dialogue can be tested step by step. The specification is
`docs/worker-protocol.md`.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from .actions import Abandon, Action, Answered, Close, CloseReason, Now, Profile, Read, Send, Start, Stop
from .ended import Ended, message_of
from .frames import BadFrame, Frame
from .model import format_time
from .outbox import GREETING, REPORT, Keep, Outbox, TaskKey
from .tasks import Order, Rejection, StopReason, Tasks

PROTOCOL_VERSION = 1
# How long handshake and registration may take together, in seconds.
HANDSHAKE_LIMIT = 15.0
# How many heartbeats without an answer make a lease, unless the scheduler names one.
HEARTBEATS_PER_LEASE = 3
# Most feedback frames that wait for a connection. Beyond it, the oldest are dropped.
FEEDBACK_WAITING_MAX = 1_024
# How many invalid frames in a row end a connection.
BAD_FRAMES_MAX = 32
# Most unanswered heartbeats that are remembered.
BEATS_MAX = 16
# How long a draining worker waits for acknowledgements after its last attempt was stopped, in seconds.
FLUSH_LIMIT = 10.0
# Most tasks in a registration.
TASKS_MAX = 16_384

State: TypeAlias = Literal["NEW", "HANDSHAKING", "REGISTERED", "HEARTBEATING", "DRAINING", "CLOSED", "BACKOFF"]
NEXT_STATES: dict[State, tuple[State, ...]] = {
    "NEW": ("HANDSHAKING",),
    "HANDSHAKING": ("REGISTERED", "BACKOFF"),
    "REGISTERED": ("HEARTBEATING", "BACKOFF", "CLOSED"),
    "HEARTBEATING": ("DRAINING", "CLOSED", "BACKOFF"),
    "DRAINING": ("CLOSED", "BACKOFF"),
    "CLOSED": ("NEW", "BACKOFF"),
    "BACKOFF": ("NEW",),
}


def connection_wait(failures: int, draw: float) -> float:
    """The wait before the next connection: 0.5 s, 1 s, … 30 s, up to half shorter, so that workers return spread out."""
    return float(min(0.5 * 2 ** min(failures, 30), 30.0) * (1 - draw / 2))


class Protocol:
    """The state machine. Every method that takes an input returns the actions to carry out, in order."""

    def __init__(self, profile: Profile, draw: Callable[[], float] = random.random) -> None:
        self.profile = profile
        self.state: State = "NEW"
        self.tasks = Tasks(profile.max_parallel, profile.kind_limits)
        self.outbox = Outbox()
        self.retry_at = 0.0
        self._draw = draw
        self._out: list[Action] = []
        self._feedback: deque[Frame] = deque(maxlen=FEEDBACK_WAITING_MAX)
        self._next_id = 0
        self._register: dict[str, Any] = {}
        self._handshake_id: str | None = None
        self._registration: tuple[str, float] | None = None
        self._handshake_until: float | None = None
        self._beats: deque[tuple[str, float]] = deque(maxlen=BEATS_MAX)
        self._next_beat: float | None = None
        self._latency_ms: int | None = None
        self._lease = (profile.heartbeat + profile.heartbeat_jitter) * HEARTBEATS_PER_LEASE
        self._lease_until = float("inf")
        self._drain_until: float | None = None
        self._failures = 0
        self._bad_frames = 0
        self._closed = False

    @property
    def is_up(self) -> bool:
        """True while tasks may run under this session."""
        return self.state in ("HEARTBEATING", "DRAINING")

    @property
    def is_connected(self) -> bool:
        return self.state not in ("NEW", "BACKOFF", "CLOSED")

    # Inputs of the driver

    def dial(self) -> None:
        """A connection is being opened."""
        if self.state == "BACKOFF":
            self._go("NEW")

    def connected(self, now: Now, auth: dict[str, Any], register: dict[str, Any]) -> list[Action]:
        """A connection is open: sends the handshake. `register` follows when that is acknowledged."""
        self._go("HANDSHAKING")
        self._bad_frames = 0
        self._handshake_until = now.mono + HANDSHAKE_LIMIT
        self._register = register
        profile = self.profile
        worker = {"id": profile.worker_id, "version": profile.version, "hostname": profile.hostname}
        frame = self._frame(now, "handshake", {"protocol": PROTOCOL_VERSION, "auth": auth, "worker": worker}, ask=True)
        self._handshake_id = frame["id"]
        self._send_kept(now, frame, GREETING)
        return self._take()

    def disconnected(self, now: Now) -> None:
        """The connection was closed, or could not be opened."""
        if self.state in ("CLOSED", "BACKOFF"):
            return
        self.outbox.remove_where(lambda keep: keep is GREETING)
        self.tasks.forget_connection()
        self._beats.clear()
        self._next_beat = self._handshake_id = self._registration = self._handshake_until = None
        if self.state == "NEW":
            # A connection that never opened counts as a failed handshake.
            self._go("HANDSHAKING")
        self._go("BACKOFF")
        self.retry_at = now.mono + connection_wait(self._failures, self._draw())
        self._failures += 1

    def drain(self, now: Now, limit: float | None = None) -> list[Action]:
        """The worker takes no more tasks, and running ones get `limit` seconds or the limit of the profile."""
        self._drain(now, limit)
        return self._take()

    def _drain(self, now: Now, limit: float | None) -> None:
        until = now.mono + (self.profile.drain_limit if limit is None else limit)
        self._drain_until = until if self._drain_until is None else min(self._drain_until, until)
        if self.state == "HEARTBEATING":
            self._go("DRAINING")
            self._next_beat = now.mono
        self._close_if_drained()

    def feedback(self, now: Now, key: TaskKey, payload: dict[str, Any]) -> list[Action]:
        """Sends a report of a running task, or keeps it for the next connection."""
        frame = self._frame(now, "feedback", payload, key=key)
        if self.is_up:
            self._out.append(Send(frame))
        else:
            self._feedback.append(frame)
        return self._take()

    def next_request(self, now: Now, key: TaskKey, payload: dict[str, Any]) -> list[Action]:
        """A middleware calls the rest of its chain."""
        if key in self.tasks.open:
            self.tasks.open[key].calls.add(payload["requestId"])
        self._send_report(now, self._frame(now, "middleware.next_request", payload, key=key, ask=True))
        return self._take()

    def part_read(self, now: Now, asked: str, answer: dict[str, Any] | Rejection) -> list[Action]:
        """A part of a resource was read, or could not be. It is not kept: the reader repeats the request if it needs it."""
        if self.is_up and isinstance(answer, Rejection):
            self._send_error(now, asked, answer, {})
        elif self.is_up and isinstance(answer, dict):
            self._out.append(Send(self._frame(now, "resource.data", answer, corr=asked)))
        return self._take()

    def ended(self, now: Now, key: TaskKey, ended: Ended) -> list[Action]:
        """An attempt has ended: its outcome is sent, and kept until it is acknowledged. Others are ignored."""
        found = self.tasks.end(now.mono, key)
        if found is None:
            return []
        open, following = found
        # A stopped attempt was stopped, whatever its handler raised, unless it finished first.
        if open.stopping is not None and ended.what != "done":
            ended = Ended("stopped")
        if open.stopping != "stale":
            why = open.stopping or "lease"
            self._send_outcome(now, open.order, *message_of(open.order, ended, why, now.mono - open.started))
        if following is not None:
            self._out.append(Start(following))
        self._close_if_drained()
        return self._take()

    def received(self, now: Now, frame: Frame) -> list[Action]:
        """Handles a frame of the scheduler."""
        self._bad_frames = 0
        payload = frame["payload"]
        foreign = self._foreign(frame)
        if foreign is not None:
            self._send_error(now, frame["id"], foreign, {"tenant": frame["tenant"], "sender": frame["sender"]["id"]})
            return self._take()
        match frame["type"]:
            case "ack":
                id = (frame.get("ack") or {}).get("for") or payload["for"]
                self._acknowledged(now, id, payload["ok"], payload.get("info") or "")
            case "error":
                self._ack_if_asked(now, frame)
                self._error_received(now, frame)
            case "cmd.dispatch":
                self._dispatched(now, frame)
            case "cmd.cancel":
                self._ack_if_asked(now, frame)
                self._canceled(now, payload["task_id"], frame.get("seq"))
            case "cmd.drain":
                self._ack_if_asked(now, frame)
                limit_ms = payload.get("limit_ms")
                self._drain(now, None if limit_ms is None else limit_ms / 1000)
            case "pkg.install" | "pkg.uninstall":
                self._ack_if_asked(now, frame)
                if self.tasks.is_new_frame(frame["id"], frame.get("corr")):
                    self._send_report(now, self._package_event(now, frame))
            case "resource.read":
                self._registered_by_proof(now)
                self._out.append(Read(frame["id"], payload))
            case "middleware.next_response":
                self._ack_if_asked(now, frame)
                for open in self.tasks.open.values():
                    open.calls.discard(payload["requestId"])
                self._out.append(Answered(payload))
            case kind:
                rejection = Rejection("E.CMD.UNKNOWN", "worker.session", f"a worker does not take frames of type {kind!r}")
                self._send_error(now, frame["id"], rejection, {})
        return self._take()

    def received_bad(self, now: Now, bad: BadFrame) -> list[Action]:
        """A frame could not be read. It gets an error; only many in a row end the connection."""
        self._bad_frames += 1
        # An error about an invalid error would cause an endless exchange.
        if bad.type not in ("ack", "error", "command.error"):
            details = {"id": bad.id, "type": bad.type}
            known = {name: value for name, value in details.items() if value is not None}
            self._send_error(now, bad.id, Rejection(bad.code, bad.part, bad.message), known)
        if self._bad_frames >= BAD_FRAMES_MAX:
            self._close("retry")
        return self._take()

    # Frames of the scheduler

    def _foreign(self, frame: Frame) -> Rejection | None:
        message = None
        if frame["tenant"] != self.profile.tenant:
            message = "the frame belongs to another tenant than the connection"
        elif frame["sender"]["role"] != "scheduler":
            message = "the sender of the frame is not a scheduler"
        return None if message is None else Rejection("E.SESSION.DENIED", "worker.session", message)

    def _acknowledged(self, now: Now, id: str, ok: bool, info: str) -> None:
        lease_ms = dict(pair.split("=", 1) for pair in info.split() if "=" in pair).get("lease_ms", "")
        if lease_ms.isdigit() and int(lease_ms) > 0:
            self._lease = int(lease_ms) / 1000
        sent = next((sent for beat, sent in self._beats if beat == id), None)
        if sent is not None:
            # This acknowledgement covers older heartbeats.
            while self._beats.popleft()[0] != id:
                pass
            self._latency_ms = round((now.mono - sent) * 1000)
            self._lease_until = sent + self._lease
            return
        kept = self.outbox.remove(id)
        if id == self._handshake_id:
            self._greeted(now, ok)
        elif self._registration is not None and id == self._registration[0]:
            self._registered(now, ok)
        elif kept is not None:
            self._close_if_drained()

    def _greeted(self, now: Now, ok: bool) -> None:
        self._handshake_id = None
        if not ok:
            return self._close("retry")
        self._go("REGISTERED")
        kept = sorted({*self.tasks.keys(), *self.outbox.attempts()})[:TASKS_MAX]
        tasks = [{"task_id": key.task_id, "seq": key.seq} for key in kept]
        payload = {**self._register, "boot_id": self.profile.boot_id, "tasks": tasks}
        frame = self._frame(now, "register", payload, ask=True)
        self._registration = (frame["id"], now.mono)
        self._send_kept(now, frame, GREETING)

    def _registered(self, now: Now, ok: bool) -> None:
        if self._registration is None:
            return
        id, sent = self._registration
        self._registration = None
        self.outbox.remove(id)
        if not ok:
            return self._close("retry")
        self._go("HEARTBEATING")
        self._failures = 0
        self._handshake_until = None
        # Counted from when it was sent, not from its answer: the scheduler cannot count from later.
        self._lease_until = sent + self._lease
        self._next_beat = now.mono
        self.outbox.rewind(now.mono, lambda keep: keep is not GREETING)
        self._out.extend(Send(frame) for frame in self._feedback)
        self._feedback.clear()
        if self._drain_until is not None:
            self._go("DRAINING")
            self._close_if_drained()

    def _registered_by_proof(self, now: Now) -> None:
        """The scheduler sends tasks and reads only to registered workers: the acknowledgement was lost, or comes later."""
        if self.state == "REGISTERED":
            self._registered(now, True)

    def _dispatched(self, now: Now, frame: Frame) -> None:
        dispatch = frame["payload"]
        order = Order(TaskKey(dispatch["task_id"], frame.get("seq") or 0), dispatch)
        self._registered_by_proof(now)
        if not self.is_up:
            rejection = Rejection("E.SESSION.DENIED", "worker.session", "the session is not registered yet")
            return self._send_error(now, frame["id"], rejection, _details(order))
        if not self.tasks.is_new_frame(frame["id"], frame.get("corr")):
            return self._again(now, frame, order.key)
        draining = self._drain_until is not None
        intake = self.tasks.take(now.mono, order, self.outbox, draining, self.profile.unfit(order))
        match intake.what:
            case "again":
                self._again(now, frame, order.key)
            case "stale":
                self._ack(now, frame, "E.SESSION.STALE_BINDING")
            case "start":
                self._ack(now, frame)
                self._out.append(Start(order))
            case "wait":
                self._ack(now, frame)
                assert intake.stop is not None
                self._stop(intake.stop, "stale")
            case "rejected":
                self._ack(now, frame)
                assert intake.rejection is not None
                self._send_outcome(now, order, "error", _report(intake.rejection, _details(order)))

    def _again(self, now: Now, frame: Frame, key: TaskKey) -> None:
        """A duplicate dispatch: it is acknowledged again, and a waiting outcome is sent at once."""
        self._ack(now, frame)
        self.outbox.rewind(now.mono, lambda keep: keep.key == key)

    def _canceled(self, now: Now, task_id: str, seq: int | None) -> None:
        waiting = self.tasks.remove_waiting(task_id, seq)
        if waiting is not None:
            self._send_outcome(now, waiting, *message_of(waiting, Ended("stopped"), "canceled", None))
        for key in self.tasks.attempts(task_id, seq):
            self._stop(key, "canceled")

    def _stop(self, key: TaskKey, why: StopReason) -> None:
        if self.tasks.stop(key, why):
            self._out.append(Stop(key, why))

    def _error_received(self, now: Now, frame: Frame) -> None:
        corr, seq = frame.get("corr"), frame.get("seq")
        match frame["payload"]["code"]:
            case "E.RESULT.SEQ_GAP":
                run = None if corr is None else self.outbox.run_of(corr) or corr
                self.outbox.rewind(now.mono, lambda keep: keep.key is not None and run in (None, keep.run_id))
            case "E.RESULT.DUPLICATE":
                if corr is not None:
                    self._forget_outcome(corr, seq)
            case "E.SESSION.STALE_BINDING":
                self._stale(corr, seq)
            case "E.AUTH.INVALID_TOKEN" | "E.AUTH.MTLS_REQUIRED":
                self._close("retry")
            case "E.SESSION.DENIED" if not self.is_up:
                self._close("retry")
            case "E.SESSION.DENIED" | "E.CMD.UNKNOWN":
                # A frame that the scheduler cannot read would fail again.
                if corr is not None:
                    self.outbox.remove(corr)
        self._close_if_drained()

    def _stale(self, corr: str | None, seq: int | None) -> None:
        """The attempt no longer belongs to this worker; without an attempt, a newer connection uses its name."""
        if corr is None:
            return self._close("superseded")
        key = self._forget_outcome(corr, seq)
        task_id, seq = key or (corr, seq)
        self.tasks.remove_waiting(task_id, seq)
        for attempt in self.tasks.attempts(task_id, seq):
            self._stop(attempt, "stale")

    def _forget_outcome(self, corr: str, seq: int | None) -> TaskKey | None:
        """Removes an outcome by the id of its frame or by its task. Returns the attempt if the id of the frame matched."""
        kept = self.outbox.remove(corr)
        if kept is not None and kept.key is not None:
            return kept.key
        self.outbox.remove_where(lambda keep: keep.key is not None and keep.key[0] == corr and seq in (None, keep.key[1]))
        return None

    # Time

    def next_wakeup(self) -> float | None:
        """When `tick` has something to do next."""
        unstopped = any(open.stopping is None for open in self.tasks.open.values())
        drain, flush = self._drain_until, None if self._drain_until is None else self._drain_until + self._flush_after
        times = [
            self.outbox.next_due(self.is_up) if self.is_connected else None,
            self._next_beat,
            self._handshake_until,
            self._lease_warning if unstopped else None,
            self._lease_until if self.tasks.open or (self.is_up and not self._closed) else None,
            drain if unstopped else None,
            flush if not self._closed else None,
        ]
        return min((at for at in times if at is not None and at != float("inf")), default=None)

    def tick(self, now: Now) -> list[Action]:
        """Handles everything that is due."""
        if self._handshake_until is not None and now.mono >= self._handshake_until:
            self._handshake_until = None
            self._close("retry")
            return self._take()
        self._check_lease(now)
        self._check_drain(now)
        if self._closed:
            return self._take()
        if self.is_up and now.mono >= self._lease_until:
            # No answer for the length of a lease: the connection is half open, or the scheduler hangs.
            self._close("retry")
            return self._take()
        if self._next_beat is not None and now.mono >= self._next_beat and self.is_up:
            self._beat(now)
        if self.is_connected:
            self._resend(now)
        return self._take()

    def _resend(self, now: Now) -> None:
        due, exhausted = self.outbox.take_due(now.mono, self.is_up, self._draw)
        self._out.extend(Send(frame) for frame in due)
        if exhausted:
            # Outcomes are kept, and are sent again on the next connection.
            self.outbox.rewind(now.mono, lambda keep: True)
            self._close("retry")

    def _beat(self, now: Now) -> None:
        profile = self.profile
        metrics = {**profile.vitals(), "inflight": len(self.tasks)}
        if self._latency_ms is not None:
            metrics["latency_ms"] = self._latency_ms
        draining = self._drain_until is not None
        if draining:
            metrics["draining"] = True
        full = metrics.get("mem_pct", 0) >= profile.mem_pct_max or metrics.get("disk_pct", 0) >= profile.disk_pct_max
        frame = self._frame(now, "heartbeat", {"healthy": not draining and not full, "metrics": metrics}, ask=True)
        self._beats.append((frame["id"], now.mono))
        self._next_beat = now.mono + profile.heartbeat + profile.heartbeat_jitter * self._draw()
        self._out.append(Send(frame))

    @property
    def _lease_warning(self) -> float:
        """When attempts are asked to stop so that they have ended when the lease ends."""
        return self._lease_until - min(self.profile.stop_grace, self._lease / 3)

    @property
    def _flush_after(self) -> float:
        return self.profile.stop_grace + FLUSH_LIMIT

    def _check_lease(self, now: Now) -> None:
        """No attempt runs beyond the lease: the scheduler may give it to another worker then."""
        if now.mono < self._lease_warning:
            return
        for key in list(self.tasks.open):
            self._stop(key, "lease")
            if now.mono >= self._lease_until:
                self._out.append(Abandon(key))

    def _check_drain(self, now: Now) -> None:
        if self._drain_until is None or now.mono < self._drain_until:
            return
        for key in list(self.tasks.open):
            self._stop(key, "drain")
        if now.mono >= self._drain_until + self._flush_after and not self._closed:
            self._close("done")

    # Outputs

    def _take(self) -> list[Action]:
        out, self._out = self._out, []
        return out

    def _go(self, to: State) -> None:
        assert to in NEXT_STATES[self.state], f"a session goes only where the table allows: {self.state} -> {to}"
        self.state = to

    def _close(self, why: CloseReason) -> None:
        if why != "retry":
            self._closed = True
            if "CLOSED" in NEXT_STATES[self.state]:
                self._go("CLOSED")
        self._out.append(Close(why))

    def _close_if_drained(self) -> None:
        is_idle = len(self.tasks) == 0 and self.outbox.outcomes() == 0
        if self._drain_until is not None and not self._closed and is_idle:
            self._close("done")

    def _frame(
        self,
        now: Now,
        kind: str,
        payload: dict[str, Any],
        *,
        key: TaskKey | None = None,
        corr: str | None = None,
        ask: bool = False,
    ) -> Frame:
        profile = self.profile
        id = f"{kind}-{profile.instance}-{self._next_id}"
        self._next_id += 1
        sender = {"role": "worker", "id": profile.worker_id}
        frame: Frame = {"type": kind, "id": id, "ts": format_time(now.wall), "tenant": profile.tenant, "sender": sender}
        if key is not None:
            frame |= {"corr": key.task_id, "seq": key.seq}
        elif corr is not None:
            frame["corr"] = corr
        if ask:
            frame["ack"] = {"request": True}
        return {**frame, "payload": payload}

    def _ack_if_asked(self, now: Now, frame: Frame) -> None:
        if (frame.get("ack") or {}).get("request"):
            self._ack(now, frame)

    def _ack(self, now: Now, frame: Frame, info: str | None = None) -> None:
        payload: dict[str, Any] = {"ok": True, "for": frame["id"]}
        if info is not None:
            payload["info"] = info
        answer = {**self._frame(now, "ack", payload), "ack": {"for": frame["id"]}}
        answer |= {name: frame[name] for name in ("corr", "seq") if frame.get(name) is not None}
        self._out.append(Send(answer))

    def _send_error(self, now: Now, corr: str | None, rejection: Rejection, details: dict[str, Any]) -> None:
        """An error about a frame. It is not kept: the sender repeats frames that matter to it."""
        self._out.append(Send(self._frame(now, "error", _report(rejection, details), corr=corr)))

    def _send_kept(self, now: Now, frame: Frame, keep: Keep) -> None:
        self.outbox.put(now.mono, frame, keep, self._draw())
        if self.is_up or keep is GREETING:
            self._out.append(Send(frame))

    def _send_report(self, now: Now, frame: Frame) -> None:
        """Sends a frame, and keeps it unless too many are kept: the space for outcomes is reserved with their tasks."""
        if not self.outbox.is_full(len(self.tasks)):
            self._send_kept(now, frame, REPORT)
        elif self.is_up:
            self._out.append(Send(frame))

    def _send_outcome(self, now: Now, order: Order, kind: str, payload: dict[str, Any]) -> None:
        frame = self._frame(now, kind, payload, key=order.key, ask=True)
        if kind == "error" and order.key not in self.tasks.open and self.outbox.is_full(len(self.tasks)):
            # A peer that sends more than can be rejected gets each rejection once.
            self._out.append(Send({name: value for name, value in frame.items() if name != "ack"}))
        else:
            self._send_kept(now, frame, Keep("outcome", order.key, order.dispatch["run_id"]))

    def _package_event(self, now: Now, frame: Frame) -> Frame:
        """Packages of a Python worker are installed with pip, not by the scheduler."""
        payload, operation = frame["payload"], frame["type"].removeprefix("pkg.")
        details = {
            "operation": operation,
            "code": "E.PKG.PERMISSION",
            "message": "this worker has no folder for packages",
        }
        version = payload.get("version") or "*"
        event = {"name": payload["name"], "version": version, "status": "failed", "details": details}
        return self._frame(now, "pkg.event", event, corr=frame["id"], ask=True)


def _report(rejection: Rejection, details: dict[str, Any]) -> dict[str, Any]:
    context = {"where": rejection.part, "details": details}
    return {"code": rejection.code, "message": rejection.message, "context": context}


def _details(order: Order) -> dict[str, Any]:
    return {name: order.dispatch[name] for name in ("run_id", "task_id", "node_id")}
