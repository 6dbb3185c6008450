"""What an agent does with Laneway over MCP, with the official client."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import uuid
from typing import Any

import httpx2
import pytest
from conftest import BINARY, Server, Tasks, cancel_task, connected, get_task, timed, update_task
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

TOOLS = [
    "submit_job", "get_job", "list_jobs", "wait_for_job", "cancel_job", "retry_job", "explain_job", "list_job_logs",
    "list_schedules", "create_schedule", "pause_schedule", "resume_schedule", "fire_schedule", "stop_session",
]  # fmt: skip

both = pytest.mark.parametrize("transport", ["stdio", "http"])
eras = pytest.mark.parametrize("mode", ["auto", "legacy"])


async def call(client: Client, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """The structured content of a call that succeeds."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    # The last text is the same JSON, for models that read only texts.
    assert json.loads(result.content[-1].text) == result.structured_content
    return result.structured_content


async def rejected(client: Client, tool: str, /, **arguments: Any) -> dict[str, Any]:
    """The problem of a call that is rejected."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.structured_content
    problem = result.structured_content
    assert problem["code"] in result.content[0].text, "the model sees the code"
    return problem


@both
@eras
@timed
async def test_tools_come_in_the_same_order_every_time(server: Server, transport: str, mode: str) -> None:
    for _ in range(2):
        async with connected(server, transport, mode=mode) as client:
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == TOOLS
            assert all(tool.description and tool.input_schema["type"] == "object" for tool in tools)
            assert client.server_info.name == "laneway"
            expected = "2026-07-28" if mode == "auto" else "2025-11-25"
            assert client.protocol_version == expected


@both
@eras
@timed
async def test_every_tool_does_what_it_says(server: Server, transport: str, mode: str) -> None:
    async with connected(server, transport, mode=mode) as client:
        agent = f"a-{uuid.uuid4().hex}"
        job = await call(client, "submit_job", kind="echo", payload={"n": [1, "ä"]}, agent=agent, tags=["t1"])
        ended = await call(client, "wait_for_job", id=job["id"], wait_s=20)
        assert (ended["state"], ended["result"]) == ("succeeded", {"n": [1, "ä"]})
        assert (await call(client, "get_job", id=job["id"]))["state"] == "succeeded"
        listed = await call(client, "list_jobs", state=["succeeded", "failed"], agent=agent, limit=10)
        assert [row["id"] for row in listed["jobs"]] == [job["id"]]
        again = await call(client, "retry_job", id=job["id"])
        assert again["retry_of"] == job["id"]

        slept = await call(client, "submit_job", kind="sleep", payload={"ms": 5}, agent=agent, wait_s=20)
        assert slept["state"] == "succeeded"
        logs = await call(client, "list_job_logs", id=slept["id"], limit=5)
        assert [line["text"] for line in logs["lines"]] == ["slept for 5 ms"]

        later = await call(client, "submit_job", kind="echo", not_before="2090-01-01T00:00:00Z")
        assert (await call(client, "explain_job", id=later["id"]))["blocked_by"]
        assert (await call(client, "cancel_job", id=later["id"]))["state"] == "canceled"

        session = f"chat {uuid.uuid4().hex}/ü"
        long = await call(client, "submit_job", kind="sleep", payload={"ms": 60_000}, session=session)
        stopped = await call(client, "stop_session", key=session)
        assert stopped["running"] + stopped["waiting"] == [long["id"]]

        name = f"daily {uuid.uuid4().hex}"
        made = await call(client, "create_schedule", name=name, cron="0 9 * * 1-5", zone="Europe/Berlin",
                          job={"kind": "echo", "payload": 7})  # fmt: skip
        assert [row["id"] for row in (await call(client, "list_schedules", name=name))["schedules"]] == [made["id"]]
        fired = await call(client, "fire_schedule", id=made["id"], mode="force")
        assert (await call(client, "wait_for_job", id=fired["job_id"]))["result"] == 7
        await call(client, "pause_schedule", id=made["id"])
        shown = await call(client, "list_schedules", name=name)
        assert shown["schedules"][0]["enabled"] is False
        resumed = await call(client, "resume_schedule", id=made["id"])
        assert resumed["enabled"] is True


@both
@timed
async def test_bad_input_is_named_with_its_field_and_code(server: Server, transport: str) -> None:
    async with connected(server, transport) as client:
        unknown = str(uuid.uuid4())
        assert (await rejected(client, "get_job", id=unknown))["code"] == "not_found"
        assert (await rejected(client, "wait_for_job", id=unknown, wait_s=5))["code"] == "not_found"
        assert (await rejected(client, "get_job", id="seven"))["code"] == "invalid_id"
        assert (await rejected(client, "get_job"))["field"] == "id"
        assert (await rejected(client, "get_job", id=7))["field"] == "id"
        assert (await rejected(client, "get_job", id=".."))["field"] == "id"
        assert (await rejected(client, "get_job", id=unknown, extra=1))["field"] == "extra"
        wrong = await rejected(client, "submit_job", kind="echo", retry={"retries_max": "many"})
        assert (wrong["code"], wrong["field"]) == ("invalid_field", "retry.retries_max")
        assert (await rejected(client, "submit_job", kind="echo", colour="red"))["code"] == "unknown_field"
        assert (await rejected(client, "submit_job", kind="echo", lane="nowhere"))["code"] == "unknown_lane"
        assert (await rejected(client, "submit_job", kind="echo", wait_s=100_000))["field"] == "wait_s"
        assert (await rejected(client, "list_jobs", state=["asleep"]))["field"] == "state"
        assert (await rejected(client, "list_jobs", limit=501))["field"] == "limit"
        with pytest.raises(MCPError, match="there is no tool 'drop_tables'|there is no tool \"drop_tables\""):
            await client.call_tool("drop_tables", {})
        # The connection is as good as before.
        assert (await call(client, "submit_job", kind="echo", wait_s=20))["state"] == "succeeded"


@both
@timed
async def test_a_failed_job_is_an_error_for_the_call_that_waited(server: Server, transport: str) -> None:
    async with connected(server, transport) as client:
        result = await client.call_tool("submit_job", {"kind": "fail", "payload": {"permanent": True}, "wait_s": 20})
        assert result.is_error
        assert "asked_to_fail" in result.content[0].text
        assert result.structured_content["state"] == "failed"


@both
@timed
async def test_progress_is_reported_while_a_call_waits(server: Server, transport: str) -> None:
    async with connected(server, transport) as client:
        reports: list[tuple[float, str | None]] = []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            reports.append((progress, message))

        arguments = {"kind": "sleep", "payload": {"ms": 5_000}, "wait_s": 30}
        result = await client.call_tool("submit_job", arguments, progress_callback=note)
        assert result.structured_content["state"] == "succeeded"
        assert reports and "is running" in (reports[0][1] or "")
        numbers = [number for number, _ in reports]
        assert numbers == sorted(set(numbers)), "progress grows"


@both
@timed
async def test_a_wait_that_is_over_returns_the_job_as_it_is(server: Server, transport: str) -> None:
    async with connected(server, transport) as client:
        job = await call(client, "submit_job", kind="sleep", payload={"ms": 60_000}, wait_s=1)
        assert job["state"] == "running"
        assert (await call(client, "cancel_job", id=job["id"]))["state"] == "canceled"


@both
@timed
async def test_a_task_from_start_to_result(server: Server, transport: str) -> None:
    tasks = Tasks()
    async with connected(server, transport, extensions=[tasks]) as client:
        arguments = {"kind": "sleep", "payload": {"ms": 600}, "wait_s": 30}
        result = await client.call_tool("submit_job", arguments)
        assert not result.is_error
        job = result.structured_content
        assert job["state"] == "succeeded"
        # The id of the task is the id of the job.
        assert [task.task_id for task in tasks.created] == [job["id"]]
        assert tasks.created[0].status == "working" and tasks.created[0].poll_interval_ms
        statuses = [task.status for task in tasks.seen]
        assert statuses[0] == "working" and statuses[-1] == "completed"

        failed = await client.call_tool("submit_job", {"kind": "fail", "payload": {"permanent": True}, "wait_s": 30})
        assert failed.is_error and tasks.seen[-1].status == "completed"

        # A call without a wait needs no task, and a task of an earlier job can be made again.
        plain = await client.call_tool("submit_job", {"kind": "echo"})
        assert len(tasks.created) == 2
        await client.call_tool("wait_for_job", {"id": plain.structured_content["id"]})
        assert tasks.created[-1].task_id == plain.structured_content["id"]


@both
@timed
async def test_a_task_is_canceled(server: Server, transport: str) -> None:
    tasks = Tasks()
    async with connected(server, transport, extensions=[tasks]) as client:
        waiting = asyncio.create_task(
            client.call_tool("submit_job", {"kind": "sleep", "payload": {"ms": 60_000}, "wait_s": 60})
        )
        while not tasks.seen:
            await asyncio.sleep(0.05)
        task = tasks.created[0].task_id
        await update_task(client.session, task)
        await cancel_task(client.session, task)
        assert (await waiting).is_error
        assert (await get_task(client.session, task)).status == "cancelled"
        assert (await call(client, "get_job", id=task))["state"] == "canceled"
        # A second cancel changes nothing and is acknowledged.
        await cancel_task(client.session, task)
        with pytest.raises(MCPError) as error:
            await get_task(client.session, str(uuid.uuid4()))
        assert error.value.error.code == -32602 and error.value.error.data["code"] == "not_found"


@both
@timed
async def test_tasks_need_a_client_that_knows_them(server: Server, transport: str) -> None:
    async with connected(server, transport) as client:
        job = await call(client, "submit_job", kind="echo")
        with pytest.raises(MCPError) as error:
            await get_task(client.session, job["id"])
        assert error.value.error.code == -32021


@both
@timed
async def test_jobs_and_runs_are_resources(server: Server, transport: str) -> None:
    run = server.call("POST", "/v1/runs", {"nodes": [{"node": "a", "job": {"kind": "echo", "payload": 1}}]})
    async with connected(server, transport) as client:
        templates = (await client.list_resource_templates()).resource_templates
        assert [template.uri_template for template in templates] == ["laneway://jobs/{id}", "laneway://runs/{id}"]
        job = await call(client, "submit_job", kind="echo", wait_s=20)
        read = await client.read_resource(f"laneway://jobs/{job['id']}")
        assert json.loads(read.contents[0].text)["state"] == "succeeded"
        assert read.contents[0].mime_type == "application/json"
        read = await client.read_resource(f"laneway://runs/{run['id']}")
        assert json.loads(read.contents[0].text)["id"] == run["id"]
        for uri in (f"laneway://jobs/{uuid.uuid4()}", "laneway://tokens/1", "file:///etc/passwd"):
            with pytest.raises(MCPError):
                await client.read_resource(uri)


@both
@timed
async def test_roles_and_tenants_are_those_of_the_token(
    closed: tuple[Server, dict[str, str]], transport: str
) -> None:
    server, tokens = closed
    async with connected(server, transport, tokens["red submitter"]) as red:
        job = await call(red, "submit_job", kind="echo", wait_s=20)
        assert job["tenant"] == "red"
    async with connected(server, transport, tokens["red viewer"]) as viewer:
        assert (await call(viewer, "get_job", id=job["id"]))["id"] == job["id"]
        assert (await rejected(viewer, "submit_job", kind="echo"))["code"] == "forbidden"
        assert (await rejected(viewer, "cancel_job", id=job["id"]))["code"] == "forbidden"
    async with connected(server, transport, tokens["blue submitter"]) as blue:
        assert (await rejected(blue, "get_job", id=job["id"]))["code"] == "not_found"
        assert (await call(blue, "list_jobs"))["jobs"] == []
        with pytest.raises(MCPError):
            await blue.read_resource(f"laneway://jobs/{job['id']}")
    # What a token was denied is in the audit entries, as for every call of the API.
    entries = server.call("GET", "/v1/audit?limit=500", token=tokens["admin"])
    denied = [entry for entry in json.dumps(entries).split("{") if "forbidden" in entry and "submit_job" in entry]
    assert denied


@timed
async def test_a_bad_token_is_denied_before_anything_is_shown(closed: tuple[Server, dict[str, str]]) -> None:
    server, tokens = closed
    for token in (None, "lw_wrong"):
        with pytest.raises(Exception):  # noqa: B017  the client wraps it in groups
            async with connected(server, "http", token) as client:
                await client.list_tools()
    async with connected(server, "stdio", "lw_wrong") as client:
        # Over standard input and output the tools are known, and the server denies each call.
        assert (await rejected(client, "list_jobs"))["code"] == "unauthorized"


@timed
async def test_the_endpoint_is_guarded_as_the_api(server: Server) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    usual = {"accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient() as http:

        async def status(**headers: str) -> int:
            headers = usual | {name.replace("_", "-"): value for name, value in headers.items()}
            return (await http.post(server.url + "/mcp", json=body, headers=headers)).status_code

        assert await status() == 200
        # A page of another site, and a foreign name that points here.
        assert await status(origin="https://evil.example") == 403
        assert await status(host="evil.example") == 421
        assert await status(origin=server.url) == 200
        # There are no sessions, so there is no stream to open and nothing to delete.
        for method in ("GET", "DELETE"):
            answer = await http.request(method, server.url + "/mcp", headers=usual)
            assert answer.status_code == 405 and "POST" in answer.headers["allow"]
        big = {**body, "method": "tools/call", "params": {"name": "submit_job", "arguments": {"kind": "x" * 2_000_000}}}
        assert (await http.post(server.url + "/mcp", json=big, headers=usual)).status_code == 413
        garbage = await http.post(server.url + "/mcp", content=b"{", headers=usual | {"content-type": "application/json"})
        assert 400 <= garbage.status_code < 500


@timed
async def test_a_server_that_is_not_there_is_named_with_the_remedy() -> None:
    absent = Server.__new__(Server)
    absent.url = "http://127.0.0.1:9"
    async with connected(absent, "stdio") as client:
        problem = await rejected(client, "list_jobs")
        assert problem["code"] == "unreachable" and "laneway serve" in problem["detail"]


def test_a_client_that_leaves_at_once_is_no_error() -> None:
    ended = subprocess.run([BINARY, "mcp"], stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
    assert (ended.returncode, ended.stdout) == (0, b""), ended.stderr


def test_the_help_names_the_guide() -> None:
    shown = subprocess.run([BINARY, "mcp", "--help"], capture_output=True, text=True, timeout=30, check=True).stdout
    assert re.search(r"docs/guides/mcp\.md", shown)
