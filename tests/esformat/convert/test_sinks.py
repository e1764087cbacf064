"""Batches in every output format, read back with independent readers."""

from __future__ import annotations

import errno
import gc
import io
import json
import sys
from decimal import Decimal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esformat import UsageError
from esformat.convert import sinks
from esformat.convert.sinks import SINK_FORMATS, grouped, open_sink, write_batches

TABLE = pa.table({
    "s": ["x", "", None, 'q",\n'],
    "t": pa.array([0, 1, None, -1], pa.timestamp("us", "UTC")),
    "i": [1, 2, None, 3],
    "f": [1.0, 2.5, None, 1e22],
    "b": [b"a", b"\xff", None, b""],
    "l": [[1], None, [], [2, 3]],
})  # fmt: skip


def written(table, format_) -> bytes:
    file = io.BytesIO()
    batches = table.to_batches(max_chunksize=3)
    assert write_batches(iter(batches), table.schema, format_, file) == len(table)
    return file.getvalue()


def test_jsonl():
    """JSON lines have one object per line."""
    lines = written(TABLE, "jsonl").decode().splitlines()
    assert json.loads(lines[0]) == {"s": "x", "t": "1970-01-01T00:00:00.000000Z", "i": 1, "f": 1.0, "b": "a", "l": [1]}
    assert json.loads(lines[1])["b"] == {"base64": "/w=="}
    assert json.loads(lines[2]) == {"s": None, "t": None, "i": None, "f": None, "b": None, "l": []}
    assert len(lines) == 4


@pytest.mark.parametrize("pieces", [1 << 20, 10])
def test_json(monkeypatch, pieces):
    """JSON is one array with the same rows as JSON lines, in however many pieces it is written."""
    monkeypatch.setattr(sinks, "_TEXT_BYTES", pieces)
    assert json.loads(written(TABLE, "json")) == [json.loads(line) for line in written(TABLE, "jsonl").splitlines()]


def test_csv():
    """CSV has a header, and null differs from empty text."""
    assert written(TABLE, "csv").decode() == (
        '"s","t","i","f","b","l"\n'
        '"x","1970-01-01T00:00:00.000000Z",1,1,"a","[1]"\n'
        '"","1970-01-01T00:00:00.000001Z",2,2.5,"{""base64"":""/w==""}",\n'
        ',,,,,"[]"\n'
        '"q"",\n","1969-12-31T23:59:59.999999Z",3,1e+22,"","[2,3]"\n'
    )


def test_arrow_and_parquet():
    """Typed formats preserve everything."""
    assert pa.ipc.open_file(written(TABLE, "arrow")).read_all() == TABLE
    assert pa.ipc.open_stream(written(TABLE, "arrows")).read_all() == TABLE
    assert pyarrow.parquet.read_table(io.BytesIO(written(TABLE, "parquet"))) == TABLE


@pytest.mark.parametrize("format_", SINK_FORMATS)
def test_nothing(format_):
    """No rows are a valid file, with its columns if the format has them."""
    data = written(TABLE.slice(0, 0), format_)
    expected = {"jsonl": b"", "json": b"[]\n", "csv": b'"s","t","i","f","b","l"\n'}
    assert expected.get(format_, data) == data
    if format_ == "parquet":
        assert pyarrow.parquet.read_schema(io.BytesIO(data)).names == TABLE.schema.names


def test_large_batches_become_text_in_pieces(monkeypatch):
    """A large batch is converted to text in pieces of bounded size; the result is the same."""
    whole = {format_: written(TABLE, format_) for format_ in ("jsonl", "csv")}
    monkeypatch.setattr(sinks, "_TEXT_BYTES", 10)
    assert {format_: written(TABLE, format_) for format_ in whole} == whole


@given(st.lists(st.integers(0, 9)), st.integers(1, 20))
def test_grouped(lengths, limit):
    """Small batches are combined up to a limit, in order and without loss."""
    batches = [pa.record_batch({"a": pa.array([place] * length, pa.int64())}) for place, length in enumerate(lengths)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sinks, "_GROUP_ROWS", limit)
        found = list(grouped(iter(batches)))
    assert [value for batch in found for value in batch["a"].to_pylist()] == [
        value for batch in batches for value in batch["a"].to_pylist()
    ]
    assert all(batch.num_rows <= max(limit, 9) for batch in found)


@pytest.mark.parametrize("format_", SINK_FORMATS)
def test_a_sink_that_is_given_up(format_, tmp_path):
    """A sink that is dropped halfway writes nothing and reports no error."""
    gc.freeze()  # objects that other tests left are not searched
    with (tmp_path / "half").open("wb") as file:
        sink = open_sink(format_, file, TABLE.schema)
        sink.write(TABLE.to_batches()[0])
    told = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "unraisablehook", told.append)
        del sink
        gc.collect()
    assert not told


@pytest.mark.parametrize("kind", [
    pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()), pa.large_binary(), pa.binary_view(),
])  # fmt: skip
def test_text_of_every_kind_in_csv(kind):
    """Text is quoted once, in each of Arrow's layouts."""
    texts = ['a"b', "", None, "x,\ny"]
    plain = pa.string() if pa.types.is_dictionary(kind) or "string" in str(kind) else pa.binary()
    expected = written(pa.table({"a": pa.array(texts).cast(plain)}), "csv")
    assert written(pa.table({"a": pa.array(texts).cast(plain).cast(kind)}), "csv") == expected
    assert pa.csv.read_csv(io.BytesIO(expected))["a"].to_pylist()[0] == 'a"b'


def test_intervals():
    """Intervals are written as ISO 8601."""
    intervals = [pa.MonthDayNano([14, -2, -1_500_000_000]), pa.MonthDayNano([0, 1, 0]), None]
    table = pa.table({"d": pa.array(intervals, pa.month_day_nano_interval())})
    assert [json.loads(line)["d"] for line in written(table, "jsonl").splitlines()] == [
        "P14M-2DT-1.5S",
        "P0M1DT0S",
        None,
    ]


@pytest.mark.parametrize("format_", ["jsonl", "json"])
def test_names_that_are_there_twice(format_):
    """Duplicate column names, as from a join, are renamed, and no value is lost."""
    table = pa.table([pa.array([1]), pa.array([2]), pa.array([3])], names=["v", "v", "v_1"])
    found = json.loads(written(table, format_))
    assert (found if format_ == "jsonl" else found[0]) == {"v": 1, "v_2": 2, "v_1": 3}


@pytest.mark.parametrize("column", [
    pa.array([{}], pa.struct([])), pa.array([[{}]], pa.list_(pa.struct([]))),
    pa.array([[]], pa.list_(pa.int8(), 0)), pa.array([pa.MonthDayNano([0, 1, 0])]),
    pa.array([2**62], pa.timestamp("s")), pa.array([b""], pa.binary(0)), pa.array([[b""]], pa.list_(pa.binary(0))),
    pa.array([Decimal(100)], pa.decimal128(10, -2)), pa.array([Decimal(100)], pa.decimal256(50, -2)),
])  # fmt: skip
def test_what_parquet_cannot_hold(column):
    """A value that Parquet cannot store is refused, with its column if known."""
    with pytest.raises(UsageError, match="Parquet cannot hold") as caught:
        written(pa.table({"fine": [1], "odd": column}), "parquet")
    what = "a value: Integer overflow" if pa.types.is_timestamp(column.type) else "the column 'odd' of type"
    assert f"Parquet cannot hold {what}" in str(caught.value)


def test_a_full_disk_is_none_of_parquets():
    """A full disk at the start of a file is not reported as an unsupported type."""

    class Full(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, _: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left") as caught:
        open_sink("parquet", Full(), TABLE.schema)
    assert caught.value.errno == errno.ENOSPC
