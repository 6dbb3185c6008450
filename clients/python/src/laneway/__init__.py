"""Client and worker for Laneway, the durable job scheduler.

    async with laneway.Client() as client:
        job = await client.submit("render", {"url": "https://example.org"})
        print(await client.result(job))

    worker = laneway.Worker()

    @worker.handler("render")
    async def render(task):
        return {"title": await title_of(task.payload["url"])}

    worker.run()

`SyncClient` is the client for programs without asyncio, and `PullWorker` the worker for lanes that are pulled. `laneway.types`
has the objects of the API, `laneway.problems` an exception for each error code.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import problems, types
    from .client import Client
    from .ended import Outcome
    from .errors import ConnectionFailed, Failure, JobFailed, LanewayError, Problem, WaitTimeout, WorkerEnded
    from .events import EventStream
    from .pull import PullWorker
    from .sync import SyncClient
    from .task import JobLogHandler, NextFailed, Task, current_task
    from .worker import Worker

__all__ = [
    "Client",
    "ConnectionFailed",
    "EventStream",
    "Failure",
    "JobFailed",
    "JobLogHandler",
    "LanewayError",
    "NextFailed",
    "Outcome",
    "Problem",
    "PullWorker",
    "SyncClient",
    "Task",
    "WaitTimeout",
    "Worker",
    "WorkerEnded",
    "current_task",
    "problems",
    "types",
]

_MODULES = {
    "client": ["Client"],
    "ended": ["Outcome"],
    "errors": ["ConnectionFailed", "Failure", "JobFailed", "LanewayError", "Problem", "WaitTimeout", "WorkerEnded"],
    "events": ["EventStream"],
    "pull": ["PullWorker"],
    "sync": ["SyncClient"],
    "task": ["JobLogHandler", "NextFailed", "Task", "current_task"],
    "worker": ["Worker"],
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Loads a module when it is first used: a worker needs no HTTP client, and a client no worker."""
    if name in ("problems", "types"):
        return import_module(f".{name}", __name__)
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
