"""Dialogues of the worker with a scheduler, step by step, without sockets and clocks."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest

from laneway.actions import Abandon, Action, Answered, Close, Now, Profile, Read, Send, Start, Stop
from laneway.ended import Ended
from laneway.errors import Failure
from laneway.frames import BadFrame, Frame
from laneway.outbox import OUTBOX_LEN_MAX, TaskKey, frame_wait
from laneway.protocol import BAD_FRAMES_MAX, FEEDBACK_WAITING_MAX, NEXT_STATES, Protocol, connection_wait
from laneway.tasks import Order, Rejection

WALL = datetime(2030, 1, 1, tzinfo=timezone.utc)


def unfit(order: Order) -> Rejection | None:
    if order.dispatch["node_type"] != "unknown":
        return None
    return Rejection("E.CMD.UNKNOWN", "worker.handlers", "no handler")


class World:
    """A worker with a clock that moves only on request, and the actions that it returned."""

    def __init__(self, **options: Any) -> None:
        self.vitals: dict[str, Any] = {"mem_pct": 10.0}
        defaults: dict[str, Any] = {"max_parallel": 4, "heartbeat_jitter": 0.0, "stop_grace": 2.0}
        profile = Profile("acme", "w-1", "1", "h", "boot-7", "7", **{**defaults, **options})
        profile.unfit = unfit
        profile.vitals = lambda: dict(self.vitals)
        self.protocol = Protocol(profile, lambda: 0.0)
        self.time = 0.0
        self.out: list[Action] = []
        self.frames = 0

    @classmethod
    def up(cls, **options: Any) -> World:
        world = cls(**options)
        world.connect()
        return world

    @property
    def now(self) -> Now:
        return Now(self.time, WALL)

    def open(self) -> None:
        self.protocol.dial()
        self.out += self.protocol.connected(self.now, {"mode": "token"}, {"capabilities": {}, "packages": []})

    def connect(self) -> None:
        self.open()
        self.ack(self.last("handshake"))
        register = self.last("register")
        self.out.clear()
        self.ack(register)
        assert self.protocol.state == "HEARTBEATING"

    def sent(self, kind: str | None = None) -> list[Frame]:
        frames = [action.frame for action in self.out if isinstance(action, Send)]
        return [frame for frame in frames if kind in (None, frame["type"])]

    def last(self, kind: str) -> Frame:
        return self.sent(kind)[-1]

    def taken(self) -> list[str]:
        """The actions in short, which are then forgotten."""
        found = []
        for action in self.out:
            match action:
                case Send(frame) if frame["type"] == "error":
                    found.append(frame["payload"]["code"])
                case Send(frame) if frame["type"] == "result":
                    found.append(f"{frame['payload']['status']} {frame['seq']}")
                case Send(frame):
                    found.append(frame["type"])
                case Start(order):
                    found.append(f"start {order.key.task_id} {order.key.seq}")
                case Stop(key, why):
                    found.append(f"stop {key.task_id} {key.seq} {why}")
                case Abandon(key):
                    found.append(f"abandon {key.task_id} {key.seq}")
                case Close(why):
                    found.append(f"close {why}")
                case Read(asked, _):
                    found.append(f"read {asked}")
                case Answered(payload):
                    found.append(f"answered {payload['requestId']}")
        self.out.clear()
        return found

    def frame(self, kind: str, payload: dict[str, Any], **more: Any) -> Frame:
        self.frames += 1
        head = {"type": kind, "id": f"s-{self.frames}", "ts": "2030-01-01T00:00:00Z", "tenant": "acme"}
        return {**head, "sender": {"role": "scheduler", "id": "s"}, "payload": payload, **more}

    def receive(self, frame: Frame) -> Frame:
        self.out += self.protocol.received(self.now, frame)
        return frame

    def ack(self, frame: Frame, ok: bool = True, info: str | None = None) -> None:
        payload: dict[str, Any] = {"ok": ok, "for": frame["id"]}
        self.receive(self.frame("ack", payload if info is None else {**payload, "info": info}))

    def error(self, code: str, corr: str | None = None, seq: int | None = None) -> None:
        self.receive(self.frame("error", {"code": code, "message": "m"}, corr=corr, seq=seq))

    def dispatch(self, task: str, seq: int = 1, kind: str = "k", **more: Any) -> Frame:
        payload: dict[str, Any] = {"run_id": "r1", "task_id": task, "node_id": "n", "node_type": kind, "package_name": "p"}
        payload |= {"package_version": "1", "parameters": {}, "constraints": {}, **more}
        return self.receive(self.frame("cmd.dispatch", payload, corr=task, seq=seq, ack={"request": True}))

    def cancel(self, task: str, seq: int | None = None) -> None:
        self.receive(self.frame("cmd.cancel", {"run_id": "r1", "task_id": task}, corr=task, seq=seq, ack={"request": True}))

    def end(self, task: str, seq: int = 1, ended: Ended | None = None) -> None:
        self.out += self.protocol.ended(self.now, TaskKey(task, seq), ended or Ended.of({"n": 1}, []))

    def cut(self) -> None:
        self.protocol.disconnected(self.now)

    def wait(self, seconds: float) -> None:
        """Moves the clock, and handles everything that becomes due."""
        until = self.time + seconds
        while (at := self.protocol.next_wakeup()) is not None and at <= until:
            before = (self.time, len(self.out))
            self.time = max(self.time, at)
            self.out += self.protocol.tick(self.now)
            if self.out and isinstance(self.out[-1], Close | Abandon):
                return
            following = self.protocol.next_wakeup()
            assert before != (self.time, len(self.out)) or following is None or following > self.time, "it wakes for nothing"
        self.time = until


def test_the_example_exchange() -> None:
    world = World()
    world.open()
    handshake = world.last("handshake")
    assert handshake["ack"] == {"request": True} and handshake["payload"]["protocol"] == 1
    world.ack(handshake)
    register = world.last("register")
    assert register["payload"]["boot_id"] == "boot-7" and register["payload"]["tasks"] == []
    world.ack(register, info="lease_ms=30000")
    dispatch = world.dispatch("t1")
    ack = world.last("ack")
    assert (ack["ack"], ack["corr"], ack["seq"]) == ({"for": dispatch["id"]}, "t1", 1)
    world.end("t1")
    result = world.last("result")
    assert (result["corr"], result["seq"], result["payload"]["result"]) == ("t1", 1, {"n": 1})
    world.ack(result)
    world.out.clear()
    world.wait(11)
    assert world.taken() == ["heartbeat", "heartbeat", "heartbeat"]
    assert len(world.protocol.outbox) == 0


def test_only_the_edges_of_the_state_table_are_there() -> None:
    assert {state: len(following) for state, following in NEXT_STATES.items()} == {
        "NEW": 1, "HANDSHAKING": 2, "REGISTERED": 3, "HEARTBEATING": 3, "DRAINING": 2, "CLOSED": 2, "BACKOFF": 1,
    }  # fmt: skip


def test_no_task_runs_before_the_session_is_up() -> None:
    world = World()
    world.open()
    world.out.clear()
    world.dispatch("t1")
    assert world.taken() == ["E.SESSION.DENIED"]


def test_a_task_proves_that_the_registration_arrived() -> None:
    world = World()
    world.open()
    world.ack(world.last("handshake"))
    register = world.last("register")
    world.out.clear()
    world.dispatch("t1")
    assert world.taken() == ["ack", "start t1 1"]
    world.ack(register)
    world.wait(1)
    assert world.taken() == ["heartbeat"], "the registration is not sent again"


@pytest.mark.parametrize("code", ["E.AUTH.INVALID_TOKEN", "E.AUTH.MTLS_REQUIRED", "E.SESSION.DENIED"])
def test_a_denied_handshake_leads_to_a_retry(code: str) -> None:
    world = World()
    world.open()
    world.out.clear()
    world.error(code)
    assert world.taken() == ["close retry"]
    world.cut()
    assert world.protocol.state == "BACKOFF" and world.protocol.retry_at == 0.5


def test_the_backoff_grows_with_failures_and_begins_anew_after_a_registration() -> None:
    world = World()
    waits = []
    for _ in range(3):
        world.protocol.dial()
        world.cut()
        waits.append(world.protocol.retry_at - world.time)
        world.time = world.protocol.retry_at
    world.connect()
    world.cut()
    assert [*waits, world.protocol.retry_at - world.time] == [0.5, 1.0, 2.0, 0.5]


def test_a_rejected_registration_leads_to_a_retry() -> None:
    world = World()
    world.open()
    world.ack(world.last("handshake"))
    register = world.last("register")
    world.out.clear()
    world.ack(register, ok=False)
    assert world.taken() == ["close retry"]


def test_a_handshake_without_an_answer_is_given_up() -> None:
    world = World()
    world.open()
    world.wait(20)
    assert world.taken()[-1] == "close retry"
    assert world.time <= 15


def test_frames_of_another_tenant_or_of_no_scheduler_have_no_effect() -> None:
    world = World.up()
    world.out.clear()
    world.receive({**world.frame("cmd.drain", {}), "tenant": "other"})
    world.receive({**world.frame("cmd.drain", {}), "sender": {"role": "worker", "id": "s"}})
    assert world.taken() == ["E.SESSION.DENIED", "E.SESSION.DENIED"]
    assert world.protocol.state == "HEARTBEATING"


def test_many_invalid_frames_in_a_row_end_the_connection() -> None:
    world = World.up()
    world.out.clear()
    for _ in range(BAD_FRAMES_MAX - 1):
        world.out += world.protocol.received_bad(world.now, BadFrame("frame.json", "m"))
    assert set(world.taken()) == {"E.CMD.UNKNOWN"}
    world.out += world.protocol.received_bad(world.now, BadFrame("frame.json", "m"))
    assert world.taken() == ["E.CMD.UNKNOWN", "close retry"]
    # An answer to an invalid error would never end.
    world.out += world.protocol.received_bad(world.now, BadFrame("payload", "m", {"type": "error", "id": "x"}))
    assert "E.CMD.UNKNOWN" not in world.taken()


def test_frames_that_only_workers_send_are_answered_with_an_error() -> None:
    world = World.up()
    world.out.clear()
    world.receive(world.frame("heartbeat", {}))
    assert world.taken() == ["E.CMD.UNKNOWN"]


def test_a_dispatch_that_arrives_twice_is_acknowledged_twice_and_runs_once() -> None:
    world = World.up()
    world.wait(0)
    world.out.clear()
    frame = world.dispatch("t1")
    assert world.taken() == ["ack", "start t1 1"]
    world.receive(frame)
    world.dispatch("t1")
    assert world.taken() == ["ack", "ack"]
    world.end("t1")
    assert world.taken() == ["SUCCEEDED 1"]
    # Its outcome is sent at once then, and after that it is remembered.
    world.dispatch("t1")
    world.wait(0)
    assert world.taken() == ["ack", "SUCCEEDED 1"]
    result = world.protocol.outbox.take_due(99, True, lambda: 0.0)[0][0]
    world.ack(result)
    world.dispatch("t1")
    assert world.taken() == ["ack"]


def test_an_older_attempt_is_stale_and_a_newer_one_waits_for_it() -> None:
    world = World.up()
    world.dispatch("t1", 2)
    world.out.clear()
    world.dispatch("t1", 1)
    assert world.last("ack")["payload"]["info"] == "E.SESSION.STALE_BINDING"
    world.out.clear()
    world.dispatch("t1", 3)
    assert world.taken() == ["ack", "stop t1 2 stale"]
    world.end("t1", 2, Ended("stopped"))
    assert world.taken() == ["start t1 3"], "the outcome of the stale attempt is discarded"


def test_limits_are_kept() -> None:
    world = World.up(max_parallel=3, kind_limits={"k": 2})
    world.dispatch("t1", kind="k", concurrency_key="c")
    world.dispatch("t2", kind="k")
    world.out.clear()
    world.dispatch("t3", kind="k")
    world.dispatch("t4", kind="x", concurrency_key="c")
    world.dispatch("t5", kind="unknown")
    assert world.taken() == [
        "ack", "E.CMD.CONCURRENCY_VIOLATION", "ack", "E.CMD.CONCURRENCY_VIOLATION", "ack", "E.CMD.UNKNOWN",
    ]  # fmt: skip
    world.dispatch("t6", kind="x")
    world.dispatch("t7", kind="x")
    assert world.taken() == ["ack", "start t6 1", "ack", "E.CMD.CONCURRENCY_VIOLATION"]


def test_a_chain_takes_one_slot_and_a_caller_that_waits_takes_none() -> None:
    world = World.up(max_parallel=1)
    chain: dict[str, Any] = {"host_node_id": "h", "middleware_chain": ["n"], "chain_index": 0}
    world.dispatch("t1", **chain)
    world.out.clear()
    world.dispatch("t2", **chain)
    assert world.taken() == ["ack", "start t2 1"]
    world.end("t2")
    world.dispatch("t3")
    assert world.taken()[-1] == "E.CMD.CONCURRENCY_VIOLATION"
    world.out += world.protocol.next_request(world.now, TaskKey("t1", 1), {"requestId": "q"})
    world.dispatch("t4")
    assert world.taken() == ["middleware.next_request", "ack", "start t4 1"]
    answer = {"requestId": "q", "runId": "r1", "nodeId": "h", "middlewareId": "n"}
    world.receive(world.frame("middleware.next_response", answer))
    assert world.taken() == ["answered q"]


def test_an_outcome_is_sent_again_until_it_is_acknowledged() -> None:
    world = World.up(heartbeat=1000.0, max_parallel=1)
    world.wait(0)
    world.dispatch("t1")
    world.end("t1")
    world.out.clear()
    world.wait(12)
    assert world.taken() == ["SUCCEEDED 1"] * 6
    world.wait(10)
    assert world.taken() == ["close retry"], "a frame that was sent seven times shows that the connection is broken"
    world.cut()
    world.time = world.protocol.retry_at
    world.open()
    world.ack(world.last("handshake"))
    assert world.last("register")["payload"]["tasks"] == [{"task_id": "t1", "seq": 1}]
    world.ack(world.last("register"))
    world.out.clear()
    world.wait(0)
    assert world.taken() == ["heartbeat", "SUCCEEDED 1"]


def test_an_outcome_is_sent_at_once_over_the_next_connection() -> None:
    world = World.up(heartbeat=1000.0)
    world.wait(0)
    world.dispatch("t1")
    world.end("t1")
    world.wait(3)
    world.cut()
    world.time = world.protocol.retry_at
    world.connect()
    world.out.clear()
    world.wait(0)
    assert world.taken() == ["heartbeat", "SUCCEEDED 1"], "not 3.2 s after the last time"


def test_a_frame_of_an_earlier_connection_is_decided_about_again() -> None:
    world = World.up(max_parallel=1)
    world.dispatch("t1")
    rejected = world.dispatch("t2")
    assert world.taken()[-1] == "E.CMD.CONCURRENCY_VIOLATION"
    world.error("E.RESULT.DUPLICATE", "t2", 1)
    world.end("t1")
    world.cut()
    world.connect()
    world.out.clear()
    world.receive(rejected)
    assert world.taken() == ["ack", "start t2 1"]


def test_waits_grow_to_their_limits() -> None:
    assert [round(frame_wait(n, 0.0), 2) for n in range(7)] == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert frame_wait(0, 1.0) == pytest.approx(0.15)
    assert [connection_wait(n, 0.0) for n in (0, 1, 2, 20, 10_000)] == [0.5, 1.0, 2.0, 30.0, 30.0]
    assert connection_wait(0, 1.0) == 0.25


def test_a_duplicate_outcome_is_forgotten_and_a_gap_sends_the_run_again() -> None:
    world = World.up(heartbeat=1000.0)
    world.wait(0)
    for task in ("t1", "t2", "t3"):
        world.dispatch(task, int(task[1]))
        world.end(task, int(task[1]))
    world.error("E.RESULT.DUPLICATE", "t3", 3)
    world.out.clear()
    world.error("E.RESULT.SEQ_GAP", "t2", 2)
    world.wait(0)
    assert world.taken() == ["SUCCEEDED 1", "SUCCEEDED 2"]


def test_an_attempt_that_belongs_to_another_worker_is_dropped() -> None:
    world = World.up()
    world.dispatch("t1")
    world.out.clear()
    world.error("E.SESSION.STALE_BINDING", "t1", 1)
    assert world.taken() == ["stop t1 1 stale"]
    world.end("t1", 1, Ended.of({}, []))
    assert world.taken() == []
    world.dispatch("t2")
    world.end("t2")
    world.error("E.SESSION.STALE_BINDING", "t2", 1)
    assert len(world.protocol.outbox) == 0


def test_a_newer_connection_with_the_same_name_ends_the_worker() -> None:
    world = World.up()
    world.out.clear()
    world.error("E.SESSION.STALE_BINDING")
    assert world.taken() == ["close superseded"]
    assert world.protocol.state == "CLOSED"


def test_a_cancel_stops_the_attempt_unless_it_finishes_first() -> None:
    world = World.up()
    world.dispatch("t1")
    world.dispatch("t2")
    world.out.clear()
    world.cancel("t1", 1)
    world.cancel("t2")
    assert world.taken() == ["ack", "stop t1 1 canceled", "ack", "stop t2 1 canceled"]
    world.end("t1", 1, Ended.failed(ValueError("interrupted")))
    assert world.last("result")["payload"]["error"]["code"] == "E.RUNNER.CANCELLED"
    world.end("t2", 1)
    assert world.taken() == ["CANCELLED 1", "SUCCEEDED 1"]
    world.cancel("t1", 9)
    assert world.taken() == ["ack"]


def test_a_cancel_of_an_attempt_that_waits_is_its_outcome() -> None:
    world = World.up()
    world.dispatch("t1", 1)
    world.dispatch("t1", 2)
    world.out.clear()
    world.cancel("t1", 2)
    assert world.taken() == ["ack", "CANCELLED 2"]


def test_no_attempt_runs_beyond_the_lease() -> None:
    world = World.up(heartbeat=5.0, stop_grace=2.0)
    world.dispatch("t1")
    world.wait(0)
    world.out.clear()
    world.wait(13.0)
    assert world.taken()[-1] == "stop t1 1 lease", "the lease of three heartbeats ends at 15 s, the grace before that"
    world.wait(2.0)
    assert "abandon t1 1" in world.taken()
    world.end("t1", 1, Ended("stopped"))
    world.cut()
    assert next(iter(world.protocol.outbox.attempts())) == TaskKey("t1", 1)


def test_an_acknowledged_heartbeat_renews_the_lease_from_when_it_was_sent() -> None:
    world = World.up(heartbeat=5.0)
    world.wait(0)
    world.dispatch("t1")
    beat = world.last("heartbeat")
    world.time = 3.0
    world.ack(beat, info="lease_ms=4000")
    world.out.clear()
    world.wait(0.9)
    assert "abandon t1 1" not in world.taken()
    world.wait(0.2)
    assert "abandon t1 1" in world.taken(), "4 s after the heartbeat was sent, not after its answer"


def test_a_lease_goes_on_without_a_connection() -> None:
    world = World.up(heartbeat=5.0)
    world.dispatch("t1")
    world.cut()
    world.out.clear()
    world.wait(16)
    assert world.taken() == ["stop t1 1 lease", "abandon t1 1"]


def test_a_drain_finishes_the_running_tasks_and_delivers_their_results() -> None:
    world = World.up()
    world.dispatch("t1")
    world.out.clear()
    world.receive(world.frame("cmd.drain", {"reason": "upgrade", "limit_ms": 60_000}, ack={"request": True}))
    assert world.taken() == ["ack"]
    world.dispatch("t2")
    assert world.taken() == ["ack", "E.CMD.CONCURRENCY_VIOLATION"]
    world.ack(world.protocol.outbox.take_due(99, True, lambda: 0.0)[0][0])
    world.wait(0)
    beat = world.last("heartbeat")["payload"]
    assert beat["healthy"] is False and beat["metrics"]["draining"] is True
    world.end("t1")
    assert world.protocol.state == "DRAINING"
    world.ack(world.last("result"))
    assert world.taken()[-1] == "close done"


def test_a_drain_has_a_limit_and_does_not_wait_for_ever_for_acknowledgements() -> None:
    world = World.up(drain_limit=3.0, heartbeat=1000.0)
    world.dispatch("t1")
    world.out += world.protocol.drain(world.now)
    world.out.clear()
    world.wait(3)
    assert "stop t1 1 drain" in world.taken()
    world.end("t1", 1, Ended("stopped"))
    assert world.taken() == ["E.RUNNER.CANCELLED"], "it is not the task's fault, so it may run again"
    world.wait(20)
    assert world.taken()[-1] == "close done"


def test_a_drain_without_tasks_ends_at_once_even_without_a_connection() -> None:
    for world in (World.up(), World()):
        world.out.clear()
        world.out += world.protocol.drain(world.now)
        assert world.taken() == ["close done"]


def test_feedback_waits_for_a_connection_within_limits() -> None:
    world = World.up()
    world.dispatch("t1")
    world.cut()
    world.out.clear()
    for number in range(FEEDBACK_WAITING_MAX + 10):
        world.out += world.protocol.feedback(world.now, TaskKey("t1", 1), {"message": str(number)})
    assert world.taken() == []
    world.open()
    world.ack(world.last("handshake"))
    world.ack(world.last("register"))
    waited = world.sent("feedback")
    assert (len(waited), waited[0]["payload"]["message"]) == (FEEDBACK_WAITING_MAX, "10")


def test_a_worker_with_too_many_unacknowledged_frames_takes_no_task_and_rejects_each_once() -> None:
    world = World.up(heartbeat=1000.0)
    for number in range(OUTBOX_LEN_MAX + 5):
        world.dispatch(f"t{number}", kind="unknown")
    assert len(world.protocol.outbox) == OUTBOX_LEN_MAX
    world.out.clear()
    world.dispatch("last")
    assert world.taken() == ["ack", "E.CMD.CONCURRENCY_VIOLATION"]
    assert len(world.protocol.outbox) == OUTBOX_LEN_MAX


def test_load_makes_a_worker_unhealthy() -> None:
    world = World.up()
    for vitals, healthy in [({"mem_pct": 89.9}, True), ({"mem_pct": 90.0}, False), ({"disk_pct": 95.0}, False)]:
        world.vitals = vitals
        world.wait(5)
        world.ack(world.last("heartbeat"))
        assert world.last("heartbeat")["payload"]["healthy"] is healthy


def test_parts_of_resources_are_sent_and_not_kept() -> None:
    world = World.up()
    world.out.clear()
    read = world.receive(world.frame("resource.read", {"resource_id": "r", "offset": 0, "limit": 1}))
    assert world.taken() == [f"read {read['id']}"]
    world.out += world.protocol.part_read(world.now, read["id"], {"resource_id": "r"})
    world.out += world.protocol.part_read(world.now, read["id"], Rejection("E.RESOURCE.MISSING", "p", "m"))
    assert [frame["corr"] for frame in world.sent()] == [read["id"]] * 2
    assert world.taken() == ["resource.data", "E.RESOURCE.MISSING"]
    assert len(world.protocol.outbox) == 0


def test_packages_are_not_installed_by_the_scheduler() -> None:
    world = World.up()
    world.out.clear()
    package = {"name": "img", "version": "1", "url": "https://x", "sha256": "0"}
    frame = world.receive(world.frame("pkg.install", package, ack={"request": True}))
    world.receive(frame)
    event = world.last("pkg.event")
    assert (event["corr"], event["payload"]["details"]["code"]) == (frame["id"], "E.PKG.PERMISSION")
    assert world.taken() == ["ack", "pkg.event", "ack"]


@pytest.mark.parametrize(
    ("ended", "status", "code", "retryable"),
    [
        (Ended.failed(Failure("m", code="c", retryable=False)), "FAILED", "c", False),
        (Ended.failed(KeyError("x")), "FAILED", "E.RUNNER.FAILURE", True),
        (Ended("timed_out"), "FAILED", "E.TIMEOUT", True),
        (Ended.of({"x": object()}, []), "FAILED", "bad_result", False),
        (Ended.of({"x": "\ud800"}, []), "FAILED", "bad_result", False),
        (Ended.of({"x": "y" * (5 << 20)}, []), "FAILED", "result_too_long", False),
        (Ended.of({}, [{}] * 257), "FAILED", "too_many_artifacts", False),
    ],
)
def test_failures_have_a_code_and_say_whether_a_retry_can_help(ended: Ended, status: str, code: str, retryable: bool) -> None:
    world = World.up()
    world.dispatch("t1")
    world.end("t1", 1, ended)
    payload = world.last("result")["payload"]
    assert (payload["status"], payload["error"]["code"]) == (status, code)
    assert payload["metadata"] == {"retryable": retryable}


def test_a_frame_that_the_scheduler_cannot_read_is_not_sent_for_ever() -> None:
    world = World.up()
    world.dispatch("t1")
    world.end("t1")
    world.error("E.CMD.UNKNOWN", world.last("result")["id"])
    assert len(world.protocol.outbox) == 0
