"""Events decoded from data blocks without Arrow: payload, indexed columns, numbers, and in short runs all types."""

from __future__ import annotations

import datetime as dt
import pickle

import pyarrow as pa
import pytest

import esformat
from esformat.core.blocks import LIGHT_BYTES
from esformat.format.codec import Decompressor

EVENTS = 5000
TABLE = pa.table(
    {
        "space": [f"space-{n % 3}" for n in range(EVENTS)],
        "timestamp": pa.array([10 * n for n in range(EVENTS)], pa.int64()),
        "data": [b"payload %d" % n for n in range(EVENTS)],
        "kind": [None if n % 7 == 0 else f"kind-{n % 4}" for n in range(EVENTS)],
        "number": pa.array(range(EVENTS), pa.int64()),
        "level": pa.array([None if n % 5 == 0 else n % 50 for n in range(EVENTS)], pa.int16()),
        "done": [n % 2 == 0 for n in range(EVENTS)],
    }
)

OTHERS = pa.table(
    {
        "city": [None if n % 11 == 0 else ("Köln", "Ulm")[n % 2] for n in range(EVENTS)],
        "note": [None if n % 13 == 0 else f"nöte {n}" for n in range(EVENTS)],
        "blob": [b"%d" % n * (n % 3) for n in range(EVENTS)],
        "price": pa.array([None if n % 9 == 0 else n for n in range(EVENTS)], pa.decimal128(20, 2)),
        "tags": [None if n % 8 == 0 else [f"t{n}"] * (n % 3) for n in range(EVENTS)],
        "who": [{"id": n, "name": f"u{n % 9}"} for n in range(EVENTS)],
    }
)


@pytest.fixture(scope="module")
def segment(tmp_path_factory):
    """Events of three spaces in several blocks, with a payload, an index and numbers."""
    path = tmp_path_factory.mktemp("events") / "numbers.esdb"
    with esformat.create(path, indexes=["kind"]) as writer:
        writer.add_table(TABLE)
    with esformat.open(path) as opened:
        assert opened._reader.direct
        yield opened


def expected(space):
    """The events of a space as plain values, oldest first."""
    rows = [row for row in TABLE.to_pylist() if row["space"] == space]
    return [
        (
            row["timestamp"],
            row["data"],
            {} if row["kind"] is None else {"kind": row["kind"]},
            {name: row[name] for name in ("number", "level", "done")},
        )
        for row in rows
    ]


def values(events):
    """Events as plain values."""
    return [(event.timestamp, event.data, event.indexes, event.columns) for event in events]


@pytest.mark.parametrize("reverse", [False, True])
def test_history(segment, reverse):
    """Numbers are columns of an event; indexed columns are separate."""
    rows = expected("space-1")
    assert values(segment["space-1"].scan(reverse=reverse)) == (rows[::-1] if reverse else rows)


def test_picked(segment):
    """The same is true if an index selects some rows of each block."""
    rows = [row for row in expected("space-2") if row[2] == {"kind": "kind-3"}]
    assert rows
    assert values(segment["space-2"].scan_index("kind", "kind-3")) == rows


def test_whole_file(segment):
    """The same is true if many blocks are decoded together."""
    rows = [row for space in ("space-0", "space-1", "space-2") for row in expected(space)]
    assert values(segment.scan()) == rows
    picked = [row for row in rows if row[2] == {"kind": "kind-1"}]
    assert values(segment.scan_index("kind", "kind-1")) == picked


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """The same events with columns of every other type, in one space with many short groupings."""
    table = TABLE.set_column(0, "grouping", pa.array([f"g{n // 40:03}" for n in range(EVENTS)]))
    for name, column in zip(OTHERS.column_names, OTHERS.columns, strict=True):
        table = table.append_column(name, column)
    path = tmp_path_factory.mktemp("wide") / "wide.esdb"
    with esformat.create(path, indexes=["kind"]) as writer:
        writer.add_table(table.append_column("space", pa.array(["all"] * EVENTS)))
    with esformat.open(path) as opened:
        assert not opened._reader.direct
        yield opened


def of_wide(first, last):
    """Events [first, last) of the wide file as plain values."""
    rows = TABLE.slice(first, last - first).to_pylist()
    others = OTHERS.slice(first, last - first).to_pylist()
    numbers = [{name: row[name] for name in ("number", "level", "done")} for row in rows]
    return [
        (row["timestamp"], row["data"], {"kind": row["kind"]} if row["kind"] else {}, number | other)
        for row, number, other in zip(rows, numbers, others, strict=True)
    ]


@pytest.mark.parametrize("limit", [None, 7])
@pytest.mark.parametrize("grouping", ["g000", "g051", "g124"])
def test_columns_of_every_kind(wide, grouping, limit):
    """Short runs are right in both directions, with time bounds, an index or only some columns."""
    first = 40 * int(grouping[1:])
    rows, space = of_wide(first, first + 40), wide["all"]
    assert values(space.scan(grouping=grouping, limit=limit)) == rows[:limit]
    assert values(space.scan(grouping=grouping, reverse=True, limit=limit)) == rows[::-1][:limit]
    start = 10 * (first + 20)
    assert values(space.scan(grouping=grouping, start=start, limit=limit)) == rows[20:][:limit]
    picked = [row for row in rows if row[2] == {"kind": "kind-3"}]
    assert values(space.scan_index("kind", "kind-3", grouping=grouping, limit=limit)) == picked[:limit]
    named = [(time, data, {}, {"note": columns["note"]}) for time, data, _, columns in rows]
    assert values(space.scan(grouping=grouping, columns=["data", "note"], limit=limit)) == named[:limit]


def test_a_short_run_decodes_what_it_needs(wide, monkeypatch):
    """A short run decompresses only the text frames of its rows, and compressed columns only when they are used."""
    sizes = []
    plain = Decompressor.decompress

    def counted(self, codec, frame, size):
        sizes.append(size)
        return plain(self, codec, frame, size)

    assert len(list(wide["all"].scan(grouping="g060"))) == 40
    monkeypatch.setattr(Decompressor, "decompress", counted)
    events = list(wide["all"].scan(grouping="g061"))
    assert sum(sizes) < 60_000
    before = len(sizes)
    assert [event.columns["tags"] for event in events] == [row[3]["tags"] for row in of_wide(2440, 2480)]
    assert len(sizes) > before


def test_events_hold_no_text_of_others(wide):
    """Events keep only short chunks and codes for later, never text of other events."""
    leaf = wide._reader.leaf(0)
    block = wide._reader.data_block(leaf, 0)
    kept = block.light_pieces(wide._reader.attribute_chunks)
    names = [field.name for field in wide._reader.fields if field.name != "data"]
    assert {name for name, piece in zip(names, kept, strict=True) if piece is None} == {"note", "blob"}
    assert max(len(piece) for piece in kept if piece is not None) <= LIGHT_BYTES


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (["timestamp", "data", "number"], (b"payload 1", {}, {"number": 1})),
        (["data", "kind", "level"], (b"payload 1", {"kind": "kind-1"}, {"level": 1})),
        (["number"], (None, {}, {"number": 1})),
    ],
)
def test_only_some_columns(segment, columns, shown, whole):
    """A scan that names columns yields events with only those, besides keys and time."""
    scan = segment.scan(columns=columns, start=10) if whole else segment["space-1"].scan(columns=columns)
    event = next(event for event in scan if event.timestamp == 10)
    assert (event.space, event.grouping) == ("space-1", "")
    assert (event.data, event.indexes, event.columns) == shown


def test_events_outlive_their_segment(tmp_path):
    """Events keep their column data after the file is closed and deleted."""
    path = tmp_path / "gone.esdb"
    with esformat.create(path, indexes=["kind"]) as writer:
        writer.add_table(TABLE)
    with esformat.open(path) as opened:
        events = list(opened["space-0"].scan(limit=20))
    path.unlink()
    assert values(events) == expected("space-0")[:20]


def test_times_that_python_cannot_show(tmp_path):
    """A time that Python cannot represent is a number in its unit; the event's other values are as usual."""
    when = pa.array([0, 1 << 62, 1], pa.int64())
    times = when.cast(pa.timestamp("us"))
    days = pa.array([0, 1 << 30, 1], pa.int32()).cast(pa.date32())
    spans = when.cast(pa.duration("s"))
    lists = pa.ListArray.from_arrays([0, 1, 2, 3], times)
    table = pa.table(
        {"space": ["a"] * 3, "timestamp": [1, 2, 3], "data": [b""] * 3, "when": times, "day": days, "span": spans,
         "list": lists, "n": [1, 2, 3]}
    )  # fmt: skip
    with esformat.create(tmp_path / "t.esdb") as writer:
        writer.add_table(table)
    with esformat.open(tmp_path / "t.esdb") as segment:
        for scan in (segment["a"].scan(), segment.scan(), segment.scan(columns=["data", *table.column_names[3:]])):
            first, second, last = scan
            assert second.columns == {"when": 1 << 62, "day": 1 << 30, "span": 1 << 62, "list": [1 << 62], "n": 2}
            assert pickle.loads(pickle.dumps(second)) == second
            for event, shown in ((first, 0), (last, 1)):
                assert event.columns["when"] == dt.datetime(1970, 1, 1, 0, 0, 0, shown)
                assert event.columns["list"] == [event.columns["when"]]
                assert event.columns["day"] == dt.date(1970, 1, 1 + shown)
                assert event.columns["span"] == dt.timedelta(seconds=shown)
