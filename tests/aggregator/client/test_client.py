"""The client against a real server on the loopback interface."""

from __future__ import annotations

import datetime as dt
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pyarrow as pa
import pytest
from breaking_proxy import BreakingProxy, Fate

from aggregator import (
    InvalidRequestError,
    PartitionNotFoundError,
    SequenceConflictError,
    TopicExistsError,
    TopicNotFoundError,
)
from aggregator.base.result import Answer
from aggregator.client import BodyTooLargeError, Client, Retry, TruncatedAnswerError, UnavailableError
from aggregator.client.http import calls
from esformat import ClosedError, InvalidEventError, UnknownIndexError, UsageError

TYPES = ["page", "purchase", "signup", None]
QUICK = Retry(attempts=20, first_s=0.001, longest_s=0.01)


def events(first, count):
    return pa.table(
        {
            "space": [f"customer-{n % 7}" for n in range(first, first + count)],
            "grouping": ["web" if n % 2 else "app" for n in range(first, first + count)],
            "timestamp": range(first, first + count),
            "data": [b"%d" % n for n in range(first, first + count)],
            "type": [TYPES[n % 4] for n in range(first, first + count)],
        }
    )


SCANS = [
    {},
    {"space": "customer-3"},
    {"space": "customer-3", "grouping": "web", "reverse": True, "limit": 5},
    {"start": 100, "end": dt.datetime.fromtimestamp(0.0002, dt.UTC)},
    {"columns": ["timestamp", "type"], "limit": 10},
    {"columns": ["record_index", "partition"]},
    {"partition": "1"},
    {"space": "nobody"},
    {"limit": 0},
]


def test_scans_answer_as_the_catalog(catalog, client):
    """Scans return the same events, objects and columns as the catalog, sealed and unsealed."""
    here, there = catalog.topic("activity"), client.topic("activity")
    there.append(events(0, 300))
    catalog.seal()
    there.append(events(300, 50), "1")
    for question in SCANS:
        found, wanted = there.scan(**question), here.scan(**question)
        assert isinstance(found, Answer)
        assert isinstance(wanted, Answer)
        assert found.to_table().equals(wanted.to_table())
        assert found.schema == wanted.schema
        assert found.column_names == wanted.column_names
        assert found.count() == wanted.count()
        if "partition" not in found.column_names:
            assert list(found) == list(wanted)
        indexed = [answer.scan_index("type", "purchase", **question) for answer in (there, here)]
        assert indexed[0].to_table().equals(indexed[1].to_table())


def test_columns_with_any_name(catalog, client):
    """A column is found by its name, whatever characters it has."""
    here, there = catalog.topic("activity"), client.topic("activity")
    names = ["a", "b", "a,b", '"a"', "a\nb", '",', "\r"]
    here.append([{"space": "s", "timestamp": 1, **{name: name for name in names}}])
    for asked in (names, ["a,b"], ['"a"', "timestamp"]):
        assert there.scan(columns=asked).to_table().equals(here.scan(columns=asked).to_table())
        assert there.read(columns=asked).to_table().equals(here.read(columns=asked).to_table())


def test_an_index_of_several_types(catalog, client):
    """In an index of several types, a value finds all that reads show alike, in the client as in the catalog."""
    here, there = catalog.create_topic("mixed", indexes=["v"]), client.topic("mixed")
    for number, value in enumerate(("1", "true", 1, True)):
        here.append([{"space": "a", "timestamp": number, "v": value}])
    for value, found in (("1", [0, 2]), (1, [0, 2]), ("true", [1, 3]), (True, [1, 3]), ("True", []), (2, [])):
        for topic in (here, there):
            assert [event.timestamp for event in topic.scan_index("v", value)] == found
    with pytest.raises(UsageError):
        here.scan_index("v", 1.5)
    with pytest.raises(InvalidRequestError):
        there.scan_index("v", 1.5).count()
    numbers = catalog.create_topic("numbers", indexes=["v"])
    for kind in (pa.uint64(), pa.int64()):
        numbers.append(pa.table({"space": ["a"], "timestamp": [1], "v": pa.array([7], kind)}))
    assert client.topic("numbers").scan_index("v", 7).count() == numbers.scan_index("v", 7).count() == 2


def test_reading_by_record_index(catalog, client):
    """Reads by record index return arrival order, forward and backward."""
    topic = client.topic("activity")
    topic.append(events(0, 100))
    for question in ({}, {"from_index": 90}, {"from_index": 20, "reverse": True, "limit": 3}):
        assert topic.read(**question).to_table().equals(catalog.topic("activity").read(**question).to_table())


def test_an_answer_feeds_other_libraries(client):
    """An answer can be exported repeatedly through the Arrow C stream."""
    topic = client.topic("activity")
    topic.append(events(0, 100))
    scan = topic.scan(columns=["space", "type"])
    found = duckdb.sql("SELECT type, count(*) FROM scan GROUP BY 1 ORDER BY 2, 1").fetchall()
    assert len(found) == 4
    assert pa.table(scan).num_rows == len(scan.to_pandas()) == 100
    assert (
        topic.scan().to_table(fields=["$.none"])["$.none"].null_count == topic.scan().payload_fields().payloads == 100
    )


def test_appends(catalog, client):
    """Event objects, mappings and tables can be appended; receipts equal the catalog's."""
    topic = client.topic("activity")
    receipt = topic.append([{"space": "a", "timestamp": 1, "data": b"x", "type": "page"}])
    assert (receipt.topic, receipt.partition, receipt.first, receipt.last, receipt.duplicate) == (
        "activity", "0", 0, 0, False,
    )  # fmt: skip
    assert topic.append(topic.scan().to_table()).first == 1
    assert topic.append(list(topic.scan())).last == 3
    assert topic.append(events(0, 9).slice(0, 0)).last == 3
    assert catalog.topic("activity").scan().count() == 4


def test_compressed(server, catalog):
    """Request bodies may be compressed."""
    for compression in ("zstd", "gzip"):
        with Client(server.url, compression=compression) as client:
            client.topic("activity").append(events(0, 500))
    assert catalog.topic("activity").scan().count() == 1000


def test_binary_keys(catalog, client):
    """Spaces may contain any bytes."""
    catalog.create_topic("raw", keys="binary")
    topic = client.topic("raw")
    topic.append([{"space": b"\xff\0", "timestamp": 5, "data": b"x"}, {"space": b"b", "timestamp": 6, "data": b"y"}])
    assert topic.scan(space=b"\xff\0").to_table()["data"].to_pylist() == [b"x"]


def test_a_space_longer_than_an_address(catalog, client):
    """It cannot be scanned, but the error says what reads it: statements, which are sent in a body."""
    space = "é" * 32_767
    topic = client.topic("activity")
    topic.append([{"space": space, "timestamp": 5}])
    with pytest.raises(InvalidRequestError, match=r"more than the 65000 of an address; use sql\(\) or query\(\)"):
        topic.scan(space=space).to_table()
    (found,) = client.sql(f"SELECT count(*) AS n FROM activity WHERE space = '{space}'").to_table().to_pylist()
    assert found == {"n": 1}


def test_exactly_once_by_key(client):
    """A retried batch is recognised by its key; a different batch with the same key is refused."""
    topic = client.topic("activity")
    first = topic.append(events(0, 10), producer="web", sequence=1)
    again = topic.append(events(0, 10), producer="web", sequence=1)
    assert (again.duplicate, again.first, again.last) == (True, first.first, first.last)
    with pytest.raises(SequenceConflictError):
        topic.append(events(1, 10), producer="web", sequence=1)
    assert not topic.append(events(0, 5), producer="caf\u00e9 \u2603", sequence=1).duplicate
    assert topic.append(events(0, 5), producer="caf\u00e9 \u2603", sequence=1).duplicate
    with pytest.raises(InvalidRequestError):
        topic.append(events(0, 10), producer="web")
    assert topic.scan().count() == 15


def test_mistakes_are_not_tried_again(client):
    """Mistakes raise the catalog's errors and are not retried."""
    topic = client.topic("activity")
    topic.append(events(0, 10))
    with pytest.raises(TopicNotFoundError, match="create one with create_topic in Python"):
        client.topic("absent").scan().to_table()
    with pytest.raises(InvalidEventError):
        topic.append(pa.table({"space": ["a"]}))
    with pytest.raises(UnknownIndexError):
        topic.scan_index("colour", "red").to_table()
    with pytest.raises(PartitionNotFoundError):
        topic.scan(partition="none").to_table()
    with pytest.raises(UsageError):
        topic.scan(limit=-1)
    with pytest.raises(BodyTooLargeError) as caught:
        topic.append([{"space": "a", "timestamp": 1, "data": bytes(21_000_000)}])
    assert caught.value.max_bytes == 20 << 20
    assert topic.scan().count() == 10


def test_what_a_request_cannot_carry(client):
    """Text that no address and no header can have is refused at once, as an error of this library."""
    topic = client.topic("activity")
    half, long = "\ud800", "\xe4" * 20_000
    for ask in (
        client.topic(half).scan().count, topic.scan(space=half).count, topic.scan(partition=half).count,
        topic.scan_index("type", half).count, lambda: client.create_topic(half), topic.scan(space=long).count,
    ):  # fmt: skip
        with pytest.raises(InvalidRequestError):
            ask()
    for producer in (half, "", " a", "\u3000a", "a\nb", "a\0b", "a\x7f"):
        with pytest.raises(InvalidRequestError):
            topic.append(events(0, 1), producer=producer, sequence=1)
    assert topic.scan().count() == 0
    topic.append(events(0, 1), producer="a\t \xe4\u200d\xa0b", sequence=1)
    assert topic.append(events(0, 1), producer="a\t \xe4\u200d\xa0b", sequence=1).duplicate


def test_no_server():
    """Without a server, the client raises after its attempts; a wrong address raises immediately."""
    with Client("http://127.0.0.1:9", retry=Retry(attempts=3, first_s=0.001)) as client:
        with pytest.raises(UnavailableError, match="3 attempts") as caught:
            client.topic("activity").append(events(0, 1))
        assert not caught.value.maybe_stored
    with pytest.raises(ClosedError):
        client.topic("activity").scan().to_table()
    for address in ("localhost:3030", "ftp://x", "http://", "http://a..b:3030", 5):
        with pytest.raises(InvalidRequestError):
            Client(address)


def test_the_token_is_not_shown():
    """The token is in no text representation of a client."""
    client = Client("http://127.0.0.1:9", token="secret-word")
    assert "secret-word" not in repr(client) + repr(client._connection.options) + repr(client.topic("a").scan())


def test_appends_over_a_breaking_line(server, catalog):
    """An append cut off before the server has all of it, or before the client gets the receipt, is stored once."""
    fates = [Fate(up_bytes=100), Fate(up_bytes=3000), Fate(down_bytes=1), Fate(down_bytes=60)]
    with BreakingProxy(server.url, lambda number: fates[number]) as proxy:
        with Client(proxy.url, retry=Retry(attempts=4, first_s=0.001)) as client:
            with pytest.raises(UnavailableError) as caught:
                client.topic("activity").append(events(0, 100), producer="p", sequence=7)
            assert caught.value.maybe_stored
        assert proxy.connections == 4
    with Client(server.url) as client:
        client.topic("activity").append(events(0, 100), producer="p", sequence=7)
    assert catalog.topic("activity").scan().count() == 100


def test_receipts_that_break_off_without_a_length(server, catalog):
    """HTTP takes a closed connection for the end of a receipt without a length: retried, the batch is stored once."""
    cuts = dict(enumerate(range(100, 170, 5)))  # in the headers, then in the body
    with BreakingProxy(server.url, lambda n: Fate(down_bytes=cuts.get(n), unmeasured=n in cuts)) as proxy:
        with Client(proxy.url, retry=Retry(first_s=0.001, longest_s=0.01), timeout_s=1) as client:
            receipt = client.topic("activity").append(events(0, 100))
        assert (receipt.first, receipt.last, receipt.duplicate) == (0, 99, True)
    assert catalog.topic("activity").scan().count() == 100


def test_every_second_connection_breaks(server, catalog):
    """Many concurrent appends are each stored once although every second connection breaks."""
    with (
        BreakingProxy(server.url, lambda number: Fate(down_bytes=40) if number % 2 else Fate(up_bytes=9000)) as proxy,
        Client(proxy.url, retry=Retry(attempts=200, first_s=0.001, longest_s=0.01, deadline_s=120)) as client,
        ThreadPoolExecutor(4) as pool,
    ):
        list(pool.map(lambda n: client.topic("activity").append(events(n * 30, 30)), range(40)))
    assert sorted(catalog.topic("activity").scan().to_table()["timestamp"].cast(pa.int64()).to_pylist()) == [
        *range(1200)
    ]


def test_an_answer_that_breaks_off(server, catalog):
    """A truncated answer is an error wherever it is cut, never a shorter answer."""
    catalog.topic("activity").append(events(0, 20_000))
    for cut in (300, 5000, 100_000):
        with (
            BreakingProxy(server.url, lambda number, cut=cut: Fate(down_bytes=cut)) as proxy,
            Client(proxy.url, retry=QUICK) as client,
        ):
            for use in (lambda scan: scan.to_table(), list, lambda scan: scan.count(), lambda scan: pa.table(scan)):
                with pytest.raises((TruncatedAnswerError, UnavailableError, pa.ArrowException, OSError)):
                    use(client.topic("activity").scan())


def test_answers_stream(server, catalog):
    """The first batch arrives long before the last is sent, and an answer can be abandoned midway."""
    catalog.topic("activity").append(events(0, 50_000))
    with (
        BreakingProxy(server.url, lambda _: Fate(delay_s=0.02)) as proxy,
        Client(proxy.url) as client,
    ):
        for _ in range(3):
            batches = client.topic("activity").scan().batches()
            assert len(next(batches)) < 50_000
            del batches
        assert client.topic("activity").scan(limit=5).to_table().num_rows == 5


def test_topics_that_are_renamed_and_deleted(catalog, client):
    """Renames and deletions raise the catalog's errors; a deletion is not retried automatically."""
    client.create_topic("other")
    with pytest.raises(TopicExistsError):
        client.rename_topic("activity", "other")
    rows = client.topic("activity").stats()["rows"]
    assert client.rename_topic("activity", "moved").stats()["rows"] == rows
    client.delete_topic("moved")
    assert catalog.topics() == ("other",)
    with pytest.raises(TopicNotFoundError):
        client.delete_topic("moved")
    assert not calls.delete_topic("other").repeatable
