"""`verify`, and the order in which it checks a file.

Everything is checked once, following the handles: header, trailer, footer; metadata and dictionaries; space filter; the
values of all indexes; directory and data blocks; posting lists; statistics. Bytes that no handle refers to are then
walked through from frame to frame. Memory is bounded by the largest block, the roots of directory and indexes, and one
number for each index page.
"""

from __future__ import annotations

from collections.abc import Callable

from esformat.errors import UnsupportedVersionError
from esformat.format.layout import HEADER_BYTES, TRAILER_BYTES, BlockKind
from esformat.io.buffered import in_windows
from esformat.io.location import Options, Target, apply_options, source_of
from esformat.tools.verification.blocks import BAD_BYTES, KINDS, Blocks
from esformat.tools.verification.contents import Contents
from esformat.tools.verification.opening import Opening
from esformat.tools.verification.orphans import Orphans
from esformat.tools.verification.report import Findings, Report


def verify(
    path: Target, *, progress: Callable[[int, int], None] | None = None, storage_options: Options = None
) -> Report:
    """Check every byte of a segment against every rule of the format; `path` is whatever `open` takes.

    progress: called from time to time with the bytes done and in total. storage_options: as for `open`.
    A damaged block is one problem in the report and does not stop the check; a file that does not even open is checked
    as far as its blocks allow. Raises OSError if the file cannot be read, and SegmentChangedError if an object was
    replaced meanwhile. Damage in the file is reported, never raised.
    """
    (target,) = apply_options(storage_options, path)
    source = source_of(target)
    findings = Findings()
    blocks = Blocks(in_windows(source), findings, progress)
    opening = Opening(blocks, source.size)
    orphans = Orphans(blocks, opening)
    try:
        opening.check()
        event_count = _check_contents(blocks, opening, orphans)
        _check_the_rest(blocks, opening, orphans)
    except UnsupportedVersionError as error:  # all rules may differ in another version
        findings.add_error(error, max(0, source.size - TRAILER_BYTES))
        event_count = 0
    if progress:
        progress(source.size, source.size)
    changed = getattr(source, "changed_error", None)
    replaced = changed() if changed is not None and findings.problems() else None
    if replaced is not None:
        raise replaced
    return Report(source.name, source.size, event_count + orphans.event_count, blocks.count, findings.problems())


def _check_contents(blocks: Blocks, opening: Opening, orphans: Orphans) -> int:
    """Check the blocks that the footer leads to. Returns the number of events in valid data blocks."""
    entries, schema = opening.entries, opening.schema
    if entries is None:
        return 0
    if schema is None:  # both copies of the metadata are damaged: the frames of all other blocks are checked
        blocks.orphaned_kinds |= set(BlockKind)
        return 0
    for (kind, _, _), handle in entries.items():
        if kind not in KINDS:
            blocks.read(handle, kind)
    contents = Contents(blocks, opening, orphans, schema)
    try:
        contents.check()
    except BAD_BYTES as error:
        blocks.findings.add_error(error, blocks.end)
    return contents.event_count


def _check_the_rest(blocks: Blocks, opening: Opening, orphans: Orphans) -> None:
    """Walk through the bytes that no handle referred to."""
    for start, end in blocks.gaps(HEADER_BYTES, blocks.end):
        for _ in orphans.walk(start, end):
            pass
