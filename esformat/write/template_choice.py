"""Whether a column of text or binary is stored by templates: measured on a sample of it, both ways."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

from esformat.core.matching import Matcher
from esformat.format.arrays import bytes_of, validity_of
from esformat.format.codec import Codec, load_dictionary, make_compressor
from esformat.format.dictionary import ColumnDictionary, dictionary_context
from esformat.format.encoding import encode_runs
from esformat.format.node import EncodeContext
from esformat.format.packing import best_raw
from esformat.format.templates import Kind, TemplateTable
from esformat.write.skeletons import find_templates
from esformat.write.templated import Matched, encode_templated
from esformat.write.zstd_dictionary import MIN_SAMPLED_BYTES, train_on

SAMPLED_BLOCK_ROWS = 2048
LEAST_SAVED = 5
"""Templates are taken where they save one byte in so many."""
MOST_TABLE_SHARE = 6
"""… and where the table of them, which a file has twice, is no more than one byte in so many of what is stored."""


def choose_dictionary(
    place: int,
    sample: pa.Array,
    byte_count: int,
    codec: Codec,
    level: int | None,
    frame_bytes: int | None = None,
    *,
    templates: bool = False,
) -> ColumnDictionary | None:
    """What nodes of a column of `byte_count` bytes in all refer to; None where nothing pays for itself.

    `sample`: rows of the column in segment order, many short runs of them.
    """
    zstd = train_on(sample, byte_count, codec, level, frame_bytes)
    without = ColumnDictionary(place, zstd)
    if templates and may_have_templates(sample.type) and codec is Codec.ZSTD and byte_count >= MIN_SAMPLED_BYTES:
        scale = byte_count / max(1, len(bytes_of(sample)[1]))
        table = find_templates(sample.cast(pa.binary()).drop_null().to_pylist(), scale)
        if table is not None:
            chosen = _with_templates(without, table, sample, byte_count, level, frame_bytes)
            if chosen is not None:
                return chosen
    return without if zstd else None


def may_have_templates(kind: pa.DataType) -> bool:
    """Whether columns of this type can be stored by templates."""
    return bool(pt.is_binary(kind) or pt.is_string(kind))


def _with_templates(
    without: ColumnDictionary,
    table: TemplateTable,
    sample: pa.Array,
    byte_count: int,
    level: int | None,
    frame_bytes: int | None,
) -> ColumnDictionary | None:
    """The same with templates; None where they save too little."""
    sampled = max(1, len(bytes_of(sample)[1]))
    bounds = [*range(0, len(sample), SAMPLED_BLOCK_ROWS), len(sample)]
    plain_bytes = sum(map(len, encode_runs(sample, bounds, column_context(without, Codec.ZSTD, level, frame_bytes))))
    first = column_context(ColumnDictionary(without.column, b"", None, table), Codec.ZSTD, level, frame_bytes)
    strings = _leftover(sample, first)
    share = len(bytes_of(strings)[1]) / sampled
    zstd = train_on(strings, int(share * byte_count), Codec.ZSTD, level, frame_bytes) if len(strings) else b""
    chosen = ColumnDictionary(without.column, zstd, None, table)
    context = column_context(chosen, Codec.ZSTD, level, frame_bytes, raws=variable_raws(sample, first))
    made_bytes = sum(map(len, encode_templated(sample, bounds, context)))
    table_bytes = len(table.encode(dictionary_context(Codec.ZSTD, level))) * 2 * sampled / byte_count
    if table_bytes * MOST_TABLE_SHARE > plain_bytes:
        return None
    return chosen if (made_bytes + table_bytes) * LEAST_SAVED <= plain_bytes * (LEAST_SAVED - 1) else None


def _leftover(sample: pa.Array, context: EncodeContext) -> pa.Array:
    """The strings that are left of a sample."""
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
    """Of each variable, how many low byte planes stay uncompressed, measured on some rows."""
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
    """What a column is encoded with. Belongs to one thread."""
    plain = make_compressor(codec, level)
    zstd = b"" if dictionary is None else dictionary.zstd
    framed = make_compressor(codec, level, load_dictionary(zstd)) if zstd else plain
    table = None if dictionary is None else dictionary.templates
    templates = None if table is None else table.compiled()
    matcher = None if templates is None else Matcher(templates)
    return EncodeContext(plain, framed, bool(zstd), raw, frame_bytes, templates, matcher, raws or ())
