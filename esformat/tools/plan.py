"""Plan how a segment built from others is stored: the dictionaries that it keeps, and the encoding of new blocks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from esformat.format.arrays import is_bytes
from esformat.format.codec import Codec, codec_from_name, make_compressor
from esformat.format.dictionary import ColumnDictionary, encode_dictionary
from esformat.format.metadata import Metadata
from esformat.format.node import EncodeContext
from esformat.tools.assembly import AssemblyPlan
from esformat.tools.original import Original, open_data_block
from esformat.tools.selection import Selection, everything, single_blocks
from esformat.write.block_encoder import MAX_DICTIONARY_VALUE_BYTES, MAX_DICTIONARY_VALUES, BlockFormat, may_want_codes
from esformat.write.template_choice import choose_dictionary

MOST_DICTIONARIES = 16
"""Maximum dictionaries of originals that a segment keeps: opening reads all of them. Other originals are re-encoded."""
SAMPLED_BLOCKS = 64
SAMPLE_BYTES = 1 << 20

_RAW = EncodeContext(make_compressor(Codec.NONE), make_compressor(Codec.NONE))
Dictionary = list[ColumnDictionary]


def plan_assembly(
    originals: Sequence[Original], metadata: Metadata, given: Sequence[dict[int, Dictionary]] | None = None
) -> tuple[AssemblyPlan, list[bool]]:
    """How to store a segment with the originals' blocks; and for each original, whether its blocks can be copied.

    If templates are requested and pay off, originals that were written without them are re-encoded, because they would
    otherwise stay without templates forever.
    given: the dictionaries of each original, if they are no longer its own.
    """
    held = [original.dictionaries() for original in originals] if given is None else list(given)
    own = _own_dictionary(metadata, held, originals)
    templated = metadata.templates and any(column.templates is not None for column in own)
    numbering: dict[bytes, int] = {}
    kept: list[Dictionary] = []
    numbers: list[dict[int, int]] = []
    copied: list[bool] = []
    for original, dictionaries in zip(originals, held, strict=True):
        mine = {number: _identity(dictionary) for number, dictionary in dictionaries.items()}
        new = {identity for identity in mine.values() if identity not in numbering}
        room = not kept or len(kept) + len(new) < MOST_DICTIONARIES
        copied.append(room and (original.metadata.templates or not templated))
        if not copied[-1]:
            numbers.append({})
            continue
        for number, identity in mine.items():
            if identity not in numbering:
                kept.append(dictionaries[number])
                numbering[identity] = len(kept)
        numbers.append({number: numbering[identity] for number, identity in mine.items()})
    if own and _identity(own) not in numbering:
        kept.append(own)
        numbering[_identity(own)] = len(kept)
    codec = codec_from_name(metadata.codec)
    columns = {column.column: column for column in own}
    form = BlockFormat(metadata.schema, codec, metadata.level, columns, {}, metadata.frame_bytes)
    return AssemblyPlan(metadata, form, kept, numbering[_identity(own)] if own else 0, numbers), copied


def plan_reencoded(
    originals: Sequence[Original],
    metadata: Metadata,
    selections: Sequence[Selection] | None = None,
    given: Sequence[dict[int, Dictionary]] | None = None,
) -> AssemblyPlan:
    """How to store a segment without copied blocks: dictionaries are trained on samples of the selected rows."""
    codec = codec_from_name(metadata.codec)
    held = [original.dictionaries() for original in originals] if given is None else list(given)
    own = []
    for place, field in enumerate(metadata.schema.fields):
        values = _common_values(held, place) if may_want_codes(field.type) else None
        if values is not None:
            own.append(ColumnDictionary(place, values=values))
        elif is_bytes(field.type):
            trained = train(originals, metadata, place, codec, selections)
            own += [] if trained is None else [trained]
    columns = {column.column: column for column in own}
    form = BlockFormat(metadata.schema, codec, metadata.level, columns, {}, metadata.frame_bytes)
    return AssemblyPlan(metadata, form, [own] if own else [], 1 if own else 0, [{} for _ in originals])


def _identity(dictionary: Dictionary) -> bytes:
    return encode_dictionary(dictionary, _RAW)


def _own_dictionary(
    metadata: Metadata, held: Sequence[dict[int, Dictionary]], originals: Sequence[Original]
) -> Dictionary:
    """The dictionary of re-encoded blocks: for each column the first templates with their zstd dictionary, or the first
    such dictionary; for coded columns, all values. If templates are wanted and an original was written without them,
    new ones are trained.
    """
    columns = []
    untried = metadata.templates and not all(original.metadata.templates for original in originals)
    codec = codec_from_name(metadata.codec)
    every = [dictionary for dictionaries in held for dictionary in dictionaries.values()]
    for place, field in enumerate(metadata.schema.fields):
        if not is_bytes(field.type):
            continue
        values = _common_values(held, place) if may_want_codes(field.type) else None
        if values is not None:
            columns.append(ColumnDictionary(place, values=values))
            continue
        mine = [c for dictionary in every for c in dictionary if c.column == place and (c.zstd or c.templates)]
        chosen = next((c for c in mine if c.templates is not None), mine[0] if mine else None)
        if untried or (not every and len(originals) > 1):  # small ones, which together may be worth training
            chosen = train(originals, metadata, place, codec) or chosen
        if chosen is not None and codec is Codec.ZSTD:
            columns.append(chosen)
    return columns


def _common_values(held: Sequence[dict[int, Dictionary]], place: int) -> pa.Array | None:
    """All values of a column that every original stores as codes; None if one does not, or if there are too many."""
    found: list[pa.Array] = []
    for dictionaries in held:
        if not dictionaries:
            return None
        for dictionary in dictionaries.values():
            mine = next((column.values for column in dictionary if column.column == place), None)
            if mine is None:
                return None
            found.append(mine)
    if not found:
        return None
    values = pc.unique(pa.concat_arrays(found))
    if not len(values):
        return None
    size = pc.sum(pc.binary_length(values)).as_py() or 0
    return values if len(values) <= MAX_DICTIONARY_VALUES and size <= MAX_DICTIONARY_VALUE_BYTES else None


def train(
    originals: Sequence[Original],
    metadata: Metadata,
    place: int,
    codec: Codec,
    selections: Sequence[Selection] | None = None,
) -> ColumnDictionary | None:
    """A zstd dictionary and templates for a column, from a sample of the selected rows; None if they do not pay off.

    Samples only blocks that are kept whole.
    """
    if codec is not Codec.ZSTD:
        return None
    kind = metadata.schema.fields[place].type
    pieces: list[pa.Array] = []
    stored = sampled = 0
    for original, selection in zip(originals, selections or [everything] * len(originals), strict=True):
        statistics = original.metadata.statistics
        step = max(1, (statistics.data_blocks if statistics else 0) * len(originals) // SAMPLED_BLOCKS)
        for kept in islice(single_blocks(selection(original)), 0, None, step):
            ref = kept.ref
            if kept.choose is not None:
                continue
            ((_, block),) = original.read([ref])
            context = original.contexts(block.dictionary)[place]
            column = open_data_block(original, ref, block).column(place, kind, context)
            most = max(1, int(SAMPLE_BYTES / SAMPLED_BLOCKS / max(1.0, column.nbytes / len(column))))
            pieces.append(column.slice(0, most))
            stored += column.nbytes
            sampled += ref.rows
    events = sum(o.metadata.statistics.events for o in originals if o.metadata.statistics)
    if not sampled:
        return None
    total = int(stored * max(1.0, events / sampled))
    return choose_dictionary(
        place,
        pa.concat_arrays(pieces),
        total,
        codec,
        metadata.level,
        metadata.frame_bytes,
        templates=metadata.templates,
    )
