"""Segments in a real S3 store: the requests of each query, and the effects of failures and changes."""

from __future__ import annotations

import math
import re
import time
from itertools import product

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.fs
import pytest
from breaking_proxy import BreakingProxy, Fate
from effort import long, share_of
from noise import noise
from object_store import arrow_filesystem, keys
from waiting import at_best

import esformat
from esformat import UsageError
from esformat.io import remote, retry
from esformat.io.remote import ReadAhead
from esformat.read.blocks import prefetch as ahead

LATENCY = 0.05


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    """120,000 events in several leaves: small spaces, and one of 36,000 events in three groupings."""
    random = np.random.default_rng(5)
    count = 120_000
    numbers = np.where(random.random(count) < 0.3, 0, random.integers(1, 4000, count))
    table = pa.table(
        {
            "space": pa.array([f"space-{number}" for number in range(4000)]).take(pa.array(numbers)),
            "grouping": pa.array([f"g{number}" for number in range(3)]).take(pa.array(random.integers(0, 3, count))),
            "timestamp": pa.array(random.integers(0, 10**9, count)),
            "data": noise(random, count, 30),
            "type": pa.array([f"type-{number}" for number in range(300)]).take(
                pa.array(random.integers(0, 300, count))
            ),
        }
    )
    path = tmp_path_factory.mktemp("big") / "big.esdb"
    with esformat.create(path, indexes=["type"]) as writer:
        writer.add_table(table)
    return path


@pytest.fixture
def stored(s3, bucket, big):
    """The same file in the store."""
    s3.client.upload_file(str(big), bucket, "big.esdb")
    return f"s3://{bucket}/big.esdb"


def facts(events):
    return [(e.space, e.grouping, e.timestamp, e.data, e.indexes) for e in events]


def edges(segment):
    """The first spaces of directory leaves, which may be in two leaves."""
    return [key.decode() for key in segment._reader.root.first_spaces[1:]]


def test_opening_takes_one_range(s3, stored):
    """Opening takes two requests: one for the object's metadata, one for the end of the file."""
    with s3.recorded() as requests:
        esformat.open(stored).close()
    assert [request.method for request in requests] == ["HEAD", "GET"]


def test_opening_a_long_footer_takes_two_ranges(s3, stored, monkeypatch):
    """If the first read does not include the whole footer, there is a second one."""
    monkeypatch.setattr("esformat.read.blocks.reader.OPENING_BYTES", 100)
    with s3.recorded() as requests:
        esformat.open(stored).close()
    assert [request.method for request in requests] == ["HEAD", "GET", "GET"]


def test_point_history_takes_two_ranges(s3, stored, big):
    """The history of a small space takes two requests, directory leaf and events, even if it may be in two leaves."""
    with esformat.open(stored) as segment, esformat.open(big) as local:
        spaces = [*list(local.spaces())[5:400:40], *edges(local)[:5]]
        for space in spaces:
            fresh = esformat.open(stored)
            with s3.recorded() as requests:
                found = facts(fresh[space].scan())
            assert found == facts(local[space].scan())
            assert len(requests) <= 2
            assert sum(request.bytes for request in requests) < 2 << 20
        assert segment.num_events == local.num_events


@pytest.mark.parametrize(
    "question", share_of([{}, {"reverse": True}, {"limit": 10, "reverse": True}, {"grouping": "g1"}], 2)
)
def test_point_history_within_two_round_trips(s3, stored, big, question):
    """A history takes two round trips with 50 ms added per request: of a small space, of one at the edge of a leaf, and
    of one of 36,000 events.

    Requests under way at the same time are one round trip.
    """
    with esformat.open(big) as local:
        spaces = ["space-7", edges(local)[2], "space-0"]
        for space in spaces:

            def trips(space=space):
                segment = esformat.open(stored)
                s3.latency_seconds = LATENCY
                with s3.recorded() as requests:
                    found = facts(segment[space].scan(**question))
                s3.latency_seconds = 0.0
                assert found == facts(local[space].scan(**question))
                return round_trips(requests)

            assert at_best(trips, 2) <= 2


def round_trips(requests):
    """The longest chain of requests that waited for each other. A busy machine may add a request that is sent late."""
    chains = []
    for request in sorted(requests, key=lambda r: r.began):
        before = [length for ended, length in chains if ended <= request.began]
        chains.append((request.ended, 1 + max(before, default=0)))
    return max((length for _, length in chains), default=0)


def test_time_of_a_point_history(s3, stored):
    """By the caller's clock a history takes two round trips and a few milliseconds of work."""
    latency, taken = 0.4, [math.inf]
    while len(taken) < 20 and min(taken) >= 2.9 * latency:  # other processes use this machine, too
        segment = esformat.open(stored)
        s3.latency_seconds = latency
        started = time.perf_counter()
        assert len(list(segment["space-7"].scan())) > 10
        taken.append(time.perf_counter() - started)
        s3.latency_seconds = 0.0
    assert min(taken) < 2.9 * latency


def test_full_scan_is_fetched_ahead(s3, stored, big, monkeypatch):
    """A full scan reads each byte once, in few and parallel requests, and agrees with the local file."""
    monkeypatch.setattr(ahead, "REQUEST_BYTES", 1 << 20)
    with esformat.open(big) as local:
        for reverse in (False, True):

            def trips(reverse=reverse):
                segment = esformat.open(stored)
                s3.latency_seconds = LATENCY
                with s3.recorded() as requests:
                    table = segment.scan(reverse=reverse).to_table()
                s3.latency_seconds = 0.0
                assert table.equals(local.scan(reverse=reverse).to_table())
                assert sum(request.bytes for request in requests) <= segment.size_bytes
                assert len(requests) <= segment.size_bytes // (1 << 20) + 2
                return round_trips(requests)

            assert at_best(trips, 2) <= 2


QUESTIONS = [
    lambda s: s.scan(start=10**8, end=2 * 10**8),
    lambda s: s.scan(grouping="g1", limit=3000),
    lambda s: s.scan_index("type", "type-9"),
    lambda s: s.scan_index("type", "type-9", reverse=True, limit=5),
    lambda s: s["space-0"].scan_index("type", "type-9"),
    lambda s: s["space-0"].scan(start=10**8, end=2 * 10**8),
]


@pytest.mark.parametrize(("question", "held"), share_of(product(QUESTIONS, [0, 300_000]), 5))
def test_every_scan_is_the_local_files(s3, stored, big, question, held, monkeypatch):
    """Every scan agrees with the local file, whether or not there was memory to prefetch."""
    monkeypatch.setattr(remote, "HELD_BYTES", held)
    with esformat.open(stored) as segment, esformat.open(big) as local:
        assert question(segment).count() == question(local).count()
        assert question(segment).to_table().equals(question(local).to_table())
        assert facts(question(segment)) == facts(question(local))


def test_listing_spaces_fetches_leaves_side_by_side(s3, stored, big):
    """Listing spaces reads leaves in parallel, not one per round trip."""

    def share():
        with esformat.open(stored) as segment, esformat.open(big) as local:
            s3.latency_seconds = LATENCY
            with s3.recorded() as requests:
                assert dict(segment.spaces().items()) == dict(local.spaces().items())
            s3.latency_seconds = 0.0
        assert len(requests) > 6
        return round_trips(requests) / len(requests)

    assert at_best(share, 0.49) < 0.5


@pytest.mark.parametrize("kind", ["arrow", "subtree", "fsspec", "fsspec in arrow"])
def test_filesystems(s3, bucket, stored, kind):
    """Filesystems of Arrow and fsspec, also wrapped in each other, need the same number of requests."""
    filesystem = arrow_filesystem(s3)
    path = f"{bucket}/big.esdb"
    if kind == "subtree":
        filesystem, path = pyarrow.fs.SubTreeFileSystem(bucket, filesystem), "big.esdb"
    elif kind.startswith("fsspec"):
        filesystem = fsspec.filesystem(
            "s3", endpoint_url=s3.url, key="testing", secret="testing", skip_instance_cache=True
        )
        if "arrow" in kind:
            filesystem = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(filesystem))
    with s3.recorded() as requests:
        segment = esformat.open((filesystem, path))
        found = len(list(segment["space-7"].scan()))
    assert found == segment["space-7"].num_events
    assert [request.method for request in requests] == ["HEAD", "GET", "GET", "GET"]
    assert segment.path.endswith("big.esdb")


def test_any_fsspec_filesystem(clicks):
    """Any fsspec filesystem works, here one in memory, passed as an object and as a URI."""
    path, frame = clicks
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/many/clicks.esdb", path.read_bytes())
    for target in [(memory, "/many/clicks.esdb"), "memory://many/clicks.esdb"]:
        with esformat.open(target) as segment:
            assert segment.scan().count() == len(frame)
            assert segment.scan().to_table().num_rows == len(frame)


# ------------------------------------------------------------ failures and changes


@pytest.fixture
def _impatient(monkeypatch):
    monkeypatch.setattr(retry._retrying(), "sleep", lambda seconds: None)


@pytest.mark.usefixtures("_impatient")
def test_failures_that_pass(s3, stored, big):
    """A store that temporarily refuses two of three requests delays a query, but does not change its result."""
    seen = []

    def refuse(method, path, query):
        seen.append(path)
        return 503 if len(seen) % 3 else None

    s3.refuse = refuse
    with esformat.open(stored) as segment, esformat.open(big) as local:
        assert facts(segment["space-7"].scan()) == facts(local["space-7"].scan())
        assert segment.scan().to_table().equals(local.scan().to_table())
    assert len(seen) > 10


@pytest.mark.usefixtures("_impatient")
def test_failures_of_a_web_server(s3, bucket, tmp_path):
    """Every failure of a web server is retried. One that persists is an OSError with the location, not a missing
    file nor an error of aiohttp. A missing file is reported immediately.
    """
    path = tmp_path / "a.esdb"
    with esformat.create(path) as writer:
        writer.add("s", b"1", timestamp=1)
    s3.client.put_object(Bucket=bucket, Key="a.esdb", Body=path.read_bytes(), ACL="public-read")

    def read(uri):
        with esformat.open(uri, cache_bytes=0) as segment:
            return [event.data for event in segment.scan()]

    for status in (429, 503):
        refusals = iter([status] * 3)
        s3.refuse = lambda method, path, query: next(refusals, None) if method == "GET" else None  # noqa: B023
        assert read(f"{s3.url}/{bucket}/a.esdb") == [b"1"]
    for status in (403, 503):
        s3.refuse = lambda method, path, query: status  # noqa: B023
        with pytest.raises(OSError, match=f"a.esdb: HTTP status {status}") as raised:
            read(f"{s3.url}/{bucket}/a.esdb")
        assert not isinstance(raised.value, FileNotFoundError)
    s3.refuse = lambda method, path, query: None
    with esformat.open(f"{s3.url}/{bucket}/a.esdb", cache_bytes=0) as segment:
        s3.refuse = lambda method, path, query: 503
        with pytest.raises(OSError, match="503"):  # the object still exists
            list(segment.scan())
    s3.refuse = lambda method, path, query: None
    with pytest.raises(FileNotFoundError):
        read(f"{s3.url}/{bucket}/b.esdb")
    within_the_body = Fate(down_bytes=400)
    with BreakingProxy(s3.url, lambda number: within_the_body) as proxy, pytest.raises(OSError, match=r"a\.esdb: "):
        read(f"{proxy.url}/{bucket}/a.esdb")


@pytest.mark.usefixtures("_impatient")
def test_failures_that_last(s3, stored):
    """If the store is down, a read fails with an OSError after a limited number of attempts; later reads succeed."""
    segment = esformat.open((arrow_filesystem(s3), stored.removeprefix("s3://")))
    s3.refuse = lambda method, path, query: 503
    with s3.recorded() as requests, pytest.raises(OSError, match=r"503|SERVICE_UNAVAILABLE|SLOW_DOWN"):
        segment.find("space-7")
    assert [request.method for request in requests] == ["GET"] * retry.ATTEMPTS + ["HEAD"]
    s3.refuse = lambda method, path, query: None
    assert segment.find("space-7") is not None


@pytest.mark.parametrize("key", ["d//a.esdb", "/d/a.esdb", "d/../a.esdb", "d/./a.esdb"])
def test_keys_that_are_no_paths(s3, bucket, clicks, key):
    """A key with empty, '.' or '..' parts is refused by name in every function. With fsspec, empty parts are read."""
    path, frame = clicks
    uri = f"s3://{bucket}/{key}"
    s3.client.put_object(Bucket=bucket, Key=key, Body=path.read_bytes())
    refused = re.escape(f"{uri}: a part of its name between slashes is empty, '.' or '..'")
    for read in (esformat.open, esformat.open_many, lambda uri: esformat.create(uri).finish()):
        with pytest.raises(UsageError, match=refused):
            read(uri)
    with pytest.raises(UsageError, match=refused):
        esformat.open_many(f"s3://{bucket}")
    if "" in key.split("/"):
        options = {"key": "testing", "secret": "testing", "endpoint_url": s3.url}
        with esformat.open(uri, storage_options=options) as segment:
            assert segment.num_events == len(frame)


def test_what_is_not_there(bucket):
    """A missing object or bucket is reported immediately."""
    with pytest.raises(FileNotFoundError, match=r"nothing\.esdb"):
        esformat.open(f"s3://{bucket}/nothing.esdb")
    with pytest.raises(FileNotFoundError):
        esformat.open("s3://no-such-bucket/nothing.esdb")


def replaced_by_another(s3, bucket, big):
    other = big.with_name("other.esdb")
    with esformat.open(big) as segment, esformat.create(other, indexes=["type"], overwrite=True) as writer:
        table = segment.scan().to_table()
        moved = pa.array(np.asarray(table["timestamp"].cast(pa.int64())) + 1)
        writer.add_table(table.set_column(2, "timestamp", moved))
    s3.client.upload_file(str(other), bucket, "big.esdb")


def cut_short(s3, bucket, big):
    s3.client.put_object(Bucket=bucket, Key="big.esdb", Body=big.read_bytes()[:50_000])


def removed(s3, bucket, big):
    s3.client.delete_object(Bucket=bucket, Key="big.esdb")


def failure_of(read):
    """The error that a read raises; None if it succeeds."""
    try:
        read()
    except (esformat.EsdbError, OSError) as error:
        return error
    return None


@pytest.mark.parametrize("change", share_of([replaced_by_another, cut_short, removed], 2))
@pytest.mark.parametrize("filesystem", ["arrow", pytest.param("fsspec", marks=long)])
def test_a_changed_object_is_an_error(s3, bucket, stored, big, change, filesystem):
    """An object that changed is an error that says so, never a mix of two versions."""
    target = stored
    if filesystem == "fsspec":
        store = fsspec.filesystem("s3", endpoint_url=s3.url, key="testing", secret="testing", skip_instance_cache=True)
        target = (store, f"{bucket}/big.esdb")
    segment = esformat.open(target, cache_bytes=0)
    space = segment["space-0"]
    change(s3, bucket, big)
    for name, read in {
        "space": lambda: list(space.scan()), "all": lambda: segment.scan().to_table(),
        "find": lambda: segment.find("space-7"), "limit": lambda: list(segment.scan(limit=5)),
    }.items():  # fmt: skip
        with s3.recorded() as requests:
            error = failure_of(read)
        held = s3.client.list_objects_v2(Bucket=bucket).get("Contents")
        assert isinstance(error, esformat.SegmentChangedError), (name, error, requests, held)
        assert re.search(r"big\.esdb: .*replaced or removed.*open it again", str(error))


def test_damage_is_not_called_a_change(s3, bucket, clicks):
    """An unchanged object with damaged bytes is reported as damaged, not as changed."""
    data = bytearray(clicks[0].read_bytes())
    data[5000] ^= 1
    s3.client.put_object(Bucket=bucket, Key="bad.esdb", Body=bytes(data))
    with esformat.open(f"s3://{bucket}/bad.esdb") as segment, pytest.raises(esformat.ChecksumMismatchError):
        segment.scan().to_table()


def test_closed(s3, stored):
    """A scan whose segment was closed raises ClosedError, even for prefetched bytes."""
    segment = esformat.open(stored)
    scan = segment.scan()
    batches = scan.batches()
    next(batches)
    segment.close()
    with pytest.raises(esformat.ClosedError):
        list(batches)


def test_verify(s3, bucket, clicks):
    """`verify` accepts files in a store."""
    esformat.create(f"s3://{bucket}/empty.esdb").finish()
    s3.client.upload_file(str(clicks[0]), bucket, "clicks.esdb")
    for key in keys(s3, bucket):
        assert esformat.verify(f"s3://{bucket}/{key}").ok


# ------------------------------------------------------------ prefetched ranges


def make_ahead(data=bytes(range(256)) * 8):
    fetched = []

    def fetch(offset, length):
        fetched.append((offset, offset + length))
        return data[offset : offset + length]

    return ReadAhead(fetch), fetched, data


def test_announced_bytes_are_fetched_once():
    """Announced bytes are fetched once and can be read across pieces, in any order; other bytes are not available."""
    held, fetched, data = make_ahead()
    held.announce(100, 200)
    held.announce(150, 300)
    held.announce(120, 180)
    assert held.take(90, 20) is None
    assert held.take(290, 20) is None
    assert held.take(190, 20) == data[190:210]
    assert held.take(100, 90) == data[100:190]
    assert held.take(210, 90) == data[210:300]
    assert sorted(fetched) == [(100, 200), (200, 300)]  # threads may fetch them in any order
    assert held.take(100, 10) is None  # available once
    assert not held._pieces
    assert held._held == 0


def test_kept_for_one_more():
    """A block that two readers need is kept until the second one has read it."""
    held, fetched, data = make_ahead()
    held.announce(0, 100)
    held.keep(40, 60)
    assert held.take(0, 60) == data[:60]
    assert held.take(40, 60) == data[40:100]
    assert not held._pieces
    assert len(fetched) == 1


def test_memory_is_bounded(monkeypatch):
    """Beyond the limit no more is prefetched; ranges that nobody reads are dropped after a while."""
    monkeypatch.setattr(remote, "HELD_BYTES", 250)
    held, fetched, _ = make_ahead()
    for start in range(0, 1000, 100):
        held.announce(start, start + 100)
    assert held._held == 300
    assert held.take(300, 10) is None
    monkeypatch.setattr(remote, "STALE_SECONDS", 0.0)
    held.announce(900, 1000)
    assert held.take(950, 10) is not None
    assert held._held <= 300
    assert len(fetched) <= 4


def test_failed_fetches_are_reported_once():
    """A failed fetch raises its error once; after a new announcement the range is fetched again."""
    answers = [OSError("down"), b"x" * 10]

    def fetch(offset, length):
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    held = ReadAhead(fetch)
    held.announce(0, 10)
    with pytest.raises(OSError, match="down"):
        held.take(0, 10)
    assert held.take(0, 10) is None
    held.announce(0, 10)
    assert held.take(0, 10) == b"x" * 10
