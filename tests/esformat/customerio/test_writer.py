"""Written files can be read back, the Go reader would find every entry, and unsupported events are refused."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from effort import examples
from go_files import shown
from hypothesis import given
from hypothesis import strategies as st

from esformat import ClosedError, InvalidEventError, UsageError, customerio
from esformat.customerio.archive_file import ArchiveFile
from esformat.customerio.blocks import MARKER_BYTES, read_sections, write_section
from esformat.io.source import FileSource


@pytest.mark.parametrize("kind", ["random", "text", "byte"])
def test_blocks_keep_off_markers(kind):
    """Wherever a section begins, none of its blocks ends, and so none begins, at a multiple of 256."""
    data = {"random": random.Random(1).randbytes(9000), "text": b"some words " * 900, "byte": b"x"}[kind]
    hit = 0
    for origin in range(1, 2 * MARKER_BYTES):
        blocks = list(write_section(memoryview(data), origin, avoid_markers=True))
        hit += any(end % MARKER_BYTES == 0 for end in _ends(origin, write_section(memoryview(data), origin)))
        assert all(end % MARKER_BYTES for end in _ends(origin, blocks))
        stored = b"".join(block for block, _ in blocks)
        found = read_sections(stored, [(0, len(stored))])
        assert found.data[: found.starts[-1]] == data
    assert hit >= 2  # otherwise some would


def _ends(origin, blocks):
    for block, _ in blocks:
        origin += len(block)
        yield origin


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """An archive of one large space with long indexes and two groupings."""
    chance = random.Random(2)
    path = tmp_path_factory.mktemp("go") / "large.esdb"
    with customerio.create(path) as writer:
        for number in range(20_000):
            data = chance.randbytes(chance.randrange(1, 300)) if number % 3 else b"words " * chance.randrange(1, 60)
            indexes = {"type": "ab"[number % 2], "rare": str(number)} if number % 5 else {}
            writer.add("s", data, timestamp=chance.randrange(9999) * 10**6, grouping="xy"[number % 2], indexes=indexes)
    return path


def test_no_indexed_event_behind_a_marker(large):
    """No index entry names a block whose offset is a multiple of 256, and no entry straddles two blocks."""
    source = FileSource(large)
    file = ArchiveFile(source)
    (place,) = file.spaces()
    directory = file.directory(place)
    stored = source.read_at(place.offset, place.length)
    events = read_sections(stored, [section[1:] for section in directory.groupings])
    assert len(events.block_offsets) > 3 * MARKER_BYTES
    assert (events.block_offsets % MARKER_BYTES).all()
    for section in directory.indexes:
        found = read_sections(stored, [section[1:]])
        assert not (found.block_starts % 10).any()


def test_large_reads_back(large):
    """All events and index entries of the large archive are read back."""
    with customerio.open(large) as archive:
        assert archive.num_events == 20_000
        assert dict(archive.index_values("type").items()) == {"a": 8000, "b": 8000}
        assert len(archive.index_values("rare")) == 16_000
        assert next(iter(archive.scan_index("rare", "9999"))).indexes == {"type": "b", "rare": "9999"}


KEYS = st.binary(min_size=1, max_size=5)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
INDEXES = st.dictionaries(TEXT.filter(lambda name: ":" not in name), TEXT, max_size=3)
ARCHIVED = st.tuples(
    KEYS, TEXT, st.integers(0, 2**32 - 1) | st.integers(0, 2), st.binary(min_size=1, max_size=300), INDEXES
)


@examples(60)
@given(events=st.lists(ARCHIVED, max_size=12))
def test_archive_round_trip(tmp_path_factory, events):
    """Any keys, times, payloads and indexes are read back, in any order; ties keep their input order."""
    path = tmp_path_factory.mktemp("archive") / "a.esdb"
    with customerio.create(path) as writer:
        for space, grouping, seconds, data, indexes in events:
            writer.add(space, data, timestamp=seconds * 10**6, grouping=grouping, indexes=indexes)
    with customerio.open(path) as archive:
        names = {index.name: index.stored.decode() for index in archive.layout.indexes}
        found = [
            (e.space, e.grouping, e.timestamp // 10**6, e.data, {names[n]: v for n, v in e.indexes.items()})
            for e in shown(archive.scan())
        ]
    wanted = sorted(((s, g.encode(), t, d, i) for s, g, t, d, i in events), key=lambda event: event[:3])
    assert found == wanted


@examples(60)
@given(events=st.lists(st.tuples(st.binary(max_size=300), INDEXES), max_size=12), closed=st.booleans())
def test_stream_round_trip(tmp_path_factory, events, closed):
    """Any payloads and indexes are read back in order, with valid index chains, which reading checks."""
    path = tmp_path_factory.mktemp("stream") / "s"
    with customerio.create(path, kind="stream", closed=closed) as writer:
        for data, indexes in events:
            writer.add(data=data, indexes=indexes)
    with customerio.open(path) as stream:
        names = {index.name: index.stored.decode() for index in stream.layout.indexes}
        assert [(e.data, {names[n]: v for n, v in e.indexes.items()}) for e in stream.scan()] == events
        assert stream.is_closed == closed


def test_stream_in_small_chunks(tmp_path, monkeypatch):
    """Index chains continue from one chunk to the next."""
    monkeypatch.setattr("esformat.customerio.stream_writer.CHUNK_ROWS", 2)
    table = pa.table({"data": [b"%d" % n for n in range(9)], "t": ["a", "b", None] * 3})
    customerio.write(tmp_path / "s", table, kind="stream")
    with customerio.open(tmp_path / "s") as stream:
        assert stream.scan().to_table().select(["data", "t"]).to_pydict() == table.to_pydict()


def test_archive_in_small_groups(tmp_path, monkeypatch):
    """Spaces written one at a time have the same bytes."""
    table = pa.table(
        {
            "space": [f"{n % 7}" for n in range(50)],
            "timestamp": [n * 1_000_000 for n in range(50)],
            "data": [b"x%d" % n for n in range(50)],
            "t": pa.array(["a", None] * 25).dictionary_encode(),
        }
    )
    customerio.write(tmp_path / "a", table)
    monkeypatch.setattr("esformat.customerio.writer.GROUP_BYTES", 1)
    customerio.write(tmp_path / "b", table)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert customerio.open(tmp_path / "a").num_spaces == 7


REFUSED = {
    "empty_space": ({"space": b"", "data": b"x"}, "empty space"),
    "empty_data": ({"space": b"s", "data": b""}, r"empty data in row 0, of space b?'s'"),
    "no_whole_second": ({"space": b"s", "data": b"x", "timestamp": 1}, "whole second"),
    "before_1970": ({"space": b"s", "data": b"x", "timestamp": -1_000_000}, "whole second"),
    "after_2106": ({"space": b"s", "data": b"x", "timestamp": 2**32 * 1_000_000}, "whole second"),
    "colon_in_a_name": ({"space": b"s", "data": b"x", "indexes": {"a:b": "c"}}, "colon"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(tmp_path, name):
    """Events that the Go ESDB could not read, or would confuse with others, are refused; no file remains."""
    arguments, message = REFUSED[name]
    with pytest.raises(InvalidEventError, match=message), customerio.create(tmp_path / "a") as writer:
        writer.add(**arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ({"data": [1]}, "no place"),
        ({"data": [None]}, "no place|null"),
        ({"n": [1]}, "no place"),
        ({"timestamp": ["now"]}, "timestamp"),
        ({"space": pa.array([None], pa.string())}, "null in row 0"),
    ],
)
def test_tables_refused(tmp_path, column, message):
    """A table with a column that the file cannot store is refused."""
    table = pa.table({"space": ["s"], "timestamp": [0], "data": [b"x"]} | column)
    with customerio.create(tmp_path / "a") as writer:
        with pytest.raises(InvalidEventError, match=message):
            writer.add_table(table)
        writer.add_table(pa.table({"space": ["s"], "timestamp": [0], "data": [b"x"]}))
    assert customerio.open(tmp_path / "a").num_events == 1


def test_misuse(tmp_path):
    """Unknown kinds, an existing file and a finished writer are refused."""
    with pytest.raises(UsageError, match="kind"):
        customerio.create(tmp_path / "a", kind="segment")
    with pytest.raises(UsageError, match="left open"):
        customerio.create(tmp_path / "a", closed=False)
    writer = customerio.create(tmp_path / "a")
    writer.finish()
    with pytest.raises(ClosedError):
        writer.add("s", b"x", timestamp=0)
    with pytest.raises(UsageError, match="exists"):
        customerio.create(tmp_path / "a")
    assert customerio.open(tmp_path / "a").num_events == 0
