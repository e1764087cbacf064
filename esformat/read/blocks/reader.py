"""Read the blocks of an open segment by what they contain: verified, decoded and cached."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterator, Sequence
from threading import local
from typing import Any, NamedTuple

import pyarrow as pa

from esformat.core.cached_segment import CachedSegment
from esformat.core.caches import Budgets, Cache
from esformat.core.footers import read_trailer
from esformat.core.leaves import BlockSlice, Leaf, beginnings, open_beginnings, open_data_blocks
from esformat.errors import CorruptSegmentError, EsdbError
from esformat.format.checksum import checksum64
from esformat.format.codec import Decompressor
from esformat.format.data_block import I64, DataBlock
from esformat.format.dictionary import ColumnDictionary, StoredDictionary, open_dictionary, zstd_of
from esformat.format.directory import open_keys, open_leaf, open_root
from esformat.format.footer import Key, check_opening, decode_footer
from esformat.format.frame import Block, decode_block
from esformat.format.json_values import Step
from esformat.format.layout import HEADER_BYTES, HEADER_MAGIC, TRAILER_MAGIC, BlockHandle, BlockKind
from esformat.format.metadata import Metadata, Statistics
from esformat.format.node import DecodeContext
from esformat.format.postings import IndexRoot, Page, Posting, decode_chunk
from esformat.format.schema import EventSchema
from esformat.format.template_paths import SampleDocuments, ValueTemplates, sample_documents, value_templates
from esformat.format.template_search import Candidates, TemplateTexts
from esformat.io.source import ClosedSource, Source, explained, view_of
from esformat.read.ask.question import Checks
from esformat.read.blocks.directory_pages import DirectoryPages

OPENING_BYTES = 32 << 10
"""Bytes of the first read, at the end of a file: for most files, all that opening needs."""
CACHE_BYTES = 256 << 20
"""Maximum bytes of decoded data that all open segments cache together, except those with their own cache."""
SHARED_CACHE = Budgets.of(CACHE_BYTES)
REMEMBERED_BYTES, MOST_REMEMBERED_BYTES = 4 << 20, 64 << 10
"""Maximum bytes of cached dictionaries of closed files, in total; and of the buffer that one of them was read in."""
MOST_OF_BLOCK = 0.6
"""If more than this share of a block is needed, the whole block is read, with its neighbours."""
BEGINNING_MARGIN, LEAST_BEGINNING = 1.1, 256
"""How much more of a block is read than the one before needed, and how many bytes at least."""
READ_GAP_BYTES = 16 << 10
"""Blocks at most this far apart are read together with the gap, such as a leaf between them or a pruned block."""
MAX_QUERIES = 1000  # maximum index queries remembered, so that the data read by a repeated one is cached
_FOOTER, _METADATA, _ROOT, _LEAF, _DICTIONARY = map(  # as int: opening compares them often, and enum members are slow
    int,
    (BlockKind.FOOTER, BlockKind.METADATA, BlockKind.DIRECTORY_ROOT, BlockKind.DIRECTORY, BlockKind.DICTIONARY),
)
_threads = local()  # each thread's decode context, used for all segments


class _Tail:
    """The last bytes of a source, from the first block that opening needs: they are read only once."""

    __slots__ = ("_data", "first", "table")

    def __init__(self, source: Source) -> None:
        first = max(0, source.size - OPENING_BYTES)
        data = source.read_at(first, source.size - first)
        try:
            opening, footer = read_trailer(data, source.size, checksum64, BlockHandle)
        except CorruptSegmentError:
            if not _is_foreign(source, data):
                raise
            raise CorruptSegmentError(
                "this is not a segment: it neither begins nor ends like an .esdb file",
                offset=0,
                hint="create one from CSV, JSON lines, Parquet or Arrow with `esdb write`, from Go with `esdb convert`",
            ) from None
        if footer.offset < first:  # a long footer: one read fetches all that is missing
            data, first = _longer(source, data, first, opening)
        self._hold(data, first)
        self.table = decode_footer(self.block(footer, _FOOTER))
        check_opening(self.table, opening)
        data, first = _longer(source, data, first, opening)
        self._hold(data[opening - first :], opening)

    def _hold(self, data: bytes, first: int) -> None:
        """Keep the bytes of the file from byte `first` on."""
        self._data, self.first = memoryview(data), first

    def block(self, handle: BlockHandle, kind: int) -> Block:
        """A verified block, which must not begin before `first`."""
        at = handle.offset - self.first
        return decode_block(self._data[at : at + handle.length], kind, handle.check, handle.offset)


class _Remembered(NamedTuple):
    """A dictionary block of a closed file."""

    schema: EventSchema
    body: bytes
    columns: list[StoredDictionary]

    def fits(self, schema: EventSchema, body: memoryview) -> bool:
        """Whether a file with a schema and a dictionary body can use this dictionary: both are equal."""
        return (self.schema is schema or self.schema == schema) and self.body == body.tobytes()


_remembered = Cache(REMEMBERED_BYTES)  # by block handle: the same files are opened repeatedly


def _remember(handle: BlockHandle, schema: EventSchema, body: memoryview, columns: list[StoredDictionary]) -> None:
    """Cache a dictionary and its templates for the next opening of the file."""
    size = len(body.obj) + len(body)  # type: ignore[arg-type]  # bytes
    for column in columns:
        column.decoded.pop("values", None)  # users keep their own reference
        size += sum(map(len, column.decoded["templates"].memory)) if "templates" in column.decoded else 0
    _remembered.keep(handle, _Remembered(schema, body.tobytes(), columns), size)


def _longer(source: Source, data: bytes, first: int, wanted: int) -> tuple[bytes, int]:
    """The last bytes of a source, which begin at `first`; extended by one read if `wanted` is before that."""
    if wanted >= first:
        return data, first
    return source.read_at(wanted, first - wanted) + data, wanted


def _is_foreign(source: Source, tail: bytes) -> bool:
    """Whether a file has neither magic of a segment. One truncated or overwritten at one end still has the other."""
    if len(tail) < HEADER_BYTES or tail.endswith(TRAILER_MAGIC):
        return False
    return source.read_at(0, len(HEADER_MAGIC)) != HEADER_MAGIC


class Reader(CachedSegment):
    """Reads, verifies, decodes and caches the parts of an open segment. Thread-safe."""

    def __init__(self, source: Source, budgets: Budgets = SHARED_CACHE) -> None:
        """Raises CorruptSegmentError or UnsupportedVersionError."""
        self.source: Source = source
        self.announce = getattr(source, "will_read", None)
        self.size = source.size
        self._tables = Cache(budgets.tables, holds_last=True)  # so that `find` and the scan after it share a leaf
        self._blocks = Cache(budgets.blocks)
        self.use(source.name, self._tables.shelf, self._blocks.shelf, _threads)
        tail = _Tail(source)
        self.table: dict[Key, BlockHandle] = tail.table
        self.opening_bytes = self.size - tail.first
        """Bytes that opening read: the footer and the blocks before it, compressed."""
        self.metadata = Metadata.decode(tail.block(self.table[_METADATA, 0, 0], _METADATA))
        if self.metadata.statistics is None:
            raise CorruptSegmentError("the metadata has no statistics", offset=self.table[_METADATA, 0, 0].offset)
        self.statistics: Statistics = self.metadata.statistics
        self.schema = self.metadata.schema
        self.fields = self.schema.fields
        self.positions = self.schema.positions
        self.direct, self.plain_data, self.data_place = (
            self.schema.direct,
            self.schema.plain_data,
            self.schema.data_place,
        )
        self.attribute_chunks = self.schema.attribute_chunks
        self.shown_type = bytes if self.schema.binary_keys else str
        self.checks = Checks(self.name, self.schema)
        self._queries: set[Hashable] = set()
        self._pages = DirectoryPages(source, _threads)
        self.root = open_root(
            tail.block(self.table[_ROOT, 0, 0], _ROOT), self.thread_context(), self._pages.read, self.name
        )
        if self.root.events != self.statistics.events or self.root.data_blocks != self.statistics.data_blocks:
            raise CorruptSegmentError("the directory and the statistics disagree about the number of events")
        self._beginnings: dict[tuple[int, ...], float] = {}  # for chunks, which share of a block contains them
        self._opening = tail  # also has small blocks, as stored, which the opening read included
        self.frames = Cache(budgets.frames)
        """Decompressed frames of string and binary columns."""
        self.pages = Cache(budgets.pages)
        """Decoded rows that were read as a page."""
        self._dictionaries: dict[int, list[StoredDictionary]] = {}
        self._remembers = budgets is SHARED_CACHE and budgets.tables.has_any
        self._dictionary_bodies: dict[int, memoryview] = {}  # of dictionaries to remember when closed

    def close(self) -> None:
        """Release the source. Reads in progress complete; later ones raise ClosedError."""
        self.source, self.announce = ClosedSource(self.source), None
        self._pages.source = self.source
        for number, columns in list(self._dictionaries.items()):
            body = self._dictionary_bodies.pop(number, None)
            if body is not None:
                _remember(self.table[_DICTIONARY, number, 0], self.schema, body, columns)
        self.forget()
        for cache in (self._tables, self._blocks, self.frames, self.pages):
            cache.close()

    def read(self, handle: BlockHandle, kind: int) -> Block:
        """Read and verify one block. Raises CorruptSegmentError, ChecksumMismatchError, ClosedError."""
        offset, length, check = handle
        try:
            if offset + length > self.size:
                raise CorruptSegmentError("a block reaches beyond the end of the file", offset=offset)
            return decode_block(self.source.read_at(offset, length), kind, check, offset)
        except EsdbError as error:
            raise explained(error, self.source) from None

    def _small_block(self, key: Key) -> Block:
        """A verified block that the footer names; from the bytes that opening read, if they include it."""
        handle = self.table[key]
        if handle.offset < self._opening.first:
            return self.read(handle, key[0])
        try:
            return self._opening.block(handle, key[0])
        except EsdbError as error:
            raise explained(error, self.source) from None

    def _new_thread_context(self) -> DecodeContext:
        plain = Decompressor()
        made = DecodeContext(plain, plain)
        _threads.context = made
        return made

    def _missing_contexts(self, number: int) -> list[DecodeContext]:
        own = self.thread_context()
        contexts = [own] * len(self.fields)
        for column in self._stored_dictionary(number) if number else ():
            zstd = zstd_of(column)
            framed = Decompressor(zstd) if zstd else own.plain
            contexts[column.column] = DecodeContext(own.plain, framed, stored=column)
        return contexts

    def template_candidates(self, dictionary: int, place: int, texts: Sequence[bytes]) -> Candidates:
        """Where one of several texts may occur in the values of a column, in blocks that use a dictionary."""
        key = (5, dictionary, place, *texts)
        found: Candidates | None = self._tables.find(key)
        return found or self._tables.get(key, lambda: self._template_texts(dictionary, place).candidates(texts))

    def values_in_templates(self, dictionary: int, place: int, steps: tuple[Step, ...]) -> ValueTemplates:
        """What templates determine about the values at a path, in blocks that use a dictionary."""
        return self._tables.get(
            (7, dictionary, place, *steps), lambda: value_templates(self._template_texts(dictionary, place), steps)
        )

    def documents_in_templates(self, dictionary: int, place: int) -> SampleDocuments:
        """What templates determine about the fields of payloads, in blocks that use a dictionary."""
        return self._tables.get(
            (8, dictionary, place), lambda: sample_documents(self._template_texts(dictionary, place))
        )

    def _template_texts(self, dictionary: int, place: int) -> TemplateTexts:
        def make() -> TemplateTexts:
            templates = self.contexts(dictionary)[place].templates
            if templates is None:
                raise CorruptSegmentError("a node of templates has no dictionary of them")
            return TemplateTexts(templates)

        return self._tables.get((6, dictionary, place), make)

    def coded_places(self) -> set[int]:
        """Positions of the columns whose values the first dictionary lists. Raises CorruptSegmentError."""
        if (_DICTIONARY, 1, 0) not in self.table:
            return set()
        return {column.column for column in self._stored_dictionary(1) if column.count}

    def dictionary(self, number: int) -> list[ColumnDictionary]:
        """The columns of a dictionary block; from its spare copy if the first is damaged."""
        own = self.thread_context()
        return [column.whole(own) for column in self._stored_dictionary(number)]

    def _stored_dictionary(self, number: int) -> list[StoredDictionary]:
        found = self._dictionaries.get(number)
        if found is None:
            with self.named:
                found = self._dictionaries.setdefault(number, self._read_dictionary(number))
        return found

    def _read_dictionary(self, number: int) -> list[StoredDictionary]:
        failure: CorruptSegmentError | None = None
        for copy in (0, 1):
            key = (_DICTIONARY, number, copy)
            if key in self.table:
                try:
                    block = self._small_block(key)
                    known: _Remembered | None = _remembered.find(self.table[key]) if self._remembers else None
                    if known is not None and known.fits(self.schema, block.body):
                        return known.columns
                    columns = open_dictionary(block, self.fields, self.thread_context())
                    if self._remembers and not copy and len(block.body.obj) <= MOST_REMEMBERED_BYTES:  # type: ignore[arg-type]
                        self._dictionary_bodies[number] = block.body
                    return columns
                except CorruptSegmentError as error:
                    failure = error
        raise failure or CorruptSegmentError(f"the file has no dictionary {number}", path=self.name)

    def _missing_leaf(self, number: int, keys: bool) -> Leaf:
        return self._tables.get((0, number), lambda: self._read_leaf(number, keys))

    def _read_leaf(self, number: int, keys: bool) -> Leaf:
        root, own = self.root, self.thread_context()
        handle, data_offset = root.place(number)
        block = self.read(handle, _LEAF)
        with self.named:
            first_row, first_block = root.rows_of(number)[0], root.blocks_of(number)[0]
            leaf = open_leaf(block, first_row, first_block, data_offset, own, keys=keys)
            self._check_leaf(number, leaf, block.offset)
        return leaf

    def with_keys(self, leaf: Leaf) -> Leaf:
        """The same leaf with the keys of its runs."""
        if leaf.spaces is None:
            number, own = self.root.leaf_of_row(leaf.first_row), self.thread_context()
            offset = self.root.handle(number).offset
            with self.named:
                open_keys(leaf, offset, own)
                self._check_leaf(number, leaf, offset)
        return leaf

    def _check_leaf(self, number: int, leaf: Leaf, offset: int) -> None:
        if not self.root.describes(number, leaf):
            raise CorruptSegmentError("a directory leaf and the root disagree", offset=offset)

    def expect_all_leaves(self) -> None:
        """Prepare for reading all leaves: if each read is a round trip, read the directory pages together."""
        if self.announce is not None:
            self.root.read_pages()

    def index_root(self, place: int) -> IndexRoot:
        """The root of the index on a column."""
        return self._tables.get((1, place), lambda: _Rooted(self._read_index_root(place))).root

    def _read_index_root(self, place: int) -> IndexRoot:
        key = (BlockKind.INDEX_ROOT, place, 0)
        if place >= len(self.fields):
            raise CorruptSegmentError(f"there is an index on column {place}, which does not exist", path=self.name)
        if key not in self.table:
            raise CorruptSegmentError(f"the index on {self.fields[place].name!r} is missing", path=self.name)
        with self.named:
            return IndexRoot(self._small_block(key), self.fields[place].type, self.thread_context())

    def index_page(self, place: int, number: int) -> Page:
        """A page of the index on a column."""

        def make() -> Page:
            block = self.read(self.index_root(place).handles[number], BlockKind.INDEX)
            with self.named:
                return Page(block, self.fields[place].type, self.thread_context())

        return self._tables.get((2, place, number), make)

    def numbers(self, place: int, value: Any, posting: Posting) -> Numbers:
        """The numbers of a posting list that is not chunked."""

        def make() -> Numbers:
            with self.named:
                numbers = decode_chunk(memoryview(posting.stored), self.thread_context())
            return Numbers(numbers, posting.names_blocks and len(numbers) == self.root.data_blocks)

        return self._tables.get((4, place, value), make)

    def _missing_block(self, leaf: Leaf, number: int) -> DataBlock:
        return self._blocks.get(leaf.first_block + number, lambda: self._read_data_block(leaf, number))

    def few_data_blocks(self, parts: Sequence[BlockSlice]) -> list[DataBlock]:
        """The data blocks of slices, ascending or descending. Missing ones are fetched with few reads and cached."""
        found: dict[int, Any] = {part.number: self._blocks.find(part.number) for part in parts}
        missing = sorted((part for part in parts if found[part.number] is None), key=lambda part: part.number)
        for part, block in zip(missing, self.data_blocks(missing), strict=True):
            found[part.number] = block
            self._blocks.keep(part.number, block, block.size_bytes)
        return list(found.values())

    def repeated(self, query: Hashable) -> bool:
        """Whether a query was made before, so that the data it reads is worth caching; False without a cache."""
        if not self.frames.keeps:
            return False
        if query in self._queries:
            return True
        if len(self._queries) >= MAX_QUERIES:
            self._queries.clear()
        self._queries.add(query)
        return False

    def cached_data_blocks(self, parts: Sequence[BlockSlice]) -> list[DataBlock]:
        """The data blocks of ascending slices. Those not cached are read, and cached if there is room."""
        found: list[Any] = [self._blocks.find(part.number) for part in parts]
        missing = [n for n, block in enumerate(found) if block is None]
        for n, block in zip(missing, self.data_blocks([parts[n] for n in missing]), strict=True):
            found[n] = block
            if self._blocks.has_room(block.size_bytes):
                self._blocks.keep(parts[n].number, block, block.size_bytes)
        return found

    def _read_data_block(self, leaf: Leaf, number: int) -> DataBlock:
        offset = leaf.block_offsets[number]
        length = leaf.block_offsets[number + 1] - offset
        try:
            stored = self.source.read_at(offset, length)
            opened: DataBlock = leaf.open_data_block(
                number, stored, checksum64, DataBlock, len(self.fields), self.schema.data_chunks
            )
            return opened
        except EsdbError as error:
            raise explained(error, self.source) from None

    def data_blocks(self, parts: Sequence[BlockSlice], chunks: tuple[int, ...] | None = None) -> list[DataBlock]:
        """Read the data blocks of ascending slices; (nearly) adjacent ones with one read.

        chunks: numbers of the chunks that will be used; None for all but keys. The others are not verified, and of
        local files perhaps not read.
        """
        chunks = self.schema.data_chunks if chunks is None else chunks
        blocks: list[DataBlock] = []
        try:
            view_ranges = getattr(self.source, "view_ranges", None)
            if view_ranges is not None and self._beginnings.get(chunks, 1) < MOST_OF_BLOCK:
                return self._beginnings_of(parts, chunks, view_ranges)
            for first, last in _near_each_other(parts):
                start = parts[first].offset
                stored = view_of(self.source, start, parts[last - 1].end - start)
                blocks += open_data_blocks(
                    parts[first:last], stored, start, checksum64, DataBlock, len(self.fields), chunks
                )
        except EsdbError as error:
            raise explained(error, self.source) from None
        if blocks:
            self._beginnings[chunks] = blocks[-1].stored_up_to(chunks) / (parts[-1].end - parts[-1].offset)
        return blocks

    def _beginnings_of(
        self,
        parts: Sequence[BlockSlice],
        chunks: tuple[int, ...],
        view_ranges: Callable[[array[int]], memoryview],
    ) -> list[DataBlock]:
        """Read only the beginning of each block; the whole block if some of the chunks are beyond that."""
        share, columns = BEGINNING_MARGIN * self._beginnings[chunks], len(self.fields)
        ranges = beginnings(parts, share, LEAST_BEGINNING)
        blocks, cut = open_beginnings(parts, ranges, view_ranges(ranges), checksum64, DataBlock, columns, chunks)
        if cut:
            again = [parts[number] for number in cut]
            ranges = beginnings(again, 1, 0)
            whole, _ = open_beginnings(again, ranges, view_ranges(ranges), checksum64, DataBlock, columns, chunks)
            for number, part, block in zip(cut, again, whole, strict=True):
                blocks[number] = block
                self._beginnings[chunks] = block.stored_up_to(chunks) / (part.end - part.offset)
        return blocks

    def _missing_codes(self, dictionary: int, place: int) -> _Codes:
        return self._tables.get((3, dictionary, place), lambda: _Codes(self._values(dictionary, place)))

    def _values(self, dictionary: int, place: int) -> pa.Array:
        for column in self._stored_dictionary(dictionary) if dictionary else ():
            if column.column == place and column.count:
                with self.named:
                    return column.values(self.thread_context())
        raise CorruptSegmentError(f"column {self.fields[place].name!r} has codes but no dictionary", path=self.name)


def _near_each_other(parts: Sequence[BlockSlice]) -> Iterator[tuple[int, int]]:
    """Split ascending blocks into ranges [first, last) of one read each. The file may have its leaves in any order."""
    first = 0
    for i in range(1, len(parts) + 1):
        if i == len(parts) or not 0 <= parts[i].offset - parts[i - 1].end <= READ_GAP_BYTES:
            yield first, i
            first = i


class Numbers:
    """The numbers of a short posting list, and whether it names every data block."""

    __slots__ = ("everywhere", "numbers", "size_bytes")

    def __init__(self, numbers: I64, everywhere: bool) -> None:
        self.numbers, self.everywhere = numbers, everywhere
        self.size_bytes = numbers.nbytes + 200


class _Rooted:
    def __init__(self, root: IndexRoot) -> None:
        self.root = root
        self.size_bytes = 300 * len(root.handles)


class _Codes:
    def __init__(self, values: pa.Array) -> None:
        self.codes = {value: code for code, value in enumerate(values.to_pylist(), start=1)}
        self.size_bytes = 200 * len(self.codes)
