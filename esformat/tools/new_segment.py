"""Write originals to a new segment: interleave, assemble, convert the indexes, publish. All tools except `diff` use
this.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

from esformat.errors import UsageError
from esformat.format.metadata import Statistics
from esformat.io.buffered import in_windows
from esformat.io.location import Target, is_same_place, locate, publication_of, source_of
from esformat.io.publish import Publication, naming
from esformat.io.remote import RemoteSource
from esformat.io.store import StoredAt
from esformat.io.upload import Upload
from esformat.io.write_behind import write_behind
from esformat.read.blocks.reader import Reader
from esformat.read.segment import Segment, open_segment
from esformat.tools.assembly import Assembly, AssemblyPlan
from esformat.tools.column_indexes import ColumnIndexes
from esformat.tools.index_map import IndexSource, mapped_lists
from esformat.tools.interleave import interleave
from esformat.tools.original import OpenOriginal, Original
from esformat.tools.selection import AnyKept, Selection

_COPY_BYTES = 8 << 20
Progress = Callable[[int, int], None]
"""Called from time to time with the bytes done and in total."""


@dataclass(frozen=True, slots=True)
class NewSegment:
    """A new segment: its statistics, the numbers of data blocks that were copied and re-encoded, and the indexes that
    only some of the originals have.
    """

    statistics: Statistics
    copied_blocks: int
    encoded_blocks: int
    dropped_indexes: tuple[str, ...] = ()


@contextmanager
def opened(paths: Sequence[Target]) -> Iterator[list[OpenOriginal]]:
    """The segments at `paths` as originals, open until the block ends."""
    with ExitStack() as stack:
        sources = [in_windows(source_of(path), len(paths)) for path in paths]
        segments = [stack.enter_context(open_segment(source, cache_bytes=16 << 20)) for source in sources]
        yield [OpenOriginal(reader_of(segment)) for segment in segments]


def reader_of(segment: Segment) -> Reader:
    """The reader of an open segment."""
    return segment._reader


def check_output(out: Target, inputs: Sequence[Target]) -> None:
    """Raise UsageError if the place of a new segment is one of the inputs, which are never changed."""
    place = locate(out)
    for each in inputs:
        if isinstance(each, str | bytes | os.PathLike | tuple | StoredAt) and is_same_place(place, locate(each)):
            name = place if isinstance(place, str) else place.name
            raise UsageError("the output is an input, too", path=name, hint="choose another name")


@contextmanager
def published(out: Target, *, overwrite: bool) -> Iterator[Publication | Upload]:
    """A segment that appears at `out` when the block ends normally, and not at all if it raises an error."""
    publication = publication_of(out, overwrite=overwrite)
    try:
        with naming(publication.name):
            yield publication
            publication.commit()
    except BaseException:
        publication.abort()
        raise


def copy_file(path: Target, out: Target, *, overwrite: bool) -> None:
    """Copy the bytes of a file to a new file. Raises SegmentChangedError, UsageError, OSError."""
    source = source_of(path)
    with published(out, overwrite=overwrite) as publication:
        for start in range(0, source.size, _COPY_BYTES):
            publication.file.write(source.read_at(start, min(_COPY_BYTES, source.size - start)))
        changed = source.changed_error() if isinstance(source, RemoteSource) else None
        if changed is not None:
            raise changed


def make_segment(
    publication: Publication | Upload,
    originals: Sequence[Original],
    selections: Sequence[Selection],
    plan: AssemblyPlan,
    copied: Sequence[bool],
    *,
    built: Sequence[str] = (),
    progress: Progress | None = None,
) -> NewSegment:
    """Write the selected parts of the originals to a publication's file; the caller commits it.

    copied: for each original, whether its blocks may be copied. built: indexes to build from their columns; the other
    indexes of the plan's schema are converted from the originals, which must then be open segments that have them.
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

    fields = plan.metadata.schema.fields
    places = [place for place, field in enumerate(fields) if field.indexed and field.name in built]
    with (
        closing(ColumnIndexes(places, publication.spill_directory)) as indexes,
        write_behind(publication.file) as sink,
        Assembly(sink, plan, originals, indexes) as assembly,
    ):
        for piece in interleave(originals, [counted(selection) for selection in selections], copied):
            assembly.add(piece)
        assembly.finish_blocks()
        for place, field in enumerate(fields):
            if place in places:
                assembly.builder.add_index_stream(place, indexes.chunks(place))
            elif field.indexed:
                sources = _index_sources(assembly, originals, field.name)
                lists = mapped_lists(sources, field.type, assembly.builder.block_starts())
                assembly.builder.add_lists(place, lists)
        statistics = assembly.builder.finish()
    if progress:
        progress(total, total)
    return NewSegment(statistics, assembly.copied_blocks, assembly.encoded_blocks)


def _index_sources(assembly: Assembly, originals: Sequence[Original], name: str) -> list[IndexSource]:
    sources = []
    for original, rows, blocks in zip(originals, assembly.rows, assembly.blocks, strict=True):
        assert isinstance(original, OpenOriginal)
        sources.append(IndexSource(original, original.index(name), rows, blocks))
    return sources
