"""Resources that tasks made, for later tasks and for clients that download them through the server: kept by id, with an expiry
and limits. Its methods may be called from any thread.
"""

from __future__ import annotations

import base64
import contextlib
import threading
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from .errors import Failure
from .model import parse_time
from .outbox import TaskKey
from .tasks import Order, Rejection

# Most resources of one worker, and most bytes that they may hold in memory and in files, together.
RESOURCES_MAX = 10_000
MEMORY_MAX = 256 << 20
FILES_MAX = 20 << 30
# How long a resource is kept beyond its expiry after a part of it was read, so that a slow reader can finish.
READ_HOLD = timedelta(seconds=60)
_NEVER = datetime.min.replace(tzinfo=timezone.utc)


@dataclass
class _Resource:
    type: str
    body: bytes | Path
    size: int
    expires_at: datetime
    maker: TaskKey
    users: set[TaskKey] = field(default_factory=set)
    read_until: datetime = _NEVER


class Resources:
    """The registry of one worker. It owns the files."""

    def __init__(self, worker_id: str) -> None:
        self._worker_id = worker_id
        self._lock = threading.Lock()
        self._kept: dict[str, _Resource] = {}

    def keep(self, artifact: dict[str, Any], body: bytes | Path, maker: TaskKey) -> None:
        """Keeps what an attempt made."""
        is_file, size = isinstance(body, Path), artifact["size_bytes"]
        with self._lock:
            used = sum(kept.size for kept in self._kept.values() if isinstance(kept.body, Path) == is_file)
            if len(self._kept) >= RESOURCES_MAX or used + size > (FILES_MAX if is_file else MEMORY_MAX):
                message = f"the worker keeps {len(self._kept)} resources with {used} bytes already"
                raise Failure(message, code="resources_full")
            expires_at = parse_time(artifact["expires_at"])
            self._kept[artifact["resource_id"]] = _Resource(artifact["type"], body, size, expires_at, maker)

    def body(self, resource_id: str) -> bytes | Path | None:
        """The data of a resource that has not expired."""
        with self._lock:
            found = self._kept.get(resource_id)
            return found.body if found is not None and found.expires_at > _now() else None

    def missing(self, order: Order) -> Rejection | None:
        """The first resource that a task refers to and that is not here, if there is one."""
        now = _now()
        with self._lock:
            for wanted in order.dispatch.get("resource_refs") or []:
                id, problem = wanted["resource_id"], None
                found = self._kept.get(id)
                if wanted["worker_id"] != self._worker_id:
                    problem = f"is on the worker {wanted['worker_id']!r}"
                elif found is None or found.expires_at <= now:
                    problem = "does not exist or has expired"
                elif found.type != wanted["type"]:
                    problem = f"is of type {found.type!r}"
                if problem is not None:
                    return _missing(f"the resource {id!r} {problem}")
        return None

    def hold(self, order: Order) -> None:
        """Keeps every resource that a task refers to until the task ends."""
        with self._lock:
            for wanted in order.dispatch.get("resource_refs") or []:
                found = self._kept.get(wanted["resource_id"])
                if found is not None:
                    found.users.add(order.key)

    def release(self, key: TaskKey, *, succeeded: bool) -> None:
        """An attempt has ended. What an attempt without a result made is removed: no result names it."""
        with self._lock:
            for kept in self._kept.values():
                kept.users.discard(key)
        if not succeeded:
            self._remove(lambda kept: kept.maker == key)

    def collect(self) -> None:
        """Removes every expired resource that is not in use."""
        now = _now()
        self._remove(lambda kept: kept.expires_at <= now)

    def close(self) -> None:
        """Removes everything: no other process knows it."""
        with self._lock:
            kept, self._kept = self._kept, {}
        for resource in kept.values():
            _remove_file(resource.body)

    def usage(self) -> dict[str, int]:
        """The metrics of a heartbeat."""
        with self._lock:
            in_memory = sum(len(kept.body) for kept in self._kept.values() if isinstance(kept.body, bytes))
            return {"resource_handles": len(self._kept), "resource_bytes": in_memory}

    def read(self, asked: dict[str, Any]) -> dict[str, Any] | Rejection:
        """A part of a resource. It may read a file, so it belongs in a thread."""
        id, offset, now = asked["resource_id"], asked["offset"], _now()
        with self._lock:
            found = self._kept.get(id)
            goes_on = found is not None and offset > 0 and found.read_until > now
            if found is None or (found.expires_at <= now and not goes_on):
                return _missing(f"the resource {id!r} does not exist or has expired")
            found.read_until = now + READ_HOLD
            body = found.body
        try:
            size, data = _part(body, offset, asked["limit"])
        except FileNotFoundError:
            return _missing(f"the file of the resource {id!r} is gone")
        except OSError as error:
            return Rejection("E.INTERNAL", "worker.resources", f"the resource {id!r} cannot be read: {error}")
        return {"resource_id": id, "offset": offset, "size_bytes": size, "data_base64": base64.b64encode(data).decode()}

    def _remove(self, which: Any) -> None:
        now = _now()
        with self._lock:
            gone = [id for id, kept in self._kept.items() if not kept.users and kept.read_until <= now and which(kept)]
            removed = [self._kept.pop(id) for id in gone]
        for resource in removed:
            _remove_file(resource.body)


def _part(body: bytes | Path, offset: int, limit: int) -> tuple[int, bytes]:
    if isinstance(body, bytes):
        return len(body), body[offset : offset + limit]
    with body.open("rb") as file:
        file.seek(offset)
        return body.stat().st_size, file.read(limit)


def _remove_file(body: bytes | Path) -> None:
    if isinstance(body, Path):
        with contextlib.suppress(OSError):
            body.unlink(missing_ok=True)


def _missing(message: str) -> Rejection:
    return Rejection("E.RESOURCE.MISSING", "worker.resources", message)


def _now() -> datetime:
    return datetime.now(timezone.utc)
