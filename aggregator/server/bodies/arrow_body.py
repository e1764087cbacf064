"""Arrow streams and files in request bodies, checked before anything is allocated and validated before use.

A few bytes can claim to be many: compressed buffers; dictionaries, run ends and views whose values repeat; columns of
nulls. All of these are counted before they are unpacked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from esformat import InvalidEventError
from esformat.parts import IMPOSSIBLE_HINT, impossible_value, normalise_type, plain_array

I64 = npt.NDArray[np.int64]
MAX_ROWS = 1_000_000
"""Limit of rows in one body."""
_FILE_MAGIC = b"ARROW1\x00\x00"
_FOOTER_LENGTH = struct.Struct("<i6s")  # after the footer; ends with the magic
_BUFFER, _BLOCK = struct.Struct("<qq"), struct.Struct("<qi4xq")
_CONTINUES = -1  # precedes a message's length, except in the format from before 2019
_MOST_BEHIND = 64  # bytes between batches and footer: the stream's end marker, and padding
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3
_STORED_PLAIN = -1  # replaces the length of an uncompressed buffer in a compressed message
_OFFSET, _WIDEST = 8, 16  # bytes counted per value: for text in addition to its own, for a number
_TIMES_LARGER = 16  # size limit of unpacked repeated values, as a multiple of the body's limit


def read_arrow(body: pa.Buffer, max_bytes: int) -> pa.Table:
    """Return the table in an Arrow stream or an Arrow file (which has an index at its end).

    max_bytes: limit on the decompressed size of all its buffers together. Raises InvalidEventError.
    """
    is_file = body.size >= len(_FILE_MAGIC) and body.slice(0, len(_FILE_MAGIC)).to_pybytes() == _FILE_MAGIC
    try:
        return _read(body, max_bytes, is_file=is_file)
    except InvalidEventError:
        raise
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, NotImplementedError, struct.error) as error:
        # KeyError, TypeError: pyarrow raises these for types that Python does not know
        _refuse_form(" ".join(str(error).split())[:200], is_file=is_file)


def _read(body: pa.Buffer, max_bytes: int, *, is_file: bool) -> pa.Table:
    _check_claims(_messages_of_file(body) if is_file else _messages_of_stream(body), max_bytes)
    with pa.ipc.open_file(body) if is_file else pa.ipc.open_stream(body) as reader:
        names = [_checked(field).name for field in reader.schema]
        table = reader.read_all()
    try:
        table.validate(full=True)  # before its offsets and indices are used
    except pa.ArrowInvalid as error:
        value = impossible_value(error, names)
        if value is not None:
            _refuse(value, IMPOSSIBLE_HINT)
        raise
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        _refuse(f"duplicate column {twice[:100]!r}")
    return _unpacked(table, max_bytes * _TIMES_LARGER) if any(_repeats(field.type) for field in table.schema) else table


def _checked(field: pa.Field) -> pa.Field:
    """Return the field after checking that all names in it are text. Raises UnicodeDecodeError, a ValueError."""
    _ = field.name
    for place in range(field.type.num_fields):
        _checked(field.type.field(place))
    return field


def _refuse(message: str, hint: str | None = None) -> NoReturn:
    raise InvalidEventError(message, hint=hint)


def _refuse_form(message: str, *, is_file: bool = False) -> NoReturn:
    _refuse(f"the body is not an Arrow {'file' if is_file else 'stream'}: {message}")


# ------------------------------------------------------------ what messages claim


def _check_claims(messages: Iterable[pa.ipc.Message], max_bytes: int) -> None:
    """Count the rows and decompressed bytes of all messages without reading their buffers."""
    rows = claimed = 0
    for message in messages:
        if message.type not in ("record batch", "dictionary"):
            continue
        length, sizes = _claims(message.metadata.to_pybytes(), message.body)
        rows += length
        claimed += sum(sizes)
        if rows > MAX_ROWS:
            _refuse(f"the body has more than {MAX_ROWS:,} rows", "split it into smaller ones")
        if claimed > max_bytes:
            _refuse(f"the body has more than {max_bytes:,} bytes when decompressed", "split it into smaller ones")


def _messages_of_stream(body: pa.Buffer) -> Iterator[pa.ipc.Message]:
    """Yield the messages of a stream. Nothing may follow it."""
    source = pa.BufferReader(body)
    for place, message in enumerate(pa.ipc.MessageReader.open_stream(source)):
        if message.type == "schema" and place:
            _refuse_more("a second Arrow stream begins before the first one ends", "stream")
        yield message
    if left := body.size - source.tell():
        _refuse_more(f"{left:,} bytes follow the end of the Arrow stream", "stream")


def _messages_of_file(body: pa.Buffer) -> Iterator[pa.ipc.Message]:
    """Yield the messages listed in a file's footer (File.fbs of the Arrow format).

    Dictionaries may follow the batches that need them. No message is read twice, and the file contains no others: the
    body is not two files.
    """
    end = body.size - _FOOTER_LENGTH.size
    length, magic = _FOOTER_LENGTH.unpack_from(body, end)
    start = end - length
    if magic != _FILE_MAGIC.rstrip(b"\0") or not 0 < length <= end - len(_FILE_MAGIC):
        _refuse_form("its end is missing, or data follows it", is_file=True)
    footer = body.slice(start, length).to_pybytes()
    index = _Table(footer, _u32(footer, 0))
    blocks = sorted([*index.structs(2, _BLOCK), *index.structs(3, _BLOCK)])
    at = len(_FILE_MAGIC)
    behind = start - sum(blocks[-1]) if blocks else start - at - length  # the schema is about as long as the footer
    if behind > _MOST_BEHIND:
        _refuse_more("the Arrow file contains more than its footer lists", "file")
    for offset, head, size in blocks:
        if offset < at or head < 8 or size < 0 or offset + head + size > start:
            _refuse_form("its footer lists a batch outside the file, or inside another batch", is_file=True)
        first, second = struct.unpack_from("<ii", body, offset)
        if (second + 8 if first == _CONTINUES else first + 4) != head:
            _refuse_form("its footer has the wrong length for a message", is_file=True)
        at = offset + head + size
        yield pa.ipc.read_message(body.slice(offset, head + size))


def _refuse_more(message: str, form: str) -> NoReturn:
    _refuse(message, f"nothing was stored; send one {form} per body")


def _claims(metadata: bytes, body: pa.Buffer | None) -> tuple[int, list[int]]:
    """Return the number of rows in a message's batch and the decompressed size of each of its buffers.

    The metadata is a flatbuffer (Message.fbs of the Arrow format). Raises struct.error if it is truncated.
    """
    message = _Table(metadata, _u32(metadata, 0))
    kind = metadata[message.field(1)] if message.field(1) else 0
    batch = message.table(2)
    if kind == _DICTIONARY_BATCH:
        batch = batch.table(1)
    elif kind != _RECORD_BATCH:
        return 0, []
    length = batch.i64(0)
    buffers = list(batch.structs(2, _BUFFER))
    size = 0 if body is None else body.size
    if length < 0 or any(offset < 0 or stored < 0 or offset + stored > size for offset, stored in buffers):
        _refuse_form("a batch has buffers outside its bounds")
    if not batch.field(3):
        return length, [stored for _, stored in buffers]
    return length, [_decompressed(body.slice(offset, stored)) for offset, stored in buffers if body is not None]


def _decompressed(buffer: pa.Buffer) -> int:
    """Return the size that a compressed buffer claims to have after decompression."""
    if not buffer.size:
        return 0
    (claimed,) = struct.unpack_from("<q", buffer)
    if claimed < _STORED_PLAIN:
        _refuse_form("a buffer has a negative length")
    return buffer.size - 8 if claimed == _STORED_PLAIN else int(claimed)


def _u32(data: bytes, at: int) -> int:
    return int(struct.unpack_from("<I", data, at)[0])


class _Table:
    """A table of a flatbuffer. Its vtable locates its fields."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._vtable = at - struct.unpack_from("<i", data, at)[0]
        if self._vtable < 0:
            raise struct.error("a table without a vtable")
        (self._size,) = struct.unpack_from("<H", data, self._vtable)

    def field(self, number: int) -> int:
        """Return the offset of a field; 0 if the table lacks it."""
        place = 4 + 2 * number
        if place + 2 > self._size:
            return 0
        (offset,) = struct.unpack_from("<H", self._data, self._vtable + place)
        return self._at + offset if offset else 0

    def i64(self, number: int) -> int:
        at = self.field(number)
        return int(struct.unpack_from("<q", self._data, at)[0]) if at else 0

    def table(self, number: int) -> _Table:
        at = self.field(number)
        if not at:
            raise struct.error("a table is missing")
        return _Table(self._data, at + _u32(self._data, at))

    def structs(self, number: int, layout: struct.Struct) -> Iterator[tuple[int, ...]]:
        """Yield the structs of a vector."""
        at = self.field(number)
        if not at:
            return
        at += _u32(self._data, at)
        count = _u32(self._data, at)
        if at + 4 + layout.size * count > len(self._data):
            raise struct.error("a vector is cut short")
        for place in range(count):
            yield layout.unpack_from(self._data, at + 4 + layout.size * place)


# ------------------------------------------------------------ values that stand for many


def _repeats(kind: pa.DataType) -> bool:
    """Whether values of the type can share bytes."""
    if isinstance(kind, pa.BaseExtensionType):
        return _repeats(kind.storage_type)
    own = (
        pa.types.is_dictionary(kind)
        or pa.types.is_run_end_encoded(kind)
        or _is_view(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )
    return own or any(_repeats(kind.field(place).type) for place in range(kind.num_fields))


def _unpacked(table: pa.Table, max_bytes: int) -> pa.Table:
    """Return the table with plain values, as a topic stores them, after checking their size."""
    total = 0
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if not _repeats(column.type):
            columns.append(column)
            continue
        kind = normalise_type(column.type)
        if _repeats(kind):  # for example unions
            _refuse(f"values of type {str(kind)[:100]} cannot be stored", "send lists, texts and numbers")
        total += sum(_bytes(chunk) for chunk in column.chunks)
        if total > max_bytes:
            _refuse(f"column {name[:100]!r} has more than {max_bytes:,} bytes when unpacked", "send smaller bodies")
        try:
            columns.append(pa.chunked_array([plain_array(chunk, kind) for chunk in column.chunks], kind))
        except pa.ArrowException as error:
            _refuse(f"column {name[:100]!r} of type {str(column.type)[:100]} cannot be read: {str(error)[:200]}")
    return pa.table(columns, names=table.column_names)


def _bytes(array: pa.Array) -> int:
    """Return an upper bound of the unpacked size of a column, or of a part of one, in bytes."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _bytes(array.storage)
    if pa.types.is_dictionary(kind):
        used = array.indices.drop_null().value_counts()  # no larger than the number of values
        return _weighed(array.dictionary, used.field("counts"), used.field("values"))
    if pa.types.is_run_end_encoded(kind):
        if len(array) > MAX_ROWS:
            _refuse(f"{len(array):,} run-end-encoded values in lists are too many", "send plain lists")
        return _weighed(array.values, _run_lengths(array))
    if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        size = _size(array.values)
        largest = size if isinstance(size, int) else int(size.max(initial=0))
        count = np.asarray(array.sizes)[np.asarray(array.is_valid())].sum(dtype=np.int64)  # a null may have any size
        return int(count) * (_WIDEST + largest)
    if not pa.types.is_nested(kind):
        size = _size(array)
        return size * len(array) if isinstance(size, int) else int(size.sum())
    if pa.types.is_struct(kind):
        parts = [array.field(place) for place in range(kind.num_fields)]
    else:
        parts = [array.keys, array.items] if pa.types.is_map(kind) else [array.values]
    return 8 * len(array) + sum(_bytes(part) if _repeats(part.type) else part.nbytes for part in parts)


def _weighed(values: pa.Array, counts: Any, places: Any = None) -> int:
    """Return the unpacked size of repeated values: `counts` copies of each, or of those at `places`."""
    size = _size(values)
    if places is not None and not isinstance(size, int):
        size = size[np.asarray(places)]
    return int((np.asarray(counts).astype(np.float64) * size).sum())  # floats: exactness does not matter


def _size(values: pa.Array) -> int | I64:
    """Return the size of each value in bytes; one number if all count the same."""
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        return _size(values.storage)
    if pa.types.is_nested(kind) or (_repeats(kind) and not _is_view(kind)):
        return _bytes(values) if _repeats(kind) else values.nbytes  # upper bound: all values together
    if _is_view(kind):
        views = np.frombuffer(values.buffers()[1], np.int32)  # four numbers per value; the first is its length
        lengths = views[values.offset * 4 : (values.offset + len(values)) * 4 : 4]
        return np.where(np.asarray(values.is_valid()), lengths, 0).astype(np.int64) + _OFFSET
    if _is_text(kind):
        return np.asarray(pc.fill_null(pc.binary_length(values), 0)).astype(np.int64) + _OFFSET
    return _WIDEST if pa.types.is_null(kind) else max(_WIDEST, kind.bit_width // 8)


def _is_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def _is_text(kind: pa.DataType) -> bool:
    texts = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
    return any(is_text(kind) for is_text in texts)


def _run_lengths(array: pa.RunEndEncodedArray) -> I64:
    lengths = np.asarray(array.run_ends).astype(np.int64)
    lengths[1:] = lengths[1:] - lengths[:-1]
    return lengths
