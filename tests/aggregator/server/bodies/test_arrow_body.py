"""Arrow bodies: valid ones are read unchanged, others refused before they cost memory."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from aggregator.server.bodies import arrow_body
from aggregator.server.bodies.arrow_body import read_arrow
from aggregator.server.bodies.shared.times import TimeReader
from esformat import InvalidEventError
from esformat.parts import normalise_type

LIMIT = 1 << 20
TABLE = pa.table({"space": ["a", "b"], "timestamp": pa.array([1, 2]), "data": [b"x", None]})


def stream(*batches: pa.RecordBatch, compression: str | None = None, file: bool = False) -> bytes:
    sink = pa.BufferOutputStream()
    make = pa.ipc.new_file if file else pa.ipc.new_stream
    with make(sink, batches[0].schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def one(column: pa.Array, **options) -> bytes:
    return stream(pa.record_batch({"c": column}), **options)


def read(body: bytes, limit: int = LIMIT) -> pa.Table:
    return read_arrow(pa.py_buffer(body), limit)


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("file", [False, True])
def test_read_as_sent(compression, file):
    """Streams and files, compressed or not, of several batches, are read as sent."""
    body = stream(*TABLE.to_batches(max_chunksize=1), compression=compression, file=file)
    assert read(body).equals(TABLE)


def test_dates_that_their_type_does_not_allow():
    """A date64 within a day, as some programs write it, is named; the body is an Arrow stream."""
    with pytest.raises(InvalidEventError, match=r"column 'c': date64\[ms\] 1 does not") as refused:
        read(one(pa.array([1]).view(pa.date64())))
    assert "not an Arrow stream" not in str(refused.value)


@pytest.mark.parametrize("column", [
    pa.array(["a", "b", "a", None]).dictionary_encode(),
    pa.array([1, 1, 2, None]).dictionary_encode(),
    pa.RunEndEncodedArray.from_arrays([1, 3, 4], ["x", "y", None]),
    pa.array(["short", "a text of more than twelve", None, ""], pa.string_view()),
    pa.array([b"short", b"bytes of more than twelve", None], pa.binary_view()),
])  # fmt: skip
def test_shared_values_become_plain(column):
    """Dictionaries, run-end encodings and views become plain arrays with the same values."""
    found = read(one(column)).column("c")
    assert found.to_pylist() == column.to_pylist()
    assert not arrow_body._repeats(found.type)


@pytest.mark.parametrize("file", [False, True])
def test_compressed_bomb(file):
    """A body under 10 kB that would decompress to 7.2 MB is refused without decompressing."""
    body = one(pa.array(np.zeros(12_500_000, np.int64)[:900_000]), compression="zstd", file=file)
    assert len(body) < 10_000
    with pytest.raises(InvalidEventError, match="decompressed"):
        read(body)


@pytest.mark.parametrize("file", [False, True])
def test_claimed_length_of_a_buffer(file):
    """A compressed buffer with a huge declared size is refused before any allocation."""
    body = bytearray(one(pa.array(range(5_000)), compression="lz4", file=file))
    true = struct.pack("<q", 40_000)
    at = body.index(true)
    body[at : at + 8] = struct.pack("<q", 1 << 60)
    with pytest.raises(InvalidEventError, match="decompressed"):
        read(bytes(body))


@pytest.mark.parametrize("column", [
    pa.DictionaryArray.from_arrays(pa.array(np.zeros(100_000, np.int8)), ["x" * 10_000]),
    pa.RunEndEncodedArray.from_arrays([100_000], ["x" * 10_000]),
    pa.Array.from_buffers(pa.binary_view(), 100_000,
                          [None, pa.py_buffer(struct.pack("<i4sii", 10_000, b"xxxx", 0, 0) * 100_000),
                           pa.py_buffer(b"x" * 10_000)]),
])  # fmt: skip
def test_repeated_values_bomb(column):
    """A repeated value is counted as often as it occurs, before it is unpacked."""
    with pytest.raises(InvalidEventError, match="unpacked"):
        read(one(column), limit=4 << 20)


@pytest.mark.parametrize("file", [False, True])
def test_too_many_rows(file):
    """Rows without data count, too."""
    with pytest.raises(InvalidEventError, match="1,000,000 rows"):
        read(one(pa.nulls(1_000_001), file=file))


VIEWS = pa.array(["short", "a text of more than twelve", None, ""], pa.string_view())
WORDS = pa.DictionaryArray.from_arrays(pa.array([0, 2, 1, None], pa.uint32()), VIEWS)


@pytest.mark.parametrize("column", [
    WORDS,
    pa.RunEndEncodedArray.from_arrays([1, 2, 3, 6], VIEWS),
    pa.LargeListArray.from_arrays([0, 1, 1, 4], VIEWS),
    pa.LargeListArray.from_arrays([0, 1, 1, 4], WORDS),
    pa.FixedSizeListArray.from_arrays(VIEWS, 2),
    pa.StructArray.from_arrays([VIEWS, WORDS, pa.array([1, 2, 3, 4])], ["v", "w", "n"]),
    pa.MapArray.from_arrays([0, 2, 4], pa.array(["a", "b", "c", "d"], pa.string_view()), WORDS),
    pa.ListArray.from_arrays([0, 2, 3], pa.StructArray.from_arrays([VIEWS], ["v"])),
    pa.ListViewArray.from_arrays([2, 0], [2, 3], VIEWS),
    pa.ListViewArray.from_arrays([0, 0], [2, 3], pa.array([1, 2, 3])),
    pa.ListArray.from_arrays([0, 1, 3], pa.RunEndEncodedArray.from_arrays([1, 3], ["x", "y"])),
    pa.array([[], []], pa.list_(pa.string_view())),
    pa.array([], pa.large_list(pa.string_view())),
    pa.nulls(3, pa.struct([pa.field("v", pa.string_view())])),
])  # fmt: skip
def test_shared_values_within_others(column):
    """Nested dictionaries, run ends and views become plain, in the type that a topic stores."""
    found = read(one(column)).column("c")
    assert found.to_pylist() == column.to_pylist()
    assert found.type == normalise_type(column.type)
    assert found.combine_chunks().validate(full=True) is None


MANY = 2**31 - 1
MANY_NULLS = pa.Array.from_buffers(pa.null(), MANY, [None])  # for which `pa.nulls` takes a second and 256 MiB


@pytest.mark.parametrize("column", [
    pa.ListArray.from_arrays([0, 100_000], pa.DictionaryArray.from_arrays(np.zeros(100_000, np.int8), ["x" * 10_000])),
    pa.StructArray.from_arrays([pa.DictionaryArray.from_arrays(np.zeros(100_000, np.int8), ["x" * 10_000])], ["s"]),
    pa.DictionaryArray.from_arrays(pa.array(np.zeros(100_000, np.int8)), pa.array([b"x" * 10_000], pa.binary(10_000))),
    pa.ListViewArray.from_arrays([0] * 10_000, [10_000] * 10_000, pa.array(range(10_000))),
    pa.ListArray.from_arrays([0, MANY], pa.RunEndEncodedArray.from_arrays(pa.array([MANY], pa.int32()), [None])),
    pa.ListViewArray.from_arrays([0], pa.array([MANY], pa.int32()), MANY_NULLS),
])  # fmt: skip
def test_bombs_within_others(column):
    """Nested compact encodings are counted at full size before they are unpacked."""
    with pytest.raises(InvalidEventError, match=r"unpacked|too many"):
        read(one(column), limit=4 << 20)


def test_unions():
    """A type that cannot be stored is refused with that reason."""
    union = pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [VIEWS.slice(0, 1)])
    with pytest.raises(InvalidEventError, match="cannot be stored"):
        read(one(union))


def test_same_name_twice():
    """Two columns with the same name are refused."""
    with pytest.raises(InvalidEventError, match="duplicate column"):
        read(stream(pa.record_batch([pa.array([1]), pa.array([2])], names=["a", "a"])))


@pytest.mark.parametrize("body", [b"", b"x", b"ARROW1\0\0", b"ARROW1\0\0" + b"\xff" * 50, b"\xff" * 40, b"\0" * 64])
def test_no_arrow(body):
    """Other data is refused as the client's error."""
    with pytest.raises(InvalidEventError):
        read(body)


GOOD = [
    stream(*TABLE.to_batches()), stream(*TABLE.to_batches(), compression="zstd"),
    one(pa.array(["a", "b", "a"]).dictionary_encode()), one(pa.array(["a longer text than that"], pa.string_view())),
    one(pa.RunEndEncodedArray.from_arrays([1, 3], ["x", "y"])),
    one(pa.array([["a longer text than that"], []], pa.large_list(pa.string_view()))),
    one(pa.ListViewArray.from_arrays([0, 1], [2, 1], pa.array(["a", "b"]).dictionary_encode())),
    stream(*TABLE.to_batches(max_chunksize=1), file=True), stream(*TABLE.to_batches(), compression="zstd", file=True),
    one(pa.array(["a", "b", "a"]).dictionary_encode(), file=True),
]  # fmt: skip


@examples(150)
@given(st.sampled_from(GOOD), st.integers(0, 10_000), st.binary(min_size=1, max_size=12), st.booleans())
def test_hostile_bodies(body, at, junk, cut):
    """A body that was changed or truncated is either read and valid or refused."""
    at %= len(body)
    damaged = body[:at] if cut else body[:at] + junk + body[at + len(junk) :]
    try:
        table = read(damaged)
    except InvalidEventError:
        return
    table.validate(full=True)
    table.slice(0, 10).to_pylist()


ENTRY = struct.Struct("<qi4xq")  # the index of a file: offset, bytes of metadata, bytes of values


def file_with(change) -> bytes:
    """A file of two batches whose index entries come from `change`."""
    body = bytearray(stream(*TABLE.to_batches(max_chunksize=1), file=True))
    places = range(len(body) - 10 - 2 * ENTRY.size, 0, -1)
    at = next(at for at in places if follow(*(ENTRY.unpack_from(body, at + n) for n in (0, ENTRY.size))))
    for entry in change([ENTRY.unpack_from(body, at + n) for n in (0, ENTRY.size)]):
        ENTRY.pack_into(body, at, *entry)
        at += ENTRY.size
    return bytes(body)


def follow(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    return all(0 < value < 1000 for value in (*first, *second)) and sum(first) == second[0]


@pytest.mark.parametrize(("change", "is_read"), [
    (lambda a, b: [a, b], True),
    (lambda a, b: [b, a], True),
    (lambda a, b: [a, a], False),
    (lambda a, b: [b, b], False),
    (lambda a, b: [(a[0] + 8, *a[1:]), b], False),
    (lambda a, b: [(a[0], a[1] - 8, a[2] + 8), b], False),
    (lambda a, b: [a, (b[0], b[1], 1 << 40)], False),
    (lambda a, b: [a, (-8, *b[1:])], False),
])  # fmt: skip
def test_the_index_of_a_file(change, is_read):
    """A file whose index does not name each batch once is refused: the batches counted would not be those read."""
    body = file_with(lambda two: change(*two))
    if is_read:
        assert read(body).num_rows == 2
        return
    with pytest.raises(InvalidEventError, match="its footer"):
        read(body)


def test_what_is_read_is_valid():
    """Offsets outside their buffers and invalid text are refused before any value is read."""
    good = pa.array(["ab", "cd"])
    offsets = pa.py_buffer(struct.pack("<iii", 0, 2_000_000, 4))
    wrong = pa.Array.from_buffers(pa.string(), 2, [None, offsets, good.buffers()[2]])
    no_text = pa.Array.from_buffers(pa.string(), 2, [None, good.buffers()[1], pa.py_buffer(b"\xff\xfe\xff\xfe")])
    for column in (wrong, no_text):
        with pytest.raises(InvalidEventError):
            read(one(column))


def test_names_that_are_no_text():
    """Column names, also nested ones, must be UTF-8."""
    for column in (pa.array([{"field": 1}]), pa.array([1])):
        body = stream(pa.record_batch({"field": column}))
        assert read(body).num_rows == 1
        with pytest.raises(InvalidEventError):
            read(body.replace(b"field", b"fi\xffld"))


@pytest.mark.parametrize("unit", [None, "s", "ms", "us", "ns"])
@pytest.mark.parametrize("kind", [pa.int64(), pa.int32(), pa.uint64()])
def test_times_that_are_numbers(unit, kind):
    """Numeric times are in µs or the requested unit; empty or null columns are accepted, out-of-range times refused."""
    size = {"s": 1_000_000, "ms": 1000, "us": 1, None: 1, "ns": 0.001}[unit]
    column = pa.chunked_array([pa.array([0, 7_000, None], kind), pa.array([], kind), pa.array([2_000], kind)])
    found = TimeReader(unit).of_arrow(pa.table({"t": column}), "t").column("t").to_pylist()
    assert found == [None if given is None else int(given * size) for given in column.to_pylist()]
    if kind != pa.int32():
        wrong = pa.table({"t": pa.array([5, 2**63 - 1], kind)})
        if unit == "ns":
            assert TimeReader(unit).of_arrow(wrong, "t").column("t").to_pylist() == [0, (2**63 - 1) // 1000]
        else:
            with pytest.raises(InvalidEventError, match=rf"t {2**63 - 1} {unit or 'us'} since 1970 is outside"):
                TimeReader(unit).of_arrow(wrong, "t")
