"""A server process: the catalog is opened, HTTP spoken until a signal comes, what is under way finished, all closed."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import uvicorn

import aggregator
from aggregator import Catalog, InvalidRequestError
from aggregator.server.app import make_app
from aggregator.server.settings import Settings


def serve(path: str | Path, settings: Settings) -> None:
    """Serve the catalog in a directory until SIGTERM or SIGINT; made where it is absent.

    Raises CatalogLockedError, InvalidRequestError (an address that cannot be listened on), OSError.
    """
    with listen(settings.http.bind) as listener, aggregator.open(path) as catalog:
        _uvicorn(catalog, settings).run(sockets=[listener])


class RunningServer:
    """A server in a thread of this process: for tests and notebooks. A context manager; `url` is where it listens."""

    def __init__(self, catalog: Catalog, settings: Settings | None = None) -> None:
        """The catalog stays the caller's to close, after the server."""
        self.catalog = catalog
        self._settings = settings or Settings()

    def __enter__(self) -> Self:
        self._listener = listen(self._settings.http.bind)
        host, port = self._listener.getsockname()[:2]
        self.url = f"http://{host}:{port}"
        self._server = _uvicorn(self.catalog, self._settings)
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],), name="server", daemon=True)
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise RuntimeError("the server did not start; its log says why")
            threading.Event().wait(0.005)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()


def listen(bind: str) -> socket.socket:
    """A listening socket for "host:port"; IPv6 hosts in brackets. Raises InvalidRequestError."""
    host, _, port = bind.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not port.isdecimal() or int(port) > 65_535:
        raise InvalidRequestError(f"{bind!r} is no address", hint="give host:port, such as 127.0.0.1:3030")
    try:
        family, _, _, _, address = socket.getaddrinfo(host or "0.0.0.0", int(port), type=socket.SOCK_STREAM)[0]  # noqa: S104  # an empty host says so
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        raise InvalidRequestError(f"cannot listen on {bind}: {error.strerror or error}") from None
    return listener


def _uvicorn(catalog: Catalog, settings: Settings) -> uvicorn.Server:
    http = settings.http
    return uvicorn.Server(
        uvicorn.Config(
            make_app(catalog, settings), http="httptools", ws="none", lifespan="on", server_header=False,
            access_log=False, log_config=None, timeout_keep_alive=int(http.keep_alive_s),
            timeout_graceful_shutdown=int(http.drain_s),
        )
    )  # fmt: skip
