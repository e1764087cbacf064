"""The anatomy of a segment: the size of each part of the file, and of each column.

The parts add up to the file. The amount read is bounded, however large the file is: the roots of its tables, its
dictionaries, and a sample of the data blocks, from which the share of each column is estimated.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from esformat.core.blocks import FIRST_COLUMN_CHUNK, KEYS_CHUNK, TIMESTAMPS_CHUNK
from esformat.core.caches import Budgets
from esformat.format.dictionary import open_dictionary
from esformat.format.layout import BlockKind
from esformat.io.location import Target, source_of
from esformat.read.blocks.reader import Reader

DATA_PARTS = 128
"""Maximum number of parts that data blocks are split into; in a file with more leaves, each part covers several."""
SAMPLE_BLOCKS = 64


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of one kind: `data`, `directory`, `index`, `filter`, `dictionary`, `templates`, `metadata`, `other`.

    name: the column that the part belongs to, or what it is; "" if the kind has one part only. blocks: the number of
    blocks that contain the bytes. facts: what else is known of the part, such as `events`, `values` or `first_space`.
    """

    kind: str
    name: str
    bytes: int
    blocks: int
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ColumnBytes:
    """The bytes of a column, or of the keys or timestamps, in data blocks. sampled: an estimate from some blocks."""

    name: str
    type: str
    bytes: int
    sampled: bool


@dataclass(frozen=True, slots=True)
class Anatomy:
    """The parts of a file, which add up to `size_bytes`, and its columns, which add up to its data."""

    size_bytes: int
    parts: tuple[Part, ...]
    columns: tuple[ColumnBytes, ...]


def anatomy(path: Target) -> Anatomy:
    """Measure the parts of a segment. Raises OSError, CorruptSegmentError, UnsupportedVersionError."""
    with closing(Reader(source_of(path), Budgets.of(0))) as reader:
        parts = [*_data(reader), *_indexes(reader), *_dictionaries(reader), *_others(reader)]
        rest = reader.size - sum(part.bytes for part in parts)
        parts.append(Part("other", "long lists of indexes, header, footer", rest, 0))
        sizes = _columns(reader, sum(part.bytes for part in parts if part.kind == "data"))
        return Anatomy(reader.size, tuple(parts), tuple(sizes))


def _data(reader: Reader) -> Iterator[Part]:
    """The data blocks in the order of the file, then the leaves and pages of the directory."""
    root = reader.root
    leaves = range(len(root))
    handles, offsets, spaces = [root.handle(n) for n in leaves], root.data_offsets, root.first_spaces
    earliest, latest = root.min_timestamps, root.max_timestamps
    each = -(-len(root) // DATA_PARTS) or 1
    for first in leaves[::each]:
        last = min(first + each, len(root))
        facts = {
            "events": root.rows[last] - root.rows[first],
            "first_space": reader.shown(spaces[first]),
            "min_timestamp": min(earliest[first:last]),
            "max_timestamp": max(latest[first:last]),
        }
        size = sum(handles[n].offset - offsets[n] for n in range(first, last))
        yield Part("data", "", size, root.blocks[last] - root.blocks[first], facts)
    if handles:
        yield Part("directory", "leaves", sum(handle.length for handle in handles), len(handles))
    pages = [root.page_place(n)[0] for n in range(root.page_count)]
    if pages:
        yield Part("directory", "pages", sum(page.length for page in pages), len(pages))


def _indexes(reader: Reader) -> Iterator[Part]:
    for place, column in enumerate(reader.fields):
        handle = reader.table.get((BlockKind.INDEX_ROOT, place, 0))
        if handle is not None:
            pages = reader.index_root(place).handles
            facts = reader.statistics.indexes.get(column.name, {})
            yield Part(
                "index",
                column.name,
                handle.length + sum(page.length for page in pages),
                1 + len(pages),
                {name: facts[name] for name in ("values", "events") if name in facts},
            )


def _dictionaries(reader: Reader) -> Iterator[Part]:
    """The contents of dictionary blocks, by column; a block may have a spare copy, which is counted too."""
    for (kind, _, copy), handle in sorted(reader.table.items()):
        if kind != BlockKind.DICTIONARY:
            continue
        left = handle.length
        for stored in open_dictionary(
            reader.read(handle, BlockKind.DICTIONARY), reader.fields, reader.thread_context()
        ):
            name = reader.fields[stored.column].name
            again = {"copy": True} if copy else {}
            found = (
                ("dictionary", len(stored.node), {"values": stored.count}),
                ("templates", len(stored.stored_templates), {"templates": stored.template_count}),
                ("dictionary", len(stored.zstd), {"of": "Zstandard"}),
            )
            for part, size, facts in found:
                if size:
                    left -= size
                    yield Part(part, name, size, 0, facts | again)
        yield Part("dictionary", "frame", left, 1)


def _others(reader: Reader) -> Iterator[Part]:
    for kind in (BlockKind.METADATA, BlockKind.DIRECTORY_ROOT, BlockKind.FILTER):
        handles = [handle for (found, _, _), handle in reader.table.items() if found == kind]
        name, kind_name = ("root", "directory") if kind == BlockKind.DIRECTORY_ROOT else ("", kind.name.lower())
        if handles:
            yield Part(kind_name, name, sum(handle.length for handle in handles), len(handles))


def _columns(reader: Reader, data_bytes: int) -> list[ColumnBytes]:
    """The bytes of data blocks by column, estimated from evenly spaced blocks if there are many."""
    names = {KEYS_CHUNK: ("space, grouping", ""), TIMESTAMPS_CHUNK: ("timestamp", "timestamp[us]")}
    names |= {FIRST_COLUMN_CHUNK + n: (each.name, str(each.type)) for n, each in enumerate(reader.fields)}
    count = reader.root.data_blocks
    chosen = range(0, count, -(-count // SAMPLE_BLOCKS) or 1)
    sums = dict.fromkeys(names, 0)
    leaf_number = 0
    for number in chosen:
        while reader.root.blocks[leaf_number + 1] <= number:
            leaf_number += 1
        leaf = reader.leaf(leaf_number, keys=False)
        block = reader.data_block(leaf, number - leaf.first_block)
        for chunk in sums:
            sums[chunk] += block.size_of(chunk)
    whole = sum(sums.values())
    sampled = len(chosen) < count
    return [ColumnBytes(*names[chunk], data_bytes * size // max(1, whole), sampled) for chunk, size in sums.items()]
