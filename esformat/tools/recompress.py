"""`recompress`: re-encode every block of a segment with another codec, level or dictionary."""

from __future__ import annotations

from dataclasses import replace

from esformat.errors import UsageError
from esformat.format.codec import codec_from_name
from esformat.io.location import Options, Target, apply_options
from esformat.tools.new_segment import NewSegment, Progress, check_output, make_segment, opened, published
from esformat.tools.plan import plan_reencoded
from esformat.tools.selection import everything
from esformat.write.writer import may_use_templates


def recompress(
    path: Target,
    out: Target,
    *,
    codec: str = "zstd",
    level: int | None = None,
    templates: bool | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    storage_options: Options = None,
) -> NewSegment:
    """Rewrite a segment with another codec or level, in full-size blocks, with newly trained dictionaries.

    codec, level, templates: as for `create`. Memory does not grow with the segment. progress, storage_options: as for
    `merge`.
    Raises UsageError, UnsupportedVersionError (no such codec installed), CorruptSegmentError, OSError.
    """
    path, out = apply_options(storage_options, path, out)
    codec_from_name(codec)
    if level is not None and codec != "zstd":
        raise UsageError(f"codec {codec!r} has no levels")
    if level is not None and not -100 <= level <= 22:
        raise UsageError(f"zstd level {level} is not between -100 and 22")
    templates = may_use_templates(codec, templates)
    check_output(out, [path])
    with opened([path]) as (original,):
        metadata = replace(original.metadata, codec=codec, level=level, templates=templates, statistics=None)
        plan = plan_reencoded([original], metadata)
        with published(out, overwrite=overwrite) as publication:
            return make_segment(publication, [original], [everything], plan, [False], progress=progress)
