"""The head of every node, and the contexts for encoding and decoding nodes: see `encoding.py`."""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from esformat.core import bytes_nodes
from esformat.core.matching import Matcher
from esformat.core.templates import Templates
from esformat.errors import CorruptSegmentError
from esformat.format.arrays import Values, is_bytes
from esformat.format.codec import Compressor, Decompressor
from esformat.format.packing import decode_ints, read_pack


class Shape(enum.IntEnum):
    """How the values of a node are stored. The numbers are part of the format."""

    NULL = 0
    INTS = 1
    WIDE = 2
    CODES = 3
    BYTES = 4
    LIST = 5
    FIXED = 6
    STRUCT = 7
    TEMPLATES = 8
    FRONT_CODED = 9


NODE = struct.Struct(
    "<"
    "B"  # shape
    "B"  # flags: 1 validity stored, 2 frames need the dictionary
    "H"  # rows per frame (bytes), otherwise zero
)
FRAMES = struct.Struct(
    "<"
    "B"  # codec of the frames
    "B"  # bytes of each entry in the frame table: 2 or 4
)
VALIDITY, NEEDS_DICTIONARY = 1, 2
MAX_FRAME_ROWS = bytes_nodes.MAX_FRAME_ROWS
WHOLE_BYTES = 1 << 20  # of a frame whose values are always read together


@dataclass(frozen=True, slots=True)
class EncodeContext:
    """What encoding a column needs: compressors, and the choices that were measured on its first block.

    frame_bytes: approximate size of a frame of text or binary; None: the default, which suits point reads.
    raw: the number of uncompressed planes. raws: the same for each variable.
    templates: those of the column. matcher: splits values by the templates; it belongs to one thread.
    """

    plain: Compressor
    framed: Compressor
    has_dictionary: bool = False
    raw: int = 0
    frame_bytes: int | None = None
    templates: Templates | None = None
    matcher: Matcher | None = None
    raws: Sequence[int] = ()


class Stored(Protocol):
    """A column's values and templates, decoded on demand."""

    def shared_values(self) -> Values | None:
        """The values by code, starting with the null of code 0; None for a column without codes."""
        ...

    def shared_templates(self, context: DecodeContext) -> Templates | None:
        """The templates by code, starting from 1; None for a column without templates."""
        ...


class DecodeContext:
    """What decoding needs: decompressors without and with the block's dictionary, the column's values and templates."""

    __slots__ = ("_stored", "_templates", "_values", "framed", "plain")

    def __init__(
        self,
        plain: Decompressor,
        framed: Decompressor,
        values: pa.Array | None = None,
        templates: Templates | None = None,
        stored: Stored | None = None,
    ) -> None:
        """stored: provides the values and templates that are not passed here."""
        self.plain, self.framed, self._stored = plain, framed, stored
        self._values = None if values is None else Values(values)
        self._templates = templates

    @property
    def values(self) -> Values | None:
        """The values by code, starting with the null of code 0; None without codes. Raises CorruptSegmentError."""
        if self._values is None and self._stored is not None:
            self._values = self._stored.shared_values()
        return self._values

    @property
    def templates(self) -> Templates | None:
        """The templates by code, starting from 1; None if the column has no templates. Raises CorruptSegmentError."""
        if self._templates is None and self._stored is not None:
            self._templates = self._stored.shared_templates(self)
        return self._templates


def shape_of(kind: pa.DataType) -> Shape:
    """The shape in which values of a logical type are stored without a dictionary."""
    if pt.is_null(kind):
        return Shape.NULL
    if pt.is_struct(kind):
        return Shape.STRUCT
    if pt.is_fixed_size_list(kind):
        return Shape.FIXED
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_map(kind):
        return Shape.LIST
    if is_bytes(kind):
        return Shape.BYTES
    return Shape.INTS if kind.bit_width <= 64 else Shape.WIDE


class NodeHead(NamedTuple):
    """The first bytes of a node: its shape, its validity (None: all valid) and where its values begin."""

    shape: int
    needs_dictionary: bool
    frame_rows: int
    valid: npt.NDArray[np.uint8] | None
    at: int


def read_head(body: memoryview, at: int, count: int, plain: Decompressor) -> NodeHead:
    """Read a node's header and validity. Raises CorruptSegmentError."""
    try:
        shape, flags, rows = NODE.unpack_from(body, at)
    except struct.error:
        raise CorruptSegmentError("a column node is cut short") from None
    if not flags:
        return NodeHead(shape, False, rows, None, at + 4)
    if flags & ~(VALIDITY | NEEDS_DICTIONARY):
        raise CorruptSegmentError(f"a column node has unknown flags {flags:#x}")
    at += NODE.size
    valid = None
    if flags & VALIDITY:
        valid, at = _read_validity(body, at, count, plain)
    return NodeHead(shape, bool(flags & NEEDS_DICTIONARY), rows, valid, at)


def _read_validity(body: memoryview, at: int, count: int, plain: Decompressor) -> tuple[npt.NDArray[np.uint8], int]:
    pack = read_pack(body, at, count)
    valid = decode_ints(body, pack, plain).astype(np.uint8)
    if pack.width > 1 or (count and int(valid.max()) > 1):
        raise CorruptSegmentError("validity holds other values than 0 and 1")
    return valid, pack.end
