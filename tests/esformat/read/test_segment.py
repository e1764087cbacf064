"""`open`, `Segment` and `Space`: their facts, their errors, and closing."""

from __future__ import annotations

import datetime as dt
import gc
import itertools
import os
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import effort
import pyarrow as pa
import pytest
from event_model import event_facts
from small_pieces import Pieces, cut_small
from waiting import at_best

import esformat
from esformat.core.caches import Budgets
from esformat.errors import (
    ClosedError,
    CorruptSegmentError,
    InvalidEventError,
    SpaceNotFoundError,
    UnknownIndexError,
    UsageError,
)
from esformat.parts import fast_history

ROWS = [
    (
        f"customer-{n % 7}",
        b"%d" % n,
        1000 * (n // 3),
        ["", "app", "web"][n % 3],
        {"type": ["page", "signup", None][n % 3]},
    )
    for n in range(300)
]
MANY_PIECES = Pieces(
    block_rows=5,
    leaf_blocks=3,
    batch_blocks=2,
    min_parallel_batches=2,
    frame_bytes=16,
    events_at_once=4,
    sorted_rows=3,
    scattered_rows=2,
)


@pytest.fixture
def segment(write):
    """ROWS in a file with default sizes."""
    return write(ROWS, indexes=["type"], properties={"source": "test"})


@pytest.fixture
def pieces():
    """Small block sizes for writing and reading."""
    with cut_small(MANY_PIECES):
        yield


@pytest.fixture
def many(pieces, write):
    """ROWS in 60 blocks and 20 leaves."""
    return write(ROWS, indexes=["type"])


# ---------------------------------------------------------------- facts


def test_facts(segment):
    """The facts of a segment are right."""
    assert (segment.num_events, segment.num_spaces, segment.indexes) == (300, 7, ("type",))
    assert (segment.min_timestamp, segment.max_timestamp) == (0, 99_000)
    assert segment.properties == {"source": "test"}
    assert segment.size_bytes == Path(segment.path).stat().st_size
    assert repr(segment) == f"<esformat.Segment {segment.path!r}, 300 events in 7 spaces>"
    assert segment.schema == pa.schema(
        [
            pa.field("space", pa.string(), nullable=False),
            pa.field("grouping", pa.string(), nullable=False),
            pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
            pa.field("data", pa.binary(), nullable=False),
            pa.field("type", pa.string()),
        ]
    )


def test_properties_are_the_callers_own(segment):
    """Changes to returned properties do not affect the segment."""
    segment.properties["source"] = "other"
    segment.info()["properties"]["source"] = "other"
    assert segment.properties == {"source": "test"}


def test_info_accounts_for_every_byte(many):
    """Header, blocks and trailer add up to the file, except for lists in separate blocks."""
    info = many.info()
    assert (info["events"], info["spaces"], info["groupings"]) == (300, 7, 21)
    blocks = info["blocks"]
    assert blocks["data"]["count"] == 60
    assert blocks["directory"]["count"] == 20
    assert {"metadata", "data", "directory", "directory_root", "index", "index_root", "filter"} <= blocks.keys()
    assert sum(kind["bytes"] for kind in blocks.values()) + 16 + 48 <= info["size_bytes"]
    assert sum(kind["bytes"] for kind in blocks.values()) >= 0.95 * info["size_bytes"] - 2000


@pytest.mark.parametrize(
    "form",
    [str, Path, lambda path: esformat.FileSource(path), lambda path: esformat.BytesSource(Path(path).read_bytes())],
)
def test_what_can_be_opened(segment, form):
    """A path as text or Path, a file object and bytes can be opened."""
    with esformat.open(form(segment.path)) as other:
        assert [event_facts(e) for e in other.scan()] == [event_facts(e) for e in segment.scan()]


@pytest.mark.parametrize("given", [5, None, 1.5, object], ids=str)
def test_what_cannot_be_opened(given):
    """The error for anything else says what can be opened."""
    with pytest.raises(UsageError, match=r"cannot open .*; give a path, a URI, "):
        esformat.open(given)


@pytest.mark.parametrize(
    "content", [b"", b"x", b"space,data\n" * 100, bytes(5000)], ids=["empty", "short", "csv", "zeroes"]
)
def test_files_that_are_no_segments(tmp_path, content):
    """A file that is not a segment is refused by name, and closed."""
    gc.freeze()  # objects that other tests left are not searched
    path = tmp_path / "other.esdb"
    path.write_bytes(content)
    with pytest.raises(CorruptSegmentError, match=r"other.esdb: .*segment") as caught:
        esformat.open(path)
    assert caught.value.path == str(path)
    del caught
    gc.collect()
    assert str(path) not in [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]


# ---------------------------------------------------------------- spaces


def test_spaces(many):
    """Spaces are listed in key order with counts, and behave like a dict."""
    spaces = many.spaces()
    assert list(spaces) == [f"customer-{n}" for n in range(7)]
    assert list(spaces.items()) == list(zip(spaces.keys(), spaces.values(), strict=True))
    assert spaces == {f"customer-{n}": len(range(n, 300, 7)) for n in range(7)}
    assert (len(spaces), spaces["customer-6"], spaces.get("nobody"), "customer-0" in spaces) == (7, 42, None, True)
    assert repr(many.spaces(prefix="customer-0")) == "Counts({'customer-0': 43})"
    with pytest.raises(KeyError):
        spaces["nobody"]


@pytest.mark.parametrize("prefix", ["", "c", "customer-3", "customer-33", "d", "a", "\U0010ffff"])
def test_spaces_by_prefix(many, prefix):
    """A prefix, as text or bytes, lists only the spaces that begin with it."""
    expected = [f"customer-{n}" for n in range(7) if f"customer-{n}".startswith(prefix)]
    for given in (prefix, prefix.encode()):
        found = many.spaces(prefix=given)
        assert list(found) == expected
        assert all(key in found for key in expected)
        assert ("customer-1" in found) == ("customer-1" in expected)


def test_prefix_reads_only_its_leaves(many):
    """A prefix of few spaces does not read the whole directory."""
    counted = esformat.CountingSource(esformat.FileSource(many.path))
    with esformat.open(counted) as same:
        before = counted.reads
        assert list(same.spaces(prefix="customer-3")) == ["customer-3"]
        assert counted.reads - before <= 5


def test_groupings(many):
    """The groupings of a space are listed in key order with counts."""
    groupings = many["customer-1"].groupings()
    assert groupings == {"": 14, "app": 15, "web": 14}
    assert list(groupings) == ["", "app", "web"]
    assert (groupings["web"], groupings.get("nothing"), len(groupings)) == (14, None, 3)


def test_find(segment):
    """`find` returns a space or None, brackets raise for an unknown space, `in` tests."""
    space = segment.find("customer-2")
    assert (space.key, space.key_bytes, len(space), space.num_events) == ("customer-2", b"customer-2", 43, 43)
    assert repr(space) == "<esformat.Space 'customer-2', 43 events>"
    assert segment.find("nobody") is None
    assert "customer-2" in segment
    assert "nobody" not in segment
    assert 5 not in segment
    with pytest.raises(SpaceNotFoundError, match="no space 'nobody'") as caught:
        segment["nobody"]
    assert isinstance(caught.value, KeyError)
    assert caught.value.path == segment.path


@pytest.mark.parametrize("key", [5, None, 1.5, ["a"]])
def test_keys_of_other_types(segment, key):
    """A key that is neither text nor bytes is a UsageError in every method."""
    for verb in (segment.find, segment.__getitem__, segment.may_contain, lambda key: segment.scan(grouping=key or 0)):
        with pytest.raises(UsageError, match="a key must be str or bytes"):
            verb(key)
    with pytest.raises(UsageError, match="not Unicode text"):
        segment.find("\ud800")


def test_binary_keys(write):
    """Binary keys are returned as bytes; text finds its UTF-8 bytes."""
    keys = [b"", b"\0", b"\0\0", b"a", "é".encode(), b"\xff", b"\xff\xff"]
    segment = write([(key, b"", 1, key) for key in keys], keys="binary")
    assert list(segment.spaces()) == keys
    assert list(segment.spaces(prefix=b"\xff")) == [b"\xff", b"\xff\xff"]
    assert segment["é"].key == "é".encode()
    assert [event.grouping for event in segment.scan()] == keys
    assert segment.scan(grouping=b"\xff").count() == 1
    assert segment.schema.field("space").type == pa.binary()


# ---------------------------------------------------------------- wrong arguments

NAIVE = dt.datetime(2014, 6, 23)
WRONG_QUESTIONS = [
    ({"start": NAIVE}, InvalidEventError, "start 2014-06-23T00:00:00 has no time zone"),
    ({"end": NAIVE}, InvalidEventError, "end 2014-06-23T00:00:00 has no time zone"),
    ({"start": 1.5}, InvalidEventError, "start must be microseconds as an int or an aware datetime, not float"),
    ({"end": 2**63}, InvalidEventError, "does not fit 64 bits"),
    ({"limit": -1}, UsageError, "limit must be a whole number from 0, not -1"),
    ({"limit": 1.0}, UsageError, "limit must be a whole number from 0, not 1.0"),
    ({"limit": True}, UsageError, "limit must be"),
    ({"columns": "data"}, UsageError, "columns must be a list of names, not the text 'data'"),
    ({"columns": 5}, UsageError, "columns must be a list of names, not 5"),
    ({"columns": []}, UsageError, "at least one column; to count events use"),
    (
        {"columns": ["data", "typo"]},
        UsageError,
        "no column 'typo'; the columns are space, grouping, timestamp, data, type",
    ),
    ({"columns": [5]}, UsageError, "no column 5"),
    ({"columns": ["data", "data"]}, UsageError, "named twice"),
]


@pytest.mark.parametrize(("options", "error", "message"), WRONG_QUESTIONS, ids=str)
def test_wrong_questions(segment, options, error, message):
    """Wrong arguments are refused by every method immediately, not when the result is read."""
    space = segment["customer-1"]
    for ask in (segment.scan, space.scan):
        with pytest.raises(error, match=message):
            ask(**options)
    for ask in (segment.scan_index, space.scan_index):
        with pytest.raises(error, match=message):
            ask("type", "page", **options)


WRONG_CONDITIONS = [
    (("typo", "page"), UnknownIndexError, "no index 'typo'; the indexes are: type"),
    (("data", b"x"), UnknownIndexError, "no index 'data'"),
    ((5, "page"), UnknownIndexError, "no index 5"),
    (("type", 5), UsageError, "index 'type' holds values of type string, not 5"),
    (("type", None), UsageError, "not None"),
    (("type", b"page"), UsageError, "not b'page'"),
    (({},), UsageError, "must not be empty; use scan"),
    (({"type": "page"}, "page"), UsageError, "either a mapping of conditions or a name and a value"),
    (({"type": "page", "typo": "x"},), UnknownIndexError, "no index 'typo'"),
]


@pytest.mark.parametrize(("condition", "error", "message"), WRONG_CONDITIONS, ids=str)
def test_wrong_conditions(segment, condition, error, message):
    """The same is true of indexes and their values."""
    for ask in (segment.scan_index, segment["customer-1"].scan_index):
        with pytest.raises(error, match=message):
            ask(*condition)


def test_unknown_index_is_a_key_error(segment):
    """An unknown index is a KeyError."""
    with pytest.raises(KeyError):
        segment.index_values("typo")


def test_no_indexes(write):
    """A file without indexes says so."""
    segment = write([("a", b"", 1)])
    with pytest.raises(UnknownIndexError, match="the indexes are: none"):
        segment.scan_index("type", "page")


# ---------------------------------------------------------------- closed, deleted, replaced


def test_after_closing(segment):
    """After `close`, methods and existing results raise ClosedError; facts stay; closing twice has no effect."""
    space, scan, listing = segment["customer-1"], segment.scan(), segment.index_values("type")
    assert len(list(scan)) == len(list(space.scan())) + 257
    assert list(listing) == ["page", "signup"]
    segment.close()
    segment.close()
    for verb in (
        lambda: list(scan),
        lambda: scan.to_table(),
        lambda: list(space.scan()),
        lambda: list(segment.scan_index("type", "page")),
        lambda: list(space.scan(grouping="web", reverse=True)),
        lambda: list(listing),
        lambda: segment.find("customer-1"),
        lambda: list(segment.spaces()),
    ):
        with pytest.raises(
            ClosedError, match="the segment is closed; read within the `with` block, or open it again"
        ) as caught:
            verb()
        assert caught.value.path == segment.path
    assert segment.num_events == 300
    assert segment.properties == {"source": "test"}


@pytest.mark.parametrize("verb", ["iterate", "batches", "merged"])
def test_closing_during_a_scan(many, verb, monkeypatch):
    """A scan whose segment is closed raises ClosedError at its next read; the results until then are right."""
    monkeypatch.setattr("esformat.read.space.FEW_EVENTS", 0)  # a small space is otherwise read at once
    whole = [event_facts(event) for event in many.scan()]
    answer = {"iterate": many.scan, "batches": many.scan, "merged": many["customer-1"].scan}[verb]()
    if verb == "merged":
        whole = [event_facts(event) for event in many["customer-1"].scan()]
    parts = answer.batches() if verb == "batches" else iter(answer)
    found = [next(parts)]
    many.close()
    with pytest.raises(ClosedError):
        found.extend(parts)
    if verb != "batches":
        assert [event_facts(event) for event in found] == whole[: len(found)]
    assert 0 < len(found) < len(whole)


def test_file_deleted_while_open(many):
    """A deleted file can be read as long as it is open."""
    expected = [event_facts(event) for event in many.scan()]
    Path(many.path).unlink()
    assert [event_facts(event) for event in many.scan()] == expected
    assert many["customer-1"].scan().count() == 43
    with pytest.raises(FileNotFoundError):
        esformat.open(many.path)


def test_file_replaced_while_open(many, tmp_path):
    """Readers of a replaced file continue to read the old one."""
    with esformat.create(many.path, overwrite=True) as writer:
        writer.add("new", timestamp=1)
    assert many.scan().to_table().num_rows == 300
    with esformat.open(many.path) as new:
        assert list(new.spaces()) == ["new"]


def test_file_cut_short_while_open(many):
    """A file cut short while open raises an error with its name."""
    os.truncate(many.path, 2000)
    with pytest.raises(CorruptSegmentError, match=Path(many.path).name):
        many.scan().to_table()


# ---------------------------------------------------------------- parallel use


def test_scan_inside_a_scan(many):
    """Scans are independent of each other."""
    found = []
    for event in many.scan(limit=40):
        inner = [other.data for other in many[event.space].scan(reverse=True, limit=3)]
        found.append((event.data, inner))
    plain = [event.data for event in many.scan(limit=40)]
    assert [data for data, _ in found] == plain
    newest = {space: [e.data for e in many[space].scan()][:-4:-1] for space in many.spaces()}
    assert [inner for _, inner in found] == [newest[event.space] for event in many.scan(limit=40)]


QUESTIONS = [
    lambda s: s.scan(),
    lambda s: s.scan(reverse=True, start=10_000),
    lambda s: s.scan(grouping="web"),
    lambda s: s["customer-3"].scan(),
    lambda s: s["customer-3"].scan(grouping="app", reverse=True),
    lambda s: s.scan_index("type", "page", end=50_000),
    lambda s: s["customer-5"].scan_index("type", "signup"),
    lambda s: s["customer-5"].scan(limit=7),
]


@pytest.fixture
def own_shared_cache(monkeypatch):
    """A shared cache for this test alone."""
    budgets = Budgets.of(1 << 20)
    monkeypatch.setattr("esformat.read.segment.SHARED_CACHE", budgets)
    return budgets


def test_segments_share_one_cache(many, own_shared_cache):
    """The caches of all open segments together stay within the limit; a closed one uses nothing."""
    esformat.set_cache_bytes(200_000)
    held = []
    segments = [esformat.open(many.path) for _ in range(5)]
    for segment in segments:
        for space in list(segment.spaces())[::7]:
            assert list(segment[space].scan())
        held.append(own_shared_cache.held_bytes)
    assert 0 < max(held) <= 200_000
    for segment in segments:
        segment.close()
    assert own_shared_cache.held_bytes == 0


@pytest.mark.parametrize("count", [-1, 1.5, True, "1"])
def test_cache_bytes_that_are_none(count):
    """The size of the cache must be an integer of at least 0."""
    with pytest.raises(esformat.UsageError, match="cache_bytes"):
        esformat.set_cache_bytes(count)


@pytest.mark.parametrize("cache_bytes", [0, pytest.param(3000, marks=effort.long), 64 << 20])
def test_threads(many, cache_bytes):
    """Eight threads that use all methods of one segment get the same results as a single thread."""

    def answer(number: int):
        scan = QUESTIONS[number % len(QUESTIONS)](shared)
        return [event_facts(event) for event in scan], scan.to_table(), scan.count()

    with esformat.open(many.path, cache_bytes=cache_bytes) as shared:
        expected = [answer(number) for number in range(len(QUESTIONS))]
        with ThreadPoolExecutor(8) as pool:
            for number, found in enumerate(pool.map(answer, range(60 if effort.ALL else 12))):
                events, table, count = expected[number % len(QUESTIONS)]
                assert found[0] == events
                assert found[1].equals(table)
                assert found[2] == count == len(events)


def test_one_scan_in_many_threads(many):
    """Several threads can use the same Scan."""
    scan = many.scan(start=5000)
    expected = scan.to_table()
    with ThreadPoolExecutor(8) as pool:
        assert all(
            table.equals(expected) for table in pool.map(lambda _: scan.to_table(), range(40 if effort.ALL else 16))
        )


def test_closing_while_threads_read(many):
    """While a segment is closed, each thread gets its whole result or ClosedError."""
    expected = [event_facts(event) for event in many.scan()]
    started = threading.Barrier(5)

    def read() -> int:
        started.wait()
        whole = 0
        while True:
            try:
                assert [event_facts(event) for event in many.scan()] == expected
            except ClosedError:
                return whole
            whole += 1

    with ThreadPoolExecutor(4) as pool:
        readers = [pool.submit(read) for _ in range(4)]
        started.wait()
        time.sleep(0.05)
        many.close()
        assert all(reader.result(timeout=120) >= 0 for reader in readers)


@pytest.mark.parametrize(
    "start", [lambda s: iter(s.scan()), lambda s: s.scan().batches(), lambda s: iter(s["customer-1"].scan())]
)
def test_abandoned_scans(many, start):
    """A scan that is abandoned leaves no thread, and the segment stays usable."""
    gc.freeze()  # objects that other tests left are not searched
    before = threading.active_count()
    for _ in range(5):
        parts = start(many)
        next(parts)
        del parts
    gc.collect()
    deadline = time.monotonic() + 60
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before
    assert many.scan().to_table().num_rows == 300


def test_events_leave_their_process(many):
    """Pickled events of any scan need no file."""
    for ask in QUESTIONS:
        events = list(ask(many))
        assert [event_facts(e) for e in pickle.loads(pickle.dumps(events))] == [event_facts(e) for e in events]


def test_nothing_is_left_of_a_closed_segment(clicks):
    """A closed segment is freed immediately, without garbage collection."""

    def touch() -> None:
        with esformat.open(clicks[0]) as segment:
            space = next(iter(segment.spaces()))
            assert [event.indexes for event in segment[space].scan()]
            assert len(segment[space].scan().to_table())

    def garbage() -> int:
        touch()
        return gc.collect()

    garbage()
    gc.disable()
    try:
        assert at_best(garbage, 0) == 0  # other threads may have left some objects meanwhile
    finally:
        gc.enable()


def test_threads_share_values_and_templates(clicks):
    """The values of a column's codes are decoded once for all threads, because engines start new ones."""
    with esformat.open(clicks[0]) as segment:
        reader = segment._reader
        with ThreadPoolExecutor(1) as other:
            there = other.submit(lambda: reader.contexts(1)[reader.positions["type"]].values).result()
        assert reader.contexts(1)[reader.positions["type"]].values is there


@pytest.mark.parametrize("cache_bytes", [0, 1 << 20])
def test_a_history_reads_its_leaf_once(clicks, cache_bytes):
    """Finding and scanning a space takes one read of the directory and one of the events, with and without caches."""
    source = esformat.CountingSource(esformat.FileSource(clicks[0]))
    with esformat.open(source, cache_bytes=cache_bytes) as segment:
        first, *_, last = segment.spaces()
        for space in (first, last):
            list(segment.find(space).scan())
            before = source.reads
            list(segment.find(last if space == first else first).scan())
            assert source.reads - before <= 2


@pytest.mark.parametrize("options", [{}, {"templates": False}])
def test_near_histories(write, options):
    """A space of one grouping in one block has a short path with the same events as a scan; other spaces do not."""
    rows = [
        (f"s{n % 90:02d}", b"%d" % n if n % 2 else b"long" * n, n // 3, "b" if n > 60 and not n % 3 else "a", {})
        for n in range(400)
    ]
    with write(rows, **options) as segment:
        names = tuple(segment.schema.names)
        assert fast_history(segment, "s07", None, False, None, names) is None  # not used before
        for columns in (names, ("timestamp", "data"), None):
            list(segment["s07"].scan(columns=columns))
            for turn in itertools.product(
                range(3), (False, True), (None, 0, 2), (b"s07", "s60", "s61", "s89", "nobody")
            ):
                _, reverse, limit, space = turn  # the second and third query find cached what the one before left
                found = segment.find(space)
                near = fast_history(segment, space, None, reverse, limit, columns)
                if found is not None and found.num_groupings > 1:
                    assert near is None
                    assert fast_history(segment, space, b"b", reverse, limit, columns) is None
                    continue
                scan = () if found is None else found.scan(reverse=reverse, limit=limit, columns=columns)
                assert list(map(event_facts, near)) == list(map(event_facts, scan))
        assert [event.data for event in fast_history(segment, "s07", b"a", False, 1, None)] == [b"7"]
        assert fast_history(segment, "s07", b"b", False, 1, None) is None
        assert fast_history(segment, "s07", None, False, None, ("timestamp",)) is None
        with pytest.raises(UsageError):
            fast_history(segment, 7, None, False, None, None)
        assert {segment[f"s{n:02d}"].num_groupings for n in (7, 60, 61, 89)} == {1, 2}
        segment.close()
        with pytest.raises(ClosedError):
            fast_history(segment, "s08", None, False, None, None)


def test_far_histories_are_not_near(write):
    """Sources with announcements and histories of many blocks do not take the short path."""
    rows = [("one", b"%d" % n, n, "", {}) for n in range(20_000)] + [("two", b"", 1, "", {})]
    with write(rows) as segment:
        assert fast_history(segment, "one", None, False, None, None) is None
        assert [event.data for event in fast_history(segment, "one", None, True, 2, None)] == [b"19999", b"19998"]
        assert len(fast_history(segment, "two", None, False, None, None)) == 1
        segment._reader.announce = lambda *ranges: None
        assert fast_history(segment, "two", None, False, None, None) is None
