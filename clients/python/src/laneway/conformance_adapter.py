"""The worker that the conformance suite plays a server to: `python -m laneway.conformance_adapter`.

It serves the kinds of the suite and prints what its handlers see, one line each. `clients/conformance` has the scenarios.
"""

from __future__ import annotations

import os
import signal

# A signal that arrives while the rest is loaded finds nothing to drain.
signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))

import asyncio  # noqa: E402
import sys  # noqa: E402
from typing import Any  # noqa: E402

from . import Failure, Task, Worker, WorkerEnded  # noqa: E402

# How often `wait` looks for its file, in seconds.
LOOK_EVERY = 0.02


def say(*words: object) -> None:
    print(*words, flush=True)


async def echo(task: Task) -> Any:
    return task.payload


async def fail(task: Task) -> Any:
    raise Failure(task.payload["message"])


async def fatal(task: Task) -> Any:
    raise Failure(task.payload.get("message", "as requested"), retryable=False)


async def wait(task: Task) -> Any:
    release = task.payload.get("release")
    while release is None or not os.path.exists(release):  # noqa: ASYNC110, ASYNC240 - another process creates the file
        await asyncio.sleep(LOOK_EVERY)
    return {"released": True}


async def progress(task: Task) -> Any:
    steps = task.payload["steps"]
    for step in range(1, steps + 1):
        task.progress(step / steps, f"{step} of {steps}")
    return task.payload


async def log(task: Task) -> Any:
    for line in task.payload["lines"]:
        task.log(line)
    return {}


def observed(handler: Any) -> Any:
    """The handler with the lines that the suite reads."""

    async def observe(task: Task) -> Any:
        say("run", task.id, task.kind)
        try:
            return await handler(task)
        except asyncio.CancelledError:
            say("canceled", task.id)
            raise
        finally:
            if not task.canceled:
                say("end", task.id)

    return observe


def main() -> int:
    def ready(state: str) -> None:
        if state == "HEARTBEATING":
            say("ready")

    worker = Worker(name=os.environ.get("LANEWAY_WORKER", "adapter"), max_parallel=4, on_state=ready)
    for handler in (echo, fail, fatal, wait, progress, log):
        worker.handler(handler.__name__)(observed(handler))
    try:
        worker.run()
    except WorkerEnded as ended:
        say("denied", ended.code)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
