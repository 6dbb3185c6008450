"""A real server for the tests, and official clients of it: over standard input and output, and over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import threading
import urllib.request
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2
import mcp_types as types
import pytest
from mcp.client import ClaimContext, ClientExtension, ResultClaim
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

BINARY = os.environ["LANEWAY_BIN"]
# Longest time for one test, in seconds: only one that hangs takes so long.
PATIENCE = 60.0


class Server:
    """A server process. `start` returns when it has printed where it listens."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = ""
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> Server:
        # The machine of the tests may be full and busy.
        quiet = ["--set", "limits.storage_low=1MiB", "--set", "capacity.measured=false"]
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "server.log").open("a") as errors:
            self.process = subprocess.Popen(
                [BINARY, "serve", "--listen", "127.0.0.1:0", "--data-dir", str(self.folder / "data"), *quiet],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("  api "):
                self.url = line.split()[1].removesuffix("/v1")
            if line.startswith("Ctrl-C"):
                threading.Thread(target=self.process.stdout.read, daemon=True).start()
                return self
        raise AssertionError(f"no server: {(self.folder / 'server.log').read_text()}")

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)

    def call(self, method: str, path: str, body: Any = None, token: str | None = None) -> Any:
        """A call of the native API, without a client of ours."""
        request = urllib.request.Request(self.url + path, method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("content-type", "application/json")
        if token is not None:
            request.add_header("authorization", f"Bearer {token}")
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server")).start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, dict[str, str]]]:
    """A server with tokens: an admin, and a submitter and a viewer of each of two tenants."""
    server = Server(tmp_path_factory.mktemp("closed")).start()
    admin = server.call("POST", "/v1/tokens", {"role": "admin", "tenant": "*"})["secret"]
    tokens = {"admin": admin}
    for tenant in ("red", "blue"):
        for role in ("submitter", "viewer"):
            made = server.call("POST", "/v1/tokens", {"role": role, "tenant": tenant}, admin)
            tokens[f"{tenant} {role}"] = made["secret"]
    yield server, tokens
    server.stop()


@asynccontextmanager
async def connected(
    server: Server, transport: str, token: str | None = None, **settings: Any
) -> AsyncIterator[Client]:
    """A client of the server."""
    if transport == "stdio":
        env = {"LANEWAY_URL": server.url} | ({"LANEWAY_TOKEN": token} if token else {})
        streams = stdio_client(StdioServerParameters(command=BINARY, args=["mcp"], env=env))
        async with Client(streams, **settings) as client:
            yield client
        return
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http:
        async with Client(streamable_http_client(server.url + "/mcp", http_client=http), **settings) as client:
            yield client


def timed(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs an asynchronous test, with a time limit."""
    import functools
    import inspect

    @functools.wraps(story)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(asyncio.wait_for(story(*args, **kwargs), PATIENCE))

    run.__signature__ = inspect.signature(story)  # type: ignore[attr-defined]
    return run


# The official client leaves the tasks of 2026-07-28 to an extension. This is one, as small as the protocol allows.


class TaskParams(types.RequestParams):
    task_id: str


class GetTask(types.Request[TaskParams, Literal["tasks/get"]]):
    name_param = "taskId"
    method: Literal["tasks/get"] = "tasks/get"
    params: TaskParams


class CancelTask(types.Request[TaskParams, Literal["tasks/cancel"]]):
    name_param = "taskId"
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: TaskParams


class UpdateParams(TaskParams):
    input_responses: dict[str, Any]


class UpdateTask(types.Request[UpdateParams, Literal["tasks/update"]]):
    name_param = "taskId"
    method: Literal["tasks/update"] = "tasks/update"
    params: UpdateParams


class Task(types.Result):
    """A task. The client's own model of 2025-11-25 has another shape."""

    task_id: str
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int | None = None
    poll_interval_ms: int | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class CreatedTask(Task):
    result_type: Literal["task"]


class Tasks(ClientExtension):
    """Polls a task until it has ended. `seen` has every status."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self) -> None:
        self.created: list[CreatedTask] = []
        self.seen: list[Task] = []

    def claims(self) -> list[ResultClaim[CreatedTask]]:
        return [ResultClaim(result_type="task", model=CreatedTask, resolve=self.resolve)]

    async def resolve(self, created: CreatedTask, context: ClaimContext) -> types.CallToolResult:
        self.created.append(created)
        while True:
            task = await get_task(context.session, created.task_id)
            self.seen.append(task)
            if task.status == "completed":
                return types.CallToolResult.model_validate(task.result)
            if task.status not in ("working", "input_required"):
                return types.CallToolResult(content=[], is_error=True)
            await asyncio.sleep(0.1)


async def get_task(session: Any, task: str) -> Task:
    return await session.send_request(GetTask(params=TaskParams(task_id=task)), Task)


async def cancel_task(session: Any, task: str) -> types.EmptyResult:
    return await session.send_request(CancelTask(params=TaskParams(task_id=task)), types.EmptyResult)


async def update_task(session: Any, task: str) -> types.EmptyResult:
    params = UpdateParams(task_id=task, input_responses={})
    return await session.send_request(UpdateTask(params=params), types.EmptyResult)
