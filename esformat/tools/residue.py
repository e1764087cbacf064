"""Find and remove residue of erased events in the dictionaries of a file.

A dictionary outlives the blocks that it was built for. Coded columns list their values in it: a value that only erased
events had is overwritten. The zstd dictionary of a column is cut from a sample of the file's payloads. It is kept if
everything that it shares with erased events also occurs in kept events; otherwise everything is re-encoded with a
dictionary trained on kept events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from esformat.format.arrays import bytes_of
from esformat.format.data_block import I64
from esformat.format.dictionary import ColumnDictionary
from esformat.tools.original import OpenOriginal, open_data_block
from esformat.tools.selection import Selection, single_blocks
from esformat.tools.template_residue import Column, ErasedTemplates, Usage

WINDOW_BYTES = 8
"""Shorter shared text does not count as residue: zstd's dictionary trainer also looks at pieces of this length."""
SEARCHED_BLOCKS = 256
"""About how many kept blocks, spread over the file, are searched for what a dictionary shares with erased events."""

Windows = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Erased:
    """The contents of erased events. `values`: for each text column that is stored as codes, the number of events with
    each value; `entries`: for each index, the number of events with a value; `windows`: for each column, the pieces of
    text that its zstd dictionary also contains; `templates`: what the events use of the columns' templates.
    """

    values: dict[int, Counter[Any]]
    entries: dict[str, int]
    windows: dict[int, set[bytes]]
    templates: dict[Column, Usage]


def examine_erased(original: OpenOriginal, rows: Sequence[tuple[int, int]]) -> Erased:
    """Decode the events in ascending ranges [first, last) of rows, and record what dictionaries contain of them."""
    fields = original.metadata.schema.fields
    dictionaries = original.dictionaries()
    coded = {c.column for columns in dictionaries.values() for c in columns if c.values is not None}
    zstd = _dictionary_windows(dictionaries)
    templates = ErasedTemplates(dictionaries)
    values: dict[int, Counter[Any]] = {place: Counter() for place in coded}
    entries = {field.name: 0 for field in fields if field.indexed}
    shared: dict[int, set[bytes]] = {place: set() for place in zstd}
    looked_at = coded | zstd.keys() | templates.places
    wanted = [place for place, field in enumerate(fields) if place in looked_at or field.indexed]
    for columns in _columns(original, rows, wanted):
        for place, column in columns.items():
            if fields[place].indexed:
                entries[fields[place].name] += len(column) - column.null_count
            if place in coded:
                counted = column.drop_null().value_counts()
                values[place].update(dict(zip(counted.field(0).to_pylist(), counted.field(1).to_pylist(), strict=True)))
            if place in templates.places:
                templates.record(place, column)
            if place in zstd:
                pieces = _windows(bytes(bytes_of(column)[1]))
                shared[place] |= {
                    int(w).to_bytes(WINDOW_BYTES, "little") for w in zstd[place][_are_among(zstd[place], pieces)]
                }
    return Erased(values, entries, shared, templates.used)


def _columns(
    original: OpenOriginal, rows: Sequence[tuple[int, int]], places: Sequence[int]
) -> Iterator[dict[int, pa.Array]]:
    """Some columns of ranges of rows, block by block."""
    reader = original.reader
    fields = original.metadata.schema.fields
    if not places:
        return
    for first, last in rows:
        for number in range(reader.root.leaf_of_row(first), reader.root.leaf_of_row(last - 1) + 1):
            leaf = reader.leaf(number)
            for place in range(leaf.block_count):
                low, high = max(first, leaf.block_rows[place]), min(last, leaf.block_rows[place + 1])
                if low < high:
                    block = reader.data_block(leaf, place)
                    contexts = original.contexts(block.dictionary)
                    at = low - leaf.block_rows[place]
                    yield {p: block.column(p, fields[p].type, contexts[p]).slice(at, high - low) for p in places}


def _dictionary_windows(dictionaries: dict[int, list[ColumnDictionary]]) -> dict[int, Windows]:
    found: dict[int, list[Windows]] = {}
    for columns in dictionaries.values():
        for column in columns:
            if column.zstd:
                found.setdefault(column.column, []).append(_windows(column.zstd))
    return {place: np.unique(np.concatenate(windows)) for place, windows in found.items()}


def _windows(data: bytes) -> Windows:
    """Every piece of WINDOW_BYTES bytes, as an integer each."""
    stored = np.frombuffer(data, np.uint8)
    count = max(0, len(stored) - WINDOW_BYTES + 1)
    windows = np.zeros(count, dtype=np.uint64)
    for at in range(WINDOW_BYTES):
        windows |= stored[at : at + count].astype(np.uint64) << np.uint64(8 * at)
    return windows


def _are_among(ascending: Windows, windows: Windows) -> npt.NDArray[np.bool_]:
    """For each of ascending windows, whether it is among others."""
    place = np.searchsorted(ascending, windows)
    place[place == len(ascending)] = 0
    found = np.zeros(len(ascending), dtype=np.bool_)
    found[place[ascending[place] == windows]] = True
    return found


# ---------------------------------------------------------------- kept events


def values_to_overwrite(original: OpenOriginal, selection: Selection, erased: Erased) -> dict[int, set[Any]]:
    """For each coded column, the values that only erased events had."""
    removed: dict[int, set[Any]] = {}
    unknown: dict[int, set[Any]] = {}
    for place, counts in erased.values.items():
        field = original.metadata.schema.fields[place]
        if field.indexed:
            index = original.index(field.name)
            found = {value: index.find(value) for value in counts}
            removed[place] = {v for v, posting in found.items() if posting is None or posting.count == counts[v]}
        elif counts:
            unknown[place] = set(counts)
    for kept in single_blocks(selection(original)) if unknown else ():
        columns = _kept_columns(original, kept.ref, list(unknown), kept.choose)
        for place, column in columns.items():
            unknown[place] -= set(pc.unique(column).to_pylist())
        if not any(unknown.values()):
            break
    return removed | unknown


def shared_with_kept(original: OpenOriginal, selection: Selection, erased: Erased) -> bool:
    """Whether kept events contain all text that zstd dictionaries share with erased ones; False if it was not found."""
    left = {place: set(windows) for place, windows in erased.windows.items() if windows}
    if not left:
        return True
    step = max(1, original.block_count // SEARCHED_BLOCKS)
    for number, kept in enumerate(single_blocks(selection(original))):
        if number % step:
            continue
        for place, column in _kept_columns(original, kept.ref, list(left), kept.choose).items():
            stored = bytes(bytes_of(column)[1])
            left[place] = {window for window in left[place] if window not in stored}
        left = {place: windows for place, windows in left.items() if windows}
        if not left:
            return True
    return False


def _kept_columns(original: OpenOriginal, ref: Any, places: Sequence[int], choose: Any) -> dict[int, pa.Array]:
    ((_, stored),) = original.read([ref])
    block = open_data_block(original, ref, stored)
    contexts = original.contexts(block.dictionary)
    fields = original.metadata.schema.fields
    columns = {place: block.column(place, fields[place].type, contexts[place]) for place in places}
    if choose is None:
        return columns
    chosen: I64 = choose(None)
    return {place: column.take(pa.array(chosen)) for place, column in columns.items()}


def without_values(
    dictionaries: dict[int, list[ColumnDictionary]], removed: dict[int, set[Any]], *, keep_codes: bool
) -> tuple[dict[int, list[ColumnDictionary]], int]:
    """The dictionaries without some values, and the number of these.

    keep_codes: replace the values instead of removing them, so that all codes keep their meaning.
    """
    made = {
        number: [_without(column, removed.get(column.column, set()), keep_codes=keep_codes) for column in columns]
        for number, columns in dictionaries.items()
    }
    overwritten = sum(
        value in removed.get(column.column, ())
        for columns in dictionaries.values()
        for column in columns
        for value in (() if column.values is None else column.values.to_pylist())
    )
    return made, overwritten


def _without(column: ColumnDictionary, removed: set[Any], *, keep_codes: bool) -> ColumnDictionary:
    if column.values is None or not removed:
        return column
    values = column.values.to_pylist()
    known = set(values)
    names = (name for number in count(1) if (name := f"(erased {number})") not in known)
    left = [next(names) if value in removed else value for value in values if keep_codes or value not in removed]
    return replace(column, values=pa.array(left, column.values.type))
