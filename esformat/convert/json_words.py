"""Extraction of members of JSON lines as bytes: text unescaped, {"base64": …} decoded, other values verbatim."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esformat.convert.arrays import Ints
from esformat.convert.typed_text import bytes_in
from esformat.core.json_paths import ESCAPED, MISSING, NULL, OBJECT, STRING
from esformat.core.matching import gathered
from esformat.format.json_values import JsonValues

_TEXTS = [STRING, ESCAPED]
_NULL = b"null"


class Taken(NamedTuple):
    """The members extracted from lines, and the remainder of the lines."""

    columns: dict[str, pa.BinaryArray]
    """Each member's value per line, null if the line lacks it. Members that no line has are absent."""
    data: bytes
    edges: Ints
    """Line i is bytes [edges[i], edges[i + 1]) of `data`."""


def take(lines: pa.StringArray, names: Collection[str], cut: Collection[str]) -> Taken:
    """Extract members from lines that contain one JSON object each.

    names: top-level members, at least one. cut: members whose values, unless text, are replaced by null in the
    remainder.
    The remainder is valid JSON if and only if the line was: nothing is extracted from a broken line.
    """
    members = {name: JsonValues(lines, (name,)) for name in names}
    columns = {name: _column(each, lines, name) for name, each in members.items() if (each.kinds != MISSING).any()}
    pieces = [np.empty((2, 0), np.int64)]
    for name in cut:
        each = members[name]
        rows = ~np.isin(each.kinds, [*_TEXTS, NULL, MISSING])
        pieces.append(np.stack([each.starts[rows], each.ends[rows]]))
    starts, ends = np.sort(np.concatenate(pieces, axis=1))
    return Taken(columns, *_with_nulls(next(iter(members.values())), starts, ends))


def _column(values: JsonValues, lines: pa.StringArray, name: str) -> pa.BinaryArray:
    column = values.texts().cast(pa.large_binary()).cast(pa.binary())
    if (values.kinds == OBJECT).any():
        inner = JsonValues(lines, (name, "base64"))
        rows = np.flatnonzero((values.kinds == OBJECT) & np.isin(inner.kinds, _TEXTS))
        if len(rows):
            mask = np.zeros(len(column), np.bool_)
            mask[rows] = True
            some = [bytes_in(column[row].as_py()) for row in rows.tolist()]
            column = pc.replace_with_mask(column, pa.array(mask), pa.array(some, pa.binary()))
    return column


def _with_nulls(values: JsonValues, starts: Ints, ends: Ints) -> tuple[bytes, Ints]:
    """Return the documents with null in place of the ranges [start, end), and their edges."""
    size = len(values.data)
    begins = np.full(2 * len(starts) + 1, size)  # alternating: kept text, and the null appended after the last document
    begins[::2] = np.append(0, ends)
    lengths = np.full_like(begins, len(_NULL))
    lengths[::2] = np.append(starts, size) - begins[::2]
    left = gathered(np.append(values.data, np.frombuffer(_NULL, np.uint8)), begins, lengths)
    grown = np.append(0, np.cumsum(len(_NULL) - (ends - starts)))
    return left, values.edges + grown[np.searchsorted(starts, values.edges)]
