"""WebSocket connections as the server's side sees them, with every way to break one.

This module knows bytes, messages and sockets. It does not know what a frame means.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable

from websockets.exceptions import ConnectionClosed, ProtocolError
from websockets.frames import Frame as WebSocketFrame
from websockets.frames import Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

# The longest message that is read, in bytes. The protocol allows 4 MiB; the suite itself reports longer ones.
MESSAGE_BYTES_MAX = 8 << 20
# A reset instead of an orderly end: SO_LINGER with a time of 0 s.
LINGER_RESET = struct.pack("ii", 1, 0)


class Connection:
    """One connection of the adapter."""

    def __init__(self, number: int, request: Request, protocol: ServerProtocol, writer: asyncio.StreamWriter):
        self.number = number
        self.request = request
        self.is_open = True
        # True when the adapter ended the connection, false when the suite did.
        self.ended_by_adapter = False
        self.pongs = 0
        # When the suite last sent a frame, in its own time.
        self.last_sent = 0.0
        self._protocol = protocol
        self._writer = writer

    def send_text(self, text: str, pieces: int = 1) -> None:
        """Sends one message, in several WebSocket fragments if `pieces` is greater than 1."""
        if self._protocol.state is not State.OPEN:
            # The adapter is closing the connection: it would not be read.
            return
        data = text.encode()
        size = max(1, -(-len(data) // pieces))
        parts = [data[at : at + size] for at in range(0, len(data), size)] or [b""]
        for at, part in enumerate(parts):
            last = at == len(parts) - 1
            if at == 0:
                self._protocol.send_text(part, fin=last)
            else:
                self._protocol.send_continuation(part, fin=last)
        self.flush()

    def send_binary(self, data: bytes) -> None:
        """Sends one binary message. The protocol has none: the adapter must handle it like any other invalid frame."""
        self._protocol.send_binary(data)
        self.flush()

    def ping(self) -> None:
        """Sends a WebSocket ping."""
        self._protocol.send_ping(b"conformance")
        self.flush()

    def close(self, code: int) -> None:
        """Ends the connection with a WebSocket close frame, and does not wait for the answer."""
        if self._protocol.state is State.OPEN:
            self._protocol.send_close(code, "")
            self.flush()
        self._end()

    def reset(self) -> None:
        """Breaks the connection with a TCP reset. Unsent data is lost."""
        sock = self._writer.get_extra_info("socket")
        if sock is not None:
            try:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_RESET)
            except OSError:
                pass
        self.is_open = False
        self._writer.transport.abort()

    def end(self) -> None:
        """Ends the TCP connection without a close frame, as a killed process does."""
        self._end()

    def half(self, text: str) -> None:
        """Sends the first half of a message's bytes, then resets the connection."""
        data = text.encode()
        header = struct.pack("!BBH", 0x81, 126, len(data))
        self._writer.write(header + data[: len(data) // 2])
        self._end()

    def flush(self) -> None:
        """Writes what the protocol has to send."""
        for data in self._protocol.data_to_send():
            if data:
                self._writer.write(data)
            elif self._writer.can_write_eof():
                try:
                    self._writer.write_eof()
                except OSError:
                    pass

    def _end(self) -> None:
        self.is_open = False
        self._writer.close()


class Listener:
    """The port of the server. It can stop listening and start again on the same port."""

    def __init__(self, handler: ConnectionHandler):
        self._handler = handler
        self._server: asyncio.base_events.Server | None = None
        self._reserved: socket.socket | None = self._bind(0)
        self.port: int = self._reserved.getsockname()[1]
        # HTTP statuses with which the next connections are rejected.
        self.rejections: list[int] = []
        # How many of the next connections get no answer at all.
        self.stalls = 0
        self._numbers = 0
        self._writers: set[asyncio.StreamWriter] = set()

    @staticmethod
    def _bind(port: int) -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
        return sock

    async def listen(self) -> None:
        """Starts to accept connections."""
        if self._server is None:
            sock, self._reserved = self._reserved, None
            self._server = await asyncio.start_server(self._serve, sock=sock, limit=1 << 20)

    async def shut(self) -> None:
        """Stops listening. The port stays reserved, and a connection to it fails at once."""
        if self._server is not None:
            self._server.close()
            self._server = None
            self._reserved = self._bind(self.port)

    async def stop(self) -> None:
        """Ends everything."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._handler.knocked()
        if self.stalls:
            self.stalls -= 1
            return await self._stall(reader, writer)
        protocol = ServerProtocol(max_size=MESSAGE_BYTES_MAX)
        served = _Served(self, protocol, writer)
        try:
            while True:
                data = await reader.read(1 << 16)
                if data:
                    protocol.receive_data(data)
                else:
                    protocol.receive_eof()
                served.handle(protocol.events_received())
                if not data or protocol.state is State.CLOSED:
                    break
        except (OSError, ConnectionClosed, ProtocolError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            served.gone()
            writer.close()

    async def _stall(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Reads the request and answers nothing, until the adapter gives up."""
        try:
            while await reader.read(1 << 16):
                pass
        except OSError:
            pass
        self._writers.discard(writer)
        writer.close()
        self._handler.rejected(0)

    def opened(self, request: Request, protocol: ServerProtocol, writer: asyncio.StreamWriter) -> Connection:
        """A new connection, after its HTTP upgrade."""
        self._numbers += 1
        connection = Connection(self._numbers, request, protocol, writer)
        self._handler.opened(connection)
        return connection

    @property
    def on_message(self) -> Callable[[Connection, str | bytes], None]:
        """Receives every message."""
        return self._handler.message

    @property
    def on_gone(self) -> Callable[[Connection], None]:
        """Hears of every end of a connection."""
        return self._handler.gone

    def on_pong(self) -> None:
        """A ping was answered."""
        self._handler.ponged()

    def rejected(self, status: int) -> None:
        """An upgrade was answered with this status."""
        self._handler.rejected(status)


class ConnectionHandler:
    """What a listener reports. All methods are called on the event loop."""

    def knocked(self) -> None:
        """A TCP connection was accepted."""

    def opened(self, connection: Connection) -> None:
        """A WebSocket connection is open."""

    def rejected(self, status: int) -> None:
        """An upgrade was rejected on request of the scenario, or the adapter gave up one that was not answered (status 0)."""

    def message(self, connection: Connection, message: str | bytes) -> None:
        """A whole message arrived."""

    def ponged(self) -> None:
        """A ping was answered."""

    def gone(self, connection: Connection) -> None:
        """The connection has ended, by whichever side."""


class _Served:
    """The events of one TCP connection."""

    def __init__(self, listener: Listener, protocol: ServerProtocol, writer: asyncio.StreamWriter):
        self._listener = listener
        self._protocol = protocol
        self._writer = writer
        self._connection: Connection | None = None
        self._parts: list[bytes] = []
        self._is_text = True

    def handle(self, events: list[Request | WebSocketFrame]) -> None:
        for event in events:
            if isinstance(event, Request):
                self._upgrade(event)
            else:
                self._frame(event)
        if self._connection is not None:
            self._connection.flush()
        else:
            for data in self._protocol.data_to_send():
                if data:
                    self._writer.write(data)

    def gone(self) -> None:
        if self._connection is not None:
            self._connection.ended_by_adapter = self._connection.is_open
            self._connection.is_open = False
            self._listener.on_gone(self._connection)

    def _upgrade(self, request: Request) -> None:
        if self._listener.rejections:
            status = self._listener.rejections.pop(0)
            self._protocol.send_response(self._protocol.reject(status, "rejected by the scenario\n"))
            self._listener.rejected(status)
            return
        response = self._protocol.accept(request)
        self._protocol.send_response(response)
        for data in self._protocol.data_to_send():
            if data:
                self._writer.write(data)
        if response.status_code == 101:
            self._connection = self._listener.opened(request, self._protocol, self._writer)

    def _frame(self, frame: WebSocketFrame) -> None:
        connection = self._connection
        if connection is None or not connection.is_open:
            return
        if frame.opcode is Opcode.PONG:
            connection.pongs += 1
            self._listener.on_pong()
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
            self._parts, self._is_text = [], frame.opcode is Opcode.TEXT
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY, Opcode.CONT):
            self._parts.append(bytes(frame.data))
            if frame.fin:
                data = b"".join(self._parts)
                self._listener.on_message(connection, data.decode("utf-8", "replace") if self._is_text else data)
