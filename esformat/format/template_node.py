"""Nodes of values that are stored as templates and variables, opened to read any of their rows.

    the template of each row, 0 for null | for each variable that these templates show: its values, a pack or a node

Values are decoded only when a read needs them; for a range of rows, only the values of the variables in that range.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from esformat.core.bytes_nodes import read_values
from esformat.core.caches import Cache
from esformat.core.numbers import read_numbers
from esformat.core.rendering import MOST_NODE_BYTES, TemplateRows
from esformat.core.searching import mark_codes, mark_rows, mark_texts
from esformat.core.template_columns import read_template_codes
from esformat.core.templates import ENUM, SLACK_BYTES, STRING, Templates
from esformat.errors import CorruptSegmentError
from esformat.format.arrays import bitmap
from esformat.format.bytes_node import BytesNode
from esformat.format.layout import MAX_FRAME_BYTES
from esformat.format.node import DecodeContext
from esformat.format.packing import Pack, decode_ints, read_pack
from esformat.format.template_paths import UNKNOWN, WITH_STRINGS, SampleDocuments, ValueTemplates, are_plain
from esformat.format.template_search import Candidates

MAX_NODE_SLOTS = 1 << 20
"""Most slots that the rows of a node show together, and so the most numbers that it decodes to."""
MAX_NODE_BYTES = MOST_NODE_BYTES

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class TemplateNode:
    """A node of templates and variables, opened: it knows where the values of each variable are.

    It contains no decompressor, so threads may share it; its methods take the caller's context.
    """

    __slots__ = ("_body", "_strings", "_templates", "cached_rows", "count", "end", "key", "template_rows")

    def __init__(
        self,
        body: memoryview,
        at: int,
        count: int,
        context: DecodeContext,
        key: Hashable = None,
        read: tuple[Any, int] | None = None,
    ) -> None:
        """`key` identifies the node in a cache; `read` comes from `read_template_codes`. Raises CorruptSegmentError."""
        codes, end = read or read_template_codes(body, at, count, context.plain)
        if context.templates is None:
            raise CorruptSegmentError("a node of templates has no dictionary of them")
        self._body, self.count, self.key = body, count, key
        self._templates: Templates = context.templates
        self.template_rows = TemplateRows(self._templates, body, end, codes, MAX_NODE_SLOTS)
        self._strings: dict[int, BytesNode] = {}
        self.end = self.template_rows.end
        self.cached_rows = self.template_rows

    @property
    def codes(self) -> npt.NDArray[np.uint16]:
        """The template of each row, counted from 1; 0 for null."""
        return np.frombuffer(self.template_rows.codes(0, self.count), np.uint16)

    def columns(self, context: DecodeContext) -> dict[int, Pack | BytesNode]:
        """The values of each variable that has any: a pack of numbers, or a node of strings."""
        return {
            variable: self._string_node(variable, at, count, context)
            if self._templates.kind(variable) == STRING
            else read_pack(self._body, at, count)
            for variable, at, count in self.template_rows.columns
        }

    def enumerated(self, variables: Container[int], context: DecodeContext) -> Iterator[tuple[int, I64]]:
        """For each of these enumerations that has values, yield its number and the values of the rows that show it."""
        for variable, at, count in self.template_rows.columns:
            if variable in variables and self._templates.kind(variable) == ENUM:
                yield variable, decode_ints(self._body, read_pack(self._body, at, count), context.plain)

    def that_show(self, variable: int) -> Bools:
        """A mask of the rows that show a variable."""
        return np.isin(self.codes, np.array(self._templates.that_show(variable), np.int64))

    def rows_that_may_contain(self, candidates: Candidates, context: DecodeContext) -> Bools:
        """A mask of the rows that may contain one of the texts of `candidates`. It includes all rows that do."""
        rows = self.template_rows
        mask = np.zeros(self.count, np.bool_)
        marks = mask.view(np.uint8)
        if candidates.anywhere is not None:
            mark_codes(rows, candidates.anywhere.view(np.uint8), marks)
        if candidates.numbered:
            for variable, at, count in rows.others:
                if variable in candidates.numbered and rows.lacks(variable):
                    rows.hold(variable, read_numbers(self._body, at, count, context.plain)[0])
            for chain in candidates.chains:
                mark_rows(rows, chain, marks)
        for variable, _, _ in rows.others if candidates.strings else ():  # most rows show few of the variables, or none
            if variable in candidates.strings:
                mark_texts(rows, variable, candidates.strings[variable], context.plain, context.framed, marks)
        return mask

    def offsets_and_bytes(
        self, low: int, high: int, context: DecodeContext, frames: Cache | None
    ) -> tuple[npt.NDArray[np.int32], pa.Buffer]:
        """Values [low, high) in Arrow's layout: offsets (one more than values), and the bytes to which these refer."""
        return rendered([self.decoded(low, high, context, frames)])

    def array(self, kind: pa.DataType, context: DecodeContext) -> pa.Array:
        """All values. Raises CorruptSegmentError, also for text that is not UTF-8."""
        offsets, out = self.offsets_and_bytes(0, self.count, context, None)
        return text_array(offsets, out, kind, self.validity(0, self.count))

    def validity(self, low: int, high: int) -> npt.NDArray[np.uint8] | None:
        """One byte for each of the rows [low, high), 1 if its value is valid; None if all are valid."""
        valid = self.template_rows.validity(low, high)
        return None if valid is None else np.frombuffer(valid, np.uint8)

    def chosen_values(self, places: list[int], context: DecodeContext, frames: Cache | None) -> list[bytes | None]:
        """The values at ascending places as Python bytes."""
        return self.values(places[0], places[-1] + 1, context, frames, places)

    def values(
        self, low: int, high: int, context: DecodeContext, frames: Cache | None, places: list[int] | None = None
    ) -> list[bytes | None]:
        """Values [low, high) as Python bytes, or only those at the ascending `places` among them."""
        made = self.template_rows.cached_values(low, high, places)
        if made is not None:
            return made
        strings = self._strings_of(self.template_rows, low, high, context, frames)
        try:
            return self.template_rows.values(low, high, places, strings, MAX_NODE_BYTES)
        except (IndexError, ValueError, OverflowError) as error:
            raise _broken(error) from None

    def decoded(
        self, low: int, high: int, context: DecodeContext, frames: Cache | None, places: I64 | None = None
    ) -> Decoded:
        """The data from which the values of rows [low, high), or of the ascending `places` among them, are rendered."""
        return self._decoded(self.template_rows, low, high, context, frames, places)

    def _decoded(
        self, rows: TemplateRows, low: int, high: int, context: DecodeContext, frames: Cache | None, places: I64 | None
    ) -> Decoded:
        strings = self._strings_of(rows, low, high, context, frames)
        if places is None:
            most = rows.most_bytes(low, high, strings, MAX_NODE_BYTES)
        else:
            most = rows.most_chosen(places, strings, MAX_NODE_BYTES)
        return Decoded(rows, low, high, places, strings, most)

    def value_at(
        self,
        known: ValueTemplates,
        low: int,
        high: int,
        places: I64 | None,
        context: DecodeContext,
        frames: Cache | None,
    ) -> tuple[Decoded, npt.NDArray[np.uint8]] | None:
        """The values at a path, and their kinds, for rows [low, high) or the ascending `places` among them; None unless
        all of their templates determine them.
        """
        kinds = np.empty(high - low if places is None else len(places), np.uint8)
        bits = self.template_rows.look_up(low, high, places, known.kinds, kinds)
        if bits & UNKNOWN:
            return None
        if bits & WITH_STRINGS:
            if not self._are_plain(
                known.strings, self.codes[low:high] if places is None else self.codes[places], context
            ):
                return None
            kinds &= ~np.uint8(WITH_STRINGS)
        rows = self.template_rows.shortened(known.templates)
        return self._decoded(rows, low, high, context, frames, places), kinds

    def count_documents(
        self, known: SampleDocuments, low: int, high: int, places: I64 | None, context: DecodeContext
    ) -> list[tuple[bytes, int]] | None:
        """Sample documents with the fields of rows [low, high), or of the rows at `places`, and the number of rows of
        each; None unless all of their templates determine the fields.
        """
        codes = self.codes[low:high] if places is None else self.codes[places]
        counts = np.bincount(codes, minlength=len(known.flags))
        flags = int(np.bitwise_or.reduce(known.flags[counts > 0], initial=0))
        if flags & UNKNOWN or (flags & WITH_STRINGS and not self._are_plain(known.strings, codes, context)):
            return None
        return [(document, int(counts[code])) for code, document in known.documents.items() if counts[code]]

    def _are_plain(
        self, strings: Mapping[int, frozenset[int]], codes: npt.NDArray[np.uint16], context: DecodeContext
    ) -> bool:
        """Whether the strings of all variables that these templates show can be copied unescaped into JSON strings."""
        variables = frozenset[int]().union(*(strings.get(code, ()) for code in np.unique(codes).tolist()))
        shown = (column for column in self.template_rows.columns if column[0] in variables)
        return all(
            are_plain(*self._strings_from(variable, at, count, 0, count, context, None))
            for variable, at, count in shown
        )

    def _strings_of(
        self, rows: TemplateRows, low: int, high: int, context: DecodeContext, frames: Cache | None
    ) -> list[Any]:
        """The strings that these rows need."""
        return [
            (variable, first, *self._strings_from(variable, at, count, first, last, context, frames))
            for variable, at, count, first, last in rows.needed(low, high, context.plain)
        ]

    def _strings_from(
        self, variable: int, at: int, count: int, first: int, last: int, context: DecodeContext, frames: Cache | None
    ) -> tuple[Any, bytes]:
        """Values [first, last) of a variable with `count` strings: their edges, and the bytes that these refer to."""
        if first == 0 and last == count:
            edges, text, _ = read_values(self._body, at, count, context.plain, context.framed)
            return edges, text
        assert frames is not None, "only all values are decoded without a cache"
        offsets, text = self._string_node(variable, at, count, context).offsets_and_bytes(first, last, context, frames)
        return np.frombuffer(offsets, np.int32).astype(np.int64), text

    def _string_node(self, variable: int, at: int, count: int, context: DecodeContext) -> BytesNode:
        node = self._strings.get(variable)
        if node is None:
            node = self._strings[variable] = BytesNode(self._body, at, count, context, (self.key, variable))
        return node


class Decoded(NamedTuple):
    """Rows of a node with everything needed to render them.

    [low, high): the rows; places: ascending rows among them, None for all. strings: of their variables. most_bytes:
    upper bound of their rendered size.
    """

    rows: TemplateRows
    low: int
    high: int
    places: I64 | None
    strings: list[Any]
    most_bytes: int

    def __len__(self) -> int:
        return self.high - self.low if self.places is None else len(self.places)

    def validity(self) -> npt.NDArray[np.uint8] | None:
        """One byte for each row, 1 if it is valid; None if all are valid."""
        valid = self.rows.validity(self.low, self.high)
        if valid is None:
            return None
        found = np.frombuffer(valid, np.uint8)
        return found if self.places is None else found[self.places - self.low]


def rendered(parts: Sequence[Decoded]) -> tuple[npt.NDArray[np.int32], pa.Buffer]:
    """Render the values of some rows, one after another, in Arrow's layout: their offsets (one more than values), and
    the bytes to which these refer. Raises CorruptSegmentError.
    """
    most = sum(part.most_bytes for part in parts) + SLACK_BYTES
    if most > MAX_FRAME_BYTES:
        raise CorruptSegmentError("the values of a group of blocks are out of bounds")
    offsets = np.empty(sum(map(len, parts)) + 1, np.int32)
    out = pa.allocate_buffer(most)
    view = memoryview(out).cast("B")
    row = at = 0
    for part in parts:
        try:
            if part.places is None:
                end = part.rows.render(part.low, part.high, part.strings, offsets, row, view, at)
            else:
                end = part.rows.render_places(part.places, part.strings, offsets, row, view, at)
        except (IndexError, ValueError, OverflowError) as error:
            raise _broken(error) from None
        if end - at > MAX_NODE_BYTES:
            raise CorruptSegmentError(f"a node of templates stands for {end - at} bytes")
        row, at = row + len(part), end
    return offsets, out


def _broken(error: Exception) -> CorruptSegmentError:
    return CorruptSegmentError(f"a node of templates breaks the format: {error}")


def text_array(
    offsets: npt.NDArray[np.int32], data: pa.Buffer, kind: pa.DataType, valid: npt.NDArray[np.uint8] | None
) -> pa.Array:
    """Build text or binary from offsets and bytes. Raises CorruptSegmentError for text that is not UTF-8."""
    small = pa.string() if pa.types.is_string(kind) or pa.types.is_large_string(kind) else pa.binary()
    array = pa.Array.from_buffers(small, len(offsets) - 1, [bitmap(valid), pa.py_buffer(offsets), data])
    try:
        if small == pa.string():
            array.validate(full=True)
        return array if small == kind else array.cast(kind)
    except pa.ArrowInvalid as error:
        raise CorruptSegmentError(f"stored text is broken: {error}") from None
