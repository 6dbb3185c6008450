"""The pull worker against a real server."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from laneway import Client, Failure, PullWorker, Task, problems, types

from .conftest import Proxy, Server, run, run_with


async def lane_of(client: Client, name: str) -> str:
    await client.put_lane(name, {"dispatch": "claim"})
    return name


def test_a_pull_worker_runs_jobs_of_its_lane(server: Server) -> None:
    async def test(client: Client) -> None:
        lane = await lane_of(client, "pulled")
        worker = PullWorker(client, lane, name="puller", max_parallel=2)

        @worker.handler("double")
        async def double(task: Task) -> Any:
            task.progress(0.5, "half")
            return {"n": task.payload["n"] * 2, "trace": task.traceparent}

        @worker.handler("fails")
        def fails(task: Task) -> Any:
            raise Failure("no", code="no code!", retryable=False)

        parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        good = await client.submit("double", {"n": 21}, lane=lane, traceparent=parent)
        bad = await client.submit("fails", lane=lane)
        serving = asyncio.ensure_future(worker.serve())
        assert await client.result(good) == {"n": 42, "trace": parent}
        failed = await client.wait(bad)
        assert failed.error is not None and (failed.error.code, failed.reason) == ("no_code_", "permanent")
        worker.drain()
        await serving
        leases = await client.list_leases(lane=lane)
        assert leases.leases == []

    run_with(server, test)


def test_a_canceled_job_stops_its_handler(own_server: Server) -> None:
    async def test(client: Client) -> None:
        lane = await lane_of(client, "stopped")
        await client.patch_config({"limits": {"lease": "1s"}})
        worker = PullWorker(client, lane, stop_grace=0.5)
        began, stopped = asyncio.Event(), asyncio.Event()

        @worker.handler("waits")
        async def waits(task: Task) -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        job = await client.submit("waits", lane=lane)
        polling = asyncio.ensure_future(worker.poll_once())
        await began.wait()
        await client.cancel_job(job.id)
        await stopped.wait()
        await polling
        assert (await client.wait(job)).state == "canceled"

    run_with(own_server, test)


def test_a_heartbeat_that_asks_for_a_stop_stops_the_handler(server: Server) -> None:
    class Stopping(Client):
        """A client whose server asks for a stop with every heartbeat."""

        beats = 0

        async def request_lease(self, body: types.LeaseRequest) -> types.LeaseAnswer:
            answer = await super().request_lease(body)
            return dataclasses.replace(answer, ttl_ms=100)

        async def beat_lease(self, id: str, body: types.LeaseBeat) -> types.LeaseAlive:
            self.beats += 1
            return dataclasses.replace(await super().beat_lease(id, body), stop=True)

    async def test() -> None:
        async with Stopping(server.url) as client:
            lane = await lane_of(client, "stop-asked")
            worker = PullWorker(client, lane, stop_grace=0.5)
            canceled = []

            @worker.handler("waits")
            async def waits(task: Task) -> None:
                try:
                    await asyncio.Event().wait()
                finally:
                    canceled.append(task.id)

            job = await client.submit("waits", lane=lane)
            await worker.poll_once()
            assert canceled == [job.id] and client.beats == 1
            assert (await client.list_leases(lane=lane)).leases == [], "its end was reported"
            await client.cancel_job(job.id)

    run(test())


def test_a_handler_stops_when_its_lease_cannot_be_kept(own_server: Server) -> None:
    async def test(client: Client) -> None:
        lane = await lane_of(client, "lost")
        await client.patch_config({"limits": {"lease": "1s"}})
        async with Proxy(own_server.url) as proxy, Client(proxy.url, retries=0) as behind:
            worker = PullWorker(behind, lane, stop_grace=0.3)
            began, stopped = asyncio.Event(), asyncio.Event()

            @worker.handler("waits")
            async def waits(task: Task) -> None:
                began.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    stopped.set()

            await client.submit("waits", lane=lane)
            polling = asyncio.ensure_future(worker.poll_once())
            await began.wait()
            proxy.swallow = 1_000
            await stopped.wait()
            await polling

    run_with(own_server, test)


def test_a_lane_that_is_not_there_ends_the_worker(server: Server) -> None:
    async def test(client: Client) -> None:
        worker = PullWorker(client, "nowhere")
        worker.handler("k")(lambda task: None)
        with pytest.raises(problems.UnknownLane):
            await worker.serve()

    run_with(server, test)


def test_reports_that_need_a_connection_are_errors(server: Server) -> None:
    async def test(client: Client) -> None:
        lane = await lane_of(client, "no-artifacts")
        worker = PullWorker(client, lane)
        worker.handler("keeps")(lambda task: task.keep(b"x"))
        job = await client.submit("keeps", lane=lane)
        await worker.poll_once()
        error = (await client.wait(job)).error
        assert error is not None and error.code == "unsupported"

    run_with(server, test)
