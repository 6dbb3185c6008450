"""Runs handlers: coroutines, functions in threads, functions in processes; until they end, are too late, or ignore a stop."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from .ended import Ended
from .errors import Failure
from .task import Task, current_task
from .tasks import Order

HandlerFunction: TypeAlias = Callable[[Task], Any]
log = logging.getLogger("laneway.worker")


@dataclass(frozen=True)
class Handler:
    """A function that runs the jobs of a kind, and how it is run."""

    kind: str
    function: HandlerFunction
    how: Literal["async", "thread", "process"]
    concurrency: int | None = None

    @classmethod
    def of(cls, kind: str, function: HandlerFunction, process: bool, concurrency: int | None) -> Handler:
        is_async = inspect.iscoroutinefunction(function)
        if process and is_async:
            raise ValueError(f"the handler of {kind!r} is async; a handler that runs in a process is a plain function")
        if concurrency is not None and concurrency < 1:
            raise ValueError(f"the concurrency of {kind!r} is {concurrency}; it must be at least 1")
        return cls(kind, function, "async" if is_async else "process" if process else "thread", concurrency)


class Run:
    """One attempt that runs."""

    def __init__(self, handler: Handler, task: Task, grace: float) -> None:
        self.task = task
        self._handler = handler
        self._grace = grace
        self._stopping = asyncio.Event()
        self._work: asyncio.Future[Any] | None = None

    @property
    def is_running(self) -> bool:
        """True while the handler runs, also after it was abandoned."""
        return self._work is not None and not self._work.done()

    def stop(self) -> None:
        """Asks the handler to stop."""
        self._stopping.set()

    async def supervise(self) -> Ended:
        """Runs the handler. After a request to stop, or at its timeout, it has the grace to end."""
        context = contextvars.copy_context()
        context.run(current_task.set, self.task)
        work = self._work = context.run(self._call)
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({work, stopping}, timeout=self.task.time_left(), return_when=asyncio.FIRST_COMPLETED)
            is_late = not work.done() and not self._stopping.is_set()
            if not work.done():
                self._cancel(work)
                await asyncio.wait({work}, timeout=self._grace)
        except asyncio.CancelledError:
            # The worker ends.
            self._cancel(work)
            raise
        finally:
            stopping.cancel()
        if is_late:
            return Ended("timed_out")
        return self._end(work)

    def _cancel(self, work: asyncio.Future[Any]) -> None:
        self.task.cancel()
        if isinstance(work, asyncio.Task):
            work.cancel()

    def _end(self, work: asyncio.Future[Any]) -> Ended:
        if not work.done():
            return Ended("stopped")
        if work.cancelled():
            if self._stopping.is_set():
                return Ended("stopped")
            return Ended.failed(Failure("the handler canceled itself", code="E.RUNNER.FAILURE"))
        error = work.exception()
        if error is None:
            return Ended.of(work.result(), self.task.artifacts)
        if not isinstance(error, Failure):
            self.task.log("".join(traceback.format_exception(type(error), error, error.__traceback__)), "stderr")
        return Ended.failed(error)

    def _call(self) -> asyncio.Future[Any]:
        function = self._handler.function
        if self._handler.how == "async":
            return asyncio.ensure_future(function(self.task))
        if self._handler.how == "process":
            function = functools.partial(call_in_process, function, grace=self._grace)
        return call_in_thread(function, self.task)


def call_in_thread(function: HandlerFunction, task: Task) -> asyncio.Future[Any]:
    """Runs a function in a thread of its own. Nothing can end a thread: it ends when the function sees its stop.

    The future is not a task: the end of a loop waits for tasks, and must not wait for a function that ignores its stop.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def finish(result: Any, error: BaseException | None) -> None:
        if error is None:
            ended.set_result(result)
        elif isinstance(error, asyncio.CancelledError):
            ended.cancel()
        elif isinstance(error, Exception) and not isinstance(error, StopIteration):
            ended.set_exception(error)
        else:
            ended.set_exception(Failure(f"the handler raised {type(error).__name__}", code="E.RUNNER.FAILURE"))

    def work() -> None:
        result, error = None, None
        try:
            result = context.run(function, task)
        except BaseException as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(finish, result, error)
        except RuntimeError:
            log.debug("the worker ended before a thread did")

    # A daemon: a function that ignores its stop must not keep the process alive.
    threading.Thread(target=work, name=f"laneway-{task.id}", daemon=True).start()
    # The error of an abandoned function is of no interest to anyone.
    ended.add_done_callback(lambda future: future.cancelled() or future.exception())
    return ended


def call_in_process(function: HandlerFunction, task: Task, *, grace: float) -> Any:
    """Runs a function in a process of its own, which a stop ends: with CancelledError first, and by force after the grace."""
    context: Any = multiprocessing.get_context("spawn" if sys.platform == "win32" else "forkserver")
    reader, writer = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(writer, function, task.key, task.dispatch, task._worker_id), daemon=True)
    process.start()
    writer.close()

    def end() -> None:
        process.terminate()
        killer = threading.Timer(grace * 0.8, process.kill)
        killer.daemon = True
        killer.start()

    task.on_cancel(end)
    try:
        while True:
            try:
                name, value = reader.recv()
            except EOFError:
                break
            if name == "returned":
                return value
            if name == "raised":
                raise value
            if name == "keep":
                task.artifacts.append(value[0])
            task._sink(name, value)
    finally:
        process.join(grace)
        if process.is_alive():
            process.kill()
            process.join()
        code = process.exitcode
        reader.close()
    task.check_canceled()
    raise Failure(f"the process of the handler ended with {code}", code="killed")


def _child(
    writer: multiprocessing.connection.Connection,
    function: HandlerFunction,
    key: Any,
    dispatch: dict[str, Any],
    worker_id: str,
) -> None:
    """The process of one attempt. It ends with the worker, however that ended."""
    lock = threading.Lock()

    def sink(name: str, value: Any) -> Any:
        if name in ("resource", "next"):
            raise Failure(f"a handler that runs in a process cannot use {name}", code="E.RUNNER.FAILURE", retryable=False)
        with lock:
            writer.send((name, value))

    def stop(number: int, frame: Any) -> None:
        task._canceled.set()
        raise asyncio.CancelledError("the task was stopped")

    task = Task(Order(key, dispatch), worker_id, sink)
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    current_task.set(task)
    try:
        message = ("returned", function(task))
    except BaseException as error:
        message = ("raised", _portable(error, task))
    try:
        with lock:
            writer.send(message)
    except Exception as error:
        with lock:
            writer.send(("raised", Failure(f"the result cannot be sent: {error}", code="bad_result", retryable=False)))
    writer.close()


def _portable(error: BaseException, task: Task) -> BaseException:
    """The error as something that can be sent: own exception classes may not be."""
    if isinstance(error, Failure | asyncio.CancelledError):
        return error
    task.log(traceback.format_exc(), "stderr")
    return Failure(f"{type(error).__name__}: {error}", code="E.RUNNER.FAILURE")


def _end_with(sentinel: int) -> None:
    multiprocessing.connection.wait([sentinel])
    os._exit(1)
