"""`split`: divide one segment into several, by size, by spaces or by time."""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np

from esformat.errors import UsageError
from esformat.event import to_microseconds
from esformat.io.location import Options, Target, apply_options, join_path, publication_of
from esformat.io.publish import Publication, naming
from esformat.io.store import StoredAt
from esformat.io.upload import Upload
from esformat.tools.new_segment import Progress, check_output, make_segment, opened
from esformat.tools.original import OpenOriginal
from esformat.tools.plan import plan_assembly
from esformat.tools.selection import Selection, rows_in, times_between

Part = Path | str | tuple[Any, str] | StoredAt
"""The location of a part, as `open` takes it."""


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

    directory: a local directory, a URI prefix, or a pair of a filesystem and a directory; the locations of the parts
    are returned in the same form. A missing directory is created.
    Pass exactly one of three. size_bytes: maximum size of a part, with its share of the indexes. A part ends before the
    space that would exceed that, so only a part with a single space can be larger. spaces: ascending keys, at each of
    which a part begins. times: ascending moments (int µs or aware datetimes), at each of which a part begins. A part
    without events is not written, and its number is skipped. The original is not changed; blocks that are entirely in
    one part are copied. If `split` fails, complete parts are deleted again, unless `overwrite` is set, because they may
    have replaced files; so is a directory that it created. progress, storage_options: as for `merge`.
    Raises UsageError, CorruptSegmentError, OSError.
    """
    if (size_bytes is not None) + (spaces is not None) + (times is not None) != 1:
        raise UsageError("split by one of size_bytes, spaces or times")
    source, _ = apply_options(storage_options, path, directory)
    with opened([source]) as (original,):
        if size_bytes is not None:
            pieces = [_rows(*rows) for rows in _by_size(original, size_bytes)]
        elif spaces is not None:
            pieces = [_rows(*rows) for rows in _by_spaces(original, spaces)]
        else:
            pieces = [_Piece(selection) for selection in _by_times(times or ())]
        name = Path(original.name).name.removesuffix(".esdb")
        absent: list[Path] = []

        def place(number: int) -> tuple[Part, Any]:
            target = join_path(directory, f"{name}-{number:04}.esdb")
            _, found = apply_options(storage_options, path, target)
            check_output(found, [source])
            if isinstance(target, Path):
                absent.extend(folder for folder in target.parents if not folder.exists())
                target.parent.mkdir(parents=True, exist_ok=True)
            return target, found

        try:
            return _write(original, pieces, place, size_bytes, overwrite=overwrite, progress=progress)
        except BaseException:
            with suppress(OSError):  # another program has put a file there
                for folder in absent:
                    folder.rmdir()
            raise


@dataclass(frozen=True, slots=True)
class _Piece:
    """The contents of a part. rows: [first, last), if they are consecutive."""

    selection: Selection
    rows: tuple[int, int] | None = None


def _rows(first: int, last: int) -> _Piece:
    return _Piece(rows_in([(first, last)]), (first, last))


def _write(
    original: OpenOriginal,
    pieces: Sequence[_Piece],
    place: Callable[[int], tuple[Part, Any]],
    size_bytes: int | None,
    *,
    overwrite: bool,
    progress: Progress | None,
) -> list[Part]:
    """Write the pieces as parts; cut one that is larger than `size_bytes` again, as long as it has several spaces.

    The sizes of rows, with their share of the indexes, are only known once they are written.
    """
    plan, copied = plan_assembly([original], replace(original.metadata, statistics=None))
    publications: list[tuple[Part, Publication | Upload]] = []
    waiting = list(reversed(pieces))
    number = written = 0
    try:
        while waiting:
            piece = waiting.pop()
            if next(piece.selection(original), None) is None:
                number += 1
                continue
            target, found = place(number)
            publication = publication_of(found, overwrite=overwrite)
            publications.append((target, publication))
            shown = _share(progress, number, number + 1 + len(waiting))
            with naming(publication.name):
                made = make_segment(publication, [original], [piece.selection], plan, copied, progress=shown)
            smaller = [] if size_bytes is None else _cut(original, piece, publication.file.tell(), size_bytes)
            if smaller or not made.statistics.events:  # empty if only the time spans of blocks, not rows, matched
                publication.abort()
                publications.pop()
            waiting += reversed(smaller)
            number += not smaller
        for _, publication in publications:
            with naming(publication.name):
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


def _by_size(original: OpenOriginal, size_bytes: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows that probably result in parts of that size, with their share of the indexes."""
    if size_bytes < 1:
        raise UsageError(f"a part needs at least 1 byte, not {size_bytes}")
    rows = original.row_count
    lengths = sum(ref.handle.length for ref in original.blocks())
    most = size_bytes * lengths * 15 // (16 * max(1, original.size))  # indexes and the like take the rest
    first = start = 0  # the first rows of the part, and of its last space
    before_first = before_start = 0.0  # and the bytes of blocks before each
    for row, before in chain(_starts(original, 0, rows), [(rows, float(lengths))]):
        if before - before_first > most and start > first:
            yield first, start
            first, before_first = start, before_start
        start, before_start = row, before
    yield first, rows


def _cut(original: OpenOriginal, piece: _Piece, made_bytes: int, size_bytes: int) -> list[_Piece]:
    """Cut a piece that takes `made_bytes` into pieces of about equal rows; none if it is small enough or one space."""
    if made_bytes <= size_bytes or piece.rows is None:
        return []
    first, last = piece.rows
    starts = [row for row, _ in _starts(original, first, last)]
    if not starts:
        return []
    count = -(-17 * made_bytes // (16 * size_bytes))  # a sixteenth more: each has its own header and footer
    wanted = (first + (last - first) * number // count for number in range(1, count))
    edges = sorted({starts[min(bisect_left(starts, row), len(starts) - 1)] for row in wanted})
    return [_rows(*rows) for rows in pairwise([first, *edges, last])]


def _starts(original: OpenOriginal, first: int, last: int) -> Iterator[tuple[int, float]]:
    """The rows between `first` and `last` at which spaces begin, each with about the bytes of blocks before it."""
    root = original.reader.root
    before = 0
    last_space = None
    for number in range(root.leaf_of_row(first), root.leaf_of_row(last - 1) + 1):
        leaf = original.reader.leaf(number)
        bytes_before = np.interp(leaf.run_rows, leaf.block_rows, leaf.block_offsets) - leaf.block_offsets[0] + before
        # Not strict: the last edge in `run_rows` begins no run.
        for space, row, at in zip(leaf.spaces, leaf.run_rows, bytes_before.tolist(), strict=False):
            if space != last_space and first < row < last:
                yield row, at
            last_space = space
        before += leaf.block_offsets[-1] - leaf.block_offsets[0]


def _by_spaces(original: OpenOriginal, spaces: Sequence[str | bytes]) -> Iterator[tuple[int, int]]:
    starts = [space.encode() if isinstance(space, str) else bytes(space) for space in spaces]
    if any(a >= b for a, b in pairwise(starts)):
        raise UsageError("the spaces to split at must ascend without duplicates")
    edges = [0, *(_first_row(original, start) for start in starts), original.row_count]
    yield from pairwise(edges)


def _first_row(original: OpenOriginal, space: bytes) -> int:
    """The first row whose space is `space` or later."""
    root = original.reader.root
    for number in root.leaves_of(space):
        leaf = original.reader.leaf(number)
        run = leaf.runs_of(space)[0]
        if run < len(leaf.spaces):
            return int(leaf.run_rows[run])
    after = root.leaves_of(space).stop
    return int(root.rows_of(after)[0]) if after < len(root) else original.row_count


def _by_times(times: Sequence[int | dt.datetime]) -> Iterator[Selection]:
    moments = [to_microseconds(moment, "time") for moment in times]
    if any(a >= b for a, b in pairwise(moments)):
        raise UsageError("the times to split at must ascend without duplicates")
    for start, end in pairwise([None, *moments, None]):
        yield times_between(start, end)
