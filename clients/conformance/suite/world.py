"""The world of one scenario: the server's port, the adapter process, and a transcript of everything between them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from .frames import Builder, Json, Schemas
from .ledger import Ledger
from .wire import Connection, ConnectionHandler, Listener

# How long a step waits for what it expects, unless it says otherwise. Ample: a loaded machine must not fail a scenario.
STEP_MS_MAX = 15_000
# The lease that the server gives, unless a scenario says otherwise.
LEASE_MS = 30_000
# How much of the transcript a failure shows, in entries.
TRANSCRIPT_SHOWN = 40

Found = TypeVar("Found")


class Failed(Exception):
    """The adapter does not conform, or the scenario cannot go on."""


@dataclass
class Received:
    """One frame of the adapter."""

    frame: Json
    connection: int
    at: float
    consumed: bool = False


@dataclass
class Command:
    """How an adapter is started."""

    name: str
    arguments: list[str]
    environment: dict[str, str] = field(default_factory=dict)


class World(ConnectionHandler):
    """One adapter process and the server that it talks to."""

    def __init__(self, command: Command, schemas: Schemas, worker: str = "w-1"):
        self.command = command
        self.folder = Path(tempfile.mkdtemp(prefix="laneway-conformance-"))
        self.ledger = Ledger(schemas, worker)
        self.build = Builder()
        self.worker = worker
        self.listener = Listener(self)
        self.connections: list[Connection] = []
        self.current: Connection | None = None
        self.received: list[Received] = []
        self.lines: list[tuple[str, float]] = []
        self.lines_used: set[int] = set()
        self.knocks: list[float] = []
        # How many connections without an answer the adapter gave up.
        self.given_up = 0
        self.token: str | None = None
        self.acknowledges_heartbeats = True
        self.lease_ms = LEASE_MS
        self.step_ms_max = STEP_MS_MAX
        self.exit_code: int | None = None
        self._accepted = 0
        self._process: asyncio.subprocess.Process | None = None
        self._readers: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._transcript: list[str] = []
        self._began = asyncio.get_running_loop().time()
        self._kills = False

    # Time and events.

    def now(self) -> float:
        """Seconds since the scenario began."""
        return asyncio.get_running_loop().time() - self._began

    def note(self, text: str) -> None:
        """Adds an entry to the transcript."""
        self._transcript.append(f"{self.now():8.3f}  {text}")

    def transcript(self) -> str:
        """The end of the transcript, and of what the adapter wrote to standard error."""
        shown = self._transcript[-TRANSCRIPT_SHOWN:]
        try:
            stderr = (self.folder / "stderr").read_text(errors="replace").strip().splitlines()[-12:]
        except OSError:
            stderr = []
        return "\n".join(shown + (["adapter's standard error:"] + stderr if stderr else []))

    def changed(self) -> None:
        """Something happened: every step that waits looks again."""
        self._changed.set()

    async def until(self, look: Callable[[], Found | None], what: str, until: float) -> Found:
        """Waits until `look` finds something. Fails at once when a rule is broken or the adapter is gone."""
        while True:
            found = look()
            if found is not None:
                return found
            if self.ledger.offences:
                raise Failed(self.ledger.offences[0])
            if self.exit_code is not None:
                raise Failed(f"the adapter ended with code {self.exit_code} while the server waited for {what}")
            left = until - self.now()
            if left <= 0:
                raise Failed(f"{what} did not come in time")
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except asyncio.TimeoutError:
                pass

    # The adapter.

    async def start(self, token: str | None, token_file: bool) -> None:
        """Starts the adapter."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("LANEWAY_")}
        environment.update(self.command.environment)
        environment["LANEWAY_URL"] = f"http://127.0.0.1:{self.listener.port}"
        environment["LANEWAY_WORKER"] = self.worker
        self.token = token
        if token is not None and token_file:
            (self.folder / "token").write_text(token)
            environment["LANEWAY_TOKEN_FILE"] = str(self.folder / "token")
        elif token is not None:
            environment["LANEWAY_TOKEN"] = token
        stderr = open(self.folder / "stderr", "wb")
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self.command.arguments,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        finally:
            stderr.close()
        self._readers.append(asyncio.ensure_future(self._read_lines(self._process)))

    async def _read_lines(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            self.note(f"adapter prints    {text}")
            self.lines.append((text, self.now()))
            self.ledger.prints(text)
            self.changed()
        self.exit_code = await process.wait()
        self.note(f"adapter ended     with code {self.exit_code}")
        self.changed()

    def signal(self, name: str) -> None:
        """Sends a signal to the adapter."""
        self.note(f"signal            {name}")
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(getattr(signal, f"SIG{name}"))

    async def stop(self) -> None:
        """Ends the adapter and the server, and removes the folder."""
        self._kills = True
        if self._process is not None and self._process.returncode is None:
            try:
                # The whole group: an adapter may be started by a script.
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if self._readers:
            await asyncio.wait(self._readers)
        await self.listener.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    # The connections.

    def knocked(self) -> None:
        self.knocks.append(self.now())

    def opened(self, connection: Connection) -> None:
        self.note(f"connection {connection.number}      opened")
        path = connection.request.path.split("?")[0]
        if path != "/v1/workers/connect":
            self.ledger.offend(f"the worker connects to {path!r}, not to /v1/workers/connect")
        older = [one.number for one in self.connections if one.is_open]
        if older:
            self.ledger.offend(f"the worker opens connection {connection.number} while connection {older[0]} is open")
        self.connections.append(connection)
        self.changed()

    def rejected(self, status: int) -> None:
        self.note(f"upgrade rejected  with {status}" if status else "upgrade           given up by the adapter")
        self.given_up += status == 0
        self.changed()

    def ponged(self) -> None:
        self.changed()

    def gone(self, connection: Connection) -> None:
        side = "by the adapter" if connection.ended_by_adapter else "by the server"
        self.note(f"connection {connection.number}      ended {side}")
        self.changed()

    def message(self, connection: Connection, message: str | bytes) -> None:
        try:
            frame: Any = json.loads(message)
        except ValueError:
            frame = None
        self.note(f"worker    [{connection.number}]     {brief(frame) if frame else message[:200]!r}")
        if self.ledger.receives(connection.number, message, frame):
            self.received.append(Received(frame, connection.number, self.now()))
            if frame["type"] == "heartbeat" and self.acknowledges_heartbeats and connection.is_open:
                self.send(self.build.ack(frame), connection)
        self.changed()

    async def accept(self, until: float) -> Connection:
        """Waits for the next connection and makes it the current one."""

        def look() -> Connection | None:
            return self.connections[self._accepted] if len(self.connections) > self._accepted else None

        connection = await self.until(look, "a connection", until)
        self._accepted += 1
        self.current = connection
        return connection

    def live(self) -> Connection:
        """The current connection, which must be open."""
        if self.current is None or not self.current.is_open:
            raise Failed("the worker closed its connection")
        return self.current

    def send(self, frame: Json, connection: Connection | None = None, pieces: int = 1) -> None:
        """Sends a frame of the server."""
        connection = connection or self.live()
        self.note(f"scheduler [{connection.number}]     {brief(frame)}")
        self.ledger.sends(connection.number, frame, delivered=True)
        connection.last_sent = self.now()
        connection.send_text(json.dumps(frame, ensure_ascii=False), pieces)

    def lose(self, frame: Json) -> None:
        """The server believes to send a frame, and it never arrives."""
        number = self.current.number if self.current else 0
        self.note(f"scheduler [{number}] lost {brief(frame)}")
        self.ledger.sends(number, frame, delivered=False)

    def frames(self, connection: Connection | None = None) -> list[Received]:
        """The frames of one connection, by default of the current one."""
        connection = connection or self.current
        return [one for one in self.received if connection is not None and one.connection == connection.number]


def brief(frame: Json) -> str:
    """A frame in one line."""
    text = f"{frame.get('type', '?'):<14} id={frame.get('id')}"
    for name in ("corr", "seq"):
        if frame.get(name) is not None:
            text += f" {name}={frame[name]}"
    payload = frame.get("payload")
    if isinstance(payload, dict):
        shown = {name: payload[name] for name in ("for", "info", "status", "code", "progress", "node_type", "tasks") if name in payload}
        text += f" {json.dumps(shown)[:160]}" if shown else ""
    return text
