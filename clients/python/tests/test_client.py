"""The client against a real server."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from laneway import Client, ConnectionFailed, JobFailed, Problem, SyncClient, WaitTimeout, problems, types
from laneway.client import retry_wait

from .conftest import Proxy, Server, run, run_with


def test_a_job_is_submitted_waited_for_and_explained(server: Server) -> None:
    async def test(client: Client) -> None:
        job = await client.submit("echo", {"n": 1}, tags=["client"], timeout=timedelta(seconds=30), priority="high")
        assert job.priority == -10 and job.timeout == "30s"
        assert await client.result(job) == {"n": 1}
        ended = await client.get_job(job.id)
        assert (ended.state, ended.reason, ended.tags) == ("succeeded", "done", ["client"])
        assert await client.get_job_payload(job.id) == {"n": 1}
        assert [attempt.state for attempt in (await client.list_attempts(job.id)).attempts] == ["succeeded"]
        later = await client.submit("echo", not_before=datetime.now(timezone.utc) + timedelta(hours=1))
        assert [blocker.code for blocker in (await client.explain_job(later.id)).blocked_by] == ["not_before"]
        assert (await client.cancel_job(later.id)).state == "canceled"
        again = await client.retry_job(job.id)
        assert (again.retry_of, (await client.wait(again)).result) == (job.id, {"n": 1})

    run_with(server, test)


def test_equal_submits_with_one_key_are_one_job(server: Server) -> None:
    async def test(client: Client) -> None:
        first = await client.submit("echo", 1, idempotency_key="one-key")
        second = await client.submit("echo", 1, idempotency_key="one-key")
        assert (first.id, second.existing) == (second.id, True)
        with pytest.raises(problems.IdempotencyMismatch) as caught:
            await client.submit("echo", 2, idempotency_key="one-key")
        assert caught.value.status == 422 and caught.value.request_id

    run_with(server, test)


def test_batches_are_answered_one_by_one_or_as_a_whole(server: Server) -> None:
    async def test(client: Client) -> None:
        jobs: list[types.JobRequest] = [{"kind": "echo", "payload": 1}, {"kind": "echo", "lane": "nowhere"}]
        answer = await client.submit_many(jobs)
        assert (answer.accepted, answer.rejected) == (1, 1)
        good, bad = answer.items
        assert good.job is not None and await client.result(good.job) == 1
        assert bad.problem is not None and bad.problem.code == "unknown_lane"
        with pytest.raises(problems.UnknownLane) as caught:
            await client.submit_many(jobs, atomic=True)
        assert caught.value.field == "jobs[1].lane"

    run_with(server, test)


def test_a_failed_job_raises_and_a_wait_has_a_limit(server: Server) -> None:
    async def test(client: Client) -> None:
        job = await client.submit("fail", {"times": 9, "permanent": True})
        with pytest.raises(JobFailed, match="asked_to_fail") as caught:
            await client.result(job)
        assert caught.value.job.error is not None and not caught.value.job.error.retryable
        slow = await client.submit("sleep", {"ms": 60_000})
        with pytest.raises(WaitTimeout):
            await client.wait(slow, timeout=0.05)
        await client.cancel_job(slow.id)
        assert (await client.wait(slow)).state == "canceled"

    run_with(server, test)


def test_errors_are_classes_by_code(server: Server) -> None:
    async def test(client: Client) -> None:
        with pytest.raises(problems.InvalidId):
            await client.get_job("nonsense")
        with pytest.raises(problems.NotFound):
            await client.get_session("nothing/here")
        with pytest.raises(problems.InvalidField) as caught:
            await client.submit("echo", timeout="soon")
        assert caught.value.field == "timeout" and "duration" in caught.value.detail

    run_with(server, test)


def test_lists_are_read_page_by_page(server: Server) -> None:
    async def test(client: Client) -> None:
        for number in range(5):
            await client.submit("echo", number, tags=["pages"])
        found = [await client.result(job) async for job in client.iter_jobs(tag="pages", limit=2)]
        assert found == [4, 3, 2, 1, 0]
        states: list[types.JobState] = ["queued", "running"]
        assert [job async for job in client.iter_jobs(tag="pages", state=states)] == []

    run_with(server, test)


def test_sessions_are_stopped_and_throttled(server: Server) -> None:
    async def test(client: Client) -> None:
        key = "agent:a7/chat"
        job = await client.submit("sleep", {"ms": 60_000}, session={"key": key, "mode": "queue"})
        assert (await client.get_session(key)).key == key
        assert key in [session.key for session in (await client.list_sessions()).sessions]
        assert (await client.report_session_usage(key, {"tokens": 90, "window": 100})).throttled
        stopped = await client.stop_whole_session(key)
        assert stopped.running_count + stopped.waiting_count == 1
        assert (await client.wait(job)).state == "canceled"
        assert (await client.reset_session(key)).generation > stopped.generation

    run_with(server, test)


def test_schedules_are_created_changed_fired_and_deleted(server: Server) -> None:
    async def test(client: Client) -> None:
        schedule = await client.create_schedule({"name": "nightly", "every": timedelta(hours=1), "job": {"kind": "echo"}})
        with pytest.raises(problems.AlreadyExists):
            await client.create_schedule({"name": "nightly", "every": "1h", "job": {"kind": "echo"}})
        assert (await client.update_schedule(schedule.id, {"every": "2h"})).every == "2h"
        assert not (await client.pause_schedule(schedule.id)).enabled
        fired = await client.fire_schedule(schedule.id)
        assert fired.job_id is not None and (await client.wait(fired.job_id)).state == "succeeded"
        preview = await client.preview_schedule({"cron": "0 9 * * *", "zone": "Europe/Berlin", "count": 2})
        assert len(preview.firings) == 2
        assert (await client.delete_schedule(schedule.id)).id == schedule.id

    run_with(server, test)


def test_runs_pass_results_on_and_end_together(server: Server) -> None:
    async def test(client: Client) -> None:
        run = await client.submit_run(
            {
                "name": "two-steps",
                "nodes": [
                    {"node": "first", "job": {"kind": "echo", "payload": {"rows": [1, 2]}}},
                    {
                        "node": "second",
                        "job": {"kind": "echo", "payload": {}},
                        "depends_on": ["first"],
                        "bindings": [{"from": "first", "source": "/results/rows/1", "target": "/parameters/row"}],
                    },
                ],
            }
        )
        ended = await client.wait_run(run)
        assert ended.state == "succeeded"
        assert {node.node: node.job.result for node in ended.nodes}["second"] == {"row": 2}
        slow = await client.submit_run({"nodes": [{"node": "n", "job": {"kind": "sleep", "payload": {"ms": 60_000}}}]})
        with pytest.raises(WaitTimeout):
            await client.wait_run(slow, timeout=0.05)
        await client.cancel_run(slow.id)
        assert (await client.wait_run(slow)).state == "canceled"

    run_with(server, test)


def test_lanes_are_created_paused_and_deleted(server: Server) -> None:
    async def test(client: Client) -> None:
        assert (await client.put_lane("of-test", {"running_max": 3})).running_max == 3
        assert (await client.pause_lane("of-test")).paused
        assert not (await client.resume_lane("of-test")).paused
        assert "of-test" in [lane.name for lane in (await client.list_lanes()).lanes]
        await client.delete_lane("of-test")
        with pytest.raises(problems.NotFound):
            await client.get_lane("of-test")

    run_with(server, test)


def test_other_operations_are_there_too(server: Server) -> None:
    async def test(client: Client) -> None:
        assert (await client.get_livez()).strip() == "ok"
        assert "laneway" in await client.get_metrics()
        assert (await client.get_health()).status == "ok"
        assert (await client.get_caller()).role == "admin"
        assert "limits" in await client.get_config()
        assert (await client.get_schema("ws.result.schema.json"))["title"] == "result"
        assert (await client.list_workers()).workers == []

    run_with(server, test)


def test_tokens_and_tenants_are_sent(own_server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def test(client: Client) -> None:
        admin = (await client.create_token({"role": "admin", "tenant": "*"})).secret
        with pytest.raises(problems.Unauthorized):
            await client.list_jobs()
        async with Client(own_server.url, token=admin, tenant="acme") as acme:
            assert (await acme.submit("echo")).tenant == "acme"
        (tmp_path / "token").write_text(f"{admin}\n")
        monkeypatch.setenv("LANEWAY_TOKEN_FILE", str(tmp_path / "token"))
        monkeypatch.setenv("LANEWAY_URL", own_server.url)
        async with Client() as by_environment:
            assert (await by_environment.get_caller()).tenant == "*"

    run_with(own_server, test)


# Calls that are sent again


def test_a_submit_whose_answer_is_lost_is_sent_again_and_creates_one_job(server: Server) -> None:
    async def test() -> None:
        async with Proxy(server.url) as proxy, Client(proxy.url) as client:
            proxy.swallow = 2
            job = await client.submit("echo", tags=["lost-answer"])
            assert job.existing, "the first request created it"
            proxy.swallow = 1
            batch = await client.submit_many([{"kind": "echo", "tags": ["lost-answer"]}])
            assert batch.items[0].status == 200
            proxy.swallow = 1
            run = await client.submit_run({"nodes": [{"node": "n", "job": {"kind": "echo"}}]})
            assert run.existing
            assert len([job async for job in client.iter_jobs(tag="lost-answer")]) == 2

    run(test())


def test_a_call_that_would_have_two_effects_is_not_sent_again(server: Server) -> None:
    async def test() -> None:
        async with Proxy(server.url) as proxy, Client(proxy.url) as client:
            job = await client.wait(await client.submit("echo", tags=["one-effect"]))
            proxy.swallow = 1
            with pytest.raises(ConnectionFailed) as caught:
                await client.retry_job(job.id)
            assert caught.value.was_sent
            retries = [other async for other in client.iter_jobs(tag="one-effect") if other.retry_of == job.id]
            assert len(retries) == 1

    run(test())


def test_a_client_without_retries_adds_no_key_and_gives_up_at_once(server: Server) -> None:
    async def test() -> None:
        async with Proxy(server.url) as proxy, Client(proxy.url, retries=0) as client:
            proxy.swallow = 1
            with pytest.raises(ConnectionFailed):
                await client.submit("echo")
            assert proxy.connections == 1

    run(test())


def test_a_wait_goes_on_across_a_restart_of_the_server(own_server: Server) -> None:
    async def test(client: Client) -> None:
        await client.put_lane("later", {"paused": True})
        job = await client.submit("echo", {"n": 7}, lane="later")
        waiting = asyncio.ensure_future(client.result(job))
        async with client.events():
            own_server.kill()
        await asyncio.to_thread(own_server.start)
        await client.resume_lane("later")
        assert await waiting == {"n": 7}

    run_with(own_server, test)


def test_a_server_that_is_not_there_is_an_error() -> None:
    async def test() -> None:
        async with Client("http://127.0.0.1:9", retries=1) as client:
            with pytest.raises(ConnectionFailed) as caught:
                await client.submit("echo")
            assert not caught.value.was_sent

    run(test())


@pytest.mark.parametrize(
    ("error", "repeatable", "expected"),
    [
        (ConnectionFailed("m", was_sent=False), False, 0.2),
        (ConnectionFailed("m", was_sent=True), False, None),
        (ConnectionFailed("m", was_sent=True), True, 0.2),
        (Problem("too_many", 429, "m", retry_after=3.0), False, 3.0),
        (Problem("too_many", 429, "m", retry_after=300.0), False, None),
        (Problem("draining", 503, "m"), False, 0.2),
        (Problem("unavailable", 503, "m"), False, None),
        (Problem("unavailable", 503, "m"), True, 0.2),
        (Problem("queue_full", 429, "m", retry_after=1.0), True, None),
        (Problem("invalid_field", 400, "m"), True, None),
    ],
)
def test_calls_are_sent_again_only_where_that_is_safe_and_helps(
    error: ConnectionFailed | Problem, repeatable: bool, expected: float | None
) -> None:
    assert retry_wait(error, 1, repeatable, 0.0) == expected


# The blocking client


def test_the_blocking_client_does_the_same(server: Server, tmp_path: Path) -> None:
    with SyncClient(server.url) as client:
        with client.events() as events:
            job = client.submit("echo", [1], tags=["sync"])
            found = (event for event in events if isinstance(event, types.Event))
            end = next(event for event in found if event.type == "job.succeeded")
            assert end.job is not None and end.job.id == job.id
            assert events.position == end.number
        assert client.result(job) == [1]
        assert client.wait(job.id).state == "succeeded"
        assert [found.id for found in client.iter_jobs(tag="sync")] == [job.id]
        assert list(client.iter_logs(job)) == []
        assert client.submit_many([{"kind": "echo"}]).accepted == 1
        run = client.submit_run({"nodes": [{"node": "n", "job": {"kind": "echo"}}]})
        assert client.wait_run(run).state == "succeeded"
        with pytest.raises(problems.NotFound):
            client.get_lane("nothing")
        with pytest.raises(problems.NotFound):
            client.download_artifact(f"{job.id}.1", tmp_path / "nothing")
        assert list(tmp_path.iterdir()) == []
    client.close()
