"""The kinds of the adapter's contract, and the lines that it prints."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from faults import FAULTS

Json = dict[str, Any]
Key = tuple[str, int]

FAULT = os.environ.get("LANEWAY_FAULT")
# How often the worker looks at the clock and at files, in seconds.
TICK = 0.01


def has(fault: str) -> bool:
    """True when the worker shall have this fault."""
    assert fault in FAULTS, fault
    return FAULT == fault


def say(line: str) -> None:
    """One line for the suite."""
    print(line, flush=True)


class Canceled(Exception):
    """The handler saw its cancellation."""


class Failure(Exception):
    """The handler failed."""

    def __init__(self, message: str, retryable: bool):
        super().__init__(message)
        self.retryable = retryable


async def echo(worker: Any, key: Key, run: Any) -> Json:
    return run.dispatch["parameters"]


async def fail(worker: Any, key: Key, run: Any) -> Json:
    raise Failure(run.dispatch["parameters"]["message"], retryable=True)


async def fatal(worker: Any, key: Key, run: Any) -> Json:
    raise Failure(run.dispatch["parameters"]["message"], retryable=False)


async def wait(worker: Any, key: Key, run: Any) -> Json:
    release = run.dispatch["parameters"].get("release")
    while not (release and os.path.exists(release)):
        if run.stop.is_set():
            say(f"canceled {key[0]}")
            raise Canceled
        await asyncio.sleep(TICK)
    return {"released": True}


async def progress(worker: Any, key: Key, run: Any) -> Json:
    steps = run.dispatch["parameters"]["steps"]
    for step in range(1, steps + 1):
        if not has("progress-lost"):
            worker.report(key, run, progress=step / steps)
    return run.dispatch["parameters"]


async def log(worker: Any, key: Key, run: Any) -> Json:
    for index, line in enumerate(run.dispatch["parameters"]["lines"], has("log-index-wrong")):
        worker.report(key, run, chunks=[{"channel": "log", "index": index, "text": f"{line}\n"}])
    return {}


HANDLERS = {"echo": echo, "fail": fail, "fatal": fatal, "wait": wait, "progress": progress, "log": log}
