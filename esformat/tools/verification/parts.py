"""Read the body of a block part by part, checking each part against every rule."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from esformat.core.keys import read_keys
from esformat.errors import CorruptSegmentError
from esformat.format.arrays import is_bytes
from esformat.format.encoding import decode_node
from esformat.format.layout import MAX_KEY_BYTES, BlockHandle
from esformat.format.node import NODE, DecodeContext, Shape
from esformat.format.packing import decode_ints
from esformat.format.templates import TemplateTable, decode_templates, end_of_templates, table_of
from esformat.tools.verification.nodes import check_node, check_pack

_FRONT_CODED = bytes([Shape.FRONT_CODED])
_TEMPLATES = struct.Struct("<II")  # bytes, variables

I64 = npt.NDArray[np.int64]


class Parts:
    """A cursor in a body: each method reads the next part. All methods raise CorruptSegmentError."""

    def __init__(self, body: memoryview, context: DecodeContext) -> None:
        self.body, self.at = body, 0
        self._context = context

    def fields(self, layout: struct.Struct) -> tuple[Any, ...]:
        """Read fixed fields."""
        try:
            fields = layout.unpack_from(self.body, self.at)
        except struct.error:
            raise CorruptSegmentError("a body is cut short") from None
        self.at += layout.size
        return fields

    def numbers(self, count: int) -> I64:
        """Read a pack."""
        pack = check_pack(self.body, self.at, count, self._context.plain)
        self.at = pack.end
        return decode_ints(self.body, pack, self._context.plain)

    def counts(self, count: int, least: int = 0) -> I64:
        """Read a pack of numbers, none of which may be below `least`."""
        numbers = self.numbers(count)
        if count and int(numbers.min()) < least:
            raise CorruptSegmentError(f"a count or length is {int(numbers.min())}, less than {least}")
        return numbers

    def values(
        self, count: int, kind: pa.DataType, context: DecodeContext | None = None, *, nullable: bool = False
    ) -> pa.Array:
        """Read a node."""
        context = context or self._context
        end = check_node(self.body, self.at, count, kind, context, nullable=nullable)
        array, decoded_end = decode_node(self.body, self.at, count, kind, context)
        if end != decoded_end:
            raise CorruptSegmentError("a node is longer than its values")
        self.at = end
        return array

    def templates(self, count: int, kind: pa.DataType) -> TemplateTable:
        """Read the templates of a column, with their variables."""
        if not is_bytes(kind):
            raise CorruptSegmentError(f"a column of type {kind} has templates")
        end = end_of_templates(self.body, self.at)
        stored = decode_templates(self.body[self.at : end], count, self._context)
        self._check_templates(count)
        if self.at != end:
            raise CorruptSegmentError("the templates of a column are longer than their parts")
        return table_of(stored)

    def _check_templates(self, count: int) -> None:
        """Check the packs and nodes that templates are stored in."""
        _, variables = self.fields(_TEMPLATES)
        _kinds, _parameters, values = (self.numbers(variables) for _ in range(3))
        self.texts(int(values.sum()))
        slots = int(self.numbers(count).sum())
        self.numbers(slots)
        self.texts(slots + count)

    def texts(self, count: int) -> list[bytes]:
        """Read a node of keys, or of texts of templates, front-coded or not."""
        start = self.at
        if self.body[start : start + 1] == _FRONT_CODED:
            if self.fields(NODE) != (Shape.FRONT_CODED, 0, 0):
                raise CorruptSegmentError("the head of a front-coded node breaks the format")
            self.counts(count)
        self.values(count, pa.binary())
        texts, end = read_keys(self.body, start, count, self._context.plain, self._context.framed)
        if end != self.at:
            raise CorruptSegmentError("a node is longer than its values")
        return texts.as_list()

    def keys(self, count: int) -> list[bytes]:
        """Read a node of spaces or groupings."""
        keys = self.texts(count)
        longest = max(map(len, keys), default=0)
        if longest > MAX_KEY_BYTES:
            raise CorruptSegmentError(f"a key has {longest} bytes")
        return keys

    def handles(self, count: int) -> list[BlockHandle]:
        """Read three packs: offset, length and check of each block."""
        columns = [self.counts(count).tolist() for _ in range(3)]
        return [BlockHandle(*parts) for parts in zip(*columns, strict=True)]

    def end(self) -> None:
        """Check that nothing is left."""
        if self.at != len(self.body):
            raise CorruptSegmentError(f"{len(self.body) - self.at} bytes are left over at the end of a body")


def check_range(low: int, value: int, high: int, what: str) -> int:
    """Return `value`. Raises CorruptSegmentError if it is out of bounds."""
    if not low <= value <= high:
        raise CorruptSegmentError(f"{what} is {value}, not between {low} and {high}")
    return value
