"""The running and remembered tasks of a worker, and the decision about a new dispatch: start it, recognize it, or reject it.

Pure. Two attempts at one task, or with one `concurrency_key`, are never open at the same time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from .outbox import Outbox, TaskKey

# How many tasks are remembered after their end, to recognize a dispatch that arrives twice.
REMEMBERED_MAX = 10_000
# How many frames of a connection are remembered by `(id, corr)`.
SEEN_MAX = 10_000

StopReason: TypeAlias = Literal["canceled", "lease", "drain", "stale"]
"""Why an attempt is stopped. A stale one belongs to another worker: its outcome is discarded."""


@dataclass(frozen=True)
class Order:
    """A task to run: the attempt, and the payload of its dispatch."""

    key: TaskKey
    dispatch: dict[str, Any]

    @property
    def chain(self) -> tuple[str, str] | None:
        """Its middleware chain, by workflow run and host."""
        host = self.dispatch.get("host_node_id")
        return None if host is None else (self.dispatch["run_id"], host)


@dataclass(frozen=True)
class Rejection:
    """Why a dispatch, or another request, is rejected."""

    code: str
    part: str
    message: str


@dataclass
class Open:
    """A running task."""

    order: Order
    started: float
    stopping: StopReason | None = None
    # Calls of the rest of its chain that wait for an answer. A task that waits for one takes no slot.
    calls: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Intake:
    """The decision about a dispatch."""

    what: Literal["start", "wait", "again", "stale", "rejected"]
    stop: TaskKey | None = None
    rejection: Rejection | None = None


class Tasks:
    """The tasks of a worker, with its limits."""

    def __init__(self, max_parallel: int, kind_limits: dict[str, int]) -> None:
        self._max_parallel = max_parallel
        self._kind_limits = kind_limits
        self.open: dict[TaskKey, Open] = {}
        # Newer attempts at tasks that still run an older one.
        self._waiting: dict[str, Order] = {}
        self._newest: OrderedDict[str, int] = OrderedDict()
        self._seen: OrderedDict[tuple[str, str | None], None] = OrderedDict()

    def __len__(self) -> int:
        """The number of tasks that run, or wait for an older attempt to end."""
        return len(self.open) + len(self._waiting)

    def keys(self) -> Iterator[TaskKey]:
        """Every attempt that runs, or waits for an older one to end."""
        yield from self.open
        yield from (order.key for order in self._waiting.values())

    def take(self, now: float, order: Order, outbox: Outbox, draining: bool, unfit: Rejection | None) -> Intake:
        """Decides about a dispatch. `unfit` says why there is no handler for it, if there is none."""
        task_id, seq = order.key
        waiting = self._waiting.get(task_id)
        newest = self._newest.get(task_id, -1)
        is_known = order.key in self.open or order.key in outbox.attempts() or newest == seq
        if is_known or (waiting is not None and waiting.key.seq >= seq):
            return Intake("again")
        if newest > seq:
            return Intake("stale")
        older = next((key for key in self.open if key.task_id == task_id), None)
        rejection = unfit or self._over_limit(order, older, outbox, draining)
        if rejection is not None:
            return Intake("rejected", rejection=rejection)
        self._remember(order.key)
        if older is not None:
            self._waiting[task_id] = order
            return Intake("wait", stop=older)
        self.open[order.key] = Open(order, now)
        return Intake("start")

    def _over_limit(self, order: Order, older: TaskKey | None, outbox: Outbox, draining: bool) -> Rejection | None:
        message = None
        others = [open for key, open in self.open.items() if key != older]
        kind = order.dispatch["node_type"]
        limit = self._kind_limits.get(kind)
        concurrency_key = order.dispatch.get("concurrency_key")
        if draining:
            message = "the worker is draining and takes no more tasks"
        elif outbox.is_full(len(self)):
            message = "too many results wait for an acknowledgement"
        elif concurrency_key and any(o.order.dispatch.get("concurrency_key") == concurrency_key for o in others):
            message = f"a task with the concurrency_key {concurrency_key!r} runs already"
        elif not _has_slot(order, others, self._max_parallel, len(self._waiting)):
            message = f"max_parallel of {self._max_parallel} tasks run already"
        elif limit and not _has_slot(order, [o for o in others if o.order.dispatch["node_type"] == kind], limit, 0):
            message = f"{limit} tasks of kind {kind!r} run already, the limit of the kind"
        return None if message is None else Rejection("E.CMD.CONCURRENCY_VIOLATION", "worker.concurrency", message)

    def _remember(self, key: TaskKey) -> None:
        self._newest[key.task_id] = key.seq
        while len(self._newest) > REMEMBERED_MAX:
            oldest = next(iter(self._newest))
            if any(open.task_id == oldest for open in self.open):
                # A running task must not be forgotten: a second dispatch would start it again.
                self._newest.move_to_end(oldest)
                return
            del self._newest[oldest]

    def stop(self, key: TaskKey, why: StopReason) -> bool:
        """Marks an attempt as stopping. False when it does not run, or is stopping already."""
        open = self.open.get(key)
        if open is None:
            return False
        first = open.stopping is None
        if first or why == "stale":
            open.stopping = why
        return first

    def attempts(self, task_id: str, seq: int | None) -> list[TaskKey]:
        """The attempts that a command refers to: one, or all of a task."""
        return [key for key in self.open if key.task_id == task_id and seq in (None, key.seq)]

    def remove_waiting(self, task_id: str, seq: int | None) -> Order | None:
        """Removes an attempt that waits for an older one to end."""
        waiting = self._waiting.get(task_id)
        if waiting is None or seq not in (None, waiting.key.seq):
            return None
        return self._waiting.pop(task_id)

    def end(self, now: float, key: TaskKey) -> tuple[Open, Order | None] | None:
        """An attempt has ended. Returns it, and the newer one that starts now."""
        open = self.open.pop(key, None)
        if open is None:
            return None
        order = self._waiting.pop(key.task_id, None)
        if order is not None:
            self.open[order.key] = Open(order, now)
        return open, order

    def is_new_frame(self, id: str, corr: str | None) -> bool:
        """Records a frame of this connection. False for a duplicate."""
        if (id, corr) in self._seen:
            return False
        self._seen[(id, corr)] = None
        if len(self._seen) > SEEN_MAX:
            self._seen.popitem(last=False)
        return True

    def forget_connection(self) -> None:
        """The connection was closed: forgets the ids of its frames."""
        self._seen.clear()


def _has_slot(order: Order, others: Iterable[Open], limit: int, waiting: int) -> bool:
    """The running tasks of a chain share one slot, because its callers wait; a caller that waits for an answer uses none."""
    alone, working, chains = waiting, waiting, set()
    for open in others:
        working += not open.calls
        if open.order.chain is None:
            alone += 1
        else:
            chains.add(open.order.chain)
    return order.chain in chains or alone + len(chains) < limit or working < limit
