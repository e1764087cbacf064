"""Originals into one new segment: sweep, assemble, carry the indexes over, publish. All tools but `diff` end here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from esformat.errors import UsageError
from esformat.metadata import Statistics
from esformat.order import rank
from esformat.publish import Publication
from esformat.reader import Reader
from esformat.segment import Segment, open_segment
from esformat.source import Source
from esformat.tools.assembly import Assembly, AssemblyPlan
from esformat.tools.index_map import IndexSource, mapped_lists
from esformat.tools.original import OpenOriginal, Original, open_data_block
from esformat.tools.selection import AnyKept, Selection
from esformat.tools.sweep import sweep

Progress = Callable[[int, int], None]
"""Called now and then with the bytes done and the bytes in all."""

FilePath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Made:
    """A new segment: its statistics, and how many data blocks were copied as they were and encoded anew."""

    statistics: Statistics
    copied_blocks: int
    encoded_blocks: int


@contextmanager
def opened(paths: Sequence[FilePath | Source]) -> Iterator[list[OpenOriginal]]:
    """The segments at `paths` as originals, open until the block ends."""
    with ExitStack() as stack:
        segments = [stack.enter_context(open_segment(path, cache_bytes=16 << 20)) for path in paths]
        yield [OpenOriginal(reader_of(segment)) for segment in segments]


def reader_of(segment: Segment) -> Reader:
    """What is below the verbs of an open segment."""
    return segment._reader


def check_output(out: FilePath, inputs: Sequence[FilePath | Source]) -> Path:
    """Where a new segment goes. Raises UsageError if that is one of the inputs: they are never changed."""
    path = Path(out)
    for each in inputs:
        if isinstance(each, str | os.PathLike) and path.exists() and Path(each).exists() and path.samefile(each):
            raise UsageError("the output is an input, too", path=str(path), hint="choose another name")
    return path


@contextmanager
def published(path: Path, *, overwrite: bool) -> Iterator[Publication]:
    """A file that appears under `path` when the block ends well, and not at all when it does not."""
    publication = Publication(path, overwrite=overwrite)
    try:
        yield publication
        publication.commit()
    except BaseException:
        publication.abort()
        raise


def make_segment(
    publication: Publication,
    originals: Sequence[Original],
    selections: Sequence[Selection],
    plan: AssemblyPlan,
    copied: Sequence[bool],
    *,
    built: Sequence[str] = (),
    progress: Progress | None = None,
) -> Made:
    """Write what is selected of the originals to a publication's file; the caller commits it.

    copied: of which originals blocks may be copied. built: indexes to be built from their columns; the others of the
    plan's schema are carried over from the originals, which must then be open segments that have them.
    """
    total = sum(original.size for original in originals)
    done = 0

    def counted(selection: Selection) -> Selection:
        def select(original: Original) -> Iterator[AnyKept]:
            nonlocal done
            for kept in selection(original):
                yield kept
                done += kept.stored_bytes
                if progress:
                    progress(min(done, total), total)

        return select

    with Assembly(publication.file, plan, originals) as assembly:
        for piece in sweep(originals, [counted(selection) for selection in selections], copied):
            assembly.add(piece)
        assembly.finish_blocks()
        for place, field in enumerate(plan.metadata.schema.fields):
            if not field.indexed:
                continue
            if field.name in built:
                _build_index(assembly, originals, place, field.type)
            else:
                sources = _index_sources(assembly, originals, field.name)
                lists = mapped_lists(sources, field.type, assembly.builder.block_starts())
                assembly.builder.add_lists(place, lists)
        statistics = assembly.builder.finish()
    if progress:
        progress(total, total)
    return Made(statistics, assembly.copied_blocks, assembly.encoded_blocks)


def _index_sources(assembly: Assembly, originals: Sequence[Original], name: str) -> list[IndexSource]:
    sources = []
    for original, rows, blocks in zip(originals, assembly.rows, assembly.blocks, strict=True):
        assert isinstance(original, OpenOriginal)
        sources.append(IndexSource(original, original.index(name), rows, blocks))
    return sources


def _build_index(assembly: Assembly, originals: Sequence[Original], place: int, kind: pa.DataType) -> None:
    """Build the index of a column from its values, which takes memory for a number of every event."""
    ranks = np.full(assembly.row_count, -1, dtype=np.int64)
    columns: list[pa.Array] = []
    rows: list[Any] = []
    for original, numbers in zip(originals, assembly.rows, strict=True):
        for ref in original.blocks():
            new = numbers.find(np.arange(ref.first_row, ref.first_row + ref.rows))
            if not (new >= 0).any():
                continue
            ((_, block),) = original.read([ref])
            context = original.contexts(block.dictionary)[place]
            columns.append(open_data_block(original, ref, block).column(place, kind, context))
            rows.append(new)
    ranked = rank(pa.chunked_array(columns, kind))
    if rows:
        new = np.concatenate(rows)
        ranks[new[new >= 0]] = ranked.ranks[new >= 0]
    assembly.builder.add_index(place, replace(ranked, ranks=ranks))
