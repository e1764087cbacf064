"""A real S3 endpoint on this machine: moto's server, with a log of every request, added latency and injected failures.

`AGGREGATOR_S3`: the address of another S3 server, to which requests are forwarded instead. The log has every HTTP
request, from any client. As a separate process (`python -m benchmarks.s3_endpoint`) it serves until its standard input
is closed, and answers `GET /_log` with the requests since the last call.
"""

from __future__ import annotations

import argparse
import functools
import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from http.client import HTTPConnection
from io import BytesIO
from threading import Lock, Thread
from typing import Any
from xml.sax.saxutils import unescape

import boto3
from botocore.config import Config
from moto.server import create_backend_app
from werkzeug.serving import make_server

KEY, SECRET, REGION = "testing", "testing", "us-east-1"
LOG_PATH = "/_log"

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
"""A WSGI application."""


@dataclass(frozen=True)
class Request:
    """A received request. began, ended: on the monotonic clock."""

    method: str
    path: str
    query: str
    range: tuple[int, int] | None  # bytes [start, stop)
    began: float
    ended: float

    @property
    def bytes(self) -> int:
        """Number of bytes that a range request asked for; 0 without a range."""
        return 0 if self.range is None else self.range[1] - self.range[0]


class S3Endpoint:
    """The server, running in threads of this process."""

    def __init__(self) -> None:
        behind = os.environ.get("AGGREGATOR_S3")
        # S3 alone: moto's own server searches all two hundred services to find the one for a request
        self._app = _writing_in_turns(create_backend_app("s3")) if behind is None else _passing_on(behind)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self._lock = Lock()
        self._requests: list[Request] = []
        self.latency_seconds = 0.0
        self.listed_late_seconds = 0.0
        """Seconds after which a new object appears in lists."""
        self._put: dict[str, float] = {}  # by address of the object
        self.refuse: Callable[[str, str, str], int | None] = lambda method, path, query: None
        """Called for every request (method, path, query): returns the status to refuse it with, or None."""
        logging.getLogger("werkzeug").setLevel(logging.ERROR)

    def __enter__(self) -> S3Endpoint:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that make every S3 client use it."""
        return environment(self.url)

    @functools.cached_property
    def client(self) -> Any:
        """A boto3 client, to inspect the store without our own code."""
        return client(self.url)

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        method, path, query = environ["REQUEST_METHOD"], environ["PATH_INFO"], environ.get("QUERY_STRING", "")
        if path == LOG_PATH:
            start_response("200 OK", [("Content-Type", "application/json")])
            return [json.dumps([asdict(request) for request in self.take_requests()]).encode()]
        began = time.monotonic()
        in_chunks = environ.get("wsgi.input_terminated", False)  # the reader raises if the body is cut short
        told = environ.get("CONTENT_LENGTH")
        length = -1 if in_chunks else int(told or 0)
        body = environ["wsgi.input"].read(length)
        environ["wsgi.input"] = BytesIO(body)
        time.sleep(self.latency_seconds)
        whole = in_chunks or (len(body) == length and (method != "PUT" or told is not None))
        status = self.refuse(method, path, query) if whole else 400  # else a truncated body would be stored
        if status is not None:
            start_response(f"{status} Refused", [("Content-Length", "0")])
            answer: Iterable[bytes] = []
        else:
            answer = self._listed_late(environ, start_response) if "list-type=2" in query else None
            answer = list(self._app(environ, start_response)) if answer is None else answer
            if method == "PUT":
                self._put[path] = time.monotonic()
        request = Request(method, path, query, _range(environ.get("HTTP_RANGE")), began, time.monotonic())
        with self._lock:
            self._requests.append(request)
        return answer

    def _listed_late(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes] | None:
        """Answer a list request without recent objects; return None if lists show everything."""
        if not self.listed_late_seconds:
            return None
        told: list[Any] = []
        whole = b"".join(self._app(environ, lambda *given: told.extend(given)))
        before, bucket = time.monotonic() - self.listed_late_seconds, environ["PATH_INFO"].strip("/")

        def shown(found: re.Match[bytes]) -> bytes:
            put = self._put.get(f"/{bucket}/{unescape(found[1].decode())}", 0.0)
            return found[0] if put < before else b""

        shorter = re.sub(rb"<Contents>\s*<Key>([^<]*)</Key>.*?</Contents>", shown, whole, flags=re.DOTALL)
        status, headers = told[:2]
        kept = [(name, value) for name, value in headers if name.lower() != "content-length"]
        start_response(status, [*kept, ("Content-Length", str(len(shorter)))])
        return [shorter]

    def take_requests(self) -> list[Request]:
        """Return the requests since the last call, in the order of their answers."""
        with self._lock:
            taken, self._requests = self._requests, []
        return taken

    @contextmanager
    def recorded(self) -> Iterator[list[Request]]:
        """Record the requests within a `with` block, in a list that is filled at its end."""
        self.take_requests()
        requests: list[Request] = []
        yield requests
        requests += self.take_requests()


def _writing_in_turns(app: Application) -> Application:
    """Wrap `app` to allow one write at a time: moto checks an ETag and then writes, so two writers could both win."""
    writing = Lock()

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        with nullcontext() if environ["REQUEST_METHOD"] in ("GET", "HEAD") else writing:
            return list(app(environ, start_response))

    return answer


def _passing_on(url: str) -> Application:
    """An application that forwards to the server at `url`, with unchanged headers, because they are signed."""

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        headers = {name[5:].replace("_", "-"): value for name, value in environ.items() if name.startswith("HTTP_")}
        headers |= {"Content-Type": environ["CONTENT_TYPE"]} if environ.get("CONTENT_TYPE") else {}
        body = environ["wsgi.input"].read()
        connection = HTTPConnection(url.removeprefix("http://"))
        with closing(connection):
            connection.request(environ["REQUEST_METHOD"], environ["REQUEST_URI"], body, headers)
            found = connection.getresponse()
            whole = found.read()
            own = ("content-length", "transfer-encoding", "connection") if environ["REQUEST_METHOD"] != "HEAD" else ()
            kept = [(name, value) for name, value in found.getheaders() if name.lower() not in own]
            start_response(f"{found.status} {found.reason}", kept + [("Content-Length", str(len(whole)))] * bool(own))
            return [whole]

    return answer


def _range(header: str | None) -> tuple[int, int] | None:
    if header is None:
        return None
    first, _, last = header.removeprefix("bytes=").partition("-")
    return int(first), int(last) + 1


def environment(url: str) -> dict[str, str]:
    """Environment variables that make every S3 client use the endpoint at `url`."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def client(url: str) -> Any:
    """A boto3 client for the endpoint at `url`.

    It does not retry: a delayed first attempt could arrive after later requests.
    """
    return boto3.client(
        "s3", endpoint_url=url, aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name=REGION,
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
    )  # fmt: skip


def main() -> None:
    """Serve until standard input ends; print the address first."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--latency", type=float, default=0.0, metavar="SECONDS", help="added to every request")
    args = parser.parse_args()
    with S3Endpoint() as endpoint:
        endpoint.latency_seconds = args.latency
        print(endpoint.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
