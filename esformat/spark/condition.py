"""The option `where`: a condition in a small subset of SQL, parsed to filters that are applied exactly.

    space = 'ada' AND timestamp >= '2026-03-01' AND (type IN ('page', 'purchase') OR NOT country = 'at')

Supports comparisons (`=`, `<>`, `!=`, `<`, `<=`, `>`, `>=`), `[NOT] IN`, `[NOT] BETWEEN`, `[NOT] LIKE 'prefix%'`,
`IS NULL` and `IS NOT NULL` on columns, and boolean columns, joined by AND, OR, NOT and parentheses. Null is neither
true nor false, as in SQL. Literals are numbers, TRUE, FALSE, X'00ff', `DATE '…'`, `TIMESTAMP '…'` and text in single
quotes, which is ISO 8601 for dates and timestamps (in the session's zone by default).
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
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
    Not,
    StringStartsWith,
)

from esformat.convert import Clock
from esformat.errors import UsageError

_TOKEN = re.compile(
    r"\s*(?:(?P<hex>[xX]'(?:[0-9a-fA-F]{2})*')|(?P<text>'(?:[^']|'')*')|(?P<quoted>`(?:[^`]|``)*`)"
    r"|(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<word>[A-Za-z_]\w*)|(?P<sign><=|>=|<>|!=|[=<>(),]))"
)
_COMPARISONS: dict[str, Callable[[tuple[str, ...], Any], Filter]] = {
    "=": EqualTo,
    "<": LessThan,
    "<=": LessThanOrEqual,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
}
KEYWORDS = ("AND", "IN", "BETWEEN", "LIKE", "IS", "NOT", "NULL", "TRUE", "FALSE", "OR")
_MAX_DEPTH = 100
_MAX_DIGITS = 76  # of two decimals that are compared, after scaling

Token = tuple[str, str]


@dataclass(frozen=True)
class AnyOf(Filter):
    """True if all filters of at least one option are true: the parts of OR."""

    options: tuple[tuple[Filter, ...], ...]


def parse_condition(text: str, schema: pa.Schema, zone: str = "UTC") -> tuple[Filter, ...]:
    """Parse a condition to filters joined by AND, with literals in the types of their columns. Raises UsageError.

    zone: of times without one.
    """
    return tuple(_Parser(text, schema, zone).filters())


class _Parser:
    def __init__(self, text: str, schema: pa.Schema, zone: str) -> None:
        self._text = text
        self._zone = zone
        self._schema = schema
        self._tokens = list(_tokens(text))
        self._at = 0

    def filters(self) -> list[Filter]:
        found = self._any(negated=False, depth=0)
        if self._at < len(self._tokens):
            raise self._wrong(f"AND, not {self._next()[1]!r}")
        return found

    def _any(self, *, negated: bool, depth: int) -> list[Filter]:
        """Parse the parts of OR, negated if asked, to filters that must all be true."""
        if depth > _MAX_DEPTH:
            raise self._wrong(f"at most {_MAX_DEPTH} nested parentheses")
        options = [self._all(negated=negated, depth=depth)]
        while self._takes("OR"):
            options.append(self._all(negated=negated, depth=depth))
        return _joined(options, conjoined=negated)

    def _all(self, *, negated: bool, depth: int) -> list[Filter]:
        parts = [self._factor(negated=negated, depth=depth)]
        while self._takes("AND"):
            parts.append(self._factor(negated=negated, depth=depth))
        return _joined(parts, conjoined=not negated)

    def _factor(self, *, negated: bool, depth: int) -> list[Filter]:
        while self._takes("NOT"):
            negated = not negated
        if not self._takes("("):
            return _denied(list(self._condition())) if negated else list(self._condition())
        found = self._any(negated=negated, depth=depth + 1)
        self._expect(")")
        return found

    def _takes(self, word: str) -> bool:
        """Consume a word or sign if it is next; return whether it was."""
        found = self._at < len(self._tokens) and self._tokens[self._at][0] in ("word", "sign") and self._peek() == word
        self._at += found
        return found

    def _condition(self) -> Iterator[Filter]:
        kind, name = self._next()
        if kind not in ("word", "quoted") or (kind == "word" and name.upper() in KEYWORDS):
            raise self._wrong(f"a column, not {name!r}")
        name = name[1:-1].replace("``", "`") if kind == "quoted" else name
        if name not in self._schema.names:
            raise UsageError(
                f"option 'where': no column {name!r}", hint=f"the columns are {', '.join(self._schema.names)}"
            )
        path, column = (name,), self._schema.field(name)
        if pt.is_boolean(column.type) and self._peek() in ("", "AND", "OR", ")"):
            yield EqualTo(path, True)
        elif self._takes("NOT"):
            yield from _denied(list(self._compared(path, column, ("IN", "BETWEEN", "LIKE"))))
        else:
            yield from self._compared(path, column, (*_COMPARISONS, "<>", "!=", "IN", "BETWEEN", "LIKE", "IS"))

    def _compared(self, path: tuple[str, ...], column: pa.Field, allowed: Sequence[str]) -> Iterator[Filter]:
        kind, sign = self._next()
        if kind not in ("word", "sign") or sign.upper() not in allowed:
            raise self._wrong(f"a comparison, not {sign!r}")
        if sign in _COMPARISONS:
            yield _COMPARISONS[sign](path, self._value(column))
        elif sign in ("<>", "!="):
            yield Not(EqualTo(path, self._value(column)))
        elif sign.upper() == "IN":
            yield In(path, tuple(self._list(column)))
        elif sign.upper() == "BETWEEN":
            yield GreaterThanOrEqual(path, self._value(column))
            self._expect("AND")
            yield LessThanOrEqual(path, self._value(column))
        elif sign.upper() == "LIKE":
            yield StringStartsWith(path, self._prefix(column))
        else:
            negated = self._takes("NOT")
            self._expect("NULL")
            yield IsNotNull(path) if negated else IsNull(path)

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
            raise self._wrong("text with a single % at its end after LIKE")
        return value[:-1]

    def _value(self, column: pa.Field) -> Any:
        typed = self._peek() if self._peek() in _TYPED and self._tokens[self._at][0] == "word" else ""
        if typed:
            self._next()
        kind, text = self._next()
        if typed and (kind != "text" or not _TYPED[typed](column.type)):
            raise self._wrong(f"a literal for column {column.name!r} of type {column.type}, not {typed} {text}")
        value = self._literal(kind, text, column.type)
        try:
            return _as_held(value, column.type, self._zone)
        except UsageError:  # a subclass of ValueError
            raise
        except (OverflowError, TypeError, ValueError):
            raise UsageError(
                f"option 'where' compares column {column.name!r} of type {column.type} with {text}",
                hint="compare with a literal of its type, or filter with Spark",
            ) from None

    def _literal(self, kind: str, text: str, held: pa.DataType) -> Any:
        if kind == "text":
            return text[1:-1].replace("''", "'")
        if kind == "hex":
            return bytes.fromhex(text[2:-1])
        if kind == "number" and pt.is_decimal(held):
            return decimal.Decimal(text)
        if kind == "number":
            return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
        if kind == "word" and text.upper() in ("TRUE", "FALSE"):
            return text.upper() == "TRUE"
        raise self._wrong(f"a literal, not {text!r}")

    def _next(self) -> Token:
        if self._at == len(self._tokens):
            raise self._wrong("more text at the end")
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
            f"option 'where': expected {expected} in {self._text!r}",
            hint="columns are compared with literals, joined by AND, OR and NOT; for more, filter with Spark",
        )


def _tokens(text: str) -> Iterator[Token]:
    at = 0
    end = len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise UsageError(f"option 'where': cannot parse {text[at:].strip()[:40]!r}")
        yield found.lastgroup, found[found.lastgroup]
        at = found.end()


_TYPED: dict[str, Callable[[pa.DataType], bool]] = {
    "DATE": lambda kind: pt.is_date(kind) or pt.is_timestamp(kind),
    "TIMESTAMP": pt.is_timestamp,
}


def _joined(parts: list[list[Filter]], *, conjoined: bool) -> list[Filter]:
    """Join parts to filters that are all true if all parts are (conjoined), or if at least one is."""
    if conjoined or len(parts) == 1:
        return [each for part in parts for each in part]
    return [AnyOf(tuple(map(tuple, parts)))]


def _denied(filters: list[Filter]) -> list[Filter]:
    """Negate the filters of one comparison."""
    opposites = [each.child if isinstance(each, Not) else Not(each) for each in filters]
    return opposites if len(opposites) == 1 else [AnyOf(tuple((each,) for each in opposites))]


def _as_held(value: Any, kind: pa.DataType, zone: str) -> Any:
    """Convert a literal to the type of a column. Raises TypeError or ValueError if that is not possible."""
    if pt.is_timestamp(kind) and kind.tz and isinstance(value, str):
        moment = dt.datetime.fromisoformat(value)
        if moment.tzinfo:
            return moment
        times = _clock(zone).read(pa.array([moment], pa.timestamp("us")))
        if not times.ok[0]:
            raise ValueError(f"no time of {zone}")
        return times.timestamps()[0].as_py()
    if pt.is_timestamp(kind) and isinstance(value, str):
        naive = dt.datetime.fromisoformat(value)
        if naive.tzinfo:
            raise ValueError("the column has no zone")
        return naive
    if pt.is_date(kind) and isinstance(value, str):
        return dt.date.fromisoformat(value)
    if pt.is_binary(kind) and isinstance(value, str | bytes):
        return value.encode() if isinstance(value, str) else value
    if pt.is_floating(kind) and type(value) is int:
        return float(value)
    if isinstance(value, decimal.Decimal):
        _check_digits(value, kind)
    if isinstance(value, str):
        value.encode()  # unpaired surrogates, possible in JSON, occur in no text
    wanted: type | tuple[type, ...] | None = (
        str if pt.is_string(kind) else bool if pt.is_boolean(kind) else int if pt.is_integer(kind)
        else (int, float) if pt.is_floating(kind) else decimal.Decimal if pt.is_decimal(kind) else None
    )  # fmt: skip
    if wanted is None or not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        raise TypeError
    return value


def _check_digits(value: decimal.Decimal, kind: pa.DataType) -> None:
    """Raise ValueError if a number and the values of a type together need more digits than 256 bits allow."""
    _, digits, exponent = value.as_tuple()
    before = max(len(digits) + int(exponent), kind.precision - kind.scale)
    if max(len(digits), before + max(-int(exponent), kind.scale)) > _MAX_DIGITS:
        raise ValueError("too many digits")


def _clock(zone: str) -> Clock:
    try:
        return Clock("iso", zone)
    except ValueError as error:
        raise UsageError(str(error), hint="write the time with its offset, such as 2026-03-01T08:00:00+01:00") from None


def columns_of(filter: Any) -> tuple[str, ...]:
    """The columns that a filter reads."""
    if isinstance(filter, AnyOf):
        return tuple(dict.fromkeys(name for option in filter.options for each in option for name in columns_of(each)))
    return columns_of(filter.child) if isinstance(filter, Not) else (filter.attribute[0],)


_MASKS: dict[type[Filter], Callable[[pa.Array, pa.Scalar], pa.Array]] = {
    EqualTo: pc.equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
}


def matching(batch: pa.RecordBatch, filters: Sequence[Filter]) -> pa.RecordBatch:
    """Return the rows of a batch for which all filters are true."""
    kept: Any = None
    for each in filters:
        mask = np.asarray(pc.fill_null(_mask(each, batch), False).to_numpy(zero_copy_only=False))
        kept = mask if kept is None else kept & mask
    return batch if kept is None or kept.all() else batch.filter(pa.array(kept))


def _mask(each: Any, batch: pa.RecordBatch) -> pa.Array:
    """Evaluate a filter: true, false or null per row."""
    if isinstance(each, AnyOf):
        options = (reduce(pc.and_kleene, (_mask(one, batch) for one in option)) for option in each.options)
        return reduce(pc.or_kleene, options)
    if isinstance(each, Not):
        return pc.invert(_mask(each.child, batch))
    column = batch.column(each.attribute[0])
    if isinstance(each, IsNull | IsNotNull):
        return column.is_null() if isinstance(each, IsNull) else column.is_valid()
    if isinstance(each, StringStartsWith):
        return pc.starts_with(column, each.value)
    if isinstance(each, In):
        values = pa.array([value for value in each.value if _fits(value, column.type)], column.type)
        if pt.is_floating(column.type):
            column, values = pc.add(column, 0.0), pc.add(values, 0.0)  # so that -0.0 equals 0.0
        return pc.if_else(column.is_valid(), pc.is_in(column, value_set=values), pa.scalar(None, pa.bool_()))
    mask = _MASKS[type(each)](column, _scalar(each.value, column.type))
    if isinstance(each, GreaterThan | GreaterThanOrEqual) and pt.is_floating(column.type):
        return pc.or_(mask, pc.is_nan(column))  # as in Spark, where NaN is the largest number
    return mask


def _fits(value: Any, kind: pa.DataType) -> bool:
    """Whether a type can represent the value."""
    try:
        pa.scalar(value, kind)
    except (pa.ArrowException, OverflowError):
        return False
    return True


def _scalar(value: Any, kind: pa.DataType) -> pa.Scalar:
    """Return a value for comparison with a column; integers outside the column's range keep their value."""
    if pt.is_decimal(kind) or (pt.is_integer(kind) and not -(2**63) <= value < 2**63):
        digits = pa.scalar(decimal.Decimal(value)).type
        return pa.scalar(decimal.Decimal(value), pa.decimal256(digits.precision, digits.scale))
    return pa.scalar(value, pa.int64() if pt.is_integer(kind) and not pt.is_uint64(kind) else kind)
