"""A server process: open the catalog, serve HTTP until a signal, finish open requests, close everything."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import logging
import os
import resource
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa
import uvicorn
import uvloop

import aggregator
from aggregator import Catalog, InvalidRequestError
from aggregator.base.forked import leave_when_forked
from aggregator.engine.writer import now_us
from aggregator.errors import StoreError, StoreUnreachableError
from aggregator.server.app import make_app
from aggregator.server.config.address import is_loopback, split_address
from aggregator.server.config.settings import Settings
from aggregator.server.context import Context
from aggregator.server.http.admission import Admission
from aggregator.server.http.connection import connection_type
from aggregator.server.http.groups import Routes
from aggregator.server.metrics.logs import log_request, set_up
from aggregator.storage.files.layout import Layout
from aggregator.storage.store.objects import open_store
from esformat import EsdbError

_BACKLOG = 2048
_DATE_S = 1.0
"""Seconds between updates of the `Date` header."""
_COPYING_S = 10.0
"""Seconds between log lines while a follower makes its first copy and has nothing to serve yet."""
_PATIENT = 0.7  # share of `drain_s` before requests are cancelled; the rest is for their error responses
SWITCH_S = 0.0005
"""Python's thread switch interval, in seconds. With the default of 5 ms, computing threads delay refusals noticeably.
"""
SEALED_AT_STOP_BYTES = 8 << 20
"""A topic with at least this many unsealed bytes is sealed when the server stops. A start reads this many bytes from
the log in about 10 ms."""
SEALED_PART_BYTES = 1 << 20
"""Partitions of such a topic with fewer bytes stay in the log: writing a thousand small segments takes half a minute.
"""
_STANDBY_DRAIN_S = 1.0
"""Seconds that open requests get when a standby takes over."""
_AGAIN_S = 0.5
_LEASE_S = 10.0
"""Longest lease that a standby assumes before it has read the real one, in seconds. It reports store failures after a
third of it."""
_log = logging.getLogger("aggregator.server")
_T = TypeVar("_T")


def serve(path: Path, settings: Settings) -> None:
    """Serve the catalog in a directory until SIGTERM or SIGINT, then finish open requests. Create the directory if
    needed.

    Raises CatalogLockedError, InvalidRequestError (an address that cannot or must not be listened on), OSError.
    """
    set_up(settings.log)
    _allow_many_files()
    keep_little_memory()
    sys.setswitchinterval(SWITCH_S)
    with contextlib.ExitStack() as listening:
        listeners = [listening.enter_context(each) for each in listen_all(settings)]
        if settings.catalog.standby and not _follow(path, settings, listeners):
            return
        with _opened(path, settings) as catalog:
            server = _Server(catalog, settings)
            check_public(settings, server.context)
            _log_ignored_settings(settings, server.context)
            gc.freeze()  # these objects stay: collecting them, now or later, takes 50 ms
            server.run(sockets=listeners)
            server.context.close()
            if not catalog.read_only:
                _seal_large(catalog)
        _log.info("stopped")


def _duration(seconds: float | None) -> str | None:
    return None if seconds is None else f"{round(seconds * 1000)}ms"


def _follow(path: Path, settings: Settings, listeners: Sequence[socket.socket]) -> bool:
    """Serve reads of a catalog in a store until its writer is gone.

    Return true if this directory belongs to the writer then; false if a signal stopped the server first. Raises
    FencedError if the directory was the writer's and another writer took over.
    """
    from aggregator.engine.standby import Standby, is_writer  # here: obstore is of an extra

    if settings.catalog.store is None:
        raise InvalidRequestError("a standby needs an object store", hint="name it with --store")
    lease_s = min(settings.catalog.lease_s or _LEASE_S, _LEASE_S)
    store, layout = open_store(settings.catalog.store, lease_s), Layout(path.absolute())
    hasty = replace(settings, http=replace(settings.http, drain_s=min(settings.http.drain_s, _STANDBY_DRAIN_S)))
    if _patiently(lambda: is_writer(store, layout), StoreUnreachableError):
        return True
    standby = _patiently(lambda: Standby(store, layout, now_us), StoreUnreachableError)
    while True:
        server = _Server(Catalog(standby.backend), hasty)
        check_public(settings, server.context)
        standby.call_when_free(server.stop)
        server.run(sockets=[each.dup() for each in listeners])
        server.context.close()
        if server.was_signalled:
            standby.close()
            _log.info("stopped")
            return False
        if _patiently(standby.take_over):
            return True
        standby = _patiently(lambda: Standby(store, layout, now_us))


def _patiently(ask: Callable[[], _T], failure: type[StoreError] = StoreError) -> _T:
    """Return what `ask` returns; repeat it while it raises `failure`.

    A standby must survive an outage of the store: nobody else may be there to take over. failure: at first only
    StoreUnreachableError, because a store that refuses has a wrong address or wrong permissions.
    """
    failed: type[StoreError] | None = None  # log once per type of error: the messages differ each time
    while True:
        try:
            return ask()
        except failure as error:
            if type(error) is not failed:
                _log.warning("the standby waits for its store and will retry: %s", error)
            failed = type(error)
            time.sleep(_AGAIN_S)


@contextlib.contextmanager
def _opened(path: Path, settings: Settings) -> Iterator[Catalog]:
    """Open the catalog in a directory: for writing, or read-only if it follows another server's."""
    store, follow = settings.catalog, settings.follow
    if follow.url is None:
        opened = partial(
            aggregator.open,
            path, durability=store.durability, limits=store.limits, sealing=store.sealing, file_mode=store.file_mode,
            store=store.store, keep_local=store.keep_local, store_cache=store.store_cache,
            ship_interval=_duration(store.ship_interval_s), lease=_duration(store.lease_s),
        )  # fmt: skip
        with _patiently(opened, StoreUnreachableError) if store.standby else opened() as catalog:
            yield catalog
        return
    from aggregator.client.following import Follower  # needs the extra `client`

    token = None if follow.token_file is None else follow.token_file.read_text("utf-8").strip()
    with Follower(follow.url, path, token=token, ca_file=follow.ca) as follower:
        while not follower.wait_until_whole(_COPYING_S):
            _log.info("copying", extra=follower.lag)
        with aggregator.open(path, read_only=True) as catalog:
            follower.on_arrival = catalog.arrivals.notify
            yield catalog


def _seal_large(catalog: Catalog) -> None:
    """Seal topics with many unsealed bytes so that the next start does not read them from the log."""
    for name in catalog.topics():
        if catalog.topic(name).stats()["unsealed_bytes"] >= SEALED_AT_STOP_BYTES:
            try:
                catalog.seal(name, least_bytes=SEALED_PART_BYTES)
            except (OSError, EsdbError) as error:  # they stay safe in the log
                _log.warning(
                    "could not seal events of a topic; they stay in the log",
                    extra={"topic": name, "reason": str(error)},
                )


class _Listener(socket.socket):
    """A listening socket that is closed in forked processes: they would hold connections without answering them."""

    def leave_to_parent(self) -> None:
        """Close the descriptor in a forked process. `close` would wait for the event loop, which does not run there."""
        if self.fileno() >= 0:
            os.close(self.detach())


class RunningServer:
    """A server in a thread of this process, for tests and notebooks.

    A context manager; `url` is its address.
    """

    def __init__(self, catalog: Catalog, settings: Settings | None = None) -> None:
        """The caller closes the catalog, after the server."""
        self.catalog = catalog
        self._settings = settings or Settings()

    def __enter__(self) -> Self:
        self._listeners = listen_all(self._settings)
        self._server = _Server(self.catalog, self._settings)
        self.context = self._server.context
        self.routes = self._server.routes
        self.url, *more = (url_of(each, secure=self._settings.tls.key is not None) for each in self._listeners)
        self.metrics_url = more[0] if more else None
        self._thread = threading.Thread(target=self._server.run, args=(self._listeners,), name="server", daemon=True)
        self._thread.start()
        while not self._server.serving.wait(0.1):
            if not self._thread.is_alive():
                raise RuntimeError("the server did not start; see its log")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop()
        self._thread.join()
        self.context.close()
        for listener in self._listeners:
            listener.close()


def listen_all(settings: Settings) -> list[socket.socket]:
    """Return the server's listening socket, and a second one for metrics if the settings ask for it.

    Raises InvalidRequestError.
    """
    with contextlib.ExitStack() as undoing:
        found = [undoing.enter_context(listen(settings.http.bind))]
        if settings.metrics_bind is not None:
            found.append(undoing.enter_context(listen(settings.metrics_bind, "metrics.prometheus")))
        undoing.pop_all()
        return found


def listen(bind: str, setting: str = "--bind") -> socket.socket:
    """Return a listening socket for an address "host:port", with IPv6 hosts in brackets. setting: named in the error.

    Raises InvalidRequestError.
    """
    host, port = split_address(bind)
    with contextlib.ExitStack() as undoing:
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listener = undoing.enter_context(_Listener(family, socket.SOCK_STREAM))
            leave_when_forked(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            hint = f"choose another port with {setting} 127.0.0.1:PORT; port 0 takes a free one" if taken else None
            raise InvalidRequestError(f"cannot listen on {bind}: {error.strerror or error}", hint=hint) from None
        undoing.pop_all()
    return listener


def _address(listener: socket.socket) -> str:
    return "{}:{}".format(*listener.getsockname()[:2])


def url_of(listener: socket.socket, *, secure: bool) -> str:
    """Return the URL at which clients on this machine reach a listening socket."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - named, not listened on
    return f"{'https' if secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"


def check_public(settings: Settings, context: Context) -> None:
    """Raise InvalidRequestError if the server would give full access to anybody who reaches it."""
    for bind in (settings.http.bind, settings.metrics_bind):
        if bind is not None and not settings.http.public and _is_open(bind, settings, context):
            raise InvalidRequestError(
                f"{bind} is reachable from other machines and requires no token",
                hint="create a token with `aggregator token create`, require client certificates, or use --public",
            )


def _is_open(bind: str, settings: Settings, context: Context) -> bool:
    host, _ = split_address(bind)
    return not (context.authority.requires_token or settings.tls.client_ca is not None or is_loopback(host))


def _log_ignored_settings(settings: Settings, context: Context) -> None:
    """Log plateau settings that have no effect here, and a warning if everybody has access."""
    if settings.ignored:
        _log.warning("ignored settings: %s", "; ".join(settings.ignored))
    if settings.as_plateau and _is_open(settings.http.bind, settings, context):
        _log.warning(
            "every client that reaches %s may read and write, as with plateau: create a token "
            "(`aggregator token create`), or set http.bind",
            settings.http.bind,
        )


def _allow_many_files() -> None:
    """Raise the limit of open files to what the system allows, up to 65,536."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(65_536, hard) if hard != resource.RLIM_INFINITY else 65_536
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def keep_little_memory() -> None:
    """Make Arrow use jemalloc if available. Its default allocator keeps memory per thread: 30 MB more for pages."""
    if "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())


class _Loop(uvloop.Loop):
    """An event loop with a short TLS handshake timeout. Set `handshake_s` first."""

    handshake_s: float

    async def create_server(self, *args: Any, **options: Any) -> Any:
        if options.get("ssl") is not None:
            options["ssl_handshake_timeout"] = self.handshake_s
        return await super().create_server(*args, **options)


class _Server(uvicorn.Server):
    """uvicorn with our protocol, a stop that returns to the caller, and no polling ten times a second."""

    def __init__(self, catalog: Catalog, settings: Settings) -> None:
        app = make_app(catalog, settings)
        self.context: Context = app.state.context
        self.routes: Routes = app.state.routes
        if settings.log.requests:
            self.context.listeners.append(log_request)
        http, tls = settings.http, settings.tls
        files = (tls.certificate, tls.key, tls.client_ca)
        certificate, key, client_ca = (None if file is None else str(file) for file in files)
        protocol = connection_type(http, Admission(self.context))
        super().__init__(
            uvicorn.Config(
                app, http=protocol, ws="none", lifespan="on",
                server_header=False, proxy_headers=False, access_log=False, log_config=None,
                timeout_keep_alive=round(http.keep_alive_s),
                timeout_graceful_shutdown=round(http.drain_s), limit_concurrency=http.max_connections,
                backlog=_BACKLOG, ssl_certfile=certificate, ssl_keyfile=key, ssl_ca_certs=client_ca,
                ssl_cert_reqs=ssl.CERT_NONE if client_ca is None else ssl.CERT_REQUIRED,
            )
        )  # fmt: skip
        self._handshake_s = http.stall_s
        self._stopping: Callable[[], object] | None = None
        self.serving = threading.Event()  # set once requests are accepted and this was logged
        self.was_signalled = False
        try:
            self.config.load()
        except OSError as error:  # ssl.SSLError is one
            named = ", ".join(file for file in (certificate, key, client_ca) if file is not None)
            raise InvalidRequestError(f"the TLS files ({named}) cannot be used: {error.strerror or error}") from None

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until `stop` or a signal."""

        def loop() -> asyncio.AbstractEventLoop:
            made = _Loop()
            made.handshake_s = self._handshake_s
            return made

        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(self.serve(sockets))

    def stop(self) -> None:
        """Finish open requests and stop. From any thread."""
        self.should_exit = True
        if (wake := self._stopping) is not None:
            wake()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop at a signal."""
        self.was_signalled = True
        super().handle_exit(sig, frame)
        self.stop()

    async def main_loop(self) -> None:
        """Wait for the stop. Meanwhile uvicorn renews the date of its responses."""
        stopping, loop = asyncio.Event(), asyncio.get_running_loop()
        self._stopping = lambda: loop.call_soon_threadsafe(stopping.set)
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), _DATE_S)
        self._stopping = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Make signals stop the server only; the process still has to close the catalog."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # `nohup` ignores it: keep that
            numbers.append(signal.SIGHUP)
        former = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept requests, and log it. sockets: from `listen_all`."""
        self.context.metrics_port = sockets[1].getsockname()[1] if sockets and len(sockets) > 1 else None
        await super().startup(sockets)
        if not sockets:
            return
        listener, *more = sockets
        url = url_of(listener, secure=self.config.is_ssl)
        self.context.catalog.announce(url)
        failed = {"catalog": str(self.context.catalog.path), "address": url, "tls": self.config.is_ssl}
        for figures in more:
            failed["metrics"] = _address(figures)
        _log.info("serving", extra=failed)
        self.serving.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let open requests end. Before the time limit, cancel those still running, while they can be answered.

        These are reads and, if a signal stopped the server, requests that wait for a store.
        """
        self.context.catalog.announce(None)
        self.context.ready = False  # endless responses check this
        drain_s = self.context.settings.http.drain_s

        def end_late() -> None:
            self.context.reads.cancel()
            if self.was_signalled:
                self.context.catalog._stop_waiting_for_store()

        late = asyncio.get_running_loop().call_later(drain_s * _PATIENT, end_late)
        await super().shutdown(sockets)
        late.cancel()
