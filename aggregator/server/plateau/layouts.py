"""Converts values from the plain layout in which they are stored back to the layout in which a client sent them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from esformat.parts import plain_array


def restore_layout(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert an array to the type in which a client sent such values.

    The values of several batches together may need wider indices or run ends than each batch alone; the result has a
    wider type then. If the column has since changed to a type that cannot be converted, such as text in place of lists,
    because other routes appended other types, the array is returned unchanged.
    """
    if array.type == kind or not _can_be(array.type, kind):
        return array
    return _restored(plain_array(array, array.type), kind)


def _can_be(stored: pa.DataType, kind: pa.DataType) -> bool:
    """Whether values of a stored type can be converted to `kind`."""
    if stored == kind:
        return True
    if isinstance(kind, pa.BaseExtensionType):
        return _can_be(stored, kind.storage_type)
    if pt.is_dictionary(kind) or pt.is_run_end_encoded(kind):
        return _can_be(stored, kind.value_type)
    if pt.is_struct(kind):
        places = _places(stored, kind) if pt.is_struct(stored) else [-1]
        parts = [(stored.field(at).type, kind.field(place).type) for place, at in enumerate(places) if at >= 0]
        return len(parts) == kind.num_fields and all(_can_be(*types) for types in parts)
    if pt.is_map(kind):
        return pt.is_map(stored) and all(map(_can_be, _map_types(stored), _map_types(kind)))
    if pt.is_fixed_size_list(kind):
        alike = pt.is_fixed_size_list(stored) and stored.list_size == kind.list_size
        return alike and _can_be(stored.value_type, kind.value_type)
    if pt.is_nested(kind):
        return (pt.is_list(stored) or pt.is_large_list(stored)) and _can_be(stored.value_type, kind.value_type)
    try:
        pa.array([], stored).cast(kind)
    except pa.ArrowNotImplementedError:  # for example from text to a time of day
        return False
    return True


def _places(stored: pa.StructType, kind: pa.StructType) -> list[int]:
    """Return the positions in a stored struct of the members of `kind`; -1 for a missing one."""
    names, wanted = ([one.field(place).name for place in range(one.num_fields)] for one in (stored, kind))
    return list(range(len(names))) if names == wanted else [stored.get_field_index(name) for name in wanted]


def _map_types(kind: pa.MapType) -> tuple[pa.DataType, pa.DataType]:
    return kind.key_type, kind.item_type


def _restored(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """`restore_layout` for a plain array that has no offset relative to its children."""
    if array.type == kind:
        return array
    if isinstance(kind, pa.BaseExtensionType):
        storage = _restored(array, kind.storage_type)
        return kind.wrap_array(storage) if storage.type == kind.storage_type else storage
    if pt.is_dictionary(kind):
        return _dictionary(_restored(array, kind.value_type), kind)
    if pt.is_run_end_encoded(kind):
        return _runs(_restored(array, kind.value_type), kind)
    if pt.is_struct(kind):
        places = _places(array.type, kind)
        children = [_restored(array.field(at), kind.field(place).type) for place, at in enumerate(places)]
        fields = [kind.field(place).with_type(child.type) for place, child in enumerate(children)]
        return _of(pa.struct(fields), array, array.buffers()[:1], children)
    if pt.is_map(kind):
        keys, items = _restored(array.keys, kind.key_type), _restored(array.items, kind.item_type)
        made = pa.map_(kind.key_field, kind.item_field.with_type(items.type), keys_sorted=kind.keys_sorted)
        entries = pa.StructArray.from_arrays([keys, items], fields=[made.key_field, made.item_field])
        return _of(made, array, array.buffers()[:2], [entries])
    return _list(array, kind) if pt.is_nested(kind) else array.cast(kind)


def _of(kind: pa.DataType, array: pa.Array, buffers: list[Any], children: list[pa.Array]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(array), buffers, children=children)


def _list(array: pa.Array, kind: pa.DataType) -> pa.Array:
    child = _restored(array.values, kind.value_type)
    field = kind.value_field.with_type(child.type)
    validity = array.buffers()[0]
    if pt.is_fixed_size_list(kind):
        return _of(pa.list_(field, kind.list_size), array, [validity], [child])
    offsets = np.asarray(array.offsets)
    if pt.is_list(kind) or pt.is_large_list(kind):
        large = pt.is_large_list(kind)
        made = pa.large_list(field) if large else pa.list_(field)
        return _of(made, array, [validity, pa.py_buffer(offsets.astype(np.int64 if large else np.int32))], [child])
    large = pt.is_large_list_view(kind)
    made, width = (pa.large_list_view(field), np.int64) if large else (pa.list_view(field), np.int32)
    starts, sizes = offsets[:-1].astype(width), np.diff(offsets).astype(width)
    return _of(made, array, [validity, pa.py_buffer(starts), pa.py_buffer(sizes)], [child])


def _dictionary(values: pa.Array, kind: pa.DictionaryType) -> pa.Array:
    try:
        encoded = pc.dictionary_encode(values)
        indices, dictionary = encoded.indices, encoded.dictionary
    except pa.ArrowNotImplementedError:  # nested values and others: no deduplication
        indices, dictionary = pa.array(np.arange(len(values)), mask=np.asarray(values.is_null())), values
    width = kind.index_type
    if len(dictionary) > 1 << width.bit_width - pt.is_signed_integer(width):
        width = pa.int64()
    return pa.DictionaryArray.from_arrays(indices.cast(width), dictionary, ordered=kind.ordered)


def _runs(values: pa.Array, kind: pa.RunEndEncodedType) -> pa.Array:
    ends = kind.run_end_type if len(values) < 1 << kind.run_end_type.bit_width - 1 else pa.int64()
    try:
        return pc.run_end_encode(values, run_end_type=ends)
    except pa.ArrowNotImplementedError:
        return pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(values) + 1), ends), values)
