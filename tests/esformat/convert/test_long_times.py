"""Times of Parquet files in 96 bits are exact or refused, in any year. Spark writes them by default."""

from __future__ import annotations

import datetime as dt
import io
import struct
from contextlib import closing

import pyarrow as pa
import pyarrow.parquet
import pytest

from esformat.convert import arrow_reader
from esformat.convert.arrow_reader import ArrowReader
from esformat.convert.errors import InputError
from esformat.convert.roles import Roles
from esformat.convert.source import Source

DAY_NS = 86_400 * 10**9
JULIAN_1970 = 2_440_588


def stored(day: int, nanos: int) -> bytes:
    """A time as it is stored: nanoseconds of the day, and the Julian day."""
    return struct.pack("<qi", nanos, day + JULIAN_1970)


def file_of(times: list[tuple[int, int] | None], *, nested: bool = False, groups: int = 100) -> bytes:
    """A file with a column of times, each given as days since 1970 and nanoseconds of the day. Arrow writes others in
    their places first, because it cannot write all of them.
    """
    rows = range(len(times))
    instead = [None if time is None else row * DAY_NS + 7 for row, time in enumerate(times)]
    column = pa.array(instead, pa.timestamp("ns"))
    if nested:
        column = pa.ListArray.from_arrays([*rows, len(times)], column)
    table = pa.table({"u": [str(row) for row in rows], "t": pa.array(rows, pa.int64()), "v": column})
    sink = io.BytesIO()
    pa.parquet.write_table(
        table, sink, use_deprecated_int96_timestamps=True, use_dictionary=False, compression="none",
        write_statistics=False, row_group_size=groups,
    )  # fmt: skip
    data = sink.getvalue()
    for row, time in enumerate(times):
        if time is not None:
            assert data.count(stored(row, 7)) == 1
            data = data.replace(stored(row, 7), stored(*time))
    return data


def values(data: bytes) -> tuple[pa.DataType, list]:
    with closing(Source("-", stdin=io.BytesIO(data))) as source:
        found = list(ArrowReader(source, Roles(space="u", timestamp="t"), "parquet").rows())
    (kind,) = {rows.types["v"] for rows in found}
    return kind, [value for rows in found for value in rows.batch["v"].to_pylist()]


FAR = [((dt.date(9999, 12, 31) - dt.date(1970, 1, 1)).days, DAY_NS - 1000), (-719_162, 0), None, (0, 1000)]


@pytest.mark.parametrize("groups", [1, 100])
def test_any_year(groups, monkeypatch):
    """The last day of the year 9999 stays that day; as nanoseconds it would be one of 1816."""
    monkeypatch.setattr(arrow_reader, "_BATCH_ROWS", 3)
    last = dt.datetime(9999, 12, 31, 23, 59, 59, 999_999)
    expected = [last, dt.datetime(1, 1, 1), None, dt.datetime(1970, 1, 1, 0, 0, 0, 1)]
    assert values(file_of(FAR, groups=groups)) == (pa.timestamp("us"), expected)


@pytest.mark.parametrize("nested", [False, True])
def test_nanoseconds(nested):
    """Digits below the microsecond are kept, before 1970, too."""
    kind, found = values(file_of([(20_000, 123_456_789), (-1, DAY_NS - 1), None], nested=nested))
    flat = [value for each in found for value in each] if nested else found
    assert [value and value.value for value in flat] == [20_000 * DAY_NS + 123_456_789, -1, None]
    assert kind == (pa.list_(pa.field("element", pa.timestamp("ns"))) if nested else pa.timestamp("ns"))


def test_any_year_in_lists():
    """Times inside lists are read in microseconds, too, if they have no digits below."""
    kind, found = values(file_of(FAR, nested=True))
    assert kind == pa.list_(pa.field("element", pa.timestamp("us")))
    assert [value for each in found for value in each] == values(file_of(FAR))[1]


def test_times_in_parts_of_values():
    """Digits below the microsecond are found in lists of structs and in maps, beside null lists."""
    parts = pa.list_(pa.struct([("n", pa.int64()), ("t", pa.timestamp("ns"))]))
    pairs = pa.map_(pa.string(), pa.timestamp("ns"))
    for kind, one in ((parts, lambda ns: [{"n": 1, "t": ns}]), (pairs, lambda ns: [("a", ns)])):
        for nanos, unit in ((7, "ns"), (7000, "us")):
            column = pa.array([one(1000), None, [], one(nanos), one(None)], kind)
            sink = io.BytesIO()
            table = pa.table({"u": ["a"] * 5, "t": range(5), "v": column})
            pa.parquet.write_table(table, sink, use_deprecated_int96_timestamps=True)
            kept, found = values(sink.getvalue())
            assert f"timestamp[{unit}]" in str(kept)
            assert found == column.cast(kept).to_pylist()


@pytest.mark.parametrize("nested", [False, True])
def test_no_type_for_all(nested):
    """Far times are refused beside nanoseconds."""
    with pytest.raises(InputError, match="column 'v' has times outside the years 1677 to 2262"):
        values(file_of([*FAR, (0, 1)], nested=nested))


def test_names_with_dots():
    """Arrow reads `x` of a column `v` together with a column `v.x`."""
    parts = pa.struct([("x", pa.int64()), pa.field("n", pa.int64(), nullable=False)])
    table = pa.table({
        "u": ["a"], "t": [1], "v": pa.array([{"x": 1, "n": 2}], parts), "v.x": pa.array([5], pa.timestamp("ns")),
    })  # fmt: skip
    sink = io.BytesIO()
    pa.parquet.write_table(table, sink, use_deprecated_int96_timestamps=True)
    assert values(sink.getvalue()) == (parts, [{"x": 1, "n": 2}])
