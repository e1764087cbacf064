"""A writer that breaks one rule of the format: all checksums and handles are valid, but something else is not.

`BROKEN` has, for each rule, a patch of the writer and words of the problem that `verify` must report.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa

from esformat.format import codec, encoding
from esformat.format.directory import BlockSpan
from esformat.format.footer import _ENTRY
from esformat.format.frame import encode_block
from esformat.format.layout import BlockKind, Trailer
from esformat.format.order import Ranked
from esformat.format.postings import BLOCKS
from esformat.write import block_encoder, builder, index_builder
from esformat.write import rows as ordered_rows
from esformat.write.builder import SegmentBuilder


def _wrap(patch, owner, name, make):
    """Replace a function by `make(original)`."""
    patch.setattr(owner, name, make(getattr(owner, name)))


def _postings(change):
    """Change (events, form, numbers) of the first value for which `change` returns something."""

    def breaks(patch):
        def make(choose):
            def chosen(*args):
                done = False
                for posting in choose(*args):
                    new = None if done else change(*posting)
                    done = done or new is not None
                    yield posting if new is None else new

            return chosen

        _wrap(patch, builder, "choose_postings", make)

    return breaks


def _spans(change):
    """Change the directory's span of each data block."""

    def breaks(patch):
        def make(add):
            return lambda self, block: add(self, replace(block, span=change(block.span)))

        _wrap(patch, SegmentBuilder, "add_block", make)

    return breaks


def _statistics(**changes):
    def breaks(patch):
        _wrap(patch, SegmentBuilder, "_statistics", lambda make: lambda self: replace(make(self), **changes))

    return breaks


def _metadata(**changes):
    """Change the metadata block at the end, so that it differs from the spare one."""

    def breaks(patch):
        def make(finish):
            def changed(self):
                self._metadata = replace(self._metadata, **changes)
                return finish(self)

            return changed

        _wrap(patch, SegmentBuilder, "finish", make)

    return breaks


def _footer(change):
    """Change the list of footer entries (kind, copy, ordinal, handle bytes)."""

    def breaks(patch):
        def encode(table):
            entries = [(kind, copy, n, handle.encode()) for (kind, n, copy), handle in sorted(table.items())]
            changed = change(entries)
            return encode_block(BlockKind.FOOTER, b"".join(_ENTRY.pack(*e) for e in changed), count=len(changed))

        patch.setattr(builder, "encode_footer", encode)

    return breaks


def _between(stored: bytes):
    """Write unreferenced bytes before the first data block."""

    def breaks(patch):
        def make(start):
            def changed(self):
                start(self)
                self._sink.write(stored)
                self._offset += len(stored)
                self._data_offset = self._offset

            return changed

        _wrap(patch, SegmentBuilder, "start", make)

    return breaks


def _leaf(change):
    """Change the runs of a leaf."""

    def breaks(patch):
        _wrap(patch, builder, "encode_leaf", lambda encode: lambda runs, *rest: encode(change(runs), *rest))

    return breaks


def _root(**change):
    def breaks(patch):
        def make(encode):
            return lambda entries, *rest: encode([*entries[:-1], replace(entries[-1], **change)], *rest)

        _wrap(patch, builder, "encode_root", make)

    return breaks


def _pages(change):
    def breaks(patch):
        _wrap(patch, index_builder, "encode_page", lambda encode: lambda values, *rest: encode(change(values), *rest))

    return breaks


def _index_without(rank):
    """Leave out one value of the column from the index."""

    def breaks(patch):
        def make(add):
            def changed(self, column, ranked):
                add(self, column, Ranked(np.where(ranked.ranks == rank, -1, ranked.ranks), ranked.values))

            return changed

        _wrap(patch, SegmentBuilder, "add_index", make)

    return breaks


def _filter(change):
    def breaks(patch):
        _wrap(patch, builder, "build_filter", lambda build: lambda *given: change(list(build(*given))))

    return breaks


def no_sorting(patch):
    """Keep events in the order in which they were added."""
    patch.setattr(ordered_rows, "sort_order", lambda *_: None)


def _opening_offset(patch):
    patch.setattr(builder, "Trailer", lambda opening, footer: Trailer(opening + 1, footer))


def _codes(patch):
    """Use codes that the dictionary does not have."""
    _wrap(patch, block_encoder, "encode_codes", lambda encode: lambda codes, *rest: encode(codes + 100, *rest))


def _zstd_checksums(patch):
    params = codec.zstandard.ZstdCompressionParameters
    honest = params.from_level

    def from_level(level, **options):
        return honest(level, **(options | {"write_checksum": True}))

    patch.setattr(codec.zstandard, "ZstdCompressionParameters", SimpleNamespace(from_level=from_level), raising=True)


def _two_dictionaries(patch):
    """Write a spare dictionary that differs from the first by a value."""

    def make(encode):
        calls = []

        def changed(self, columns):
            calls.append(1)
            if len(calls) == 1:
                return encode_block(BlockKind.DICTIONARY, b"", count=0)
            return encode(self, columns)

        return changed

    _wrap(patch, SegmentBuilder, "_dictionary", make)


def null_slots(patch):
    """Store the memory contents beneath nulls."""

    def make(numbers_of):
        def changed(array):
            return np.frombuffer(array.buffers()[1], np.int32) if array.type == pa.int32() else numbers_of(array)

        return changed

    _wrap(patch, encoding, "numbers_of", make)


def _fewer(count, form, numbers):
    return (count, form, numbers[1:]) if not form & BLOCKS and len(numbers) > 1 else None


def _one_fewer_counted(count, form, numbers):
    return (count - 1, form, numbers[1:]) if not form & BLOCKS and len(numbers) > 1 else None


def _shifted(count, form, numbers):
    return (count, form, numbers - 1) if not form & BLOCKS and numbers[0] > 0 else None


def _beyond(count, form, numbers):
    return (count, form, numbers + 10**6) if not form & BLOCKS else None


def _block_missing(count, form, numbers):
    return (count, form, numbers[1:]) if form & BLOCKS else None


def _block_count(count, form, numbers):
    return (count - 1, form, numbers) if form & BLOCKS and count > 60 else None


def _other_form(count, form, numbers):
    return (count, BLOCKS, numbers) if not form & BLOCKS else None


def _other_space(runs):
    spaces = [*runs.spaces.to_pylist()[:-1], runs.spaces[-1].as_py() + b"!"]
    return replace(runs, spaces=pa.array(spaces, pa.binary()))


def _reversed_runs(runs):
    return replace(runs, spaces=runs.spaces[::-1], groupings=runs.groupings[::-1], rows=runs.rows[::-1])


def _later(span: BlockSpan) -> BlockSpan:
    return replace(span, max_timestamp=span.max_timestamp + 1)


ORPHAN = encode_block(BlockKind.POSTINGS, b"", count=0)

BROKEN = {
    "posting list too short": (_postings(_fewer), "lists 1 rows"),
    "posting list lacks a row": (_postings(_one_fewer_counted), "contradict the column"),
    "posting list of another row": (_postings(_shifted), "contradict the column"),
    "posting list beyond the file": (_postings(_beyond), "the last number of a posting list"),
    "posting list lacks a block": (_postings(_block_missing), "contradicts the column"),
    "events of a value": (_postings(_block_count), "contradicts the column"),
    "form of a posting list": (_postings(_other_form), "form for another density"),
    "index lacks its first value": (_index_without(0), "lacks values that its column holds"),
    "index lacks another value": (_index_without(1), "contradict the column"),
    "values do not ascend": (_pages(lambda values: values[::-1]), "do not ascend"),
    "time span of a block": (_spans(_later), "the time span of a data block does not"),
    "rows of a block": (_spans(lambda span: replace(span, rows=span.rows + 1)), "different numbers of rows"),
    "check of a block": (_spans(lambda span: replace(span, check=span.check ^ 1)), "another block lies here"),
    "keys of a leaf": (_leaf(_other_space), "keys of a data block do not match the directory"),
    "order of a leaf": (_leaf(_reversed_runs), "the runs of a leaf do not ascend"),
    "first space of a leaf": (_root(first_space=b"zzz"), "a leaf does not match the directory root"),
    "runs of a leaf": (_root(runs=1), "a leaf does not match the directory root"),
    "time span of a leaf": (_root(max_timestamp=10**7), "the time span of a leaf does not"),
    "statistics of spaces": (_statistics(spaces=41), "the statistics say spaces 41"),
    "statistics of runs": (_statistics(runs=1), "the statistics say runs 1"),
    "statistics of times": (_statistics(min_timestamp=-5), "the statistics say min_timestamp -5"),
    "statistics of indexes": (_statistics(indexes={n: {"values": 3, "events": 1} for n in ("type", "id")}), "of index"),
    "statistics without an index": (_statistics(indexes={}), "do not name the indexes"),
    "spare metadata": (_metadata(properties={"other": "text"}), "the spare copy of the metadata differs"),
    "unknown codec": (_metadata(codec="zip"), "unknown codec 'zip'"),
    "spare dictionary": (_two_dictionaries, "the spare copy of a dictionary differs"),
    "filter is empty": (_filter(lambda pages: [bytes(len(page)) for page in pages]), "rejects"),
    "filter is too large": (_filter(lambda pages: [page * 2 for page in pages]), "buckets, expected"),
    "filter page of odd size": (_filter(lambda pages: [page + b"1" for page in pages]), "a page of the space filter"),
    "footer is not sorted": (_footer(lambda entries: entries[::-1]), "the entries of the footer are not in order"),
    "footer entry twice": (_footer(lambda entries: [entries[0], *entries]), "not in order"),
    "footer names a second copy": (_footer(lambda e: [*e[:2], (*e[2][:1], 1, *e[2][2:]), *e[2:]]), "the footer names"),
    "footer lacks an index": (_footer(lambda e: [x for x in e if x[0] != BlockKind.INDEX_ROOT]), "is missing"),
    "footer lacks the directory": (_footer(lambda e: [x for x in e if x[0] != 4]), "does not name the directory_root"),
    "two handles to one block": (
        _footer(lambda entries: [*entries, (200, 0, 0, entries[0][3])]),
        "two handles point to the same bytes",
    ),
    "opening offset": (_opening_offset, "the opening offset"),
    "bytes between blocks": (_between(b"12345"), "5 bytes do not form a block"),
    "a block too many": (_between(ORPHAN), "no handle points to this block of kind POSTINGS"),
    "codes without a value": (_codes, "a code has no value"),
    "events are not sorted": (no_sorting, "do not ascend"),
    "frames with a checksum": (_zstd_checksums, "a zstd frame has a checksum"),
}  # fmt: skip
