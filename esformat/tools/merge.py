"""`merge`: several segments into one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from esformat.errors import UsageError
from esformat.location import Options, Target, located
from esformat.metadata import Metadata, check_properties
from esformat.tools.new_segment import Made, Progress, check_output, make_segment, opened, published
from esformat.tools.original import OpenOriginal
from esformat.tools.plan import plan_assembly
from esformat.tools.selection import everything


def merge(
    paths: Sequence[Target],
    out: Target,
    *,
    properties: Mapping[str, str] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    storage_options: Options = None,
) -> Made:
    """Merge segments with one schema into a new segment at `out`; the segments stay as they are.

    Events with the same space, grouping and timestamp keep the order of `paths`, then their own. Data blocks that no
    other segment's events fall into are copied as they are; where segments interleave, blocks are decoded and encoded
    anew, a few at a time. Properties are taken over where no other segment has another text under the
    name; `properties` adds to them or replaces them.
    progress: called now and then with the bytes done and the bytes in all. storage_options: as for `esformat.open`, of
    every place that is a URI.
    Raises UsageError (no segment, schemas that differ, a file that exists), CorruptSegmentError, OSError; nothing
    appears at `out` then.
    """
    if isinstance(paths, str | bytes) or not paths:
        raise UsageError("merge needs a list of at least one segment")
    *paths, out = located(storage_options, *paths, out)
    check_output(out, paths)
    with opened(paths) as originals:
        _check_schemas(originals)
        plan, copied = plan_assembly(originals, _metadata(originals, check_properties(properties)))
        with published(out, overwrite=overwrite) as publication:
            selections = [everything] * len(originals)
            return make_segment(publication, originals, selections, plan, copied, progress=progress)


def _check_schemas(originals: Sequence[OpenOriginal]) -> None:
    first = originals[0].metadata.schema
    for other in originals[1:]:
        schema = other.metadata.schema
        if schema == first:
            continue
        what = "kinds of keys" if schema.binary_keys != first.binary_keys else "columns"
        if replace(schema, fields=tuple(replace(field, indexed=False) for field in schema.fields)) == replace(
            first, fields=tuple(replace(field, indexed=False) for field in first.fields)
        ):
            what = "indexes"
        hint = "give them the same indexes with `esdb reindex` first" if what == "indexes" else None
        raise UsageError(f"it has other {what} than {originals[0].name}", path=other.name, hint=hint)


def _metadata(originals: Sequence[OpenOriginal], given: dict[str, str]) -> Metadata:
    properties: dict[str, str] = {}
    contradicted: set[str] = set()
    for original in originals:
        for name, text in original.metadata.properties.items():
            if properties.setdefault(name, text) != text:
                contradicted.add(name)
    kept = {name: text for name, text in properties.items() if name not in contradicted}
    return replace(originals[0].metadata, properties=kept | given, statistics=None)
