"""Read pages of the directory, for the root that names them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from esformat.core.cached_segment import NamedErrors
from esformat.core.roots import Entries
from esformat.errors import CorruptSegmentError, EsdbError
from esformat.format.codec import Decompressor
from esformat.format.directory import open_page
from esformat.format.frame import decode_block
from esformat.format.layout import BlockHandle, BlockKind
from esformat.format.node import DecodeContext
from esformat.io.source import Source, explained


class DirectoryPages:
    """Reads the directory pages of one file. The root refers to it, and it to nothing that refers to the root."""

    def __init__(self, source: Source, threads: Any) -> None:
        """threads: a `threading.local` whose attribute `own` is the thread's decode context, once it has one."""
        self.source = source
        self._threads = threads

    def read(self, places: Sequence[tuple[BlockHandle, int, int]]) -> list[Entries]:
        """Read pages; adjacent ones with a single read. places: for each, its handle and the rows and blocks before it.

        Raises CorruptSegmentError, ChecksumMismatchError, ClosedError.
        """
        handles = [handle for handle, _, _ in places]
        adjacent = all(one.end == two.offset for one, two in pairwise(handles))
        source, pages = self.source, []
        try:
            for group in [handles] if adjacent else [[handle] for handle in handles]:
                start = group[0].offset
                if group[-1].end > source.size:
                    raise CorruptSegmentError("a page reaches beyond the end of the file", offset=group[-1].offset)
                stored = memoryview(source.read_at(start, group[-1].end - start))
                for handle in group:
                    framed = stored[handle.offset - start : handle.end - start]
                    pages.append(decode_block(framed, BlockKind.DIRECTORY_PAGE, handle.check, handle.offset))
        except EsdbError as error:
            raise explained(error, source) from None
        own = getattr(self._threads, "context", None)
        if own is None:
            plain = Decompressor()
            own = DecodeContext(plain, plain)
        with NamedErrors(source.name):
            return [
                open_page(block, first_row, first_block, own, source.name)
                for block, (_, first_row, first_block) in zip(pages, places, strict=True)
            ]
