"""Split values by the templates of their column, and store them as templates and values of variables."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from esformat.core.matching import gathered
from esformat.format.arrays import bytes_of, validity_of
from esformat.format.encoding import encode_node
from esformat.format.node import NODE, EncodeContext, Shape
from esformat.format.packing import encode_ints
from esformat.format.template_node import MAX_NODE_BYTES, MAX_NODE_SLOTS
from esformat.format.templates import Kind

BITS_COST = 1.3
"""Store variables as bits if that takes at most this many times the size of planes: bits allow reading a single value
without its neighbours.
"""

I64 = npt.NDArray[np.int64]


def encode_templated(array: pa.Array, bounds: list[int], context: EncodeContext) -> list[bytes]:
    """Encode array[bounds[i]:bounds[i+1]] for each i as one node, with the context's templates if they fit."""
    assert context.templates is not None
    offsets, text = bytes_of(array)
    data = text.cast("B")  # Arrow's buffers have signed bytes
    valid = validity_of(array)
    nodes = []
    for a, b in pairwise(bounds):
        part = None if valid is None else valid[a:b]
        node = _encode(data, offsets[a : b + 1], part, context) if offsets[b] - offsets[a] <= MAX_NODE_BYTES else None
        nodes.append(encode_node(array.slice(a, b - a), context) if node is None else node)
    return nodes


class Matched:
    """Values split by templates: the template of each row, from 1, 0 for null, and the values of each variable."""

    def __init__(
        self, data: memoryview, offsets: I64, valid: npt.NDArray[np.uint8] | None, context: EncodeContext
    ) -> None:
        assert context.templates is not None
        assert context.matcher is not None
        self._templates, self._data, self._rows = context.templates, data, len(offsets) - 1
        room = context.templates.variables * self._rows
        self.codes: I64 = np.empty(self._rows, np.int64)
        self._numbers, self._lengths = np.empty(room, np.int64), np.empty(room, np.int64)
        self.counts: I64 = np.zeros(context.templates.variables, np.int64)
        validity = np.zeros(0, np.uint8) if valid is None else valid
        context.matcher.match(data, offsets, validity, self.codes, self._numbers, self._lengths, self.counts)

    def numbers(self, variable: int) -> I64:
        """The values of a variable that is a number or an enumeration."""
        first = variable * self._rows
        return self._numbers[first : first + int(self.counts[variable])]

    def strings(self, variable: int) -> pa.Array:
        """The values of a variable that is a string."""
        first = variable * self._rows
        count = int(self.counts[variable])
        lengths = self._lengths[first : first + count]
        text = gathered(self._data, self._numbers[first : first + count], lengths)
        edges = np.zeros(count + 1, np.int32)
        np.cumsum(lengths, out=edges[1:])
        return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(edges), pa.py_buffer(text)])

    @property
    def escaped(self) -> int:
        """The number of rows that only the last template matches."""
        return int((self.codes == self._templates.count).sum())


def _encode(
    data: memoryview, offsets: I64, valid: npt.NDArray[np.uint8] | None, context: EncodeContext
) -> bytes | None:
    """Encode one node; None if most values match only the last template, or show too many slots."""
    templates = context.templates
    assert templates is not None
    matched = Matched(data, offsets, valid, context)
    rows = len(offsets) - 1
    shown = templates.add_counts(matched.codes, 0, rows, np.zeros(templates.variables, np.int64))
    if 2 * matched.escaped > rows or shown > MAX_NODE_SLOTS:
        return None
    parts = [NODE.pack(Shape.TEMPLATES, 0, 0), encode_ints(matched.codes, context.plain)]
    for variable in matched.counts.nonzero()[0].tolist():
        if templates.kind(variable) == Kind.STRING:
            parts.append(encode_node(matched.strings(variable), context))
        else:
            raw = context.raws[variable] if context.raws else 0
            parts.append(encode_ints(matched.numbers(variable), context.plain, raw=raw, bits_cost=BITS_COST))
    return b"".join(parts)
