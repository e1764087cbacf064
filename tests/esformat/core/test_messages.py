"""Messages of `MessageWriter`: what Arrow reads from them equals a plain copy of the columns."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from effort import examples
from hypothesis import assume, given
from hypothesis import strategies as st

from esformat.core.messages import MessageWriter
from esformat.write.messages import message_writer

LONGEST = 20
VALUES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int8(): st.integers(-128, 127),
    pa.uint16(): st.integers(0, 65535),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=9),
    pa.binary(): st.binary(max_size=9),
    pa.large_string(): st.text(max_size=9),
    pa.large_binary(): st.binary(max_size=9),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.decimal128(9, 2): st.decimals(-1000, 1000, places=2),
    pa.timestamp("ns"): st.integers(0, 2**62),
    pa.date32(): st.integers(0, 1000),
}
PARTS = {
    pa.list_(pa.string()): st.lists(st.none() | st.text(max_size=3), max_size=3),
    pa.large_list(pa.int16()): st.lists(st.none() | st.integers(0, 9), max_size=3),
    pa.list_(pa.bool_(), 3): st.lists(st.booleans(), min_size=3, max_size=3),
    pa.map_(pa.string(), pa.string()): st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3).map(
        lambda given: list(given.items())
    ),
    pa.struct([("a", pa.list_(pa.int64())), ("b", pa.binary())]): st.fixed_dictionaries(
        {"a": st.none() | st.lists(st.integers(0, 9), max_size=2), "b": st.none() | st.binary(max_size=3)}
    ),
    pa.list_(pa.struct([("a", pa.list_(pa.bool_(), 2))])): st.lists(
        st.none() | st.fixed_dictionaries({"a": st.none() | st.just([True, False])}), max_size=2
    ),
}
VALUES |= PARTS


@st.composite
def batches(draw):
    """A schema, and a batch with some of its columns in any order, sliced out of a longer one."""
    rows = draw(st.integers(1, 70))
    before = draw(st.integers(0, 9))
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), max_size=6))
    fields = [pa.field(f"c{number}", kind, draw(st.booleans())) for number, kind in enumerate(kinds)]
    columns = {
        "space": pa.array(draw(st.lists(st.text(max_size=3), min_size=rows + before, max_size=rows + before))),
        "timestamp": pa.array(
            draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=rows + before, max_size=rows + before)), pa.int64()
        ),
    }
    for field in fields:
        if not (field.nullable and draw(st.booleans())):
            value = st.none() | VALUES[field.type] if field.nullable else VALUES[field.type]
            some = draw(st.lists(value, min_size=rows + before, max_size=rows + before))
            columns[field.name] = pa.array(some, field.type)
    times = pa.timestamp("us", "UTC")
    keys = [pa.field("space", pa.string(), False), pa.field("grouping", pa.string(), False)]
    names = draw(st.permutations(list(columns)))
    batch = pa.record_batch({name: columns[name] for name in names}).slice(before)
    return pa.schema([*keys, pa.field("timestamp", times, False), *fields]), batch


def write(target, batch, capsule=None):
    places = {name: place for place, name in enumerate(batch.schema.names)}
    writer = message_writer(batch.schema, target, places, LONGEST)
    return writer.write(capsule or batch.__arrow_c_array__()[1])


def copied(target, batch):
    """The batch in the columns of a schema, copied by value."""
    rows = list(range(len(batch)))
    given = {name: batch.column(name).view(target.field(name).type).take(rows) for name in batch.schema.names}
    gaps = {
        field.name: pa.array([None if field.nullable else ""] * len(batch), field.type)
        for field in target
        if field.name not in given
    }
    arrays = [(given | gaps)[field.name] for field in target]
    return pa.RecordBatch.from_arrays(arrays, schema=target)


@examples(200)
@given(batches())
def test_messages(case):
    """Every type is written, with and without nulls, sliced or omitted; flat without nulls it has Arrow's own bytes."""
    target, batch = case
    stored, first, last, nulls = write(target, batch)
    found, expected = pa.ipc.read_record_batch(stored, target), copied(target, batch)
    found.validate(full=True)
    assert found.equals(expected)
    times = batch.column("timestamp").to_pylist()
    assert (first, last) == (min(times), max(times))
    assert (nulls > 0) >= any(column.null_count for column in expected.columns)
    if not any(field.type in PARTS for field in target):
        assert nulls == sum(column.null_count for column in expected.columns)
    if not any(column.null_count or column.type in PARTS for column in expected.columns):
        assert stored == expected.serialize().to_pybytes()


@pytest.mark.parametrize("rows", [3, 5000])
def test_message_of_a_slice_of_rows(rows):
    """A batch that is itself a slice of longer columns is written, small or so large that the lock is released."""
    target, batch = plain(rows)
    whole = pa.StructArray.from_arrays(batch.columns, batch.schema.names)
    part = whole.slice(1, rows - 2)
    stored, first, last, nulls = write(target, batch, capsule=part.__arrow_c_array__()[1])
    assert pa.ipc.read_record_batch(stored, target).equals(copied(target, batch.slice(1, rows - 2)))
    assert (first, last, nulls) == (1, rows - 2, 0)


def plain(rows, spaces=None):
    """A schema of keys and a payload, and a batch of it."""
    fields = [("space", pa.string()), ("grouping", pa.string()), ("timestamp", pa.timestamp("us")), ("b", pa.binary())]
    target = pa.schema([pa.field(name, kind, name == "b") for name, kind in fields])
    columns = {"timestamp": pa.array(range(rows), pa.int64()).view(pa.timestamp("us")), "b": pa.array([b"x"] * rows)}
    return target, pa.record_batch({"space": pa.array(spaces or ["a"] * rows), **columns})


def test_other_parts():
    """A struct with fewer fields than the schema's is refused."""
    target, batch = plain(4)
    one, two = pa.struct([("a", pa.int64())]), pa.struct([("a", pa.int64()), ("b", pa.int64())])
    given = batch.append_column("s", pa.array([{"a": 1}] * 4, one))
    with pytest.raises(ValueError, match="the column has a different type"):
        write(target.append(pa.field("s", two)), given)


@pytest.mark.parametrize("longest", [LONGEST, LONGEST + 1])
def test_a_long_key(longest):
    """A key above the size limit is refused; many short ones are not."""
    target, batch = plain(9, ["b" * longest, *["a" * 15] * 8])
    assert (write(target, batch) is None) == (longest > LONGEST)


def test_what_does_not_fit():
    """With a null in a required column, or without rows, nothing is written."""
    target, batch = plain(2, ["a", None])
    assert write(target, batch) is None
    assert write(*plain(0)) is None


def test_a_type_that_is_not_known():
    """An unsupported type, of a column or within one, has no writer."""
    _, batch = plain(2)
    for kind in (pa.string_view(), pa.binary(0), pa.null(), pa.struct([("a", pa.dictionary(pa.int8(), pa.string()))])):
        target = pa.schema([*batch.schema, pa.field("l", kind)])
        assert message_writer(batch.schema, target, {"space": 0, "timestamp": 1}, LONGEST) is None


def test_other_batches():
    """Batches with fewer columns or other types, and objects other than batches, are refused."""
    target, batch = plain(4)
    zeros = pa.array([0] * 4)
    for other in (
        batch.select(["space"]),
        batch.select(["space", "timestamp"]),
        batch.set_column(0, "space", zeros),
        batch.set_column(2, "b", zeros),
        batch.set_column(2, "b", pa.array([[b"x"]] * 4)),
    ):
        with pytest.raises(ValueError, match=r"the batch has different columns|the column has a different type"):
            write(target, batch, capsule=other.__arrow_c_array__()[1])
    whole = pa.StructArray.from_arrays(batch.columns, batch.schema.names, mask=pa.array([False, True, False, False]))
    with pytest.raises(ValueError, match="the batch has different columns"):
        write(target, batch, capsule=whole.__arrow_c_array__()[1])
    with pytest.raises(ValueError, match="PyCapsule"):
        write(target, batch, capsule=batch.schema.__arrow_c_schema__())


VALUE, TEXT = (0, 0, 8, True, -1, 0), (0, 2, 4, True, -1, 0)


@pytest.mark.parametrize(
    ("places", "columns", "message"),
    [
        ((0, 8, 24, -1), [VALUE], "outside"),
        ((57, 8, 24, 0), [VALUE], "outside"),
        ((0, 49, 24, 0), [VALUE], "outside"),
        ((0, 8, 33, 0), [VALUE], "outside"),
        ((0, 8, 17, 0), [TEXT], "outside"),
        ((0, 8, 16, 0), [(0, 2, 3, True, -1, 0)], "unknown kind"),
        ((0, 8, 16, 0), [(0, 6, 4, True, -1, 0)], "unknown kind"),
        ((0, 8, 16, 0), [(0, -1, 4, True, -1, 0)], "unknown kind"),
        ((0, 8, 16, 0), [(0, 0, -1, True, -1, 0)], "unknown kind"),
        ((0, 8, 16, 0), [(-1, 0, 8, True, -1, 0)], "only texts"),
        ((0, 8, 16, 0), [(0, 0, 8, True, -1, 1)], "different parts"),
        ((0, 8, 16, 0), [(0, 3, 4, True, -1, 0)], "different parts"),
        ((0, 8, 16, 0), [(0, 3, 4, True, -1, 1)], "different parts"),
        ((0, 8, 16, 0), [(0, 5, 0, True, -1, -1)], "different parts"),
        ((0, 0, 0, 0), [(0, 5, 0, True, -1, 2), VALUE], "different parts"),
    ],
)
def test_a_layout_that_cannot_be(places, columns, message):
    """Positions just after the head's 64 bytes, and kinds and children that no column has, are refused."""
    with pytest.raises(ValueError, match=message):
        MessageWriter(bytes(64), places, columns, 0)


# ------------------------------------------------------------ several messages as one


@st.composite
def several(draw):
    """A schema, its message writer, and batches of it, some with nested columns."""
    target, batch = draw(batches())
    edges = sorted([*draw(st.lists(st.integers(0, len(batch)), max_size=5, unique=True)), 0, len(batch)])
    parts = [batch.slice(first, end - first) for first, end in itertools.pairwise(edges) if end > first]
    return target, parts


def writer_of(target, batch):
    places = {name: place for place, name in enumerate(batch.schema.names)}
    return message_writer(batch.schema, target, places, LONGEST)


@examples(200)
@given(several())
def test_messages_joined(case):
    """A joined message has the rows of all messages in order; nested columns are left to Arrow."""
    target, parts = case
    writer = writer_of(target, parts[0])
    messages = [writer.write(part.__arrow_c_array__()[1])[0] for part in parts]
    joined = writer.join(messages)
    if any(field.type in PARTS for field in target):
        assert joined is None
        return
    found = pa.ipc.read_record_batch(joined, target)
    found.validate(full=True)
    assert found.equals(pa.concat_batches([pa.ipc.read_record_batch(message, target) for message in messages]))
    whole = writer.join([joined, *messages])
    assert pa.ipc.read_record_batch(whole, target).num_rows == 2 * found.num_rows


def test_messages_of_arrow_joined():
    """Messages that Arrow wrote are joined with others of the same layout."""
    target, batch = plain(7)
    writer = writer_of(target, batch)
    messages = [copied(target, batch).serialize().to_pybytes(), writer.write(batch.__arrow_c_array__()[1])[0]]
    found = pa.ipc.read_record_batch(writer.join(messages), target)
    assert found.equals(pa.concat_batches([copied(target, batch)] * 2))


def test_what_is_no_message_is_not_joined():
    """A message cut short at any length, or with changed lengths or edges, causes no read outside it."""
    target, batch = plain(3)
    writer = writer_of(target, batch)
    message, _, _, _ = writer.write(batch.__arrow_c_array__()[1])
    assert writer.join([]) is None
    for length in range(len(message)):
        assert writer.join([message, message[:length]]) is None
    for at in range(len(message)):
        for mask in (0x01, 0x80, 0xFF):
            turned = bytearray(message)
            turned[at] ^= mask
            joined = writer.join([bytes(turned), message])
            assert joined is None or len(joined) == len(writer.join([message, message]))
    assert writer.join([message, None]) is None
    for wrong in ("text", bytearray(message), 7):
        with pytest.raises(TypeError):
            writer.join([message, wrong])
    for wrong in (None, 7):
        with pytest.raises(TypeError):
            writer.join(wrong)


def test_messages_too_large_for_one():
    """Messages with more than 2 GiB of texts are not joined: edges have 32 bits."""
    target, batch = plain(1)
    large = batch.set_column(batch.schema.names.index("b"), "b", pa.array([bytes(1 << 26)]))
    writer = writer_of(target, large)
    message, _, _, _ = writer.write(large.__arrow_c_array__()[1])
    assert writer.join([message] * 2) is not None
    assert writer.join([message] * 32) is None


# ------------------------------------------------------------ rows of messages


def places_of(rows):
    return np.array(rows, np.int64).tobytes()


@examples(200)
@given(several(), st.data())
def test_rows_gathered(case, data):
    """Any rows of messages are gathered as Arrow does, in any order and repeated; nested columns are left to Arrow."""
    target, parts = case
    writer = writer_of(target, parts[0])
    messages = [writer.write(part.__arrow_c_array__()[1])[0] for part in parts]
    all_rows = [(number, row) for number, part in enumerate(parts) for row in range(len(part))]
    chosen = data.draw(st.lists(st.sampled_from(range(len(all_rows))), min_size=1, max_size=40))
    gathered = writer.gather(messages, places_of([all_rows[place] for place in chosen]))
    if any(field.type in PARTS for field in target):
        assert gathered is None
        return
    found = pa.ipc.read_record_batch(gathered, target)
    found.validate(full=True)
    whole = pa.concat_batches([pa.ipc.read_record_batch(message, target) for message in messages])
    assert found.equals(whole.take(pa.array(chosen)))


@examples(200)
@given(several(), st.text(max_size=2))
def test_texts_found(case, text):
    """All rows that have a text are found, with their times."""
    target, parts = case
    writer = writer_of(target, parts[0])
    messages = [writer.write(part.__arrow_c_array__()[1])[0] for part in parts]
    places = {name: place for place, name in enumerate(target.names)}
    found = writer.find(messages, places["space"], text.encode(), places["timestamp"])
    if any(field.type in PARTS for field in target):
        assert found is None
        return
    whole = pa.concat_batches([pa.ipc.read_record_batch(message, target) for message in messages])
    rows = [row for row, space in enumerate(whole.column("space").to_pylist()) if space == text]
    times = whole.column("timestamp").view(pa.int64()).take(pa.array(rows, pa.int64())).to_pylist()
    assert np.frombuffer(found[0], np.int64).tolist() == rows
    assert np.frombuffer(found[1], np.int64).tolist() == times


def test_nulls_are_no_texts():
    """A null is not found, even if the bytes beneath it are the text."""
    target = pa.schema([("timestamp", pa.int64()), ("b", pa.string())])
    data = pa.StringArray.from_buffers(
        3, pa.py_buffer(np.array([0, 1, 2, 3], np.int32)), pa.py_buffer(b"aaa"), pa.py_buffer(b"\x05"), 1
    )
    batch = pa.record_batch([pa.array([7, 8, 9]), data], schema=target)
    writer = message_writer(target, target, {"timestamp": 0, "b": 1}, -1)
    message = writer.write(batch.__arrow_c_array__()[1])[0]
    assert np.frombuffer(writer.find([message] * 2, 1, b"a", 0)[0], np.int64).tolist() == [0, 2, 3, 5]
    for columns in ((0, 0), (1, 1), (2, 0), (1, 2), (-1, 0), (1, -1)):
        assert writer.find([message], columns[0], b"a", columns[1]) is None
    assert writer.find([], 1, b"a", 0) == (b"", b"")


def test_many_rows_are_looked_through():
    """Texts are found among many rows, which are searched without the interpreter's lock."""
    target = pa.schema([("timestamp", pa.int64()), ("b", pa.string())])
    batch = pa.record_batch([np.arange(20_000), pa.array([f"{row % 50}" for row in range(20_000)])], schema=target)
    writer = message_writer(target, target, {"timestamp": 0, "b": 1}, -1)
    message = writer.write(batch.__arrow_c_array__()[1])[0]
    rows, times = writer.find([message], 1, b"7", 0)
    assert np.frombuffer(rows, np.int64).tolist() == list(range(7, 20_000, 50))
    assert rows == times


def test_rows_that_are_not_there():
    """Rows outside the messages are refused; nothing outside is read, whatever byte changes."""
    target, batch = plain(3)
    writer = writer_of(target, batch)
    message, _, _, _ = writer.write(batch.__arrow_c_array__()[1])
    space, time = (target.get_field_index(name) for name in ("space", "timestamp"))
    for place in ((0, 3), (0, -1), (1, 0), (-1, 0), (0, 1 << 62), (1 << 62, 0)):
        assert writer.gather([message], places_of([(0, 0), place])) is None
    assert writer.gather([message], b"") is None
    assert writer.gather([], places_of([(0, 0)])) is None
    assert writer.gather([message], places_of([(0, 0)])[:15]) is None
    for length in range(len(message)):
        assert writer.gather([message, message[:length]], places_of([(0, 0)])) is None
        assert writer.find([message, message[:length]], space, b"a", time) is None
    for at in range(len(message)):
        for mask in (0x01, 0x80, 0xFF):
            turned = bytearray(message)
            turned[at] ^= mask
            writer.gather([bytes(turned), message], places_of([(0, 0), (0, 1), (0, 2), (1, 1)]))
            writer.find([bytes(turned), message], space, b"a", time)
    for wrong in ("text", None, 7):
        with pytest.raises(TypeError):
            writer.gather([message], wrong)
        with pytest.raises(TypeError):
            writer.find([message], space, wrong, time)


# ------------------------------------------------------------ columns that were never checked


def texts_of(batch):
    return bytes(column.type in (pa.string(), pa.large_string()) for column in batch.columns)


@examples(200)
@given(batches())
def test_columns(case):
    """Columns written directly have the same bytes as through Arrow; nested columns are left to Arrow."""
    target, batch = case
    found = writer_of(target, batch).write_columns(batch.columns, len(batch), texts_of(batch))
    if any(field.type in PARTS for field in target):
        assert found is None
    else:
        assert found == write(target, batch)


_OF_BYTES = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())
KINDS = (pa.int64(), pa.int16(), pa.bool_(), pa.binary(3), *_OF_BYTES)


@st.composite
def loose_arrays(draw):
    """A type, and an array of it with buffers that Arrow accepts unseen: unordered edges, bytes that are not text."""
    kind = draw(st.sampled_from(KINDS))
    rows, offset = draw(st.integers(1, 6)), draw(st.integers(0, 3))
    some = draw(st.none() | st.binary(min_size=2, max_size=2))
    buffers = [None if some is None else pa.py_buffer(some)]
    if kind in _OF_BYTES:
        text = draw(st.text(max_size=5).map(str.encode) | st.binary(max_size=9))
        known = st.integers(0, len(text))
        edges = draw(st.lists(known | st.integers(-3, 1 << 20), min_size=rows + offset, max_size=rows + offset))
        edges = sorted(map(abs, edges)) if draw(st.booleans()) else edges
        edges[offset:] = [draw(known), *edges[offset + 1 :], draw(known)]  # Arrow looks at the first and the last one
        edges = sorted(edge % (len(text) + 1) for edge in edges) if draw(st.booleans()) else edges
        large = kind in (pa.large_string(), pa.large_binary())
        buffers += [pa.py_buffer(np.array(edges, np.int64 if large else np.int32)), pa.py_buffer(text)]
    else:
        size = (rows + offset) * max(1, kind.bit_width // 8)
        buffers.append(pa.py_buffer(draw(st.binary(min_size=size, max_size=size))))
    try:
        return kind, pa.Array.from_buffers(kind, rows, buffers, offset=offset)
    except pa.ArrowInvalid:  # even Arrow refuses to build it
        assume(False)


@examples(2000)
@given(loose_arrays())
def test_columns_that_are_not_sound(case):
    """Only arrays that Arrow finds valid are written; a valid one may be refused only for bytes beneath nulls."""
    kind, column = case
    fields = [("space", pa.string()), ("grouping", pa.string()), ("timestamp", pa.timestamp("us")), ("c", kind)]
    target = pa.schema([pa.field(name, each, name == "c") for name, each in fields])
    given_schema = pa.schema([("space", pa.string()), ("timestamp", pa.int64()), ("c", kind)])
    writer = message_writer(given_schema, target, {"space": 0, "timestamp": 1, "c": 2}, LONGEST)
    columns = [pa.array(["a"] * len(column)), pa.array(range(len(column)), pa.int64()), column]
    texts = bytes([1, 0, kind in (pa.string(), pa.large_string())])
    found = writer.write_columns(columns, len(column), texts)
    try:
        column.validate(full=True)
        valid = True
    except pa.ArrowInvalid:
        valid = False
    assert valid or found is None
    if found is not None:
        read = pa.ipc.read_record_batch(found[0], target)
        read.validate(full=True)
        assert read.column("c").equals(column)
    elif valid:
        assert column.null_count


SHORT, LONG = np.int32, np.int64
BROKEN = {
    "edges to and fro": (pa.binary(), 0, None, np.array([0, 5, 2, 6], SHORT), b"abcdefgh"),
    "long edges to and fro": (pa.large_string(), 0, None, np.array([0, 5, 2, 6], LONG), b"abcdefgh"),
    "edges behind the bytes": (pa.binary(), 0, None, np.array([0, 1, 2, 9], SHORT), b"abcdefgh"),
    "an edge in the middle behind the bytes": (pa.binary(), 0, None, np.array([0, 100, 2, 3], SHORT), b"abc"),
    "edges before the bytes": (pa.binary(), 0, None, np.array([-1, 1, 2, 3], SHORT), b"abcdefgh"),
    "no bytes": (pa.string(), 0, None, np.array([0, 1, 2, 3], SHORT), None),
    "an edge too few": (pa.binary(), 0, None, np.array([0, 1, 2], SHORT), b"abc"),
    "an edge too few behind others": (pa.binary(), 1, None, np.array([0, 1, 2, 3], SHORT), b"abc"),
    "too few bits of nulls": (pa.binary(), 6, b"\xff", np.zeros(10, SHORT), b""),
    "too few numbers": (pa.int64(), 0, None, np.zeros(2, LONG)),
    "too few numbers behind others": (pa.int64(), 1, None, np.zeros(3, LONG)),
    "too few bits": (pa.bool_(), 6, None, b"\xff"),
    "too few bits of nulls for numbers": (pa.int64(), 6, b"\xff", np.zeros(9, LONG)),
    "too few bytes of one width": (pa.binary(3), 0, None, b"12345678"),
    "no numbers": (pa.int64(), 0, None, None),
}


class Loose:
    """An array as the core reads one, with buffers that Arrow would refuse."""

    def __init__(self, offset, buffers):
        self.offset = offset
        self._buffers = [None if each is None else pa.py_buffer(each) for each in buffers]

    def __len__(self):
        return 3

    def buffers(self):
        return self._buffers


@pytest.mark.parametrize("case", BROKEN)
def test_columns_whose_values_lie_outside(case):
    """Values outside their buffers are neither read nor written; a valid array of the same type is written."""
    kind, offset, *buffers = BROKEN[case]
    fields = [("space", pa.string()), ("grouping", pa.string()), ("timestamp", pa.timestamp("us")), ("c", kind)]
    target = pa.schema([pa.field(name, each, name == "c") for name, each in fields])
    given_schema = pa.schema([("space", pa.string()), ("timestamp", pa.int64()), ("c", kind)])
    writer = message_writer(given_schema, target, {"space": 0, "timestamp": 1, "c": 2}, LONGEST)
    others = [pa.array(["a"] * 3), pa.array(range(3), pa.int64())]
    texts = bytes([1, 0, kind in (pa.string(), pa.large_string())])
    assert writer.write_columns([*others, Loose(offset, buffers)], 3, texts) is None
    assert writer.write_columns([*others, pa.array([None] * 3, kind)], 3, texts) is not None
    for wrong in (-1, 1 << 33):
        assert writer.write_columns([*others, Loose(wrong, pa.array([None] * 3, kind).buffers())], 3, texts) is None


FIRSTS = list(bytes.fromhex("00417f80bfc0c1c2dfe0e1ecedeeeff0f1f3f4f5ff"))
OTHERS = [0x00, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF]


def is_text(stored):
    try:
        stored.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_texts_are_utf8():
    """UTF-8 is checked at every boundary and per text: a character may not continue in the next text."""
    target, batch = plain(1)
    writer = writer_of(target, batch)
    for length in range(1, 5):
        for stored in itertools.product(FIRSTS, *[OTHERS] * (length - 1)):
            text = pa.array([bytes(stored)]).view(pa.string())
            columns = [text if name == "space" else batch.column(name) for name in batch.schema.names]
            assert (writer.write_columns(columns, 1, texts_of(batch)) is not None) == is_text(bytes(stored)), stored
    target, batch = plain(2)
    halves = pa.array([b"\xc3", b"\xa4"]).view(pa.string())
    columns = [halves if name == "space" else batch.column(name) for name in batch.schema.names]
    assert writer.write_columns(columns, 2, texts_of(batch)) is None


def test_columns_of_another_batch():
    """Other numbers of columns, rows or flags are refused; nothing is read."""
    target, batch = plain(3)
    writer, columns, texts = writer_of(target, batch), batch.columns, texts_of(batch)
    assert writer.write_columns(columns, 3, texts) is not None
    for given_columns, rows, flags in (
        (columns, 2, texts), (columns, 4, texts), (columns, 0, texts), (columns, -1, texts), (columns, 1 << 40, texts),
        (columns, 3, texts[:-1]), (columns, 3, texts + b"0"), (columns[:-1], 3, texts[:-1]), ([], 3, b""),
        ([column.slice(0, 2) for column in columns], 3, texts),
        ([columns[0], *[pa.array([[1]] * 3)] * (len(columns) - 1)], 3, texts),
    ):  # fmt: skip
        assert writer.write_columns(given_columns, rows, flags) is None
    for wrong in ([None] * 3, [1] * 3, ["x"] * 3):
        with pytest.raises((TypeError, AttributeError)):
            writer.write_columns(wrong, 3, texts)
    for flags in (None, "000"):
        with pytest.raises(TypeError):
            writer.write_columns(columns, 3, flags)
    narrow = [
        pa.array([1] * 3, pa.int8()) if name == "timestamp" else batch.column(name) for name in batch.schema.names
    ]
    assert writer.write_columns(narrow, 3, texts) is None
