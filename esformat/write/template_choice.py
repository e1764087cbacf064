"""Decide whether a column of text or binary is stored as templates, by measuring both ways on a sample of it."""

from __future__ import annotations

from functools import cached_property

import pyarrow as pa
import pyarrow.types as pt

from esformat.core.matching import Matcher
from esformat.format.arrays import bytes_of, validity_of
from esformat.format.codec import Codec, load_dictionary, make_compressor
from esformat.format.dictionary import ColumnDictionary, dictionary_context
from esformat.format.encoding import encode_slices
from esformat.format.node import EncodeContext
from esformat.format.packing import best_raw
from esformat.format.templates import Kind, TemplateTable
from esformat.write.known_templates import KnownColumn, used_part
from esformat.write.skeletons import find_templates
from esformat.write.templated import Matched, encode_templated
from esformat.write.zstd_dictionary import MIN_SAMPLED_BYTES, train_on

SAMPLED_BLOCK_ROWS = 2048
LEAST_SAVED = 10
"""Templates are used if they save at least one byte in this many …"""
MOST_TABLE_SHARE = 6
"""… and if their table, which a file stores twice, takes at most one byte in this many of the size without them."""


def choose_dictionary(
    place: int,
    sample: pa.Array,
    byte_count: int,
    codec: Codec,
    level: int | None,
    frame_bytes: int | None = None,
    *,
    templates: bool = False,
    known: KnownColumn | None = None,
) -> ColumnDictionary | None:
    """The dictionary of a column of `byte_count` bytes in total; None if nothing pays off.

    `sample`: rows of the column in segment order, many short groups of them. known: templates of earlier files; it is
    updated.
    """
    zstd = train_on(sample, byte_count, codec, level, frame_bytes)
    without = ColumnDictionary(place, zstd)
    if templates and may_have_templates(sample.type) and codec is Codec.ZSTD and byte_count >= MIN_SAMPLED_BYTES:
        trial = _Trial(without, sample, byte_count, level, frame_bytes)
        chosen = trial.looked_for() if known is None else trial.known(known)
        if chosen is not None:
            return chosen
    return without if zstd else None


def may_have_templates(kind: pa.DataType) -> bool:
    """Whether columns of this type can be stored as templates."""
    return bool(pt.is_binary(kind) or pt.is_string(kind))


class _Trial:
    """Tries templates of one column on a sample, compared with storing it without them."""

    def __init__(
        self,
        without: ColumnDictionary,
        sample: pa.Array,
        byte_count: int,
        level: int | None,
        frame_bytes: int | None,
    ) -> None:
        self._without, self._sample, self._byte_count = without, sample, byte_count
        self._level, self._frame_bytes = level, frame_bytes
        self._sampled = max(1, len(bytes_of(sample)[1]))
        self._bounds = [*range(0, len(sample), SAMPLED_BLOCK_ROWS), len(sample)]

    def looked_for(self) -> ColumnDictionary | None:
        """The templates that a search finds; None if they save too little."""
        found = self._found()
        return None if found is None else found[0]

    def known(self, known: KnownColumn) -> ColumnDictionary | None:
        """The templates of an earlier file if they do as well on this column, else those that a search finds."""
        fitting = None if known.table is None else self._tried(self._used_part(known.table))
        if fitting is not None and known.fits(fitting[1]):
            return fitting[0]
        if fitting is not None and self._byte_count < known.least_bytes:
            return fitting[0]
        if not known.may_look(self._byte_count):
            return None
        found = self._found()
        if found is None:
            known.note(None)
            return None
        known.note(found[0].templates, found[1])
        return found[0]

    def _found(self) -> tuple[ColumnDictionary, float] | None:
        rows = self._sample.cast(pa.binary()).drop_null().to_pylist()
        return self._tried(find_templates(rows, self._byte_count / self._sampled))

    def _used_part(self, table: TemplateTable) -> TemplateTable | None:
        used = used_part(table, _matched(self._sample, self._context(b"", table)))
        return used if len(used.templates) > 1 else None  # the last template matches anything

    def _context(self, zstd: bytes, table: TemplateTable | None, raws: list[int] | None = None) -> EncodeContext:
        dictionary = ColumnDictionary(self._without.column, zstd, None, table)
        return column_context(dictionary, Codec.ZSTD, self._level, self._frame_bytes, raws=raws)

    @cached_property
    def _plain_bytes(self) -> int:
        """Stored size of the sample without templates."""
        return sum(map(len, encode_slices(self._sample, self._bounds, self._context(self._without.zstd, None))))

    def _tried(self, table: TemplateTable | None) -> tuple[ColumnDictionary, float] | None:
        """The column with these templates, and its share of the bytes without them; None if they save too little."""
        if table is None:
            return None
        first = self._context(b"", table)
        strings = _leftover(self._sample, first)
        share = len(bytes_of(strings)[1]) / self._sampled
        left_bytes = int(share * self._byte_count)
        zstd = train_on(strings, left_bytes, Codec.ZSTD, self._level, self._frame_bytes) if len(strings) else b""
        context = self._context(zstd, table, variable_raws(self._sample, first))
        made_bytes = sum(map(len, encode_templated(self._sample, self._bounds, context)))
        encoded = table.encode(dictionary_context(Codec.ZSTD, self._level))
        table_bytes = len(encoded) * 2 * self._sampled / self._byte_count
        stored = made_bytes + table_bytes
        if table_bytes * MOST_TABLE_SHARE > self._plain_bytes or stored * LEAST_SAVED > self._plain_bytes * (
            LEAST_SAVED - 1
        ):
            return None
        return ColumnDictionary(self._without.column, zstd, None, table), stored / self._plain_bytes


def _leftover(sample: pa.Array, context: EncodeContext) -> pa.Array:
    """The strings of the sample that remain as values of variables."""
    matched = _matched(sample, context)
    assert context.templates is not None
    parts = [
        matched.strings(variable)
        for variable in matched.counts.nonzero()[0].tolist()
        if context.templates.kind(variable) == Kind.STRING
    ]
    return pa.concat_arrays(parts) if parts else pa.array([], pa.binary())


def _matched(sample: pa.Array, context: EncodeContext) -> Matched:
    offsets, text = bytes_of(sample)
    return Matched(text.cast("B"), offsets, validity_of(sample), context)


def variable_raws(sample: pa.Array, context: EncodeContext) -> list[int]:
    """For each variable, the number of low byte planes that stay uncompressed, measured on some rows."""
    assert context.templates is not None
    matched = _matched(sample.slice(0, SAMPLED_BLOCK_ROWS), context)
    return [
        0
        if context.templates.kind(variable) == Kind.STRING or not matched.counts[variable]
        else best_raw(matched.numbers(variable), context.plain)
        for variable in range(context.templates.variables)
    ]


def column_context(
    dictionary: ColumnDictionary | None,
    codec: Codec,
    level: int | None,
    frame_bytes: int | None,
    *,
    raw: int = 0,
    raws: list[int] | None = None,
) -> EncodeContext:
    """The context that encodes a column. Belongs to one thread."""
    plain = make_compressor(codec, level)
    zstd = b"" if dictionary is None else dictionary.zstd
    framed = make_compressor(codec, level, load_dictionary(zstd)) if zstd else plain
    table = None if dictionary is None else dictionary.templates
    templates = None if table is None else table.compiled()
    matcher = None if templates is None else Matcher(templates)
    return EncodeContext(plain, framed, bool(zstd), raw, frame_bytes, templates, matcher, raws or ())
