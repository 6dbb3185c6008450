"""What goes into the state machine of `protocol.py`, and the actions that come out of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeAlias

from .frames import Frame
from .outbox import TaskKey
from .tasks import Order, Rejection, StopReason

CloseReason: TypeAlias = Literal["retry", "done", "superseded"]


class Now(NamedTuple):
    """The time of both clocks: seconds that only grow, for waits; the wall clock, for timestamps."""

    mono: float
    wall: datetime


@dataclass(frozen=True)
class Send:
    """Send this frame."""

    frame: Frame


@dataclass(frozen=True)
class Start:
    """Run this task."""

    order: Order


@dataclass(frozen=True)
class Stop:
    """Ask this attempt to stop."""

    key: TaskKey
    why: StopReason


@dataclass(frozen=True)
class Abandon:
    """Drop this attempt at once, and report its end as stopped."""

    key: TaskKey


@dataclass(frozen=True)
class Read:
    """Read a part of a resource. The id is that of the requesting frame."""

    asked: str
    payload: dict[str, Any]


@dataclass(frozen=True)
class Answered:
    """The answer to a middleware's `next`."""

    payload: dict[str, Any]


@dataclass(frozen=True)
class Close:
    """Close the connection. `retry`: connect again; `done`: the worker has drained; `superseded`: a newer one took its name."""

    why: CloseReason


Action: TypeAlias = Send | Start | Stop | Abandon | Read | Answered | Close


@dataclass
class Profile:
    """The identity, the limits and the times (in seconds) of a worker."""

    tenant: str
    worker_id: str
    version: str
    hostname: str
    boot_id: str
    # Distinguishes the frames of this process from those of an earlier one with the same name.
    instance: str
    max_parallel: int = 1
    kind_limits: dict[str, int] = field(default_factory=dict)
    heartbeat: float = 5.0
    heartbeat_jitter: float = 0.5
    stop_grace: float = 10.0
    drain_limit: float = 30.0
    mem_pct_max: float = 90.0
    disk_pct_max: float = 95.0
    # Why an order cannot run here, if it cannot; the load of the machine.
    unfit: Callable[[Order], Rejection | None] = lambda order: None
    vitals: Callable[[], dict[str, Any]] = dict
