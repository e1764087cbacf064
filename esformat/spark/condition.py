"""The option `where`: a condition in a small part of SQL, read into filters that are applied here, exactly.

    space = 'ada' AND timestamp >= '2026-03-01' AND type IN ('page', 'purchase') AND country IS NOT NULL

Comparisons (`=`, `<`, `<=`, `>`, `>=`), `IN`, `BETWEEN`, `LIKE 'prefix%'`, `IS NULL` and `IS NOT NULL` on columns,
joined by AND. Literals are numbers, TRUE, FALSE, X'00ff', and text in single quotes, which is ISO 8601 where the column
is a timestamp (UTC if it names no zone).
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from esformat.errors import UsageError

_TOKEN = re.compile(
    r"\s*(?:(?P<hex>[xX]'(?:[0-9a-fA-F]{2})*')|(?P<text>'(?:[^']|'')*')|(?P<quoted>`(?:[^`]|``)+`)"
    r"|(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<word>[A-Za-z_]\w*)|(?P<sign><=|>=|[=<>(),]))"
)
_COMPARISONS: dict[str, Callable[[tuple[str, ...], Any], Filter]] = {
    "=": EqualTo, "<": LessThan, "<=": LessThanOrEqual, ">": GreaterThan, ">=": GreaterThanOrEqual,
}  # fmt: skip
_KEYWORDS = ("AND", "IN", "BETWEEN", "LIKE", "IS", "NOT", "NULL", "TRUE", "FALSE", "OR")

Token = tuple[str, str]


def parse_condition(text: str, schema: pa.Schema) -> tuple[Filter, ...]:
    """The filters that a condition joins by AND, literals as their columns hold them. Raises UsageError."""
    return tuple(_Parser(text, schema).filters())


class _Parser:
    def __init__(self, text: str, schema: pa.Schema) -> None:
        self._text = text
        self._schema = schema
        self._tokens = list(_tokens(text))
        self._at = 0

    def filters(self) -> Iterator[Filter]:
        while True:
            yield from self._condition()
            if self._at == len(self._tokens):
                return
            self._expect("AND")

    def _condition(self) -> Iterator[Filter]:
        kind, name = self._next()
        if kind not in ("word", "quoted") or (kind == "word" and name.upper() in _KEYWORDS):
            raise self._wrong(f"a column, not {name!r}")
        name = name[1:-1].replace("``", "`") if kind == "quoted" else name
        if name not in self._schema.names:
            raise UsageError(
                f"option 'where' names no column: {name!r}", hint=f"the columns are {', '.join(self._schema.names)}"
            )
        path, column = (name,), self._schema.field(name)
        kind, sign = self._next()
        if sign in _COMPARISONS and kind == "sign":
            yield _COMPARISONS[sign](path, self._value(column))
        elif kind != "word":
            raise self._wrong(f"a comparison, not {sign!r}")
        elif sign.upper() == "IN":
            yield In(path, tuple(self._list(column)))
        elif sign.upper() == "BETWEEN":
            yield GreaterThanOrEqual(path, self._value(column))
            self._expect("AND")
            yield LessThanOrEqual(path, self._value(column))
        elif sign.upper() == "LIKE":
            yield StringStartsWith(path, self._prefix(column))
        elif sign.upper() == "IS":
            negated = self._peek() == "NOT"
            if negated:
                self._next()
            self._expect("NULL")
            yield IsNotNull(path) if negated else IsNull(path)
        else:
            raise self._wrong(f"a comparison, not {sign!r}")

    def _list(self, column: pa.Field) -> Iterator[Any]:
        self._expect("(")
        yield self._value(column)
        while self._peek() == ",":
            self._next()
            yield self._value(column)
        self._expect(")")

    def _prefix(self, column: pa.Field) -> str:
        value = self._value(column)
        if not isinstance(value, str) or not value.endswith("%") or set(value[:-1]) & set("%_\\"):
            raise self._wrong("a prefix of text with one % at its end after LIKE")
        return value[:-1]

    def _value(self, column: pa.Field) -> Any:
        kind, text = self._next()
        value = self._literal(kind, text)
        try:
            return _as_held(value, column.type)
        except (TypeError, ValueError):
            raise UsageError(
                f"option 'where' compares column {column.name!r} of type {column.type} with {text}",
                hint="compare with a literal of its type, or filter with Spark",
            ) from None

    def _literal(self, kind: str, text: str) -> Any:
        if kind == "text":
            return text[1:-1].replace("''", "'")
        if kind == "hex":
            return bytes.fromhex(text[2:-1])
        if kind == "number":
            return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
        if kind == "word" and text.upper() in ("TRUE", "FALSE"):
            return text.upper() == "TRUE"
        raise self._wrong(f"a literal, not {text!r}")

    def _next(self) -> Token:
        if self._at == len(self._tokens):
            raise self._wrong("more where it ends")
        self._at += 1
        return self._tokens[self._at - 1]

    def _peek(self) -> str:
        return self._tokens[self._at][1].upper() if self._at < len(self._tokens) else ""

    def _expect(self, word: str) -> None:
        kind, text = self._next()
        if kind not in ("word", "sign") or text.upper() != word:
            raise self._wrong(f"{word}, not {text!r}")

    def _wrong(self, expected: str) -> UsageError:
        return UsageError(
            f"option 'where' should have {expected}: {self._text!r}",
            hint="for anything but comparisons joined by AND, filter with Spark",
        )


def _tokens(text: str) -> Iterator[Token]:
    at = 0
    end = len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise UsageError(f"option 'where' cannot be read from {text[at:].strip()[:40]!r} on")
        yield found.lastgroup, found[found.lastgroup]
        at = found.end()


def _as_held(value: Any, kind: pa.DataType) -> Any:
    """A literal as a column of a type holds it. Raises TypeError or ValueError where it cannot."""
    if pt.is_timestamp(kind) and kind.tz and isinstance(value, str):
        moment = dt.datetime.fromisoformat(value)
        return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    if pt.is_binary(kind) and isinstance(value, str | bytes):
        return value.encode() if isinstance(value, str) else value
    wanted: type | tuple[type, ...] | None = (
        str if pt.is_string(kind) else bool if pt.is_boolean(kind) else int if pt.is_integer(kind)
        else (int, float) if pt.is_floating(kind) else None
    )  # fmt: skip
    if wanted is None or not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        raise TypeError
    return value


def column_of(filter: Any) -> str:
    """The column that a filter of a condition looks at."""
    name: str = filter.attribute[0]
    return name


_MASKS: dict[type[Filter], Callable[[pa.Array, pa.Scalar], pa.Array]] = {
    EqualTo: pc.equal, LessThan: pc.less, LessThanOrEqual: pc.less_equal, GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
}  # fmt: skip


def matching(batch: pa.RecordBatch, filters: Sequence[Filter]) -> pa.RecordBatch:
    """The rows of a batch that all the filters are true of."""
    kept: Any = None
    for each in filters:
        mask = np.asarray(pc.fill_null(_mask(each, batch), False).to_numpy(zero_copy_only=False))
        kept = mask if kept is None else kept & mask
    return batch if kept is None or kept.all() else batch.filter(pa.array(kept))


def _mask(each: Any, batch: pa.RecordBatch) -> pa.Array:
    column = batch.column(column_of(each))
    if isinstance(each, IsNull | IsNotNull):
        return column.is_null() if isinstance(each, IsNull) else column.is_valid()
    if isinstance(each, StringStartsWith):
        return pc.starts_with(column, each.value)
    if isinstance(each, In):
        return pc.is_in(column, value_set=pa.array(each.value, column.type))
    return _MASKS[type(each)](column, pa.scalar(each.value, _compared(column.type)))


def _compared(kind: pa.DataType) -> pa.DataType:
    """The type to compare in: integers in 64 bits, so that a literal beyond the column's own is none of its values."""
    return pa.int64() if pt.is_integer(kind) and not pt.is_uint64(kind) else kind
