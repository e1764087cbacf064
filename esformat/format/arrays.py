"""Convert Arrow arrays to the plain memory from which nodes are built, and back. Method and layouts follow Arrow's
columnar format: validity, lengths for offsets, children.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from esformat.core.keys import are_key
from esformat.core.values import gather, join_values, repeated
from esformat.errors import CorruptSegmentError
from esformat.format.layout import MAX_FRAME_BYTES


def is_bytes(kind: pa.DataType) -> bool:
    """Whether values of this type have lengths and bytes."""
    return is_binary(kind) or bool(pt.is_string(kind) or pt.is_large_string(kind))


def is_binary(kind: pa.DataType) -> bool:
    """Whether this is a type of bytes that are not text."""
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind))


def is_numeric(kind: pa.DataType) -> bool:
    """Whether this is a type of numbers."""
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind))


def is_list(kind: pa.DataType) -> bool:
    """Whether this is a type of lists, but not of maps."""
    views = pt.is_list_view(kind) or pt.is_large_list_view(kind)
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind) or views)


def number_dtype(kind: pa.DataType) -> np.dtype[Any]:
    """The integer dtype whose bits are those of a fixed-width value of at most 8 bytes."""
    if pt.is_boolean(kind):
        return np.dtype(np.uint8)
    signed = pt.is_signed_integer(kind) or pt.is_temporal(kind)
    return np.dtype(f"<{'i' if signed else 'u'}{kind.bit_width // 8}")


def validity_of(array: pa.Array) -> npt.NDArray[np.uint8] | None:
    """One byte per value, 1 if it is valid; None if all are valid."""
    if not array.null_count:
        return None
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False)).astype(np.uint8)


def numbers_of(array: pa.Array) -> npt.NDArray[np.integer[Any]]:
    """The bits of fixed-width values of up to 8 bytes as integers; null slots are 0."""
    if pt.is_boolean(array.type):
        return np.asarray(array.fill_null(False).to_numpy(zero_copy_only=False)).astype(np.uint8)
    dtype = number_dtype(array.type)
    numbers: npt.NDArray[np.integer[Any]]
    numbers = np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)
    valid = validity_of(array)
    return numbers if valid is None else np.where(valid.view(np.bool_), numbers, numbers.dtype.type(0))


def bytes_of(array: pa.Array) -> tuple[npt.NDArray[np.int64], memoryview]:
    """The offsets (count + 1 of them, starting at 0) and the bytes of strings or binary; null slots are empty."""
    kind = array.type
    if pt.is_fixed_size_binary(kind):
        array = array.cast(pa.binary())
    if array.null_count:
        array = array.fill_null("" if pt.is_string(kind) or pt.is_large_string(kind) else b"")
    width = np.int64 if pt.is_large_string(array.type) or pt.is_large_binary(array.type) else np.int32
    _validity, offset_buffer, data = array.buffers()
    if not len(array) or data is None:
        return np.zeros(len(array) + 1, dtype=np.int64), memoryview(b"")
    offsets = np.frombuffer(offset_buffer, width, len(array) + 1, array.offset * width().itemsize).astype(np.int64)
    view = memoryview(data)[int(offsets[0]) : int(offsets[-1])]
    return offsets - offsets[0], view


def short_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Convert a few Python values to the array that `pyarrow.array` would return. For text, bytes and times as integers
    it takes a fraction of the time, and releases the interpreter's lock once instead of three times.
    """
    if kind in (pa.string(), pa.binary()):
        joined = join_values(values, kind == pa.string())
        if joined is not None:
            return pa.Array.from_buffers(kind, len(values), [None, *map(pa.py_buffer, joined)])
    if pt.is_timestamp(kind) and set(map(type, values)) == {int}:
        return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.array(values, np.int64))])
    return pa.array(values, kind)


def have_key(column: pa.Array, key: bytes) -> npt.NDArray[np.bool_]:
    """A mask of the spaces or groupings of a batch that equal `key`."""
    edges, data = bytes_of(column)
    mask = np.empty(len(column), np.uint8)
    are_key(edges, data.cast("B"), key, mask)
    return mask.view(np.bool_)


def slices_mislead(schema: pa.Schema) -> bool:
    """Whether pyarrow's take and filter return wrong values, or other memory, for slices with these columns: they do
    for fixed-size lists of fixed-size lists.
    """
    return any(map(_slices_mislead, schema.types))


def _slices_mislead(kind: pa.DataType) -> bool:
    if pt.is_struct(kind):
        return any(_slices_mislead(field.type) for field in kind)
    return bool(pt.is_fixed_size_list(kind) and pt.is_fixed_size_list(kind.value_type))


def plain_lists(array: pa.Array) -> pa.Array:
    """View a map as a list of key-value structs; return other arrays unchanged."""
    if not pt.is_map(array.type):
        return array
    element = entries_field(array.type)
    entries = pa.Array.from_buffers(element.type, len(array.keys), [None], children=[array.keys, array.items])
    return pa.Array.from_buffers(
        pa.list_(element), len(array), array.buffers()[:2], offset=array.offset, children=[entries]
    )


def entries_field(kind: pa.DataType) -> pa.Field:
    """The element field of the list that represents a map type."""
    return pa.field("entries", pa.struct([kind.key_field, kind.item_field]), nullable=False)


def take_with_nulls(values: pa.Array, valid: npt.NDArray[np.uint8]) -> pa.Array:
    """Spread `values` over the valid slots; the other slots become null."""
    places = np.cumsum(valid, dtype=np.int64) - 1
    return values.take(pa.array(places, mask=valid == 0))


def bitmap(valid: npt.NDArray[np.uint8] | None) -> pa.Buffer | None:
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))


def numbers_array(
    numbers: npt.NDArray[np.int64], kind: pa.DataType, valid: npt.NDArray[np.uint8] | None = None
) -> pa.Array:
    """Build an array of fixed-width values of at most 8 bytes from their bits."""
    data: npt.NDArray[Any]
    if pt.is_boolean(kind):
        data = np.packbits(numbers != 0, bitorder="little")
    else:
        data = numbers.view(np.uint64).astype(number_dtype(kind)) if kind.bit_width < 64 else numbers
    return pa.Array.from_buffers(kind, len(numbers), [bitmap(valid), pa.py_buffer(np.ascontiguousarray(data))])


def bytes_array(
    lengths: npt.NDArray[Any], data: pa.Buffer, kind: pa.DataType, valid: npt.NDArray[np.uint8] | None = None
) -> pa.Array:
    """Build strings or binary from lengths and bytes. Raises CorruptSegmentError for text that is not UTF-8."""
    large = pt.is_large_string(kind) or pt.is_large_binary(kind)
    if not large and len(data) > MAX_FRAME_BYTES:
        raise CorruptSegmentError("more bytes than one Arrow array can hold")
    offsets = np.zeros(len(lengths) + 1, dtype=np.dtype(np.int64 if large else np.int32))
    np.cumsum(lengths, out=offsets[1:])
    buffers = [bitmap(valid), pa.py_buffer(offsets), data]
    if pt.is_fixed_size_binary(kind):
        if not bool(
            (lengths == (kind.byte_width if valid is None else kind.byte_width * valid.astype(np.int64))).all()
        ):
            raise CorruptSegmentError(f"a value of type {kind} has another length")
        return pa.Array.from_buffers(pa.binary(), len(lengths), buffers).cast(kind)
    if pt.is_string(kind) or pt.is_large_string(kind):
        _check_text(offsets, data, kind)
    return pa.Array.from_buffers(kind, len(lengths), buffers)


def _check_text(offsets: npt.NDArray[Any], data: pa.Buffer, kind: pa.DataType) -> None:
    """Raise CorruptSegmentError if a value is not UTF-8.

    Validates all values as one text, then checks that no value begins within a character. Takes a third of the time of
    checking each value; a tenth of that if everything is ASCII.
    """
    if not offsets[-1]:
        return
    if offsets[-1] > len(data):
        raise CorruptSegmentError("stored text is broken: its bytes end early")
    if np.frombuffer(data, np.int8, int(offsets[-1])).min() >= 0:
        return
    whole = pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(offsets[[0, -1]]), data])
    try:
        whole.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CorruptSegmentError(f"stored text is broken: {error}") from None
    inner = offsets[1:-1]
    first = np.frombuffer(data, np.uint8)[inner[inner < offsets[-1]]]
    if ((first & 0xC0) == 0x80).any():
        raise CorruptSegmentError("stored text is broken: a value begins within a character")


def repeated_key(key: bytes, kind: pa.DataType, count: int) -> pa.Array:
    """An array that repeats one key for each row."""
    offsets, data = repeated(key, count)
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def chosen_keys(keys: list[bytes], kind: pa.DataType, places: npt.NDArray[np.int64]) -> pa.Array:
    """An array with the key at each place."""
    edges = np.cumsum([0, *map(len, keys)], dtype=np.int32)
    buffers = gather(places, edges, np.frombuffer(b"".join(keys), np.uint8), pa.allocate_buffer)
    return pa.Array.from_buffers(kind, len(places), [None, *buffers])


def empty_keys(kind: pa.DataType, count: int, form: TextForm) -> pa.Array:
    """An array with an empty key for each row."""
    if form is not TextForm.VIEWS:
        return repeated_key(b"", kind, count)
    views = pa.py_buffer(np.zeros(2 * count, np.int64))
    return pa.Array.from_buffers(pa.string_view() if pt.is_string(kind) else pa.binary_view(), count, [None, views])


def in_form_of(column: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    """Return a column as a dictionary array if `kind` is a dictionary, else as a plain array."""
    if pt.is_dictionary(column.type) == pt.is_dictionary(kind):
        return column
    return column.dictionary_encode() if pt.is_dictionary(kind) else column.cast(column.type.value_type)


class TextForm(Enum):
    """The Arrow form of dictionary-coded text in results: not every engine accepts views or dictionaries."""

    PLAIN = "plain"
    VIEWS = "views"
    DICTIONARIES = "dictionaries"


class Values:
    """The values to which rows refer by code. If there is a null, it comes first."""

    __slots__ = ("_edges_and_data", "_listed", "_make", "_make_list", "_views", "_whole", "_without_null")

    def __init__(
        self,
        array: pa.Array | Callable[[], pa.Array],
        listed: Callable[[], list[Any]] | None = None,
    ) -> None:
        """array: the values, or a function that returns them on first use. listed: returns the values as Python objects
        without the array.

        There is no lock, because a fork could leave it locked: two threads may both call these functions, and either
        result is good.
        """
        self._make, self._make_list = array, listed
        self._whole: pa.Array | None = None if callable(array) else array
        self._edges_and_data: tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]] | None = None
        self._listed: list[Any] | None = None
        self._without_null: pa.Array | None = None
        self._views: tuple[npt.NDArray[Any], list[pa.Buffer]] | None = None

    @property
    def _array(self) -> pa.Array:
        if self._whole is None:
            self._whole = self._make()
        return self._whole

    @property
    def _text(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]] | None:
        """Edges and bytes of text or binary; None for values of other types, or if there are no values."""
        if self._edges_and_data is None:
            array = self._array
            if not len(array) or not (pt.is_string(array.type) or pt.is_binary(array.type)):
                return None
            _, offsets, data = array.buffers()
            edges = np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset)
            self._edges_and_data = edges, np.frombuffer(data or b"", np.uint8)
        return self._edges_and_data

    def __len__(self) -> int:
        return len(self._array)

    @property
    def listed(self) -> list[Any]:
        """The values as Python objects."""
        if self._listed is None:
            self._listed = self._array.to_pylist() if self._make_list is None else self._make_list()
        return self._listed

    def taken(self, codes: npt.NDArray[np.integer[Any]], form: TextForm) -> pa.Array:
        """The values for codes, text in the requested form. Raises CorruptSegmentError for a code without a value."""
        if form is TextForm.PLAIN or self._text is None:
            return self.take(codes)
        least, most = (int(codes.min()), int(codes.max())) if len(codes) else (0, -1)
        if least < 0 or most >= len(self):
            raise CorruptSegmentError("a code has no value in the column's dictionary")
        return self.take_views(codes) if form is TextForm.VIEWS else self._take_dictionary(codes, least)

    def take(self, codes: npt.NDArray[np.integer[Any]]) -> pa.Array:
        """The values for codes, text in plain form. Raises CorruptSegmentError for a code without a value."""
        try:
            if self._text is None:
                return self._array.take(pa.array(codes))
            buffers = gather(codes, *self._text, pa.allocate_buffer)  # Arrow's pool has pages to use again
        except (pa.ArrowIndexError, IndexError):
            raise CorruptSegmentError("a code has no value in the column's dictionary") from None
        except OverflowError as error:
            raise CorruptSegmentError(str(error)) from None
        return pa.Array.from_buffers(self._array.type, len(codes), [self._valid(codes), *buffers])

    def listed_for(self, codes: npt.NDArray[np.integer[Any]]) -> list[Any]:
        """The values for codes from 0 on, as Python objects. Raises CorruptSegmentError for a code without a value."""
        try:
            return list(map(self.listed.__getitem__, codes.tolist()))
        except IndexError:
            raise CorruptSegmentError("a code has no value in the column's dictionary") from None

    def take_views(self, codes: npt.NDArray[np.integer[Any]]) -> pa.Array:
        """Like `take`, but as views of text or binary: 16 bytes per row, no copied text. Every code must be valid."""
        kind = pa.string_view() if pt.is_string(self._array.type) else pa.binary_view()
        if self._views is None:
            _, views, *texts = self._array.cast(kind).buffers()
            self._views = np.frombuffer(views, np.complex128, len(self)), texts
        views, texts = self._views
        taken = pa.allocate_buffer(views.itemsize * len(codes))  # from Arrow's pool, which reuses its pages
        views.take(codes, out=np.frombuffer(taken, views.dtype), mode="clip")
        return pa.Array.from_buffers(kind, len(codes), [self._valid(codes), taken, *texts])

    def _take_dictionary(self, codes: npt.NDArray[np.integer[Any]], least: int) -> pa.Array:
        """Like `take`, but as a dictionary array without nulls in the dictionary, so that an engine processes each
        value once. `least` is the smallest code.
        """
        first = 1 if self._array.null_count else 0
        if self._without_null is None:
            self._without_null = self._array.slice(first)
        taken = pa.allocate_buffer(4 * len(codes))
        np.subtract(codes, first, out=np.frombuffer(taken, np.int32), dtype=np.int32, casting="unsafe")
        valid = None if least >= first else self._valid(codes)
        indices = pa.Array.from_buffers(pa.int32(), len(codes), [valid, taken])
        return pa.DictionaryArray.from_arrays(indices, self._without_null, safe=False)

    def _valid(self, codes: npt.NDArray[np.integer[Any]]) -> pa.Buffer | None:
        if self._array.null_count and len(codes) and not codes.min():  # codes are never negative
            return bitmap((codes != 0).view(np.uint8))
        return None
