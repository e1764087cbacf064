"""A TCP proxy between a real client and a real server that breaks connections as a test requires."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self


@dataclass(frozen=True)
class Fate:
    """What happens to a connection: it is cut after a number of bytes to or from the server; responses are delayed.

    unmeasured: responses have no length, so that they end with the connection.
    """

    up_bytes: int | None = None
    down_bytes: int | None = None
    delay_s: float = 0.0
    unmeasured: bool = False


class BreakingProxy:
    """Listens on `url` and forwards bytes to `target`. `fate_of` receives the number of the connection, from 0."""

    def __init__(self, target: str, fate_of: Callable[[int], Fate]) -> None:
        host, _, port = target.removeprefix("http://").partition(":")
        self._target = (host, int(port))
        self._fate_of = fate_of
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self._open: list[socket.socket] = []

    def cut(self) -> None:
        """End the open connections."""
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # closing alone would not wake the accepting thread
        self._listener.close()
        for each in self._open:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            fate = self._fate_of(self.connections)
            self.connections += 1
            server = socket.create_connection(self._target)
            self._open += [client, server]
            for source, sink, limit, delay, unmeasured in (
                (client, server, fate.up_bytes, 0.0, False),
                (server, client, fate.down_bytes, fate.delay_s, fate.unmeasured),
            ):
                threading.Thread(target=_pump, args=(source, sink, limit, delay, unmeasured), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket, limit: int | None, delay_s: float, unmeasured: bool) -> None:
    passed = 0
    with contextlib.suppress(OSError):
        while piece := source.recv(65_536):
            time.sleep(delay_s)
            if unmeasured:
                piece = piece.replace(b"content-length:", b"was-this-long: ")
            if limit is not None and passed + len(piece) >= limit:
                sink.sendall(piece[: limit - passed])
                break
            sink.sendall(piece)
            passed += len(piece)
    for each in (source, sink):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
    source.close()  # the other thread closes the sink
