"""Secondary indexes: values of every indexable type are listed, counted and combined, with lists of any length."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from small_pieces import Pieces, cut_small

import esformat
from esformat.errors import UsageError

KINDS = [
    (pa.string(), ["", "a", "a\0", "é", "\U0010ffff", "k" * 5000]),
    (pa.large_string(), ["b", "a"]),
    (pa.int8(), [-128, -1, 0, 127]),
    (pa.int64(), [-(2**63), 0, 2**63 - 1]),
    (pa.uint64(), [0, 1, 2**63, 2**64 - 1]),
    (pa.uint8(), [255, 0]),
    (pa.bool_(), [False, True]),
]


@pytest.fixture(params=KINDS, ids=lambda case: str(case[0]))
def indexed(request, tmp_path):
    """A file of 600 events in 12 spaces, with an index of each value and null in turn; its rows and values."""
    kind, values = request.param
    cycle = [*values, None]
    rows = [(f"s{n % 12:02}", n, cycle[n % 7 % len(cycle)]) for n in range(600)]
    table = pa.table(
        {"space": [r[0] for r in rows], "timestamp": [r[1] for r in rows], "x": pa.array([r[2] for r in rows], kind)}
    )
    with cut_small(Pieces(block_rows=9, leaf_blocks=4, chunk_entries=5, page_values=2)):
        with esformat.create(tmp_path / "a.esdb", indexes=["x"]) as writer:
            writer.add_table(table)
        with esformat.open(tmp_path / "a.esdb") as segment:
            yield segment, rows, values


def test_values_with_counts(indexed):
    """Values ascend, with their counts: text by its bytes, numbers by size, false before true; nulls are left out."""
    segment, rows, values = indexed
    expected = {
        v: sum(row[2] == v for row in rows)
        for v in sorted(values, key=lambda v: v.encode() if isinstance(v, str) else v)
    }
    expected = {value: count for value, count in expected.items() if count}
    listing = segment.index_values("x")
    assert list(listing.items()) == list(expected.items())
    assert all(listing[value] == count for value, count in expected.items())
    assert len(listing) == len(expected)


def test_scans_of_every_value(indexed):
    """A scan of every value finds its events in the file and in every space, in both directions."""
    segment, rows, values = indexed
    for value in values:
        wanted = sorted((row[0], row[1]) for row in rows if row[2] == value and type(row[2]) is type(value))
        for reverse in (False, True):
            found = [(e.space, e.timestamp) for e in segment.scan_index("x", value, reverse=reverse)]
            assert found == (wanted[::-1] if reverse else wanted)
            assert segment.scan_index("x", value, reverse=reverse).count() == len(wanted)
        for space in ("s00", "s07"):
            times = [time for key, time in wanted if key == space]
            assert [e.timestamp for e in segment[space].scan_index("x", value)] == times


def test_numbers_of_numpy(indexed):
    """NumPy values are found, too."""
    segment, rows, values = indexed
    for value in values:
        if isinstance(value, int) and not isinstance(value, bool):
            number = np.uint64(value) if value > 2**62 else np.int64(value)
        else:
            number = np.str_(value) if isinstance(value, str) else value
        assert segment.scan_index("x", number).count() == sum(row[2] == value for row in rows)
        assert segment.index_values("x").get(number, 0) == sum(row[2] == value for row in rows)


def test_long_lists_are_not_read_for_few_blocks(tmp_path):
    """The long list of a frequent value is read once, then cached; a rarer value's is not read for few blocks."""
    with cut_small(Pieces(block_rows=8, leaf_blocks=4, chunk_entries=5)):
        with esformat.create(tmp_path / "a.esdb", indexes=["x"], threads=1) as writer:
            for n in range(800):
                writer.add(f"s{n // 16:02}", b"", timestamp=n, indexes={"x": "all" if n % 2 else f"half {n % 32 < 16}"})
        source = esformat.CountingSource(esformat.FileSource(tmp_path / "a.esdb"))
        with esformat.open(source, cache_bytes=0) as segment:

            def reads(ask):
                before = source.reads
                events = list(ask())
                return source.reads - before, [event.timestamp for event in events]

            plain = 3  # of a leaf and of two blocks
            first, times = reads(lambda: segment["s05"].scan_index("x", "all"))
            assert times == list(range(81, 96, 2))
            assert first > plain + 20 // 5
            assert reads(lambda: segment["s07"].scan_index("x", "all")) == (plain, list(range(113, 128, 2)))
            assert reads(lambda: segment["s07"].scan_index("x", "half False")) == (plain, list(range(112, 128, 2)))
            assert reads(lambda: segment["s07"].scan_index("x", "half True"))[1] == []
            assert reads(lambda: segment.scan_index("x", "half True"))[1] == [
                n for n in range(0, 800, 2) if n % 32 < 16
            ]


def test_values_that_are_not_there(indexed):
    """An absent value finds nothing; a value of the wrong type is a UsageError."""
    segment, _, values = indexed
    if isinstance(values[0], str):
        absent, wrong = ["zzz", "b\0", "\ud800"], [5, True, b"a", None, 1.5]
    elif isinstance(values[0], bool):
        absent, wrong = [], [0, 1, "true", None, np.int64(1)]
    else:
        absent, wrong = [77, -(2**70), 2**70], [True, "5", 5.0, None]
    for value in absent:
        assert segment.scan_index("x", value).count() == 0
        assert list(segment["s01"].scan_index("x", value)) == []
        assert segment.index_values("x").get(value) is None
        assert value not in segment.index_values("x")
    for value in wrong:
        with pytest.raises(UsageError, match="index 'x' holds values of type"):
            segment.scan_index("x", value)
        assert value not in segment.index_values("x")


def test_conditions_together(write):
    """Several conditions are combined with AND: frequent with rare, rare with rare, contradictions."""
    rows = [
        (
            "a" if n % 3 else "b",
            b"%d" % n,
            n,
            "",
            {"p": f"p{n % 2}", "q": f"q{n % 50}", "r": "r" if n in (7, 57, 99) else None},
        )
        for n in range(400)
    ]
    with cut_small(Pieces(block_rows=16, leaf_blocks=4, chunk_entries=3)):
        segment = write(rows, indexes=["p", "q", "r"])
        for conditions in (
            {"p": "p1", "q": "q7"},
            {"q": "q7", "r": "r"},
            {"p": "p1", "q": "q7", "r": "r"},
            {"p": "p0", "q": "q7"},
            {"p": "p1", "r": "nothing"},
            {"r": "r"},
        ):
            expected = [
                (row[0], row[2]) for row in rows if all(row[4][name] == value for name, value in conditions.items())
            ]
            for order in (conditions, dict(reversed(conditions.items()))):
                answer = segment.scan_index(order)
                assert [(e.space, e.timestamp) for e in answer] == sorted(expected)
                assert answer.count() == len(expected)
                in_b = [e.timestamp for e in segment["b"].scan_index(order, reverse=True)]
                assert in_b == sorted((time for space, time in expected if space == "b"), reverse=True)


def test_index_with_many_values(write):
    """With thousands of values, a query reads one page of the index."""
    rows = [(f"s{n % 10}", b"", n, "", {"id": f"id-{n:05}"}) for n in range(5000)]
    path = write(rows, indexes=["id"]).path
    counted = esformat.CountingSource(esformat.FileSource(path))
    with esformat.open(counted) as segment:
        assert len(segment.index_values("id")) == 5000
        assert segment.index_values("id")["id-04321"] == 1
    with esformat.open(counted) as segment:
        counted.reads = 0
        (event,) = segment.scan_index("id", "id-04321")
        assert (event.timestamp, event.indexes) == (4321, {"id": "id-04321"})
        assert counted.reads <= 4  # root, page, directory, data


def test_events_without_a_value(write):
    """An index without values finds nothing."""
    segment = write([("a", b"", n) for n in range(10)], indexes=["type"])
    assert dict(segment.index_values("type")) == {}
    assert segment.scan_index("type", "page").count() == 0
    assert segment.info()["indexes"] == {"type": {"values": 0, "events": 0}}
