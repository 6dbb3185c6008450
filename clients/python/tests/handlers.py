"""A worker program for the tests: what its handlers do must survive signals and a kill. Run with the name of the worker."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

from laneway import Failure, Task, Worker


def in_process(task: Task) -> Any:
    """Says which process it is, and then does what the payload asks for."""
    task.log(f"pid {os.getpid()}")
    task.progress(0.5, f"pid {os.getpid()}")
    what = task.payload.get("do")
    if what == "sleep":
        try:
            time.sleep(60)
        finally:
            Path(task.payload["cleanup"]).write_text("done")
    if what == "ignore":
        while True:
            try:
                time.sleep(60)
            except BaseException:
                Path(task.payload["cleanup"]).write_text("ignored")
    if what == "fail":
        raise Failure("no", code="own_code", retryable=False)
    if what == "raise":
        raise KeyError("x")
    if what == "exit":
        os._exit(7)
    if what == "unpicklable":
        return lambda: None
    if what == "keep":
        task.keep(b"made by a process", name="made.txt")
    return {"pid": os.getpid()}


def hold(task: Task) -> Any:
    """Ends when something is written to the pipe that the payload names."""
    Path(task.payload["began"]).write_text(str(os.getpid()))
    Path(task.payload["until"]).read_text()
    return {"held": True}


def stuck_thread(task: Task) -> Any:
    """Ignores its stop."""
    task.progress(0.1, "began")
    while True:
        time.sleep(60)


async def stuck_loop(task: Task) -> Any:
    """Ignores its cancellation."""
    task.progress(0.1, "began")
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()


def main() -> None:
    """The second argument is the limit of a drain, and of the grace after it."""
    limit = float(sys.argv[2]) if len(sys.argv) > 2 else 10.0
    # The machine of the tests may be full.
    worker = Worker(name=sys.argv[1], drain_limit=limit, stop_grace=limit, mem_pct_max=101, disk_pct_max=101)
    worker.handler("stuck_thread")(stuck_thread)
    worker.handler("stuck_loop")(stuck_loop)
    worker.handler("hold")(hold)
    worker.handler("in_process", process=True)(in_process)
    worker.run()


if __name__ == "__main__":
    main()
