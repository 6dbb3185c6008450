"""Frames that are kept until they are acknowledged, and when each is sent again.

Pure: it takes the time and random numbers, and returns frames. Outcomes of tasks survive a broken connection; a greeting is
dropped with its connection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from .frames import Frame, encode

# How often a frame is sent again before the connection counts as broken.
RESENDS_MAX = 6
# Most frames, and most bytes, without an acknowledgement. Beyond them the worker takes no new tasks.
OUTBOX_LEN_MAX = 4_096
OUTBOX_BYTES_MAX = 64 << 20


class TaskKey(NamedTuple):
    """One attempt at a task."""

    task_id: str
    seq: int


@dataclass(frozen=True)
class Keep:
    """Why a frame is kept. The outcome of an attempt has its key and its workflow run."""

    what: Literal["outcome", "report", "greeting"]
    key: TaskKey | None = None
    run_id: str | None = None


REPORT = Keep("report")
GREETING = Keep("greeting")


def frame_wait(resends: int, draw: float) -> float:
    """The wait after a frame was sent again `resends` times: 0.2 s, 0.4 s, … 5 s, up to a quarter shorter."""
    return float(min(0.2 * 2 ** min(resends, 30), 5.0) * (1 - draw / 4))


@dataclass
class _Entry:
    frame: Frame
    size: int
    keep: Keep
    due: float
    resends: int = 0


class Outbox:
    """The frames that wait for an acknowledgement, oldest first."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def outcomes(self) -> int:
        """How many outcomes and reports wait."""
        return sum(entry.keep is not GREETING for entry in self._entries.values())

    def is_full(self, running: int) -> bool:
        """True when no more tasks should be accepted."""
        return len(self) + running >= OUTBOX_LEN_MAX or self._bytes >= OUTBOX_BYTES_MAX

    def put(self, now: float, frame: Frame, keep: Keep, draw: float) -> None:
        """Keeps a frame that was just sent, or that is sent as soon as there is a connection."""
        size = len(encode(frame).encode())
        self._bytes += size
        self._entries[frame["id"]] = _Entry(frame, size, keep, now + frame_wait(0, draw))

    def remove(self, id: str) -> Keep | None:
        """Removes a frame that was acknowledged or rejected."""
        entry = self._entries.pop(id, None)
        if entry is None:
            return None
        self._bytes -= entry.size
        return entry.keep

    def remove_where(self, which: Callable[[Keep], bool]) -> None:
        """Removes the frames that `which` selects."""
        for id in [id for id, entry in self._entries.items() if which(entry.keep)]:
            self.remove(id)

    def attempts(self) -> Iterator[TaskKey]:
        """Every attempt whose outcome waits."""
        return (entry.keep.key for entry in self._entries.values() if entry.keep.key is not None)

    def run_of(self, corr: str) -> str | None:
        """The workflow run of a waiting outcome, by its task or by the id of its frame."""
        for id, entry in self._entries.items():
            key = entry.keep.key
            if key is not None and corr in (id, key.task_id):
                return entry.keep.run_id
        return None

    def rewind(self, now: float, which: Callable[[Keep], bool]) -> None:
        """Makes the frames that `which` selects due at once, as if they had never been sent again."""
        for entry in self._entries.values():
            if which(entry.keep):
                entry.resends, entry.due = 0, now

    def next_due(self, is_up: bool) -> float | None:
        """When the next frame is due. Only greetings are sent unless the session is up."""
        return min((entry.due for entry in self._selected(is_up)), default=None)

    def take_due(self, now: float, is_up: bool, draw: Callable[[], float]) -> tuple[list[Frame], bool]:
        """The frames to send now, in the order of their `seq`; and whether one was sent as often as allowed."""
        due: list[Frame] = []
        exhausted = False
        for entry in self._selected(is_up):
            if entry.due > now:
                continue
            if entry.resends >= RESENDS_MAX:
                exhausted = True
                continue
            entry.resends += 1
            entry.due = now + frame_wait(entry.resends, draw())
            due.append(entry.frame)
        due.sort(key=lambda frame: frame.get("seq") or 0)
        return due, exhausted

    def _selected(self, is_up: bool) -> Iterator[_Entry]:
        return (entry for entry in self._entries.values() if is_up or entry.keep is GREETING)
