"""A real S3 endpoint on this machine: moto's server, with a log of every request, added latency and failures to order.

`AGGREGATOR_S3`: the address of another S3 server, to which requests are passed on instead. Counted is what arrives over
HTTP, whoever sent it. In a process of its own (`python -m benchmarks.s3_endpoint`) it serves until its standard input
is closed, and answers `GET /_log` with the requests since the last time.
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
"""What WSGI calls for each request."""


@dataclass(frozen=True)
class Request:
    """One request as it arrived."""

    method: str
    path: str
    query: str
    range: tuple[int, int] | None  # bytes [start, stop)
    began: float
    ended: float

    @property
    def bytes(self) -> int:
        """Bytes that a range request asked for."""
        return 0 if self.range is None else self.range[1] - self.range[0]


class S3Endpoint:
    """The server, in threads of this process."""

    def __init__(self) -> None:
        behind = os.environ.get("AGGREGATOR_S3")
        # S3 alone: to find the service of a request, moto's own server looks through all two hundred of them
        self._app = _writing_in_turns(create_backend_app("s3")) if behind is None else _passing_on(behind)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self._thread = Thread(target=self._server.serve_forever, daemon=True)
        self._lock = Lock()
        self._requests: list[Request] = []
        self.latency_seconds = 0.0
        self.listed_late_seconds = 0.0
        """For so long a list does not show what was put."""
        self._put: dict[str, float] = {}  # by address of the object
        self.refuse: Callable[[str, str, str], int | None] = lambda method, path, query: None
        """Asked about every request: the status to refuse it with."""
        logging.getLogger("werkzeug").setLevel(logging.ERROR)

    def __enter__(self) -> S3Endpoint:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which every S3 client finds it."""
        return environment(self.url)

    @functools.cached_property
    def client(self) -> Any:
        """A boto3 client: the way to look at the store that is not ours."""
        return client(self.url)

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        method, path, query = environ["REQUEST_METHOD"], environ["PATH_INFO"], environ.get("QUERY_STRING", "")
        if path == LOG_PATH:
            start_response("200 OK", [("Content-Type", "application/json")])
            return [json.dumps([asdict(request) for request in self.take_requests()]).encode()]
        began = time.monotonic()
        in_chunks = environ.get("wsgi.input_terminated", False)  # whose reader refuses what is cut short
        told = environ.get("CONTENT_LENGTH")
        length = -1 if in_chunks else int(told or 0)
        body = environ["wsgi.input"].read(length)
        environ["wsgi.input"] = BytesIO(body)
        time.sleep(self.latency_seconds)
        whole = in_chunks or (len(body) == length and (method != "PUT" or told is not None))
        status = self.refuse(method, path, query) if whole else 400  # else what came would be stored
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
        """A list without what came just now; None where lists show everything."""
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
        """The requests since the last time, in the order in which they were answered."""
        with self._lock:
            taken, self._requests = self._requests, []
        return taken

    @contextmanager
    def recorded(self) -> Iterator[list[Request]]:
        """The requests within, in a list that is filled at the end."""
        self.take_requests()
        requests: list[Request] = []
        yield requests
        requests += self.take_requests()


def _writing_in_turns(app: Application) -> Application:
    """`app` with one write at a time: moto looks at an ETag and then puts, in two steps, so that two could win."""
    writing = Lock()

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        with nullcontext() if environ["REQUEST_METHOD"] in ("GET", "HEAD") else writing:
            return list(app(environ, start_response))

    return answer


def _passing_on(url: str) -> Application:
    """An application that asks the server at `url`, with the headers as they came: they are signed."""

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
    """Variables with which every S3 client finds the endpoint at `url`."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def client(url: str) -> Any:
    """A boto3 client of the endpoint at `url`.

    It tries nothing twice: of two attempts the first could arrive last, after what was done next.
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
