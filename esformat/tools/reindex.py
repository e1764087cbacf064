"""`reindex`: rewrite a segment with indexes on other columns, without changing its data blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from esformat.format.metadata import check_properties
from esformat.format.schema import make_schema
from esformat.io.location import Options, Target, apply_options
from esformat.tools.new_segment import NewSegment, Progress, check_output, make_segment, opened, published
from esformat.tools.plan import plan_assembly
from esformat.tools.selection import everything


def reindex(
    path: Target,
    out: Target,
    indexes: Sequence[str],
    *,
    rebuild: bool = False,
    properties: Mapping[str, str] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    storage_options: Options = None,
) -> NewSegment:
    """Rewrite a segment with indexes on exactly these columns; data blocks are copied unchanged.

    Existing indexes are converted. rebuild: build them from their columns instead, like new ones. properties: add to
    the existing ones, or replace them.
    progress, storage_options: as for `merge`. Raises UsageError, InvalidEventError (a column that cannot be
    indexed), CorruptSegmentError, OSError.
    """
    path, out = apply_options(storage_options, path, out)
    check_output(out, [path])
    with opened([path]) as (original,):
        schema = original.metadata.schema
        arrow = pa.schema([pa.field(field.name, field.type, field.nullable) for field in schema.fields])
        wanted = make_schema(arrow, tuple(indexes), binary_keys=schema.binary_keys)
        stored = original.metadata.properties | check_properties(properties)
        metadata = replace(original.metadata, schema=wanted, properties=stored, statistics=None)
        plan, copied = plan_assembly([original], metadata)
        built = [name for name in wanted.indexes if rebuild or name not in schema.indexes]
        with published(out, overwrite=overwrite) as publication:
            return make_segment(publication, [original], [everything], plan, copied, built=built, progress=progress)
