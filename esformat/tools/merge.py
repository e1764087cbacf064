"""`merge`: combine several segments into one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from esformat.errors import UsageError
from esformat.format.metadata import Metadata, check_properties
from esformat.format.schema import without_keys
from esformat.io.location import Options, Target, apply_options
from esformat.read.collection.collection import open_many
from esformat.tools.new_segment import NewSegment, Progress, check_output, make_segment, opened, published
from esformat.tools.original import OpenOriginal
from esformat.tools.plan import plan_assembly
from esformat.tools.selection import everything
from esformat.write.writer import create, may_use_templates


def merge(
    paths: Sequence[Target],
    out: Target,
    *,
    templates: bool | None = None,
    properties: Mapping[str, str] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    storage_options: Options = None,
) -> NewSegment:
    """Merge segments into a new segment at `out`. The originals are not changed.

    If their columns or indexes differ, the new segment has all columns, as `open_many` does, null for events of a
    segment without the column, and the indexes that every segment with the column has; everything is then re-encoded.

    Events with the same space, grouping and timestamp are ordered by `paths`, then as in their segment. Data blocks
    that no other segment's events fall into are copied unchanged; where segments interleave, blocks are decoded and
    re-encoded, a few at a time. A property is kept unless segments have different texts for it; `properties` adds to
    these or replaces them.
    templates: as for `create`, for re-encoded blocks; None keeps the first segment's setting. If templates are
    requested and pay off, blocks of segments that were written without them are not copied.
    progress: called from time to time with the bytes done and in total; with events instead of bytes if columns or
    indexes differ. storage_options: as for `esformat.open`, for every URI.
    Raises UsageError (no segment, incompatible columns, an existing file), CorruptSegmentError, OSError; nothing
    appears at `out` then.
    """
    if isinstance(paths, str | bytes) or not paths:
        raise UsageError("merge needs a list of at least one segment")
    *paths, out = apply_options(storage_options, *paths, out)
    check_output(out, paths)
    with opened(paths) as originals:
        metadata = _metadata(originals, check_properties(properties))
        if templates is not None:
            metadata = replace(metadata, templates=may_use_templates(metadata.codec, templates))
        if any(original.metadata.schema != metadata.schema for original in originals):
            indexes = {name: None for original in originals for name in original.metadata.schema.indexes}
            return _united(paths, out, metadata, indexes, overwrite=overwrite, progress=progress)
        plan, copied = plan_assembly(originals, metadata)
        with published(out, overwrite=overwrite) as publication:
            selections = [everything] * len(originals)
            return make_segment(publication, originals, selections, plan, copied, progress=progress)


def _united(
    paths: Sequence[Any],
    out: Any,
    metadata: Metadata,
    indexes: Iterable[str],
    *,
    overwrite: bool,
    progress: Progress | None,
) -> NewSegment:
    """Re-encode the events of segments with different columns or indexes, as `open_many` reads them.

    indexes: those of all segments.
    """
    done = 0
    with open_many(list(paths)) as collection:
        total, schema = collection.num_events, collection.schema
        options = {
            name: getattr(metadata, name) for name in ("codec", "level", "frame_bytes", "templates", "properties")
        }
        keys = "binary" if metadata.schema.binary_keys else "text"
        dropped = tuple(name for name in indexes if name not in collection.indexes)
        with create(
            out, schema=without_keys(schema), indexes=collection.indexes, keys=keys, overwrite=overwrite, **options
        ) as writer:
            for batch in collection.scan().batches():
                writer.add_table(batch)
                done += batch.num_rows
                if progress:
                    progress(done, total)
    with opened([out]) as (made,):
        assert made.metadata.statistics is not None, "every writer keeps them"
        return NewSegment(made.metadata.statistics, 0, made.block_count, dropped)


def _metadata(originals: Sequence[OpenOriginal], given: dict[str, str]) -> Metadata:
    properties: dict[str, str] = {}
    contradicted: set[str] = set()
    for original in originals:
        for name, text in original.metadata.properties.items():
            if properties.setdefault(name, text) != text:
                contradicted.add(name)
    kept = {name: text for name, text in properties.items() if name not in contradicted}
    return replace(originals[0].metadata, properties=kept | given, statistics=None)
