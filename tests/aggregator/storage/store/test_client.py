"""Objects in a store: the guarantees of conditional puts, even if answers are lost."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import obstore
import pytest
from breaking_proxy import BreakingProxy, Fate
from effort import long
from object_store import keys
from obstore.exceptions import GenericError
from waiting import PATIENCE_S

from aggregator.errors import (
    InvalidRequestError,
    ObjectConflictError,
    ObjectMissingError,
    StoreError,
    StoreUnreachableError,
)
from aggregator.storage.store.client import PART_BYTES, Store

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.s3_endpoint import S3Endpoint


@pytest.fixture(params=["s3", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty store of each kind."""
    if request.param == "s3":
        return Store(f"s3://{request.getfixturevalue('bucket')}/a prefix/of it", patience_s=5)
    return Store((tmp_path / "a store").as_uri(), patience_s=5)


def test_what_was_put_is_read(store: Store):
    """An object is read whole, in ranges and in pieces, and listed with its size and ETag."""
    etag = store.put("log/1", b"some bytes")
    assert (store.get("log/1"), store.get_range("log/1", 5, 10)) == (b"some bytes", b"bytes")
    assert b"".join(store.stream("log/1")) == b"some bytes"
    found = store.head("log/1")
    assert (found.name, found.size_bytes, found.etag) == ("log/1", 10, etag)
    assert list(store.list("log")) == list(store.list())
    (listed,) = store.list()
    assert (listed.name, listed.size_bytes) == ("log/1", 10)
    assert abs(found.modified_us - listed.modified_us) < 2_000_000  # in some stores, a list has whole seconds


def test_names_after_another(store: Store):
    """A list may begin after a name, to continue reading a log; folders with a similar name are not in it."""
    for number in range(5):
        store.put(f"log/{number:020d}", b"x")
    store.put("logs/1", b"x")
    names = sorted(found.name for found in store.list("log", after=f"log/{2:020d}"))
    assert names == [f"log/{3:020d}", f"log/{4:020d}"]
    assert list(store.list("nothing")) == []


def test_a_directory_that_is_not_there(tmp_path: Path):
    """Reading does not create the directory; the first object does."""
    root = tmp_path / "no" / "store"
    store = Store(root.as_uri())
    assert list(store.list()) == list(store.list("log")) == list(store.folders()) == []
    for ask in (lambda: store.get("x"), lambda: store.head("x"), lambda: list(store.stream("x"))):
        with pytest.raises(ObjectMissingError):
            ask()
    store.delete(["x"])
    assert not root.parent.exists()
    store.put("x", b"1", create=True)
    assert [each.name for each in store.list()] == ["x"]


def test_a_directory_that_cannot_be_made(tmp_path: Path):
    """If a file is in the directory's place, the error is raised immediately."""
    (tmp_path / "store").write_bytes(b"")
    with pytest.raises(InvalidRequestError, match="cannot be used"):
        Store((tmp_path / "store").as_uri()).put("x", b"1", create=True)


def test_a_large_file_is_put_in_parts(store: Store, tmp_path: Path):
    """A file of any size is uploaded in parts, replacing another, and read back in pieces."""
    path = tmp_path / "large"
    path.write_bytes(bytes(range(256)) * (2 * PART_BYTES // 256 + 7))
    store.put("segments/1", b"before")
    store.put_file("segments/1", path)
    parts = list(store.stream("segments/1"))
    assert b"".join(parts) == path.read_bytes()
    assert max(map(len, parts)) < len(path.read_bytes())
    path.write_bytes(b"")
    store.put_file("segments/2", path)
    assert store.get("segments/2") == b""


def test_an_upload_whose_end_was_lost(s3: S3Endpoint, bucket: str, tmp_path: Path):
    """If the completion of an upload is lost and the store no longer knows the upload, the file is uploaded again."""
    path, answers = tmp_path / "large", iter([404])
    path.write_bytes(bytes(range(256)) * (2 * PART_BYTES // 256))
    store = Store(f"s3://{bucket}")
    s3.refuse = lambda method, path, query: next(answers, None) if method == "POST" and "uploadId" in query else None
    store.put_file("segments/1", path)
    assert next(answers, None) is None
    assert b"".join(store.stream("segments/1")) == path.read_bytes()


@long
def test_a_large_object_may_take_long(s3: S3Endpoint, bucket: str, tmp_path: Path):
    """A large object may take longer than one request, because each piece is a separate request."""
    path = tmp_path / "large"
    path.write_bytes(bytes(range(256)) * (3 * PART_BYTES // 256))
    Store(f"s3://{bucket}").put_file("segments/1", path)
    with BreakingProxy(s3.url, lambda number: Fate(delay_s=0.006)) as proxy:  # 10 MB/s: 2.4 s in total
        store = Store(f"s3://{bucket}", settings={"endpoint": proxy.url}, timeout_s=1.5, patience_s=0.5)
        assert b"".join(store.stream("segments/1")) == path.read_bytes()


class _Denying(BaseHTTPRequestHandler):
    """A store that deletes nothing and reports that for each object in a successful answer."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        denied = b"<Error><Key>p/a</Key><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
        body = b'<DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">%s</DeleteResult>' % denied
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def test_a_delete_that_is_denied(s3: S3Endpoint):
    """A denied deletion raises immediately, because a retry would not help."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Denying) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        store = Store("s3://bucket/p", settings={"endpoint": f"http://127.0.0.1:{server.server_port}"})
        with pytest.raises(StoreError, match="refuses") as caught:
            store.delete(["a"])
        assert not isinstance(caught.value, StoreUnreachableError)
        assert store.traffic.deletes == 1
        server.shutdown()


def test_a_delete_whose_answer_is_lost(s3: S3Endpoint, bucket: str):
    """A deletion whose answer is lost is retried, which is harmless."""
    Store(f"s3://{bucket}").put("a", b"1")
    within_the_body = Fate(down_bytes=400)
    with BreakingProxy(s3.url, lambda number: within_the_body if number < 3 else Fate()) as proxy:
        store = Store(f"s3://{bucket}", settings={"endpoint": proxy.url}, timeout_s=10, patience_s=PATIENCE_S)
        store.delete(["a"])
        assert proxy.connections > 3
    assert keys(s3, bucket) == []


def test_a_list_that_breaks_off(s3: S3Endpoint, bucket: str):
    """A truncated list is requested again."""
    Store(f"s3://{bucket}/x").put("log/1", b"1")
    within_the_body = Fate(down_bytes=700)
    with BreakingProxy(s3.url, lambda number: Fate() if number % 2 else within_the_body) as proxy:
        store = _through(proxy, bucket)
        assert [each.name for each in store.list("log")] == ["log/1"]
        proxy.cut()
        assert store.folders() == ["log"]
        assert proxy.connections > 2


def test_a_list_that_breaks_off_after_each_page(s3: S3Endpoint, bucket: str, monkeypatch: pytest.MonkeyPatch):
    """A list that breaks off after each page continues after the last name: none is repeated or missing."""
    monkeypatch.setattr("aggregator.storage.store.client.PAGE", 2)
    listed = obstore.list

    def list_a_page(*asked: Any, **options: Any) -> Iterator[Any]:
        for page in listed(*asked, **options):
            yield page
            raise GenericError("the answer broke off")

    monkeypatch.setattr(obstore, "list", list_a_page)
    store = Store(f"s3://{bucket}/x")
    names = [f"log/{number}" for number in range(5)]
    for name in names:
        store.put(name, b"1")
    assert [each.name for each in store.list("log")] == names


def test_an_object_is_created_once(store: Store):
    """Creating an existing object is refused, unless the bytes are the same."""
    etag = store.put("log/1", b"one", create=True)
    with pytest.raises(ObjectConflictError):
        store.put("log/1", b"two", create=True)
    assert store.put("log/1", b"one", create=True) == etag
    assert store.get("log/1") == b"one"


def test_a_put_that_is_read_back_damaged(store: Store, monkeypatch: pytest.MonkeyPatch):
    """If a put is read back damaged, it is read again instead of reporting a conflict, which would end a writer."""
    etag = store.put("log/1", b"one", create=True)
    read, damaged = Store._get, iter([True, True])
    monkeypatch.setattr(Store, "_get", lambda self, name: (b"o", etag) if next(damaged, False) else read(self, name))
    assert store.put("log/1", b"one", create=True) == etag


def test_an_object_is_replaced_by_who_saw_it(store: Store):
    """An object is replaced only with its current ETag; a second writer with the same one is refused."""
    first = store.put("lease", b"first", create=True)
    second = store.put("lease", b"second", etag=first)
    assert second != first
    with pytest.raises(ObjectConflictError):
        store.put("lease", b"third", etag=first)
    assert store.put("lease", b"second", etag=first) == second
    store.delete(["lease", "lease", "nothing"])
    for name in "abcdef":
        store.put(name, b"")
    store.delete([*"abcdea", "nothing"], at_once=4)
    assert [each.name for each in store.list() if len(each.name) == 1] == ["f"]
    with pytest.raises(ObjectConflictError):
        store.put("lease", b"third", etag=second)


def test_one_of_many_wins(store: Store):
    """Of many concurrent puts, one creates the object and one replaces it."""
    for round_, etag in enumerate([None, store.put("replaced", b"before")]):
        won: list[int] = []

        def put(number: int, etag: str | None = etag, won: list[int] = won) -> None:
            name = "created" if etag is None else "replaced"
            try:
                store.put(name, b"%d" % number, create=etag is None, etag=etag)
            except ObjectConflictError:
                return
            won.append(number)

        threads = [threading.Thread(target=put, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [b"%d" % number for number in won] == [store.get(["created", "replaced"][round_])]


def test_a_process_that_is_paused(tmp_path: Path):
    """While a process pauses in replacing an object in a directory, others can create and overwrite objects."""
    store = Store(tmp_path.as_uri())
    etag = store.put("lease", b"1")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)  # as such a process holds it
    with ThreadPoolExecutor(3) as threads:
        made = threads.submit(store.put, "new", b"2", create=True)
        put = threads.submit(store.put, "whole", b"3")
        replaced = threads.submit(store.put, "lease", b"4", etag=etag)
        try:
            made.result(PATIENCE_S / 8)
            put.result(PATIENCE_S / 8)
            assert not replaced.done()
        finally:
            os.close(descriptor)
        replaced.result(PATIENCE_S / 8)
    assert [store.get(name) for name in ("new", "whole", "lease")] == [b"2", b"3", b"4"]


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.get("no"),
        lambda store: store.get_range("no", 0, 1),
        lambda store: store.head("no"),
        lambda store: list(store.stream("no")),
    ],
)
def test_a_missing_object(store: Store, ask: Callable[[Store], object]):
    """A missing object's error names it and is also a FileNotFoundError."""
    with pytest.raises(ObjectMissingError, match="no such object") as caught:
        ask(store)
    assert caught.value.path == store.path_of("no")
    assert isinstance(caught.value, FileNotFoundError)


def _through(proxy: BreakingProxy, bucket: str, **options: float) -> Store:
    return Store(f"s3://{bucket}/x", settings={"endpoint": proxy.url}, **({"patience_s": 20.0} | options))  # type: ignore[arg-type]


@pytest.mark.parametrize("replaces", [False, True])
def test_an_answer_that_is_lost(s3: S3Endpoint, bucket: str, replaces: bool):
    """A put whose answer is lost is read back and counts as done, once."""
    straight = Store(f"s3://{bucket}/x")
    etag = straight.put("lease", b"first") if replaces else None
    with BreakingProxy(s3.url, lambda number: Fate(down_bytes=1) if number == 0 else Fate()) as proxy:
        found = _through(proxy, bucket).put("lease", b"mine", create=not replaces, etag=etag)
    assert (straight.head("lease").etag, straight.get("lease")) == (found, b"mine")
    assert proxy.connections > 1


@pytest.mark.parametrize("replaces", [False, True])
def test_a_request_that_is_lost(s3: S3Endpoint, bucket: str, replaces: bool):
    """A put that did not arrive is repeated; if another was faster, ObjectConflictError is raised."""
    straight = Store(f"s3://{bucket}/x")
    etag = straight.put("lease", b"first") if replaces else None
    with BreakingProxy(s3.url, lambda number: Fate(up_bytes=20) if number == 0 else Fate()) as proxy:
        _through(proxy, bucket).put("lease", b"mine", create=not replaces, etag=etag)
        assert straight.get("lease") == b"mine"

    def other_first(number: int) -> Fate:
        if number == 0:
            straight.put("lease", b"another's")
            return Fate(up_bytes=20)
        return Fate()

    with BreakingProxy(s3.url, other_first) as proxy, pytest.raises(ObjectConflictError):
        _through(proxy, bucket).put("lease", b"mine too", create=not replaces, etag=etag)
    assert straight.get("lease") == b"another's"


def test_a_request_cut_in_its_headers(s3: S3Endpoint, bucket: str):
    """The test endpoint refuses a request cut off in its headers, instead of storing an empty object."""
    store = Store(f"s3://{bucket}")
    store.put("a", b"1")
    host, _, port = s3.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(f"PUT /{bucket}/a HTTP/1.1\r\nHost: {host}\r\n".encode())
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100).startswith(b"HTTP/1.1 400")
    assert store.get("a") == b"1"


def test_a_store_that_is_busy(s3: S3Endpoint, bucket: str):
    """503 is retried for a while, then raised."""
    refusals = iter([503, 503, 503])
    s3.refuse = lambda method, path, query: next(refusals, None)
    store = Store(f"s3://{bucket}/x", patience_s=10)
    store.put("a", b"1", create=True)
    assert store.get("a") == b"1"
    s3.refuse = lambda method, path, query: 503
    with pytest.raises(StoreUnreachableError, match="does not answer"):
        Store(f"s3://{bucket}/x", patience_s=0.3).get("a")
    with pytest.raises(StoreUnreachableError, match="it is unknown"):
        Store(f"s3://{bucket}/x", patience_s=0.3).put("b", b"1", create=True)


def test_a_store_that_refuses(s3: S3Endpoint, bucket: str):
    """A refusal for lack of rights raises an error that says so."""
    s3.refuse = lambda method, path, query: 403
    with pytest.raises(StoreError, match="refuses"):
        Store(f"s3://{bucket}/x").put("a", b"1", create=True)


def test_names_that_cannot_be_read(s3: S3Endpoint, bucket: str):
    """Unreadable names of other writers raise an error that says what to do; a leading slash is not a folder."""
    for key in ("/logs/x", "y/a//b", "z/./b"):
        s3.client.put_object(Bucket=bucket, Key=key, Body=b"")
    assert sorted(Store(f"s3://{bucket}").folders()) == ["y", "z"]
    for folder in "yz":
        with pytest.raises(StoreError, match=rf"cannot be read: .*{folder}/.*; delete or rename it") as told:
            list(Store(f"s3://{bucket}").list(folder))
        assert not isinstance(told.value, StoreUnreachableError)


@pytest.mark.parametrize("address", ["", "/tmp/x", "ftp://host/x", "s3://"])
def test_what_is_no_address(address: str):
    """An invalid address is refused with the format of addresses."""
    with pytest.raises(InvalidRequestError, match="address"):
        Store(address)


def test_a_setting_that_is_unknown():
    """An unknown setting is refused by name."""
    with pytest.raises(InvalidRequestError, match="nonsense"):
        Store("s3://bucket/x", settings={"nonsense": "1"})


def test_traffic_is_counted(store: Store):
    """Requests and bytes, which stores charge for, are counted."""
    store.put("a", b"12345")
    store.get("a")
    list(store.list())
    store.delete(["a"])
    traffic = store.traffic
    assert (traffic.puts, traffic.gets, traffic.lists, traffic.deletes) == (1, 1, 1, 1)
    assert (traffic.bytes_up, traffic.bytes_down) == (5, 5)


def test_a_bucket_that_is_not_there(s3: S3Endpoint, tmp_path: Path):
    """For every kind of put, the error says that the bucket is missing."""
    store = Store("s3://never-made/x", settings={"endpoint": s3.url}, patience_s=1)
    path = tmp_path / "a"
    path.write_bytes(b"1")
    for put in (
        lambda: store.put("a", b"1"),
        lambda: store.put("a", b"1", create=True),
        lambda: store.put_file("a", path),
    ):
        with pytest.raises(StoreError, match="s3://never-made/x: the store has no such bucket; create it"):
            put()
