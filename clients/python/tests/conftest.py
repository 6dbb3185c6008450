"""A real server for the tests: the program that LANEWAY_BIN names, on a free port, with a data directory of its own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from laneway import Client

T = TypeVar("T")
# Longest time for one test, in seconds: only one that hangs takes so long.
PATIENCE = 30.0


class Server:
    """A server process. `start` returns when it has printed where it listens."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder = folder
        self.flags = flags
        self.url = ""
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> Server:
        binary = os.environ.get("LANEWAY_BIN")
        assert binary, "LANEWAY_BIN must name the server program"
        listen = self.url.removeprefix("http://") or "127.0.0.1:0"
        # The machine of the tests may be full and busy.
        quiet = ["--set", "limits.storage_low=1MiB", "--set", "capacity.measured=false"]
        quiet += ["--set", "workers.disk_full=100", "--set", "workers.memory_full=100"]
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "server.log").open("a") as errors:
            self.process = subprocess.Popen(
                [binary, "serve", "--listen", listen, "--data-dir", str(self.folder / "data"), *quiet, *self.flags],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("  api "):
                self.url = line.split()[1].removesuffix("/v1")
            if line.startswith("Ctrl-C"):
                # Read to the end, so that the server can write when it stops.
                threading.Thread(target=self.process.stdout.read, daemon=True).start()
                return self
        raise AssertionError(f"no server: {(self.folder / 'server.log').read_text()}")

    def kill(self) -> None:
        """Ends the server without a chance to write anything."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)


class Proxy:
    """A server in front of the server. It can swallow answers, and cut or hold back connections."""

    def __init__(self, url: str) -> None:
        self._host, port = url.removeprefix("http://").split(":")
        self._port = int(port)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self.url = ""
        self.connections = 0
        # How many of the next answers are swallowed: the request arrives, and the connection breaks.
        self.swallow = 0

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()[:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Breaks every connection."""
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            there, back = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.transport.abort()
            return
        pair = {writer, back}
        self._open |= pair
        await asyncio.wait(
            {
                asyncio.ensure_future(self._copy(reader, back, False)),
                asyncio.ensure_future(self._copy(there, writer, True)),
            },
            return_when=asyncio.FIRST_COMPLETED,
        )
        for end in pair:
            end.transport.abort()
        self._open -= pair

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: bool) -> None:
        try:
            while data := await reader.read(1 << 16):
                if answers and self.swallow > 0:
                    self.swallow -= 1
                    return
                writer.write(data)
                await writer.drain()
        except OSError:
            return


def run(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine, for a bounded time."""
    return asyncio.run(asyncio.wait_for(work, PATIENCE))


def run_with(server: Server, test: Callable[[Client], Coroutine[Any, Any, T]], **options: Any) -> T:
    """Runs a coroutine with a client of a server."""

    async def work() -> T:
        async with Client(server.url, **options) as client:
            return await test(client)

    return run(work())


@pytest.fixture(autouse=True)
def empty_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker on a full disk gets no jobs; the disk of the tests may be full."""
    monkeypatch.setattr("laneway.vitals._disk", lambda: 10.0)
    monkeypatch.setattr("laneway.vitals._memory", lambda: 10.0)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests that do not stop it. Tests use names of their own."""
    one = Server(tmp_path_factory.mktemp("server"), "--set", "keys.provider.limit=1").start()
    yield one
    one.stop()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server for one test, which may stop it and start it again."""
    one = Server(tmp_path).start()
    yield one
    one.stop()
