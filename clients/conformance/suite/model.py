"""A server that behaves as docs/worker-protocol.md says, over a network that may not.

Scenarios hand over to it with the step `serve`, and the chaos mode uses it alone. It greets every connection, dispatches what
is open, acknowledges what arrives, and sends again what was not acknowledged.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

from .frames import Json, acknowledged_id
from .ledger import Attempt, Key
from .wire import Connection
from .world import Failed, Received, World

# How long the server waits before it sends a frame again, in seconds.
RESEND_AFTER = 0.2
# How often the server looks for frames that are due, in seconds.
LOOK_EVERY = 0.1
# The ways in which a network or a server breaks a connection.
CUTS = ("reset", "end", "half", "close")
CLOSE_CODES = (1000, 1001, 1008, 1011, 1013)


@dataclass
class Network:
    """What the network does to frames. By default it delivers all of them, once and in order."""

    rng: random.Random
    lost_pct: int = 0
    doubled_pct: int = 0
    late_pct: int = 0
    # How many frames a connection carries before it breaks; None: it never does.
    frames_left: int | None = None

    def chance(self, percent: int) -> bool:
        """True with this probability."""
        return percent > 0 and self.rng.randrange(100) < percent


@dataclass
class Model:
    """The server."""

    world: World
    network: Network = field(default_factory=lambda: Network(random.Random(0)))
    # Tasks that are not dispatched yet; as many as the worker takes are dispatched at once.
    waiting: list[Json] = field(default_factory=list)
    parallel_max: int = 4
    # How many connections were broken.
    cuts: int = 0

    def __post_init__(self) -> None:
        self._handled = len(self.world.received)
        self._cancels: dict[Key, Json] = {}
        self._answered: set[tuple[int, str]] = set()
        self._due: dict[tuple[int, str], float] = {}
        self._late: list[tuple[Connection, Json]] = []
        self._ready: set[int] = set()
        # Frames that a scenario received and did not handle.
        self._left: list[Received] = [one for one in self.world.received if not one.consumed]

    def open(self) -> list[Attempt]:
        """The attempts that have no outcome yet."""
        return [one for one in self.world.ledger.attempts.values() if one.outcome is None and not one.void]

    def done(self) -> bool:
        """True when every task has its outcome, and every outcome was acknowledged."""
        attempts = self.world.ledger.attempts.values()
        return not self.waiting and all(one.void or (one.outcome and one.acknowledged) for one in attempts)

    async def serve(self, until: float) -> None:
        """Serves connections until everything is done."""
        while not self.done():
            await self.serve_connection(until)

    async def serve_exit(self, until: float) -> None:
        """Serves a worker that drains, until it has ended: an acknowledgement may have been lost with its connection."""
        while self.world.exit_code is None:
            try:
                await self.serve_connection(until, ends_when_done=False)
            except Failed:
                if self.world.exit_code is None:
                    raise

    async def serve_connection(self, until: float, ends_when_done: bool = True) -> None:
        """Serves the current connection, or the next one, until it breaks or everything is done."""
        world = self.world
        if world.current is None or not world.current.is_open:
            await world.accept(until)
        connection = world.live()
        for one in self._left:
            if one.connection == connection.number and connection.is_open:
                self._handle(connection, one.frame)
        self._left = []
        while connection.is_open and not (ends_when_done and self.done()):
            self._take(connection)
            if connection.is_open and connection.number in self._ready:
                self._pump(connection)
            if not (ends_when_done and self.done()) and connection.is_open:
                await self._pause(connection, until)
        self._late.clear()

    async def _pause(self, connection: Connection, until: float) -> None:
        """Waits for the next frame, or until something may be due."""
        world, seen = self.world, len(self.world.received)
        look = world.now() + LOOK_EVERY

        def moved() -> bool | None:
            changed = len(world.received) > seen or not connection.is_open
            return True if changed or world.now() >= look else None

        try:
            await world.until(moved, "the next frame", look)
        except Failed:
            if world.ledger.offences or world.exit_code is not None:
                raise
        if world.now() > until:
            left = [one.key for one in self.open()]
            raise Failed(f"not every task has its outcome in time; without one: {left[:10]}")

    def _take(self, connection: Connection) -> None:
        received = self.world.received
        while self._handled < len(received):
            one = received[self._handled]
            self._handled += 1
            if one.connection != connection.number or not connection.is_open:
                continue
            if one.frame["type"] not in ("handshake", "register") and self.network.chance(self.network.lost_pct):
                self.world.note(f"network            loses {one.frame['type']} {one.frame['id']}")
                continue
            self._handle(connection, one.frame)
            self._wear(connection)

    def _handle(self, connection: Connection, frame: Json) -> None:
        world, kind = self.world, frame["type"]
        if kind == "handshake":
            self._send(connection, world.build.ack(frame))
        elif kind == "register":
            self._send(connection, world.build.ack(frame, info=f"lease_ms={world.lease_ms}"))
            self._ready.add(connection.number)
        elif kind == "ack":
            self._answered.add((connection.number, str(acknowledged_id(frame))))
            world.ledger.taken(frame)
        elif world.ledger.is_outcome(frame):
            lost = self.network.chance(self.network.lost_pct)
            first = world.ledger.accepts(frame, acknowledged=not lost)
            ack = world.build.ack(frame, info=None if first else "E.RESULT.DUPLICATE")
            if lost:
                world.note(f"network            loses {ack['type']} for {frame['id']}")
            else:
                self._deliver(connection, ack)
        elif kind in ("pkg.event", "middleware.next_request") and (frame.get("ack") or {}).get("request"):
            self._send(connection, world.build.ack(frame))

    def _pump(self, connection: Connection) -> None:
        """Dispatches and cancels what is due on this connection."""
        while self.waiting and len(self.open()) < self.parallel_max:
            task = self.waiting.pop(0)
            self._send(connection, task)
            self._due[(connection.number, task["id"])] = self.world.now() + RESEND_AFTER
            self.world.ledger.sends(connection.number, task, delivered=False)
            if not connection.is_open:
                return
        for attempt in self.open():
            if not connection.is_open:
                return
            self._repeat(connection, attempt.frame)
            if attempt.kind == "wait" and attempt.taken:
                release = attempt.parameters.get("release")
                if release:
                    Path(release).touch()
                else:
                    self._repeat(connection, self._cancel_of(attempt))

    def _cancel_of(self, attempt: Attempt) -> Json:
        if attempt.key not in self._cancels:
            self._cancels[attempt.key] = self.world.build.cancel(attempt.key[0], attempt.run_id, attempt.key[1])
        return self._cancels[attempt.key]

    def _repeat(self, connection: Connection, frame: Json) -> None:
        """Sends a frame unless it was acknowledged on this connection, or is not due yet."""
        key = (connection.number, frame["id"])
        if key in self._answered or self.world.now() < self._due.get(key, 0):
            return
        self._due[key] = self.world.now() + RESEND_AFTER
        self._send(connection, frame)

    def _send(self, connection: Connection, frame: Json) -> None:
        """Sends a frame over the network."""
        greeting = connection.number not in self._ready
        if not greeting and self.network.chance(self.network.lost_pct):
            self.world.note(f"network            loses {frame['type']} {frame['id']}")
            return
        if not greeting and self.network.chance(self.network.late_pct):
            self._late.append((connection, frame))
            return
        self._deliver(connection, frame)

    def _deliver(self, connection: Connection, frame: Json) -> None:
        if not connection.is_open:
            return
        self.world.send(frame, connection)
        if self.network.chance(self.network.doubled_pct):
            self.world.send(frame, connection)
        late, self._late = self._late, []
        for owner, older in late:
            if owner is connection:
                self.world.send(older, connection)
        self._wear(connection)

    def _wear(self, connection: Connection) -> None:
        """Counts a frame, and breaks the connection when it has carried enough."""
        network = self.network
        if network.frames_left is None or not connection.is_open:
            return
        network.frames_left -= 1
        if network.frames_left <= 0:
            cut(self.world, network.rng.choice(CUTS), network.rng.choice(CLOSE_CODES))
            self.cuts += 1


def cut(world: World, how: str, code: int = 1001) -> None:
    """Breaks the current connection."""
    connection = world.live()
    world.note(f"connection {connection.number}      cut: {how}{f' {code}' if how == 'close' else ''}")
    if how == "reset":
        connection.reset()
    elif how == "end":
        connection.end()
    elif how == "half":
        frame = world.build.error("E.INTERNAL", "this frame is cut in the middle " * 8, None, None)
        connection.half(str(frame))
    elif how == "close":
        connection.close(code)
    else:
        raise ValueError(f"there is no cut {how!r}; the cuts are {', '.join(CUTS)}")

