"""`merge`: several segments into one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from esformat.errors import UsageError
from esformat.format.metadata import Metadata, check_properties
from esformat.format.schema import KEY_COLUMNS
from esformat.io.location import Options, Target, located
from esformat.read.collection.collection import open_many
from esformat.tools.new_segment import Made, Progress, check_output, make_segment, opened, published
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
) -> Made:
    """Merge segments into a new segment at `out`; the segments stay as they are.

    Where their columns or indexes differ, it has the columns of all, as `open_many` has them, with null where a segment
    lacks one, and the indexes that every segment with the column has; everything is re-encoded then.

    Events with the same space, grouping and timestamp keep the order of `paths`, then their own. Data blocks that no
    other segment's events fall into are copied as they are; where segments interleave, blocks are decoded and encoded
    anew, a few at a time. Properties are taken over where no other segment has another text under the
    name; `properties` adds to them or replaces them.
    templates: as for `create`, for the blocks that are encoded anew; None keeps the choice of the first segment. Where
    they are asked for and pay, blocks of segments that were written without them are not copied.
    progress: called now and then with the bytes done and the bytes in all. storage_options: as for `esformat.open`, of
    every place that is a URI.
    Raises UsageError (no segment, columns that do not go together, a file that exists), CorruptSegmentError, OSError;
    nothing appears at `out` then.
    """
    if isinstance(paths, str | bytes) or not paths:
        raise UsageError("merge needs a list of at least one segment")
    *paths, out = located(storage_options, *paths, out)
    check_output(out, paths)
    with opened(paths) as originals:
        metadata = _metadata(originals, check_properties(properties))
        if templates is not None:
            metadata = replace(metadata, templates=may_use_templates(metadata.codec, templates))
        if any(original.metadata.schema != metadata.schema for original in originals):
            return _united(paths, out, metadata, overwrite=overwrite, progress=progress)
        plan, copied = plan_assembly(originals, metadata)
        with published(out, overwrite=overwrite) as publication:
            selections = [everything] * len(originals)
            return make_segment(publication, originals, selections, plan, copied, progress=progress)


def _united(paths: Sequence[Any], out: Any, metadata: Metadata, *, overwrite: bool, progress: Progress | None) -> Made:
    """Write the events of segments with different columns or indexes anew, as `open_many` reads them."""
    done = 0
    with open_many(list(paths)) as collection:
        total, schema = collection.num_events, collection.schema
        options = {
            name: getattr(metadata, name) for name in ("codec", "level", "frame_bytes", "templates", "properties")
        }
        keys = "binary" if metadata.schema.binary_keys else "text"
        columns = pa.schema([field for field in schema if field.name not in KEY_COLUMNS])
        with create(
            out, schema=columns, indexes=collection.indexes, keys=keys, overwrite=overwrite, **options
        ) as writer:
            for batch in collection.scan().batches():
                writer.add_table(batch)
                done += batch.num_rows
                if progress:
                    progress(done, total)
    with opened([out]) as (made,):
        assert made.metadata.statistics is not None, "every writer keeps them"
        return Made(made.metadata.statistics, 0, made.block_count)


def _metadata(originals: Sequence[OpenOriginal], given: dict[str, str]) -> Metadata:
    properties: dict[str, str] = {}
    contradicted: set[str] = set()
    for original in originals:
        for name, text in original.metadata.properties.items():
            if properties.setdefault(name, text) != text:
                contradicted.add(name)
    kept = {name: text for name, text in properties.items() if name not in contradicted}
    return replace(originals[0].metadata, properties=kept | given, statistics=None)
