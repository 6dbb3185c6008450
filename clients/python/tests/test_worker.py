"""The worker against a real server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as websockets_serve

from laneway import Client, Failure, JobLogHandler, NextFailed, Outcome, Problem, Task, Worker, WorkerEnded, types
from laneway.frames import Frame, encode, parse

from .conftest import Proxy, Server, run
from .handlers import in_process
from .test_frames import DISPATCH


@contextlib.asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[None]:
    """The worker, registered. It is drained at the end."""
    serving = asyncio.ensure_future(worker.serve())
    ready = asyncio.ensure_future(worker.ready())
    await asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED)
    assert ready.done(), serving.result()
    try:
        yield
    finally:
        worker.drain(0)
        await serving


async def submit_and_see(client: Client, kind: str, payload: Any = None, **options: Any) -> tuple[types.Job, types.Progress]:
    """Submits a job, and waits for the first message that its handler reports."""
    async with client.events() as events:
        job = await client.submit(kind, payload, **options)
        async for event in events:
            if isinstance(event, types.JobProgress) and event.job_id == job.id and event.progress.message:
                return job, event.progress
    raise AssertionError("the stream ended")


def test_async_functions_and_functions_in_threads_run_jobs(server: Server) -> None:
    async def test() -> None:
        worker = Worker(server.url, name="both")
        threads: list[str] = []

        @worker.handler("of_loop")
        async def of_loop(task: Task) -> Any:
            threads.append(threading.current_thread().name)
            return {"text": task.payload["text"].upper(), "seq": task.seq, "kind": task.kind, "same": task.run_id == task.id}

        @worker.handler("of_thread")
        def of_thread(task: Task) -> Any:
            threads.append(threading.current_thread().name)
            return [task.payload["value"]]

        async with Client(server.url) as client, working(worker):
            result = await client.result(await client.submit("of_loop", {"text": "hi"}))
            assert result == {"text": "HI", "seq": 1, "kind": "of_loop", "same": True}
            assert await client.result(await client.submit("of_thread", 7)) == {"value": [7]}
        assert threads[0] == threading.current_thread().name != threads[1]

    run(test())


def test_a_task_has_the_trace_of_its_caller(server: Server) -> None:
    async def test() -> None:
        worker = Worker(server.url, name="traced")

        @worker.handler("traced")
        async def traced(task: Task) -> Any:
            return [task.traceparent, task.tracestate]

        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        async with Client(server.url) as client, working(worker):
            job = await client.submit("traced", traceparent=parent, tracestate="vendor=1")
            assert (job.traceparent, job.tracestate) == (parent, "vendor=1")
            assert await client.result(job) == {"value": [parent, "vendor=1"]}
            assert await client.result(await client.submit("traced")) == {"value": [None, None]}

    run(test())


def test_the_registration_has_labels_packages_limits_and_lanes(server: Server) -> None:
    async def test() -> None:
        worker = Worker(
            server.url, name="registered", max_parallel=3, lanes=["main"], labels={"zone": "eu"}, features=["gpu"],
            packages={"img": "1.0.0"},
        )  # fmt: skip
        worker.handler("resize", concurrency=2)(lambda task: task.payload)
        async with Client(server.url) as client, working(worker):
            shown = await client.get_worker("registered")
            assert (shown.max_parallel, shown.kind_limits, shown.lanes) == (3, {"resize": 2}, ["main"])
            assert (shown.labels, shown.kinds, shown.runtimes) == ({"zone": "eu"}, ["resize"], ["python"])
            assert [(package.name, package.version) for package in shown.packages] == [("img", "1.0.0")]
            wanted: types.WorkerConstraints = {"package": {"name": "img", "version": "1.0.0"}, "labels": {"zone": "eu"}}
            assert await client.result(await client.submit("resize", {"n": 1}, worker=wanted)) == {"n": 1}

    run(test())


def test_failures_carry_codes_and_decide_about_retries(server: Server) -> None:
    async def test() -> None:
        worker = Worker(server.url, name="failing")

        @worker.handler("fails")
        async def fails(task: Task) -> Any:
            match task.payload["how"]:
                case "permanent":
                    raise Failure("bad input", code="bad_input", retryable=False, remediation="send another")
                case "once" if task.seq == 1:
                    raise Failure("not yet")
                case "raise":
                    raise ValueError("oops")
                case "bad":
                    return {"x": object()}
                case "skip":
                    return Outcome({"why": "nothing to do"}, skipped=True)
            return {"seq": task.seq}

        async with Client(server.url) as client, working(worker):

            async def ended(how: str, retries: int = 3) -> types.Job:
                retry: types.RetryRequest = {"retries_max": retries, "backoff": {"base": "1ms"}}
                return await client.wait(await client.submit("fails", {"how": how}, retry=retry))

            permanent = await ended("permanent")
            assert permanent.error is not None and (permanent.reason, permanent.attempt) == ("permanent", 1)
            assert (permanent.error.code, permanent.error.message) == ("bad_input", "bad input")
            assert (await ended("once")).result == {"seq": 2}
            raised = await ended("raise", 1)
            assert raised.error is not None and (raised.error.message, raised.attempt) == ("ValueError: oops", 2)
            lines = [line.text async for line in client.iter_logs(raised) if line.stream == "stderr"]
            assert any("Traceback" in line for line in lines)
            bad = await ended("bad")
            assert bad.error is not None and bad.error.code == "bad_result"
            skipped = await ended("skip")
            assert (skipped.state, skipped.reason) == ("succeeded", "skipped")

    run(test())


def test_progress_logs_and_metrics_arrive(server: Server) -> None:
    async def test() -> None:
        worker = Worker(server.url, name="reporting")
        gate = asyncio.Event()
        logger = logging.getLogger("app.of.the.test")
        logger.setLevel(logging.INFO)
        logger.propagate = False
        handler = JobLogHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        logger.addHandler(handler)

        @worker.handler("report")
        async def report(task: Task) -> None:
            logger.info("from the loop")
            await asyncio.to_thread(logger.warning, "from a thread")
            task.log("one\ntwo\n", "stdout")
            task.metrics(loss=0.25)
            task.progress(0.5, "half")
            await gate.wait()
            for number in range(500):
                task.log(f"line {number}")

        async with Client(server.url) as client, working(worker):
            job, shown = await submit_and_see(client, "report")
            assert (shown.fraction, shown.message, shown.metrics) == (0.5, "half", {"loss": 0.25})
            gate.set()
            await client.wait(job)
            lines = [(line.stream, line.text) async for line in client.iter_logs(job)]
            logged = [text for stream, text in lines if stream == "log"]
            assert logged[:2] == ["INFO from the loop", "WARNING from a thread"]
            assert logged[2:] == [f"line {number}" for number in range(500)]
            assert [text for stream, text in lines if stream == "stdout"] == ["one", "two"]
        logger.info("outside of a task")

    run(test())


def test_a_cancel_reaches_async_functions_and_threads(server: Server) -> None:
    async def test() -> None:
        worker = Worker(server.url, name="canceled")
        seen: list[str] = []

        @worker.handler("waits")
        async def waits(task: Task) -> None:
            task.progress(0.1, "began")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                seen.append("async")
                raise

        @worker.handler("blocks")
        def blocks(task: Task) -> None:
            task.progress(0.1, "began")
            task.wait_canceled()
            try:
                task.check_canceled()
            except asyncio.CancelledError:
                seen.append("thread")
                raise

        async with Client(server.url) as client, working(worker):
            for kind in ("waits", "blocks"):
                job, _ = await submit_and_see(client, kind)
                await client.cancel_job(job.id)
                assert (await client.wait(job)).state == "canceled"
            async with client.events(after=0, job=job) as events:
                async for event in events:
                    if isinstance(event, types.Event) and event.type == "attempt.released":
                        break
        assert seen == ["async", "thread"]

    run(test())


def test_a_timeout_stops_the_handler(server: Server) -> None:
    async def test() -> None:
        worker = Worker(server.url, name="late")
        stopped = asyncio.Event()

        @worker.handler("late")
        async def late(task: Task) -> None:
            left = task.time_left()
            assert left is not None and 0 < left <= 0.2
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        async with Client(server.url) as client, working(worker):
            job = await client.wait(await client.submit("late", timeout="200ms", retry={"retries_max": 0}))
            # The worker and the server both see it; either may be first.
            assert job.error is not None and job.error.code in ("E.TIMEOUT", "timed_out")
            await stopped.wait()

    run(test())


def test_a_handler_that_ignores_its_stop_is_abandoned_and_still_counts(server: Server) -> None:
    async def test() -> None:
        worker = Worker(server.url, name="stubborn", max_parallel=1, stop_grace=0.05)
        gate = threading.Event()

        @worker.handler("stubborn")
        def stubborn(task: Task) -> Any:
            if task.payload.get("ignore"):
                gate.wait()
            return {"ran": True}

        async with Client(server.url) as client, working(worker):
            first = await client.submit("stubborn", {"ignore": True}, timeout="50ms", retry={"retries_max": 0})
            assert (await client.wait(first)).state == "failed"
            second = await client.submit("stubborn", {})
            async with client.events(after=0, job=second) as events:
                async for event in events:
                    if isinstance(event, types.Event) and "CONCURRENCY_VIOLATION" in (event.detail or ""):
                        break
            gate.set()
            assert await client.result(second) == {"ran": True}

    run(test())


def test_concurrency_by_kind_is_kept(server: Server) -> None:
    async def test() -> None:
        worker = Worker(server.url, name="limited", max_parallel=8)
        running = most = 0

        @worker.handler("narrow", concurrency=2)
        async def narrow(task: Task) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

        async with Client(server.url) as client, working(worker):
            batch = await client.submit_many({"kind": "narrow"} for _ in range(40))
            for item in batch.items:
                assert item.job is not None
                assert (await client.wait(item.job)).state == "succeeded"
        assert 1 <= most <= 2

    run(test())


def test_artifacts_are_downloaded_through_the_server(server: Server, tmp_path: Path) -> None:
    async def test() -> None:
        worker = Worker(server.url, name="maker")
        data = os.urandom(700_000)
        (tmp_path / "made.bin").write_bytes(data)

        @worker.handler("make")
        def make(task: Task) -> Any:
            task.keep(b"text", name="note.txt", type="note")
            task.keep(tmp_path / "made.bin")
            if task.payload.get("fail"):
                raise Failure("after all", retryable=False)
            return {}

        async with Client(server.url) as client, working(worker):
            job = await client.wait(await client.submit("make", {}))
            note, made = (await client.list_job_artifacts(job.id)).artifacts
            assert (note.type, note.metadata) == ("note", {"name": "note.txt", "mime_type": "text/plain"})
            assert await client.read_artifact(note.id) == b"text"
            assert made.size_bytes == len(data)
            assert await client.download_artifact(made.id, tmp_path / "copy.bin") == len(data)
            assert (tmp_path / "copy.bin").read_bytes() == data
            rest = [part async for part in client.stream_artifact(made.id, start=699_990)]
            assert b"".join(rest) == data[699_990:]
            # A later task on the same worker may use it.
            refs: list[types.ResourceConstraint] = [{"id": note.resource_id, "worker": "maker", "type": "note"}]

            @worker.handler("use")
            async def use(task: Task) -> Any:
                found = task.resource(note.resource_id)
                assert isinstance(found, bytes)
                return {"text": found.decode()}

        async with Client(server.url) as client, working(worker):
            gone = await client.wait(await client.submit("use", {}, worker={"resources": refs}))
            assert gone.error is not None and gone.error.code == "E.RESOURCE.MISSING", "they ended with the process"
            with pytest.raises(Problem):
                await client.read_artifact(note.id)
        assert not (tmp_path / "made.bin").exists()

    run(test())


def test_a_task_uses_what_an_earlier_one_made(server: Server, tmp_path: Path) -> None:
    async def test() -> None:
        worker = Worker(server.url, name="reuser")

        @worker.handler("make_one")
        def make_one(task: Task) -> Any:
            path = tmp_path / task.id
            path.write_text("data")
            kept = task.keep(path)
            if task.payload.get("fail"):
                raise Failure("after all", retryable=False)
            return {"id": kept["resource_id"]}

        @worker.handler("use_one")
        async def use_one(task: Task) -> Any:
            found = task.resource(task.payload["id"])
            assert isinstance(found, Path)
            return {"text": found.read_text()}

        async with Client(server.url) as client, working(worker):
            id = (await client.result(await client.submit("make_one", {})))["id"]
            refs: list[types.ResourceConstraint] = [{"id": id, "worker": "reuser", "type": "file"}]
            job = await client.submit("use_one", {"id": id}, worker={"resources": refs})
            assert await client.result(job) == {"text": "data"}
            failed = await client.wait(await client.submit("make_one", {"fail": True}))
            assert failed.state == "failed"
            assert not (tmp_path / failed.id).exists(), "no result names it"

    run(test())


def test_a_middleware_calls_the_rest_of_its_chain(server: Server) -> None:
    async def test() -> None:
        worker = Worker(server.url, name="chained")

        @worker.handler("outer")
        async def outer(task: Task) -> Any:
            inner = await task.next({"x": task.payload["x"] + 1}, timeout=20)
            return {"outer": inner}

        @worker.handler("page")
        async def page(task: Task) -> Any:
            with contextlib.suppress(NextFailed):
                await task.next()
                raise AssertionError("the host has no next")
            return {"x": task.payload["x"]}

        async with Client(server.url) as client, working(worker):
            chain: types.NodeChain = {"host": "page", "chain": ["auth"]}
            run = await client.submit_run(
                {
                    "nodes": [
                        {"node": "auth", "job": {"kind": "outer", "payload": {"x": 1}}, "middleware": {**chain, "index": 0}},
                        {"node": "page", "job": {"kind": "page", "payload": {"x": 0}}, "middleware": chain},
                    ]
                }
            )
            ended = await client.wait_run(run)
            assert {node.node: node.job.result for node in ended.nodes} == {"auth": {"outer": {"x": 2}}, "page": {"x": 2}}

    run(test())


def test_functions_run_in_processes(server: Server, tmp_path: Path) -> None:
    async def test() -> None:
        worker = Worker(server.url, name="processes", stop_grace=1.0)
        worker.handler("in_process", process=True)(in_process)
        with pytest.raises(ValueError, match="async"):
            worker.handler("x", process=True)(_nothing)

        async with Client(server.url) as client, working(worker):

            async def ended(payload: dict[str, Any]) -> types.Job:
                return await client.wait(await client.submit("in_process", payload, retry={"retries_max": 0}))

            plain = await ended({"do": "keep"})
            assert plain.result["pid"] != os.getpid()
            lines = [line.text async for line in client.iter_logs(plain)]
            assert lines[0] == f"pid {plain.result['pid']}"
            artifact = (await client.list_job_artifacts(plain.id)).artifacts[0]
            assert await client.read_artifact(artifact.id) == b"made by a process"
            codes = {}
            for what in ("fail", "raise", "exit", "unpicklable"):
                error = (await ended({"do": what})).error
                assert error is not None
                codes[what] = (error.code, error.retryable)
            assert codes == {
                "fail": ("own_code", False),
                "raise": ("E.RUNNER.FAILURE", True),
                "exit": ("killed", True),
                "unpicklable": ("bad_result", False),
            }
            for what in ("sleep", "ignore"):
                cleanup = tmp_path / what
                job, shown = await submit_and_see(client, "in_process", {"do": what, "cleanup": str(cleanup)})
                await client.cancel_job(job.id)
                assert (await client.wait(job)).state == "canceled"
                async with client.events(after=0, job=job) as events:
                    async for event in events:
                        if isinstance(event, types.Event) and event.type == "attempt.released":
                            break
                _gone(int(shown.message.split()[1]))
                assert cleanup.read_text() == {"sleep": "done", "ignore": "ignored"}[what]

    run(test())


async def _nothing(task: Task) -> None:
    return None


def _gone(pid: int) -> None:
    """Waits until a process is gone, for a bounded time."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return
        except FileNotFoundError:
            return
        os.sched_yield()
    raise AssertionError(f"the process {pid} still runs")


def test_results_survive_a_broken_connection_and_a_killed_server(own_server: Server) -> None:
    async def test() -> None:
        async with Proxy(own_server.url) as proxy, Client(own_server.url) as client:
            worker = Worker(proxy.url, name="survivor")
            gate = asyncio.Event()
            starts: list[str] = []

            @worker.handler("survive")
            async def survive(task: Task) -> Any:
                starts.append(task.id)
                task.progress(0.1, "began")
                await gate.wait()
                return {"ok": True}

            async with working(worker):
                job, _ = await submit_and_see(client, "survive")
                proxy.cut()
                own_server.kill()
                gate.set()
                await asyncio.to_thread(own_server.start)
                assert await client.result(job) == {"ok": True}
                assert starts == [job.id], "it ran once"
                assert (await client.get_job(job.id)).attempt == 1

    run(test())


class SilentScheduler:
    """A server that registers a worker with a short lease, sends one task, and then answers nothing but `error` frames."""

    def __init__(self) -> None:
        self.stopped: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self.connections = 0

    async def serve(self, connection: ServerConnection) -> None:
        self.connections += 1
        async for data in connection:
            frame = parse(data)
            match frame["type"]:
                case "handshake":
                    await connection.send(self._frame("ack", {"ok": True, "for": frame["id"]}))
                case "register":
                    await connection.send(self._frame("ack", {"ok": True, "for": frame["id"], "info": "lease_ms=900"}))
                    if self.connections == 1:
                        await connection.send(self._frame("cmd.dispatch", DISPATCH, corr="t", seq=1))
                case "error":
                    await connection.send(self._frame("ack", {"ok": True, "for": frame["id"]}))
                    self.stopped.set_result(frame)

    def _frame(self, kind: str, payload: dict[str, Any], **more: Any) -> str:
        head = {"type": kind, "id": os.urandom(4).hex(), "ts": "2030-01-01T00:00:00Z", "tenant": "default"}
        return encode({**head, "sender": {"role": "scheduler", "id": "s"}, "payload": payload, **more})


def test_an_attempt_stops_by_itself_when_its_lease_ends() -> None:
    async def test() -> None:
        scheduler = SilentScheduler()
        async with websockets_serve(scheduler.serve, "127.0.0.1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            worker = Worker(f"http://127.0.0.1:{port}", name="lost", stop_grace=0.2)
            times: list[float] = []

            @worker.handler("k")
            async def lost(task: Task) -> None:
                times.append(time.monotonic())
                try:
                    await asyncio.Event().wait()
                finally:
                    times.append(time.monotonic())

            async with working(worker):
                frame = await scheduler.stopped
                assert (frame["payload"]["code"], frame["corr"], frame["seq"]) == ("E.RUNNER.CANCELLED", "t", 1)
                assert times[1] - times[0] < 0.9

    run(test())


def test_a_newer_worker_with_the_same_name_is_denied_while_the_first_answers(server: Server) -> None:
    async def test() -> None:
        first = Worker(server.url, name="twice")
        first.handler("twice")(lambda task: {})
        denied = asyncio.Event()
        second = Worker(server.url, name="twice", on_state=lambda state: denied.set() if state == "BACKOFF" else None)
        second.handler("twice")(lambda task: {})
        async with working(first):
            other = asyncio.ensure_future(second.serve())
            await denied.wait()
            second.drain(0)
            await other

    run(test())


def test_a_worker_needs_handlers_and_a_slot() -> None:
    with pytest.raises(ValueError, match="no handlers"):
        run(Worker().serve())
    with pytest.raises(ValueError, match="max_parallel"):
        Worker(max_parallel=0)
    with pytest.raises(ValueError, match="concurrency"):
        Worker().handler("k", concurrency=0)(lambda task: None)
    assert WorkerEnded("c", "m").code == "c"


def test_a_token_is_read_again_at_every_connect(own_server: Server) -> None:
    async def test() -> None:
        async with Client(own_server.url) as client:
            admin = (await client.create_token({"role": "admin", "tenant": "*"})).secret
        async with Client(own_server.url, token=admin) as client:
            good = (await client.create_token({"role": "worker", "tenant": "default"})).secret
            asked = 0

            async def token() -> str | None:
                nonlocal asked
                asked += 1
                return "lw_wrong_token" if asked == 1 else good

            worker = Worker(own_server.url, name="tokens", token=token)
            worker.handler("k")(lambda task: {"ok": True})
            async with working(worker):
                assert asked == 2
                assert await client.result(await client.submit("k")) == {"ok": True}

    run(test())


# A worker that is a program of its own


def start_program(server: Server, *arguments: str) -> subprocess.Popen[bytes]:
    program = [sys.executable, str(Path(__file__).parent / "handlers.py"), *arguments]
    return subprocess.Popen(program, env={**os.environ, "LANEWAY_URL": server.url})


def test_sigterm_lets_running_jobs_end_and_delivers_their_results(server: Server, tmp_path: Path) -> None:
    program = start_program(server, "drained")
    began, until = tmp_path / "began", tmp_path / "until"
    os.mkfifo(began)
    os.mkfifo(until)

    async def test() -> None:
        async with Client(server.url) as client:
            job = await client.submit("hold", {"began": str(began), "until": str(until)})
            await asyncio.to_thread(began.read_text)
            program.send_signal(signal.SIGTERM)
            async with client.events(after=0) as events:
                async for event in events:
                    if isinstance(event, types.Event) and event.type == "worker.drained":
                        break
            await asyncio.to_thread(until.write_text, "now")
            assert await client.result(job) == {"held": True}

    try:
        run(test())
        assert program.wait(20) == 0
    finally:
        program.kill()


@pytest.mark.parametrize("kind", ["stuck_thread", "stuck_loop"])
def test_a_handler_that_ignores_its_stop_does_not_keep_the_worker_alive(server: Server, kind: str) -> None:
    program = start_program(server, f"stuck-{kind}", "0.1")

    async def test() -> None:
        async with Client(server.url) as client:
            job, _ = await submit_and_see(client, kind, retry={"losses_max": 0})
            program.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(program.wait, 20) == 0
            assert (await client.wait(job)).state == "failed", "it may have had an effect, and allows no loss"

    try:
        run(test())
    finally:
        program.kill()


def test_processes_of_handlers_end_with_a_killed_worker(server: Server, tmp_path: Path) -> None:
    program = start_program(server, "killed")

    async def test() -> int:
        async with Client(server.url) as client:
            payload = {"do": "sleep", "cleanup": str(tmp_path / "cleanup")}
            job, shown = await submit_and_see(client, "in_process", payload, retry={"losses_max": 0})
            program.kill()
            await client.cancel_job(job.id)
            return int(shown.message.split()[1])

    try:
        _gone(run(test()))
    finally:
        program.kill()
