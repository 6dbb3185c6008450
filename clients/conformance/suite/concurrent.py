"""Several coroutines at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def all_of(works: list[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Runs coroutines at the same time and returns their results in order. The first failure stops the others."""
    tasks = [asyncio.ensure_future(work) for work in works]
    if not tasks:
        return []
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            # Raises the failure, if this is the one that failed.
            task.result()
        return [task.result() for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            # One failure is reported; the others are seen here, so that the event loop does not print them.
            if not task.cancelled():
                task.exception()
