"""Nodes of values that are stored as templates and variables, opened for any of their rows.

    the template of each row, 0 for null | for each variable that these templates show: its values, a pack or a node

No value is decoded before a question needs it; a range of rows takes the values of its variables alone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from esformat.cache import Cache
from esformat.core.templates import ENUM, SLACK_BYTES, STRING, Opened, Templates
from esformat.core.values import cut
from esformat.errors import CorruptSegmentError
from esformat.format.arrays import bitmap
from esformat.format.bytes_node import BytesNode
from esformat.format.layout import MAX_FRAME_BYTES
from esformat.format.node import DecodeContext, Shape, read_head
from esformat.format.packing import Pack, decode_ints, read_pack

MAX_NODE_SLOTS = 1 << 20
"""Slots that the rows of a node show together, and so the numbers that it decodes to."""
MAX_NODE_BYTES = 16 << 20
"""Bytes that the rows of a node take together."""

I64 = npt.NDArray[np.int64]


class TemplateNode:
    """A node of templates and variables, opened: where the values of each variable lie.

    It holds no decompressor, so threads may share it; its methods take the caller's context.
    """

    __slots__ = ("_asked", "_body", "_columns", "_strings", "_templates", "codes", "count", "end", "key")

    def __init__(self, body: memoryview, at: int, count: int, context: DecodeContext, key: Hashable = None) -> None:
        """`key`: what tells the node from others in a cache. Raises CorruptSegmentError."""
        head = read_head(body, at, count, context.plain)
        if head.shape != Shape.TEMPLATES or head.valid is not None or head.needs_dictionary or head.frame_rows:
            raise CorruptSegmentError(f"the head of a column node of shape {head.shape} breaks the format")
        if context.templates is None:
            raise CorruptSegmentError("a node of templates has no dictionary of them")
        self._body, self.count, self.key = body, count, key
        self._templates: Templates = context.templates
        pack = read_pack(body, head.at, count)
        self.codes: I64 = decode_ints(body, pack, context.plain)
        counts = self._counts(0, count)
        self._columns: dict[int, Pack | BytesNode] = {}
        self._asked = False  # whether a question needed some rows
        self.end = pack.end
        for variable in counts.nonzero()[0].tolist():
            column: Pack | BytesNode
            if self._templates.kind(variable) == STRING:
                column = BytesNode(body, self.end, int(counts[variable]), context, (key, variable))
                if column.head.valid is not None:
                    raise CorruptSegmentError("a variable of templates has nulls")
            else:
                column = read_pack(body, self.end, int(counts[variable]))
            self._columns[variable] = column
            self.end = column.end
        self._strings = [variable for variable, column in self._columns.items() if isinstance(column, BytesNode)]

    @property
    def columns(self) -> dict[int, Pack | BytesNode]:
        """Where the values of each variable lie that has any: a pack of numbers, or a node of strings."""
        return self._columns

    def enumerated(self, context: DecodeContext) -> Iterator[tuple[int, I64, I64]]:
        """Of each enumeration that has values: its number, the rows that show it, and the numbers of their values."""
        for variable, column in self._columns.items():
            if not isinstance(column, BytesNode) and self._templates.kind(variable) == ENUM:
                rows = np.isin(self.codes, np.array(self._templates.that_show(variable), np.int64)).nonzero()[0]
                yield variable, rows, decode_ints(self._body, column, context.plain)

    def _counts(self, low: int, high: int) -> I64:
        """How many values each variable has in rows [low, high)."""
        counts = np.zeros(self._templates.variables, np.int64)
        try:
            shown = self._templates.add_counts(self.codes, low, high, counts)
        except IndexError as error:
            raise CorruptSegmentError(str(error)) from None
        if shown > MAX_NODE_SLOTS:
            raise CorruptSegmentError(f"the rows of a node of templates show {shown} slots")
        return counts

    def offsets_and_bytes(
        self, low: int, high: int, context: DecodeContext, frames: Cache | None
    ) -> tuple[npt.NDArray[np.int32], pa.Buffer]:
        """Values [low, high) as Arrow holds them: where each begins in some bytes, and where the last ends."""
        return put_together([self.decoded(low, high, context, frames)])

    def array(self, kind: pa.DataType, context: DecodeContext) -> pa.Array:
        """All values. Raises CorruptSegmentError, also for text that is not UTF-8."""
        offsets, out = self.offsets_and_bytes(0, self.count, context, None)
        return text_array(offsets, out, kind, self.validity(0, self.count))

    def validity(self, low: int, high: int) -> npt.NDArray[np.uint8] | None:
        """One byte for each value of rows [low, high), 1 where it is valid; None where all are."""
        valid = self.codes[low:high] != 0
        return None if valid.all() else valid.view(np.uint8)

    def values(self, low: int, high: int, context: DecodeContext, frames: Cache | None) -> list[bytes | None]:
        """Values [low, high) as Python bytes."""
        offsets, out = self.offsets_and_bytes(low, high, context, frames)
        values: list[Any] = cut(memoryview(out).cast("B"), offsets.astype(np.int64), 0, high - low, 0)
        valid = self.validity(low, high)
        if valid is None:
            return values
        return [value if there else None for value, there in zip(values, valid, strict=True)]

    def chosen_values(self, places: list[int], context: DecodeContext, frames: Cache | None) -> list[bytes | None]:
        """The values at ascending places as Python bytes."""
        low = places[0]
        near = self.values(low, places[-1] + 1, context, frames)
        return [near[place - low] for place in places]

    def _kept(self, context: DecodeContext, frames: Cache | None) -> Opened | None:
        """The numbers of all variables; from the second question on, unless there is no cache for them."""
        if frames is None or self.key is None:
            return None
        key = (self.key, "numbers")
        known: Opened | None = frames.find(key)
        if known is None:
            if not self._asked:
                self._asked = True
                return None
            columns: list[Any] = [None] * self._templates.variables
            for variable, column in self._columns.items():
                if not isinstance(column, BytesNode):
                    columns[variable] = decode_ints(self._body, column, context.plain)
            known = self._templates.opened(columns)
            frames.keep(key, known, sum(column.nbytes for column in columns if column is not None))
        return known

    def decoded(self, low: int, high: int, context: DecodeContext, frames: Cache | None) -> Decoded:
        """The values of each variable in rows [low, high)."""
        firsts, counts = self._counts(0, low), self._counts(low, high)
        most = self._templates.most_bytes(self.codes, low, high, MAX_NODE_BYTES + 1)
        opened = self._kept(context, frames) if high - low < self.count else None
        columns: list[Any] = [None] * self._templates.variables
        is_whole = opened is not None
        for variable in self._strings if is_whole else self._columns:
            if not counts[variable]:
                continue
            column, first = self._columns[variable], int(firsts[variable])
            last = first + int(counts[variable])
            firsts[variable] = 0
            is_whole = False
            if isinstance(column, BytesNode):
                columns[variable] = edges, _ = _strings(column, first, last, context, frames)
                most += int(edges[-1] - edges[0]) * self._templates.times(variable)
            else:
                columns[variable] = decode_ints(self._body, column, context.plain, first, last)
        if opened is None or not is_whole:
            opened = self._templates.opened(columns, opened)
        return Decoded(self._templates, self.codes, low, high, opened, firsts, min(most, MAX_NODE_BYTES))


class Decoded(NamedTuple):
    """Rows [low, high) of a node: the templates and the values of each variable, not yet put together.

    firsts: of each variable, the first value of these rows. most_bytes: what they take at most.
    """

    templates: Templates
    codes: I64
    low: int
    high: int
    opened: Opened
    firsts: I64
    most_bytes: int


def put_together(parts: Sequence[Decoded]) -> tuple[npt.NDArray[np.int32], pa.Buffer]:
    """The values of some rows, one behind another: where each begins, and where the last ends. Raises
    CorruptSegmentError.
    """
    most = sum(part.most_bytes for part in parts) + SLACK_BYTES
    if most > MAX_FRAME_BYTES:
        raise CorruptSegmentError("the values of a group of blocks are out of bounds")
    offsets = np.empty(sum(part.high - part.low for part in parts) + 1, np.int32)
    out = pa.allocate_buffer(most)
    view = memoryview(out).cast("B")
    row = at = 0
    for templates, codes, low, high, opened, firsts, _ in parts:
        try:
            end = templates.put_together(codes, low, high, opened, firsts, offsets, row, view, at)
        except (IndexError, ValueError, OverflowError) as error:
            raise CorruptSegmentError(f"a node of templates breaks the format: {error}") from None
        if end - at > MAX_NODE_BYTES:
            raise CorruptSegmentError(f"a node of templates stands for {end - at} bytes")
        row, at = row + high - low, end
    return offsets, out


def _strings(node: BytesNode, first: int, last: int, context: DecodeContext, frames: Cache | None) -> tuple[I64, bytes]:
    """Values [first, last) of a node: their edges within some bytes."""
    if first == 0 and last == node.count:
        lengths, text = node.all_values(context)
        edges = np.zeros(last + 1, np.int64)
        np.cumsum(lengths, out=edges[1:])
        return edges, text
    assert frames is not None, "only all values are decoded without a cache"
    offsets, text = node.offsets_and_bytes(first, last, context, frames)
    return np.frombuffer(offsets, np.int32).astype(np.int64), text


def text_array(
    offsets: npt.NDArray[np.int32], data: pa.Buffer, kind: pa.DataType, valid: npt.NDArray[np.uint8] | None
) -> pa.Array:
    """Text or binary from offsets and bytes. Raises CorruptSegmentError for text that is not UTF-8."""
    small = pa.string() if pa.types.is_string(kind) or pa.types.is_large_string(kind) else pa.binary()
    array = pa.Array.from_buffers(small, len(offsets) - 1, [bitmap(valid), pa.py_buffer(offsets), data])
    try:
        if small == pa.string():
            array.validate(full=True)
        return array if small == kind else array.cast(kind)
    except pa.ArrowInvalid as error:
        raise CorruptSegmentError(f"stored text is broken: {error}") from None
