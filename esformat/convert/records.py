"""Cutting text into blocks of whole records, and telling on which line each record begins.

Pure functions of bytes: what a record means is the readers' business.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from esformat.convert.errors import InputError

BLOCK_BYTES = 8 << 20  # large enough that fixed costs per block vanish, small enough to hold several in memory
LONGEST_RECORD_BYTES = 256 << 20  # bounds memory when a quote is left open or a file has no line ends

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
LINE = re.compile(rb"[^\n]*\n")


@dataclass(frozen=True, slots=True)
class Block:
    """Whole records, each with its line end; or, where `broken` says why, one line that is no record."""

    data: bytes
    first_line: int  # number of the line that `data` begins with, from 1
    broken: str = ""


class CsvSyntax:
    """Where the records and fields of CSV text end. Quoted fields may hold delimiters and line ends.

    It splits as pyarrow's parser does; a test holds the two together.
    """

    def __init__(self, delimiter: str) -> None:
        """Take the one ASCII character between fields, which is neither a quote nor a line end."""
        self.delimiter = delimiter.encode()
        between = re.escape(self.delimiter)
        other = rb"[^" + between + rb"\r\n]*+"
        one = rb'(?:"(?:[^"]++|""|(?!))*+"' + other + rb'|(?!")' + other + rb")"
        record = one + rb"(?:" + between + one + rb"|(?!))*+"
        self._field = re.compile(one)
        self.record = re.compile(record + rb"(?:\r\n?|\n)")
        # A final carriage return is left alone: a line feed may follow it in the next block.
        self._records = re.compile(rb"(?:" + record + rb"(?:\r(?!\Z)\n?|\n)|(?!))*+")

    def whole(self, data: bytes) -> int:
        """Tell how many leading bytes of `data` are whole records."""
        if b'"' not in data:
            return max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1
        found = self._records.match(data)
        return found.end() if found else 0

    def field_count(self, record: bytes) -> int:
        """Count the fields of one record."""
        bare = self._field.sub(b"", record) if b'"' in record else record
        return bare.count(self.delimiter) + 1


def whole_lines(data: bytes) -> int:
    """Tell how many leading bytes of `data` are whole lines."""
    return data.rfind(b"\n") + 1


def line_count(data: bytes) -> int:
    """Count the line ends in `data`: line feeds, carriage returns, or both together as one."""
    returns = data.count(b"\r") - data.count(b"\r\n") if b"\r" in data else 0  # to find none is quicker
    return data.count(b"\n") + returns


def blocks(
    read: Callable[[int], bytes],
    whole: Callable[[bytes], int],
    *,
    broken: str,
    first_line: int = 1,
    pending: bytes = b"",
) -> Iterator[Block]:
    """Yield what `read` gives as blocks of whole records, holding about two blocks in memory.

    `pending` are bytes that come before those of `read`. A line where no record ends within LONGEST_RECORD_BYTES, or
    before the end of the input, is yielded alone and called `broken`; reading goes on after it.
    """
    line, at_end = first_line, False
    while pending or not at_end:
        if not at_end:
            chunk = read(max(BLOCK_BYTES, len(pending)))
            at_end = not chunk
            pending += chunk
        if at_end and pending and not pending.endswith(b"\n"):
            pending += b"\n"  # the last line may lack its end; adding it changes no record
        end = whole(pending)
        if end:
            yield Block(pending[:end], line)
        elif pending and (at_end or len(pending) > LONGEST_RECORD_BYTES):
            end = pending.find(b"\n") + 1 or len(pending)
            yield Block(pending[:end], line, broken)
        line += line_count(pending[:end])
        pending = pending[end:]


def without_mark(block: Block, path: str) -> Block:
    """Take the byte order mark off the first block of `path`. Raises InputError if it is one of UTF-16."""
    if block.data.startswith(_UTF16_MARKS):
        raise InputError("is UTF-16 text", path=path, hint="turn it into UTF-8 first, with iconv for example")
    return Block(block.data.removeprefix(_BYTE_ORDER_MARK), block.first_line, block.broken)


def numbered(block: Block, record: re.Pattern[bytes]) -> list[tuple[int, bytes]]:
    """List the records of `block` that are not blank, each with the line it begins on."""
    if block.broken:
        return [(block.first_line, block.data)]
    found, line = [], block.first_line
    for match in record.finditer(block.data):
        if match.group().strip(b"\r\n"):
            found.append((line, match.group()))
        line += line_count(match.group())
    return found


def readable(record: bytes) -> str:
    """Give the text of a record without its line end; bytes that are not UTF-8 appear as backslash escapes."""
    return record.rstrip(b"\r\n").decode("utf-8", "backslashreplace")
