"""`Connection`: calls over HTTP, retried if appropriate. Only this module and `async_connection` wait for a server."""

from __future__ import annotations

import os
import re
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import httpx
import pyarrow as pa

from aggregator.base.names import check_host
from aggregator.base.result import Closing
from aggregator.client.http.arrow_stream import StreamDecoder
from aggregator.client.http.attempts import RETRY_ON_OTHER_SERVER, Attempts, broken_off, check_whole, failure_of
from aggregator.client.http.calls import COMPRESSIONS, Body, Call, Reply
from aggregator.client.http.errors import TruncatedAnswerError, error_of
from aggregator.client.http.retry import Retry
from aggregator.errors import InvalidRequestError
from esformat import ClosedError, EsdbError

_PIECE_BYTES = 256 << 10  # of a request body: passed to the socket in one call
_CONNECT_S = 5.0
_TOKEN = re.compile(r"[!-~]+")  # visible ASCII, which any header may contain


@dataclass(frozen=True, slots=True)
class Options:
    """How a client connects to its server. See `Client`. urls: one address, or several of servers with the same
    catalog.
    """

    urls: str | Sequence[str]
    token: str | None = field(default=None, repr=False)
    timeout_s: float = 30.0
    retry: Retry = field(default_factory=Retry)
    compression: str | None = None
    ca_file: str | os.PathLike[str] | None = None
    client_cert: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        for url in self.servers:
            _check_address(url)
        if not self.servers:
            raise InvalidRequestError("the address is missing", hint="expected http://host:port")
        if self.token is not None and not _TOKEN.fullmatch(self.token):
            raise InvalidRequestError(
                "the token has invalid characters", hint="use exactly what `aggregator token create` printed"
            )
        if self.compression not in COMPRESSIONS:
            raise InvalidRequestError(f'compression must be None, "zstd" or "gzip", not {self.compression!r}')

    def ssl_context(self) -> ssl.SSLContext | bool:
        """Return the TLS context; True (the default checks) if no files are set."""
        if self.ca_file is None and self.client_cert is None:
            return True
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.client_cert is not None:
            context.load_cert_chain(*self.client_cert)
        return context

    def headers(self) -> dict[str, str]:
        """Return the headers of every call."""
        mine = {"user-agent": "aggregator-client", "accept-encoding": "identity"}  # httpx would request gzip
        return mine if self.token is None else mine | {"authorization": f"Bearer {self.token}"}

    @property
    def servers(self) -> tuple[str, ...]:
        """The addresses of the servers."""
        several = isinstance(self.urls, Sequence) and not isinstance(self.urls, str)
        return tuple(self.urls) if several else (self.urls,)  # type: ignore[return-value]  # otherwise it is one string

    @property
    def url(self) -> str:
        """The addresses, for messages."""
        return ", ".join(self.servers)

    def timeout(self, call: Call) -> httpx.Timeout:
        """Return the timeout of one call, whose response may take longer."""
        return httpx.Timeout(self.timeout_s + call.wait_s, connect=min(_CONNECT_S, self.timeout_s))


def _check_address(given: str) -> None:
    """Raise InvalidRequestError if it is not a server's address."""
    try:
        url = httpx.URL(given)
        check_host(url.host)
    except (httpx.InvalidURL, TypeError, ValueError):
        url = httpx.URL("")
    if url.userinfo:
        raise InvalidRequestError("the address contains a user name or password", hint="pass the token separately")
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidRequestError(f"invalid address {given!r}", hint="expected http://host:port")


class ServerRotation:
    """Selects one of several servers: the last that responded, until it fails."""

    def __init__(self, options: Options) -> None:
        self._bases = [url.rstrip("/") for url in options.servers]
        self._at = 0

    def __len__(self) -> int:
        return len(self._bases)

    @property
    def base(self) -> str:
        """The address for the next call."""
        return self._bases[self._at]

    def advance(self, base: str, error: EsdbError) -> None:
        """Move to the next server if that may succeed where `base` failed.

        Calls that fail at the same time move it only once.
        """
        if base == self.base and isinstance(error, RETRY_ON_OTHER_SERVER):
            self._at = (self._at + 1) % len(self._bases)


def pieces_of(body: Body) -> Iterator[bytes]:
    """Yield a body in pieces for the wire, without copying all of it first."""
    whole = memoryview(body).cast("B")
    for start in range(0, len(whole), _PIECE_BYTES):
        yield whole[start : start + _PIECE_BYTES]  # type: ignore[misc]  # bytes-like is enough


def headers_of(call: Call) -> list[tuple[bytes, bytes]]:
    """Return a call's own headers, in UTF-8. Bodies are sent in pieces, so their length is declared."""
    headers = dict(call.headers)
    if call.method not in ("GET", "DELETE"):
        headers["content-length"] = str(len(memoryview(call.body).cast("B")))
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def sleep(seconds: float) -> bool:
    """Wait; return True to give up."""
    time.sleep(seconds)
    return False


class Connection:
    """A pool of connections to one server. Thread-safe."""

    def __init__(self, options: Options) -> None:
        self.options, self._rotation = options, ServerRotation(options)
        self._http = httpx.Client(
            headers=options.headers(),
            verify=options.ssl_context(),
            follow_redirects=False,
            limits=httpx.Limits(max_connections=256, max_keepalive_connections=64, keepalive_expiry=30.0),
        )

    def close(self) -> None:
        """Close every connection."""
        self._http.close()

    def send(self, call: Call, retry: Retry | None = None, wait: Callable[[float], bool] = sleep) -> Reply:
        """Return the complete response. wait: waits some seconds, and returns whether to give up.

        Raises the error in the response (`errors.error_of`), UnavailableError, TruncatedAnswerError, ClosedError.
        """
        response, refusals = self._open(call, retry, wait)
        return Reply(response.status_code, response.headers, response.content, refusals)

    def stream(self, call: Call) -> Stream:
        """Return an Arrow stream that is read as it is consumed. Retried until it begins."""
        return Stream(self._open(call, None, sleep, stream=True)[0], call.path)

    def download(self, call: Call) -> Download:
        """Return bytes that are read as they are consumed. Retried until they begin."""
        return Download(self._open(call, None, sleep, stream=True)[0], call.path)

    def _open(
        self, call: Call, retry: Retry | None, wait: Callable[[float], bool], *, stream: bool = False
    ) -> tuple[httpx.Response, int]:
        attempts = Attempts(
            retry or self.options.retry, repeatable=call.repeatable, stores=call.stores, servers=len(self._rotation)
        )
        while True:
            base = self._rotation.base
            try:
                response = self._attempt(base, call, stream=stream)
                if response.is_success:
                    return response, attempts.refusals
                failure: EsdbError = error_of(
                    response.status_code, response.headers, response.content, subject=call.path
                )
            except httpx.RequestError as error:
                failure = failure_of(error, base + call.path)
            self._rotation.advance(base, failure)
            if wait(attempts.wait_s(failure)):
                raise attempts.final_error(failure)

    def _attempt(self, base: str, call: Call, *, stream: bool) -> httpx.Response:
        """Return the response, read completely unless it is successful and to be streamed."""
        if self._http.is_closed:
            raise ClosedError("the client is closed", path=self.options.url, hint="create a new client")
        content = pieces_of(call.body) if len(memoryview(call.body)) else None
        request = self._http.build_request(
            call.method, base + call.path, content=content, headers=headers_of(call), timeout=self.options.timeout(call)
        )
        response = self._http.send(request, stream=True)
        if not stream or not response.is_success:
            try:
                response.read()
            finally:
                response.close()
            check_whole(response)
        return response


class Download(Closing):
    """Bytes of a response, piece by piece; a context manager. A truncated response raises TruncatedAnswerError."""

    def __init__(self, response: httpx.Response, subject: str) -> None:
        self._response, self._subject = response, subject

    @property
    def headers(self) -> httpx.Headers:
        """The headers of the response."""
        return self._response.headers

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._response.iter_bytes()
        except httpx.RequestError as error:
            raise broken_off(error, self._subject) from None

    def close(self) -> None:
        """Stop reading."""
        self._response.close()


class Stream:
    """Record batches of a response; iterate once. A truncated response raises TruncatedAnswerError."""

    def __init__(self, response: httpx.Response, subject: str) -> None:
        self._response, self._subject = response, subject
        self._pieces = response.iter_bytes()
        self._decoder = StreamDecoder()
        self._ready: Iterator[pa.RecordBatch] = iter(())
        self._ended = False
        first: list[pa.RecordBatch] = []
        while self._decoder.schema is None and not self._ended:
            first += self._more()
        self._ready = iter(first)
        assert self._decoder.schema is not None  # otherwise `_more` has raised
        self.schema: pa.Schema = self._decoder.schema

    @property
    def headers(self) -> httpx.Headers:
        """The headers of the response."""
        return self._response.headers

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        while True:
            for batch in self._ready:
                return batch
            if self._ended:
                raise StopIteration
            self._ready = iter(self._more())

    def _more(self) -> list[pa.RecordBatch]:
        try:
            for piece in self._pieces:
                return list(self._decoder.feed(piece))
            self._ended = True
            self._decoder.finish()
        except httpx.RequestError as error:
            self.close()
            raise broken_off(error, self._subject) from None
        except TruncatedAnswerError:
            self.close()
            raise
        self.close()
        return []

    def close(self) -> None:
        """Stop reading."""
        self._ended = True
        self._response.close()

    def __del__(self) -> None:
        self._response.close()
