"""A TCP proxy before the server that can stall, cut and heal: a network that misbehaves."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any

PIECE = 65536
OUTCOMES = b"jobwell finish\0"  # the application name of the connection that stores them


class Proxy:
    """One network: what connects through it shares its fate.

    Args:
        loop: where it runs.
        socket: of the server.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, socket: str) -> None:
        self._loop = loop
        self._socket = socket
        self._writers: set[asyncio.StreamWriter] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._outcomes = asyncio.Event()
        self._outcomes.set()
        self._refusing = False
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen on a port of the loopback."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def stall(self) -> None:
        """Hold back every byte from now on; connections stay. From any thread, like `cut` and `heal`."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def hold_outcomes(self) -> None:
        """Hold back what workers say about ended attempts, and nothing else: it will come late, perhaps after their death."""
        self._loop.call_soon_threadsafe(self._outcomes.clear)

    def cut(self) -> None:
        """End every connection, and take no new ones."""
        self._loop.call_soon_threadsafe(self._cut)

    def heal(self) -> None:
        """Let bytes and connections through again."""
        self._loop.call_soon_threadsafe(self._heal)

    def _cut(self) -> None:
        self._refusing = True
        for writer in list(self._writers):
            writer.transport.abort()

    def _heal(self) -> None:
        self._refusing = False
        self._open.set()
        self._outcomes.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        try:
            from_server, to_server = await asyncio.open_unix_connection(self._socket)
        except OSError:  # it restarts
            writer.transport.abort()
            return
        self._writers |= {writer, to_server}
        pumps = [asyncio.create_task(self._serve(reader, to_server)), asyncio.create_task(self._pump(from_server, writer))]
        try:
            # The client's end goes through as its last bytes do, in their time; the connection is over when the server ends it.
            with contextlib.suppress(asyncio.CancelledError):  # at the end; asyncio prints a trace of what it did itself
                await asyncio.wait(pumps[1:])
        finally:
            for pump in pumps:
                pump.cancel()
            for each in (writer, to_server):
                each.transport.abort()
                self._writers.discard(each)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """From the client; its first packet says what the connection is for."""
        with contextlib.suppress(OSError):
            first = await reader.read(PIECE)
            await self._open.wait()
            writer.write(first)
            await self._pump(reader, writer, outcomes=OUTCOMES in first)
        await self._open.wait()
        with contextlib.suppress(OSError, RuntimeError):  # the server was first
            writer.write_eof()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, outcomes: bool = False) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(PIECE):
                await self._open.wait()
                if outcomes:
                    await self._outcomes.wait()
                writer.write(data)
                await writer.drain()

    def stop(self) -> None:
        """End everything; on the loop."""
        self._cut()
        if self._server is not None:
            self._server.close()


class Network:
    """Proxies on a thread of their own.

    Args:
        socket: of the server.
        count: how many.
    """

    def __init__(self, socket: str, count: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos-network", daemon=True)
        self._thread.start()
        self.proxies = [Proxy(self._loop, socket) for _ in range(count)]
        for proxy in self.proxies:
            self._run(proxy.start())

    def _run(self, call: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(call, self._loop).result(10)

    async def _end(self) -> None:
        for proxy in self.proxies:
            proxy.stop()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for _ in range(3):  # the loop closes the sockets of transports that were aborted
            await asyncio.sleep(0)

    def close(self) -> None:
        """End it."""
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()
