"""Event streams: parsing, and no event lost or doubled across broken connections and restarts."""

from __future__ import annotations

import asyncio

import pytest

from laneway import Client, problems, types
from laneway.events import SseMessage, SseParser

from .conftest import Proxy, Server, run, run_with


def test_messages_are_found_in_parts_of_any_size() -> None:
    stream = 'retry: 1000\n\n: comment\n\nid: 7\r\nevent: job.queued\r\ndata: {"a":\ndata: "\u2028é"}\n\nevent: empty\n\n'
    expected = [SseMessage("7", "job.queued", '{"a":\n"\u2028é"}')]
    data = stream.encode()
    for size in range(1, len(data) + 1):
        parser = SseParser()
        parts = [data[start : start + size] for start in range(0, len(data), size)]
        assert [message for part in parts for message in parser.feed(part)] == expected


def test_a_stream_that_is_cut_again_and_again_gives_every_event_once(server: Server) -> None:
    async def test() -> None:
        async with Proxy(server.url) as proxy, Client(proxy.url) as client, Client(server.url) as direct:
            seen: dict[str, list[str]] = {}
            numbers: list[int] = []
            async with client.events() as stream:
                jobs = []
                for _ in range(10):
                    proxy.cut()
                    jobs.append((await direct.submit("echo")).id)
                    async for event in stream:
                        if isinstance(event, types.Event) and event.job is not None:
                            numbers.append(event.number)
                            seen.setdefault(event.job.id, []).append(event.type)
                            if event.type == "job.succeeded" and event.job.id == jobs[-1]:
                                break
            assert numbers == sorted(set(numbers))
            assert [seen[job] for job in jobs] == [["job.submitted", "job.started", "job.succeeded"]] * 10
            assert proxy.connections >= 10

    run(test())


def test_a_stream_goes_on_after_a_restart_of_the_server(own_server: Server) -> None:
    async def test(client: Client) -> None:
        async with client.events() as stream:
            await client.wait(await client.submit("echo"))
            own_server.kill()
            await asyncio.to_thread(own_server.start)
            job = await client.submit("echo")
            kinds = []
            async for event in stream:
                assert isinstance(event, types.Event), "no gap"
                kinds.append(event.type)
                if event.job is not None and event.job.id == job.id and event.type == "job.succeeded":
                    break
            assert kinds.count("job.submitted") == 2

    run_with(own_server, test)


def test_a_stream_of_one_job_begins_where_it_is_asked_to(server: Server) -> None:
    async def test(client: Client) -> None:
        job = await client.wait(await client.submit("echo"))
        stream = client.events(after=0, job=job)
        first = [await stream.__anext__() for _ in range(3)]
        await stream.aclose()
        assert all(isinstance(event, types.Event) and event.job and event.job.id == job.id for event in first)
        # A stream that was closed goes on with the next event.
        later = client.events(after=stream.position, job=job)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(later.__anext__(), 0.2)
        await later.aclose()

    run_with(server, test)


def test_a_position_of_another_store_is_a_gap(server: Server) -> None:
    async def test(client: Client) -> None:
        stream = client.events(after=10**12)
        gap = await stream.__anext__()
        await stream.aclose()
        assert isinstance(gap, types.Gap) and gap.after == 10**12
        assert stream.position == gap.resumes_at - 1

    run_with(server, test)


def test_a_stream_that_is_denied_raises(server: Server) -> None:
    async def test(client: Client) -> None:
        with pytest.raises(problems.InvalidId):
            await client.events(job="nonsense").__anext__()

    run_with(server, test)
