"""Splitting of text into blocks of whole records, and line numbers of records.

Pure functions of bytes; the readers interpret the records.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from esformat.convert.errors import InputError

BLOCK_BYTES = 8 << 20  # large enough that fixed costs per block vanish, small enough to keep several in memory
LONGEST_RECORD_BYTES = 256 << 20  # limits memory if a quote is never closed or a file has no line ends

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
LINE = re.compile(rb"[^\n]*\n")


@dataclass(frozen=True, slots=True)
class Block:
    """Whole records, each with its line end; or one line that is not a record, and `broken` says why."""

    data: bytes
    first_line: int  # number of the line that `data` begins with, from 1
    broken: str = ""


class CsvSyntax:
    """Finds the ends of records and fields in CSV text. Quoted fields may contain delimiters and line ends.

    Splits exactly as pyarrow's parser does; a test compares the two.
    """

    def __init__(self, delimiter: str) -> None:
        """`delimiter` is one ASCII character, neither a quote nor a line end."""
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
        """Return the number of leading bytes of `data` that are whole records."""
        if b'"' not in data:
            return max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1
        found = self._records.match(data)
        return found.end() if found else 0

    def field_count(self, record: bytes) -> int:
        """Count the fields of one record."""
        bare = self._field.sub(b"", record) if b'"' in record else record
        return bare.count(self.delimiter) + 1


def whole_lines(data: bytes) -> int:
    """Return the number of leading bytes of `data` that are whole lines."""
    return data.rfind(b"\n") + 1


def line_count(data: bytes) -> int:
    """Count the line ends in `data`: line feeds, carriage returns, or both together as one."""
    returns = data.count(b"\r") - data.count(b"\r\n") if b"\r" in data else 0  # checking for none is faster
    return data.count(b"\n") + returns


def blocks(
    read: Callable[[int], bytes],
    whole: Callable[[bytes], int],
    *,
    broken: str,
    first_line: int = 1,
    pending: bytes = b"",
) -> Iterator[Block]:
    """Yield the bytes from `read` as blocks of whole records, with about two blocks in memory.

    `pending` are bytes that precede those of `read`. If no record ends within LONGEST_RECORD_BYTES or before the end of
    the input, the first line is yielded alone, marked `broken`, and reading continues after it.
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
    """Remove the byte order mark from the first block of `path`. Raises InputError if the text is UTF-16."""
    if block.data.startswith(_UTF16_MARKS):
        raise InputError("is UTF-16 text", path=path, hint="turn it into UTF-8 first, with iconv for example")
    return Block(block.data.removeprefix(_BYTE_ORDER_MARK), block.first_line, block.broken)


def numbered(block: Block, record: re.Pattern[bytes]) -> list[tuple[int, bytes]]:
    """List the records of `block` that are not blank, each with the number of its first line."""
    if block.broken:
        return [(block.first_line, block.data)]
    found, line = [], block.first_line
    for match in record.finditer(block.data):
        if match.group().strip(b"\r\n"):
            found.append((line, match.group()))
        line += line_count(match.group())
    return found


def readable(record: bytes) -> str:
    """Return the text of a record without its line end; bytes that are not UTF-8 become backslash escapes."""
    return record.rstrip(b"\r\n").decode("utf-8", "backslashreplace")
