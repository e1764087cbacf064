"""Hive-style directories `name=value`: the columns that they give to files, and distribution of rows to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from esformat.errors import UsageError
from esformat.io.location import SUFFIX, locate
from esformat.spark.files import name_of

NULL = "__HIVE_DEFAULT_PARTITION__"
"""The directory value for null and for empty text, which cannot be a directory name."""
_PLAIN = " !$&'()+,-.;@_~"  # characters in names that are not escaped, besides letters and digits
_MOST_BYTES = 255  # of a name: the limit of file systems


def values_in(parts: Sequence[str]) -> dict[str, str | None]:
    """The columns that directories with these names give to every row of a file."""
    found: dict[str, str | None] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if name and equals:
            found[unquote(name)] = None if value in ("", NULL) else unquote(value)
    return found


def roots_of(paths: Sequence[str]) -> tuple[str, ...]:
    """The root directories of paths; for a pattern, the part before it."""
    return tuple(_root(name_of(locate(path))) for path in paths)


def _root(name: str) -> str:
    fixed = min((name.index(sign) for sign in "*?[" if sign in name), default=len(name))
    if fixed < len(name) or name.endswith(SUFFIX):
        name = name[:fixed].rpartition("/")[0]
    return name.rstrip("/") + "/"


def values_of(name: str, roots: Sequence[str]) -> dict[str, str | None]:
    """The columns that the directories between a root and a file give to its rows."""
    root = max((root for root in roots if name.startswith(root)), key=len, default=None)
    return {} if root is None else values_in(PurePath(name[len(root) :]).parts[:-1])


def meant_by(value: str | None) -> tuple[str | None, ...]:
    """The values that events below a directory may have if its files contain the column themselves."""
    return (None, "") if value is None else (value,)


def shared_out(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Yield each directory's name with its rows in order. Raises UsageError for a column that cannot name directories.

    names: the columns, outermost directory first.
    """
    codes = np.zeros(len(table), np.int64)
    words: list[pa.Array] = []
    for name in names:
        encoded = _text(name, table[name]).combine_chunks().dictionary_encode(null_encoding="encode")
        words.append(encoded.dictionary)
        codes = codes * (len(encoded.dictionary) + 1) + np.asarray(encoded.indices)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    for first, end in zip(starts, [*starts[1:], len(order)], strict=True):
        code, parts = int(codes[order[first]]), []
        for name, values in reversed(list(zip(names, words, strict=True))):
            code, number = divmod(code, len(values) + 1)
            parts.append(_directory(name, values[number].as_py()))
        yield "/".join(reversed(parts)), table.take(pa.array(order[first:end]))


def _text(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if not (pt.is_string(kind) or pt.is_integer(kind) or pt.is_boolean(kind) or pt.is_date(kind)):
        raise UsageError(
            f"column {name!r} of type {kind} cannot name directories", hint="give text, whole numbers or dates"
        )
    return column.cast(pa.string())


def _directory(name: str, value: str | None) -> str:
    directory = f"{_escaped(name)}={_escaped(value)}"
    if len(directory) > _MOST_BYTES:  # all of them ASCII
        raise UsageError(
            f"column {name!r} has a value that is too long for the name of a directory: {directory[:40]}…",
            hint=f"a name has {_MOST_BYTES} bytes at most",
        )
    return directory


def _escaped(text: str | None) -> str:
    if text == NULL:
        return f"%{ord(NULL[0]):X}{NULL[1:]}"
    return quote(text, safe=_PLAIN) if text else NULL
