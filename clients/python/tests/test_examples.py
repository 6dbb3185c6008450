"""The examples do what their pages say."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from laneway import Client, Task, Worker

from .conftest import Server, run
from .test_worker import working

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def output_of(example: str, server: Server) -> list[str]:
    command = [sys.executable, str(EXAMPLES / example)]
    done = subprocess.run(command, env={**os.environ, "LANEWAY_URL": server.url}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_agents_queue_their_tool_calls_by_provider(server: Server) -> None:
    *answers, at_once = output_of("agent_loop.py", server)
    assert answers == [
        f"question {number}: acme knows question {number}, globex knows question {number}" for number in range(5)
    ]
    assert at_once == "at once: acme 1, globex 1"

    async def test() -> None:
        async with Client(server.url) as client:
            jobs = [job async for job in client.iter_jobs(kind="tool.search")]
            assert len(jobs) == 10
            assert sum(job.failures for job in jobs) == 1, "one call failed once and was retried"

    run(test())


def test_a_graph_becomes_a_run(server: Server) -> None:
    assert output_of("workflow.py", server) == [
        "plan: ['queues today', 'queues tomorrow']",
        "search_web: web: queues today",
        "search_papers: papers: queues tomorrow",
        "write: web: queues today; papers: queues tomorrow",
    ]


def test_a_fastapi_app_submits_in_a_request(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANEWAY_URL", server.url)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    app = importlib.import_module("fastapi_app").app

    async def test() -> None:
        worker = Worker(server.url, name="reports")

        @worker.handler("report")
        async def report(task: Task) -> dict[str, str]:
            return {"title": task.payload["title"].upper()}

        transport = httpx.ASGITransport(app=app)
        async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://app") as web:
            key = {"Idempotency-Key": "report-1"}
            created = await web.post("/reports", json={"title": "sales"}, headers=key)
            again = await web.post("/reports", json={"title": "sales"}, headers=key)
            assert (created.status_code, created.json()["id"]) == (202, again.json()["id"])
            other = await web.post("/reports", json={"title": "costs"}, headers=key)
            assert other.status_code == 422
            waiting = await web.get(created.headers["location"])
            assert waiting.json()["state"] == "queued"
            async with working(worker):
                done = await web.get(created.headers["location"], params={"wait": "20s"})
                assert done.json()["report"] == {"title": "SALES"}
            assert (await web.get("/reports/nothing")).status_code == 404

    run(test())


def test_every_example_is_run_here() -> None:
    tests = Path(__file__).read_text()
    missing = [path.name for path in EXAMPLES.glob("*.py") if path.stem not in tests]
    assert missing == []
