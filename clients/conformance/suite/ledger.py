"""What the server of the suite knows, and the rules that every worker keeps in every scenario.

The ledger sees every frame in both directions and every line of the adapter. It notes each broken rule as an offence; it
sends nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .frames import FRAME_BYTES_MAX, TENANT, WORKER_TYPES, Json, Schemas, acknowledged_id

# How many tasks the adapter may run at once, as its contract says.
PARALLEL_MAX = 4

Key = tuple[str, int]


@dataclass
class Attempt:
    """One attempt at a task, as the server knows it."""

    key: Key
    run_id: str
    kind: str
    parameters: Json
    frame: Json
    # The adapter acknowledged a copy of the dispatch, and the server received that.
    taken: bool = False
    # The adapter acknowledged it with E.SESSION.STALE_BINDING, or a newer attempt or the server made it void.
    void: bool = False
    canceled: bool = False
    # The first outcome that the server accepted.
    outcome: Json | None = None
    # An acknowledgement of the outcome left the server.
    acknowledged: bool = False
    # The adapter has certainly seen that acknowledgement: the outcome must not come again.
    final: bool = False
    # The frames with which the outcome may come: the id and the payload of the first copy.
    sent: Json | None = None
    copies: int = 0


@dataclass
class Phase:
    """How far the handshake of one connection got."""

    handshake: str | None = None
    greeted: bool = False
    register: str | None = None
    registered: bool = False
    dispatched: bool = False


@dataclass
class Ledger:
    """Everything that happened in one scenario."""

    schemas: Schemas
    worker: str
    offences: list[str] = field(default_factory=list)
    attempts: dict[Key, Attempt] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    running: set[str] = field(default_factory=set)
    boot_ids: set[str] = field(default_factory=set)
    _phases: dict[int, Phase] = field(default_factory=dict)
    _ids: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    _sent: dict[int, set[str]] = field(default_factory=dict)
    _runs: dict[str, int] = field(default_factory=dict)

    def offend(self, rule: str) -> None:
        """Notes a broken rule, once."""
        if rule not in self.offences:
            self.offences.append(rule)

    def phase(self, connection: int) -> Phase:
        """How far this connection is."""
        return self._phases.setdefault(connection, Phase())

    # What the server sends.

    def sends(self, connection: int, frame: Json, delivered: bool) -> None:
        """The server sends a frame. `delivered` is false for a frame that the scenario loses."""
        if frame["type"] == "cmd.dispatch":
            self._note_dispatch(frame)
        if not delivered:
            return
        self._sent.setdefault(connection, set()).add(frame["id"])
        phase = self.phase(connection)
        kind, payload = frame["type"], frame["payload"]
        if kind == "cmd.dispatch":
            phase.dispatched = True
        elif kind == "cmd.cancel":
            for attempt in self._of_task(payload["task_id"], frame.get("seq")):
                attempt.canceled = True
        elif kind == "ack":
            if payload["for"] == phase.handshake:
                phase.greeted = phase.greeted or payload["ok"]
            elif payload["for"] == phase.register:
                phase.registered = phase.registered or payload["ok"]
        elif kind == "error" and payload["code"] == "E.SESSION.STALE_BINDING" and frame.get("corr"):
            for attempt in self._of_task(frame["corr"], frame.get("seq")):
                attempt.void = True

    def _note_dispatch(self, frame: Json) -> None:
        payload, key = frame["payload"], (frame["payload"]["task_id"], frame["seq"])
        if key in self.attempts:
            return
        for attempt in self._of_task(key[0], None):
            if attempt.key[1] < key[1]:
                attempt.void = True
        kind, parameters = payload["node_type"], payload["parameters"]
        attempt = Attempt(key, payload["run_id"], kind, parameters, frame)
        attempt.void = any(other.key[1] > key[1] for other in self._of_task(key[0], None))
        self.attempts[key] = attempt

    def _of_task(self, task: str, seq: int | None) -> list[Attempt]:
        return [one for one in self.attempts.values() if one.key[0] == task and seq in (None, one.key[1])]

    def accepts(self, frame: Json, acknowledged: bool) -> bool:
        """The server accepts an outcome; false when it had one already. `acknowledged`: an ack leaves the server."""
        attempt = self.attempts.get((frame.get("corr"), frame.get("seq")))
        if attempt is None:
            return True
        first = attempt.outcome is None
        if first:
            attempt.outcome = frame
            self._check_outcome(attempt, frame)
        attempt.acknowledged |= acknowledged
        return first

    def acknowledged(self) -> list[Attempt]:
        """The attempts whose outcome was acknowledged."""
        return [attempt for attempt in self.attempts.values() if attempt.acknowledged]

    @staticmethod
    def settle(attempts: list[Attempt]) -> None:
        """The adapter has seen the acknowledgements of these outcomes: they must not come again."""
        for attempt in attempts:
            attempt.final = True

    # What the adapter sends.

    def receives(self, connection: int, text: str | bytes, frame: Any) -> bool:
        """The adapter sent a message. False when it is not a valid frame."""
        if not isinstance(text, str):
            self.offend("the worker sent a binary message; every frame is a text message")
            return False
        if len(text.encode()) > FRAME_BYTES_MAX:
            self.offend(f"the worker sent a frame of {len(text.encode())} bytes; the limit is {FRAME_BYTES_MAX}")
        offence = "it is not JSON" if frame is None else self.schemas.offence(frame)
        if offence:
            self.offend(f"the worker sent an invalid frame: {offence}: {text[:300]}")
            return False
        self._check_envelope(connection, frame)
        self._check_order(connection, frame)
        self._check_identity(frame)
        kind = frame["type"]
        if kind == "register":
            self._check_register(frame)
        elif self.is_outcome(frame):
            self._check_copy(frame)
        elif kind == "feedback":
            key = (frame.get("corr"), frame.get("seq"))
            if key not in self.attempts or frame["payload"]["task_id"] != key[0]:
                self.offend(f"feedback names the attempt {key}, which was never dispatched")
        return True

    def is_outcome(self, frame: Json) -> bool:
        """True for a result, and for an error that ends an attempt."""
        if frame["type"] == "result":
            return True
        return frame["type"] == "error" and (frame.get("corr"), frame.get("seq")) in self.attempts

    def taken(self, frame: Json) -> None:
        """The server handles an acknowledgement of the adapter."""
        for attempt in self.attempts.values():
            if attempt.frame["id"] == acknowledged_id(frame):
                attempt.taken = True
                attempt.void |= frame["payload"].get("info") == "E.SESSION.STALE_BINDING"

    def _check_envelope(self, connection: int, frame: Json) -> None:
        kind = frame["type"]
        if kind not in WORKER_TYPES:
            self.offend(f"a worker does not send frames of type {kind}")
        if frame["tenant"] != TENANT:
            self.offend(f"{kind} carries the tenant {frame['tenant']!r}, not {TENANT!r}")
        if frame["sender"] != {"role": "worker", "id": self.worker}:
            self.offend(f"{kind} has the sender {frame['sender']!r}, not the worker {self.worker!r}")
        requests = bool((frame.get("ack") or {}).get("request"))
        if kind in ("handshake", "register", "heartbeat", "result") and not requests:
            self.offend(f"{kind} does not request an acknowledgement (ack.request)")
        if kind == "ack":
            wanted = acknowledged_id(frame)
            if wanted != frame["payload"].get("for"):
                self.offend("an ack names two frames: ack.for and payload.for differ")
            if wanted not in self._sent.get(connection, set()):
                self.offend(f"the worker acknowledges {wanted!r}, which was not sent on this connection")

    def _check_order(self, connection: int, frame: Json) -> None:
        """Nothing but the handshake before its acknowledgement, nothing but answers before the registration."""
        phase, kind = self.phase(connection), frame["type"]
        if kind == "handshake":
            if phase.handshake is None:
                phase.handshake = frame["id"]
            elif phase.handshake != frame["id"]:
                self.offend("a second handshake with another id on one connection")
            return
        if phase.handshake is None:
            return self.offend(f"{kind} comes before the handshake")
        # An answer to a frame is allowed whenever the server sent one.
        if kind in ("ack", "error") and self._sent.get(connection):
            return None
        if not phase.greeted:
            return self.offend(f"{kind} comes before the handshake is acknowledged")
        if kind == "register":
            if phase.register is None:
                phase.register = frame["id"]
            elif phase.register != frame["id"]:
                self.offend("a second register with another id on one connection")
        elif not (phase.registered or phase.dispatched):
            self.offend(f"{kind} comes before the registration is acknowledged")
        return None

    def _check_identity(self, frame: Json) -> None:
        """The same id is always the same frame."""
        known = (frame["type"], frame.get("corr"), frame.get("seq"), repr(frame["payload"]))
        if self._ids.setdefault(frame["id"], known) != known:
            self.offend(f"the id {frame['id']!r} names two different frames, of type {known[0]}")

    def _check_register(self, frame: Json) -> None:
        payload = frame["payload"]
        boot_id = payload.get("boot_id")
        if not boot_id or len(boot_id.encode()) > 128:
            self.offend(f"register has the boot_id {boot_id!r}; it must have 1 to 128 bytes")
        self.boot_ids.add(boot_id)
        if len(self.boot_ids) > 1:
            self.offend("one process registers with different boot_ids")
        listed = {(task["task_id"], task["seq"]) for task in payload.get("tasks") or []}
        for key in listed - set(self.attempts):
            self.offend(f"register lists the attempt {key}, which was never dispatched")
        for attempt in self.attempts.values():
            if attempt.taken and not attempt.acknowledged and not attempt.void and attempt.key not in listed:
                self.offend(f"register does not list the attempt {attempt.key}: its result would be lost")

    def _check_copy(self, frame: Json) -> None:
        """All copies of an outcome are one frame, and no outcome comes after its acknowledgement was seen."""
        key = (frame.get("corr"), frame.get("seq"))
        attempt = self.attempts.get(key)
        if attempt is None:
            return self.offend(f"an outcome names the attempt {key}, which was never dispatched")
        if frame["type"] == "result" and frame["payload"]["task_id"] != key[0]:
            self.offend(f"the result of {key} names the task {frame['payload']['task_id']!r}")
        if frame["type"] == "result" and frame["payload"]["run_id"] != attempt.run_id:
            self.offend(f"the result of {key} names the run {frame['payload']['run_id']!r}, not {attempt.run_id!r}")
        attempt.copies += 1
        same = {"id": frame["id"], "payload": frame["payload"]}
        if attempt.sent is None:
            attempt.sent = same
        elif attempt.sent["id"] != same["id"]:
            self.offend(f"the outcome of {key} came under two ids: a frame that is sent again keeps its id")
        if attempt.final:
            self.offend(f"the outcome of {key} came again after its acknowledgement")
        return None

    def _check_outcome(self, attempt: Attempt, frame: Json) -> None:
        """The content of an outcome, by the contract of the adapter's kinds."""
        if frame["type"] != "result":
            return
        payload, key = frame["payload"], attempt.key
        status, result = payload["status"], payload["result"]
        if status == "SUCCEEDED":
            wanted = {"wait": {"released": True}, "log": {}}.get(attempt.kind, attempt.parameters)
            if result != wanted:
                self.offend(f"the result of {key} is {str(result)[:200]}, not {str(wanted)[:200]}")
        retryable = (payload.get("metadata") or {}).get("retryable")
        if attempt.kind in ("fail", "fatal") and status == "FAILED":
            if retryable is not (attempt.kind == "fail"):
                self.offend(f"the failure of {key} has metadata.retryable {retryable!r}")
            message = (payload.get("error") or {}).get("message")
            if attempt.parameters.get("message") not in (None, message) and attempt.kind == "fail":
                self.offend(f"the failure of {key} has the message {message!r}")
        if status == "CANCELLED" and (payload.get("error") or {}).get("code") != "E.RUNNER.CANCELLED":
            self.offend(f"{key} is CANCELLED without the code E.RUNNER.CANCELLED")
        if status == "CANCELLED" and not attempt.canceled:
            self.offend(f"{key} is CANCELLED, and the server did not cancel it")

    # What the adapter prints.

    def prints(self, line: str) -> None:
        """The adapter printed a line."""
        self.lines.append(line)
        word, *rest = line.split(" ")
        if word == "run" and len(rest) == 2:
            self._began(rest[0])
        elif word in ("end", "canceled") and len(rest) == 1:
            self.running.discard(rest[0])
        elif line != "ready" and not (word == "denied" and len(rest) == 1):
            self.offend(f"the adapter printed {line!r}, which is no line of its contract")

    def _began(self, task: str) -> None:
        if task in self.running:
            self.offend(f"{task} runs twice at the same time")
        self.running.add(task)
        if len(self.running) > PARALLEL_MAX:
            self.offend(f"{len(self.running)} tasks run at the same time; the worker offered {PARALLEL_MAX}")
        self._runs[task] = self._runs.get(task, 0) + 1
        allowed = len(self._of_task(task, None))
        if self._runs[task] > allowed:
            self.offend(f"{task} was run {self._runs[task]} times for {allowed} attempts")

    def check_end(self) -> None:
        """The rules that hold once the adapter has ended or everything is settled."""
        for attempt in self.attempts.values():
            succeeded = attempt.outcome is not None and attempt.outcome["type"] == "result"
            finished = succeeded and attempt.outcome["payload"]["status"] in ("SUCCEEDED", "FAILED")
            if finished and not self._runs.get(attempt.key[0]):
                self.offend(f"{attempt.key} has a result and was never run")
