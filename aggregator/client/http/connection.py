"""`Connection`: calls made over HTTP, tried again where that is right. The only module that waits for a server, with
`async_connection`.
"""

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
from aggregator.client.http.attempts import ELSEWHERE, Attempts, broken_off, check_whole, failure_of
from aggregator.client.http.calls import COMPRESSIONS, Body, Call, Reply
from aggregator.client.http.errors import TruncatedAnswerError, error_of
from aggregator.client.http.retry import Retry
from aggregator.errors import InvalidRequestError
from esformat import ClosedError, EsdbError

_PIECE_BYTES = 256 << 10  # of a request body: what one call hands to the socket
_CONNECT_S = 5.0
_TOKEN = re.compile(r"[!-~]+")  # what a header takes without doubt: visible ASCII


@dataclass(frozen=True, slots=True)
class Options:
    """How a client speaks to its server. See `Client`. urls: of several that have the same catalog; of one, a text."""

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
            raise InvalidRequestError("no address was given", hint="give http://host:port")
        if self.token is not None and not _TOKEN.fullmatch(self.token):
            raise InvalidRequestError(
                "the token has invalid characters", hint="give what `aggregator token create` printed, alone"
            )
        if self.compression not in COMPRESSIONS:
            raise InvalidRequestError(f'compression must be None, "zstd" or "gzip", not {self.compression!r}')

    def ssl_context(self) -> ssl.SSLContext | bool:
        """What checks the server and shows who we are; the default where nothing is asked for."""
        if self.ca_file is None and self.client_cert is None:
            return True
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.client_cert is not None:
            context.load_cert_chain(*self.client_cert)
        return context

    def headers(self) -> dict[str, str]:
        """Those that every call carries."""
        mine = {"user-agent": "aggregator-client", "accept-encoding": "identity"}  # httpx would ask for gzip
        return mine if self.token is None else mine | {"authorization": f"Bearer {self.token}"}

    @property
    def servers(self) -> tuple[str, ...]:
        """The addresses of the servers."""
        several = isinstance(self.urls, Sequence) and not isinstance(self.urls, str)
        return tuple(self.urls) if several else (self.urls,)  # type: ignore[return-value]  # else it is one

    @property
    def url(self) -> str:
        """The addresses, for people."""
        return ", ".join(self.servers)

    def timeout(self, call: Call) -> httpx.Timeout:
        """For one call: its answer may take longer."""
        return httpx.Timeout(self.timeout_s + call.wait_s, connect=min(_CONNECT_S, self.timeout_s))


def _check_address(given: str) -> None:
    """Raises InvalidRequestError for what is no address of a server."""
    try:
        url = httpx.URL(given)
        check_host(url.host)
    except (httpx.InvalidURL, TypeError, ValueError):
        url = httpx.URL("")
    if url.userinfo:
        raise InvalidRequestError("the address has a name or a password in it", hint="give the token apart")
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidRequestError(f"invalid address {given!r}", hint="give http://host:port")


class Turn:
    """Which of several servers is asked: the last that answered, as long as it does."""

    def __init__(self, options: Options) -> None:
        self._bases = [url.rstrip("/") for url in options.servers]
        self._at = 0

    def __len__(self) -> int:
        return len(self._bases)

    @property
    def base(self) -> str:
        """Where the next call goes."""
        return self._bases[self._at]

    def pass_on(self, base: str, error: EsdbError) -> None:
        """The one that was asked has not done it: where another may, that is asked next. Others that failed at the same
        time move it only once.
        """
        if base == self.base and isinstance(error, ELSEWHERE):
            self._at = (self._at + 1) % len(self._bases)


def pieces_of(body: Body) -> Iterator[bytes]:
    """A body for the wire, without copying all of it first."""
    whole = memoryview(body).cast("B")
    for start in range(0, len(whole), _PIECE_BYTES):
        yield whole[start : start + _PIECE_BYTES]  # type: ignore[misc]  # what is sent need only be like bytes


def headers_of(call: Call) -> list[tuple[bytes, bytes]]:
    """A call's own headers, in UTF-8. Bodies go in pieces, so their length is said."""
    headers = dict(call.headers)
    if call.method not in ("GET", "DELETE"):
        headers["content-length"] = str(len(memoryview(call.body).cast("B")))
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def sleep(seconds: float) -> bool:
    """Wait; True: do not try again."""
    time.sleep(seconds)
    return False


class Connection:
    """A pool of connections to one server. Safe to share between threads."""

    def __init__(self, options: Options) -> None:
        self.options, self._turn = options, Turn(options)
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
        """The whole answer. wait: waits some seconds, and tells whether to give up.

        Raises what the answer says (`errors.error_of`), UnavailableError, TruncatedAnswerError, ClosedError.
        """
        response, refusals = self._open(call, retry, wait)
        return Reply(response.status_code, response.headers, response.content, refusals)

    def stream(self, call: Call) -> Stream:
        """An Arrow stream as the answer, read as it is consumed; tried again until it begins."""
        return Stream(self._open(call, None, sleep, stream=True)[0], call.path)

    def download(self, call: Call) -> Download:
        """Bytes as the answer, read as they are consumed; tried again until they begin."""
        return Download(self._open(call, None, sleep, stream=True)[0], call.path)

    def _open(
        self, call: Call, retry: Retry | None, wait: Callable[[float], bool], *, stream: bool = False
    ) -> tuple[httpx.Response, int]:
        attempts = Attempts(
            retry or self.options.retry, repeatable=call.repeatable, stores=call.stores, servers=len(self._turn)
        )
        while True:
            base = self._turn.base
            try:
                response = self._attempt(base, call, stream=stream)
                if response.is_success:
                    return response, attempts.refusals
                failure: EsdbError = error_of(
                    response.status_code, response.headers, response.content, subject=call.path
                )
            except httpx.RequestError as error:
                failure = failure_of(error, base + call.path)
            self._turn.pass_on(base, failure)
            if wait(attempts.wait_s(failure)):
                raise attempts.given_up(failure)

    def _attempt(self, base: str, call: Call, *, stream: bool) -> httpx.Response:
        """The answer; read to its end, but for a good one that is to be streamed."""
        if self._http.is_closed:
            raise ClosedError("the client is closed", path=self.options.url, hint="make another one")
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
    """Bytes of an answer, piece by piece; a context manager. One that breaks off raises TruncatedAnswerError."""

    def __init__(self, response: httpx.Response, subject: str) -> None:
        self._response, self._subject = response, subject

    @property
    def headers(self) -> httpx.Headers:
        """Of the answer."""
        return self._response.headers

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._response.iter_bytes()
        except httpx.RequestError as error:
            raise broken_off(error, self._subject) from None

    def close(self) -> None:
        """Read no more of it."""
        self._response.close()


class Stream:
    """Record batches of an answer; iterate it once. An answer that breaks off raises TruncatedAnswerError."""

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
        assert self._decoder.schema is not None  # else its end was missing
        self.schema: pa.Schema = self._decoder.schema

    @property
    def headers(self) -> httpx.Headers:
        """Of the answer."""
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
        """Read no more of it."""
        self._ended = True
        self._response.close()

    def __del__(self) -> None:
        self._response.close()
