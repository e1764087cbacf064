"""`split`: one segment into several, by size, by spaces or by time."""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from esformat.errors import UsageError
from esformat.event import to_microseconds
from esformat.io.location import Options, Target, located, publication_of, within
from esformat.io.publish import Publication
from esformat.io.store import StoredAt
from esformat.io.upload import Upload
from esformat.tools.new_segment import Progress, check_output, make_segment, opened
from esformat.tools.original import OpenOriginal
from esformat.tools.plan import plan_assembly
from esformat.tools.selection import Selection, rows_in, times_between

Part = Path | str | tuple[Any, str] | StoredAt
"""Where a part lies, as `open` takes it."""


def split(
    path: Target,
    directory: Target,
    *,
    size_bytes: int | None = None,
    spaces: Sequence[str | bytes] | None = None,
    times: Sequence[int | dt.datetime] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    storage_options: Options = None,
) -> list[Part]:
    """Split a segment into new ones in `directory`, numbered in order: `name-0000.esdb`, `name-0001.esdb` …

    directory: of files, a URI that parts lie below, or a pair of a filesystem and a directory; the parts come likewise.
    A directory that is absent is made.
    Give one of three. size_bytes: how large a part may be, with its share of the indexes; it ends before the space that
    would pass that, so that no part is larger but of one space that is. spaces: ascending keys, at each of which a part
    begins. times: ascending moments (int µs or aware datetimes), at each of which a part begins. A part without events
    is not written and its number left out. The
    segment stays as it is; blocks that lie within one part are copied. When it fails, the parts that are complete go
    away again, unless they replaced files. progress, storage_options: as for `merge`.
    Raises UsageError, CorruptSegmentError, OSError.
    """
    if (size_bytes is not None) + (spaces is not None) + (times is not None) != 1:
        raise UsageError("split by one of size_bytes, spaces or times")
    source, _ = located(storage_options, path, directory)
    with opened([source]) as (original,):
        if size_bytes is not None:
            selections = list(_by_size(original, size_bytes))
        elif spaces is not None:
            selections = list(_by_spaces(original, spaces))
        else:
            selections = list(_by_times(times or ()))
        name = Path(original.name).name.removesuffix(".esdb")
        parts = []
        for number, selection in enumerate(selections):
            if next(selection(original), None) is not None:
                target = within(directory, f"{name}-{number:04}.esdb")
                _, place = located(storage_options, path, target)
                check_output(place, [source])
                parts.append((target, place, selection))
        if parts and isinstance(parts[0][0], Path):
            parts[0][0].parent.mkdir(parents=True, exist_ok=True)
        return _write(original, parts, overwrite=overwrite, progress=progress)


def _write(
    original: OpenOriginal, parts: Sequence[tuple[Part, Any, Selection]], *, overwrite: bool, progress: Progress | None
) -> list[Part]:
    plan, copied = plan_assembly([original], replace(original.metadata, statistics=None))
    publications: list[tuple[Part, Publication | Upload]] = []
    written = 0
    try:
        for number, (target, place, selection) in enumerate(parts):
            publication = publication_of(place, overwrite=overwrite)
            publications.append((target, publication))
            shown = _share(progress, number, len(parts))
            made = make_segment(publication, [original], [selection], plan, copied, progress=shown)
            if not made.statistics.events:  # the times of blocks promised more than their rows held
                publication.abort()
                publications.pop()
        for _, publication in publications:
            publication.commit()
            written += 1
    except BaseException:
        for _, publication in publications[written:]:
            publication.abort()
        for _, publication in () if overwrite else publications[:written]:
            publication.withdraw()
        raise
    return [target for target, _ in publications]


def _share(progress: Progress | None, number: int, count: int) -> Progress | None:
    if progress is None:
        return None
    return lambda done, total: progress(number * total + done, count * total)


def _by_size(original: OpenOriginal, size_bytes: int) -> Iterator[Selection]:
    if size_bytes < 1:
        raise UsageError(f"a part of {size_bytes} bytes holds nothing")
    lengths = sum(ref.handle.length for ref in original.blocks())
    most = size_bytes * lengths * 15 // (16 * max(1, original.size))  # indexes and the like take the rest
    first = stored = row = 0
    space_row = before_space = 0  # where the last space begins, and what the part holds before it
    last_space = None
    for ref in original.blocks():
        if ref.first_key[0] != last_space:
            space_row, before_space = ref.first_row, stored
        if before_space and stored + ref.handle.length > most:
            yield rows_in([(first, space_row)])
            first, stored, before_space = space_row, stored - before_space, 0
        stored += ref.handle.length
        last_space = ref.last_key[0]
        row = ref.first_row + ref.rows
    yield rows_in([(first, row)])


def _by_spaces(original: OpenOriginal, spaces: Sequence[str | bytes]) -> Iterator[Selection]:
    starts = [space.encode() if isinstance(space, str) else bytes(space) for space in spaces]
    if any(a >= b for a, b in pairwise(starts)):
        raise UsageError("the spaces at which to split must ascend, each once")
    edges = [0, *(_first_row(original, start) for start in starts), original.row_count]
    for first, last in pairwise(edges):
        yield rows_in([(first, last)])


def _first_row(original: OpenOriginal, space: bytes) -> int:
    """The first row whose space is not before `space`."""
    root = original.reader.root
    for number in root.leaves_of(space):
        leaf = original.reader.leaf(number)
        run = bisect_left(leaf.spaces, space)
        if run < len(leaf.spaces):
            return leaf.run_rows[run]
    return root.rows[root.leaves_of(space).stop]


def _by_times(times: Sequence[int | dt.datetime]) -> Iterator[Selection]:
    moments = [to_microseconds(moment, "time") for moment in times]
    if any(a >= b for a, b in pairwise(moments)):
        raise UsageError("the times at which to split must ascend, each once")
    for start, end in pairwise([None, *moments, None]):
        yield times_between(start, end)
