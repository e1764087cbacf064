"""WHERE, compiled: an expression over events as a vectorised mask over the columns of Arrow batches that it needs.

Absent values: a text field is empty; a number, time or truth value is unequal to everything. A mask has no nulls, so
NOT is the exact opposite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggregator.base.allowance import check
from aggregator.lql.errors import LqlError
from aggregator.lql.parse.columns import Columns, as_text, changed_case, decoded, is_text, value_type
from aggregator.lql.parse.operand import (
    Column,
    Field,
    JsonPath,
    Message,
    Target,
    Timestamp,
    check_where,
    innermost,
    resolve_time,
    target_of,
)
from aggregator.lql.parse.template import field_text, micros, var_text
from aggregator.lql.parse.tokens import did_you_mean, our_name
from aggregator.lql.parse.tree import SYMBOLS, And, Condition, Expression, Name, Not, Or, Value
from aggregator.lql.run.adaptive_slices import AdaptiveSlices
from aggregator.lql.run.json_path import path_test
from aggregator.lql.run.required_texts import RequiredTexts, required_texts, texts_suffice
from aggregator.lql.text import integer
from aggregator.lql.text.comparison import comparison
from aggregator.lql.text.number import number_test
from aggregator.lql.text.predicate import Test, text_test
from aggregator.lql.text.quantity import parse_number
from aggregator.lql.text.times import NANOS_PER_MICRO
from esformat.parts import is_binary, is_numeric

_INT64 = (-(2**63), 2**63 - 1)
_FEW = 4  # if a mask leaves less than 1/_FEW of the rows undecided, later masks are evaluated for those rows only
_NUMBER_COST, _TEXT_COST, _REGEX_COST, _JSON_COST = range(4)
Mask = Callable[["_Rows"], pa.BooleanArray]


class _Rows:
    """A batch, or selected rows of it; each operand is computed once for all conditions that use it."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self.made: dict[object, pa.Array] = {}

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def make(self, key: object, maker: Callable[[pa.RecordBatch], pa.Array]) -> pa.Array:
        if key not in self.made:
            self.made[key] = maker(self.batch)
        return self.made[key]

    def take(self, rows: pa.Array) -> _Rows:
        return _Rows(self.batch.take(rows))


@dataclass(frozen=True, slots=True)
class _Variable:
    """The column, field or tag of that name, whichever a record has, as text."""

    name: str


@dataclass(frozen=True, slots=True)
class _Term:
    """A part of the expression: its mask, its cost, and the columns that it reads."""

    mask: Mask
    cost: int
    columns: frozenset[str]


@dataclass(frozen=True, slots=True)
class Filter:
    """A compiled condition. `columns`: those that it reads; a batch may have others, in any order."""

    columns: frozenset[str]
    _mask: Mask = field(repr=False)
    required_texts: Mapping[str, RequiredTexts] = field(default_factory=dict, compare=False)
    """By column: lists of texts; in a matching row, the value contains at least one text of each list."""
    required_texts_suffice: bool = field(default=False, compare=False)
    """Whether every row for which that is true matches."""
    _slices: AdaptiveSlices | None = field(default=None, repr=False, compare=False)  # None: fast for any batch

    @classmethod
    def compile(cls, where: Expression | None, columns: Columns, now_ns: int, *, standing: bool = False) -> Self:
        """Compile `where` (None: everything) for batches with these `columns`; relative times count from `now_ns`.

        standing: the condition may be older than the columns; if one cannot be compared by its type, its text is
        compared.
        Raises LqlError if a column does not exist, or cannot be compared like this.
        """
        if where is None:
            return cls(frozenset(), lambda rows: pa.repeat(pa.scalar(True), len(rows)))
        check_where(where)
        term = _compile(where, partial(_standing if standing else _comparison, columns=columns, now_ns=now_ns))
        read = term.columns or frozenset({columns.timestamp})  # a filter that reads no column would not be evaluated
        texts = required_texts(where)
        required = {columns.message: texts} if texts else {}
        slices = AdaptiveSlices() if term.cost >= _REGEX_COST else None
        return cls(read, term.mask, required, bool(texts) and texts_suffice(where), slices)

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """True for each row that matches; no nulls. Linear in the batch. Raises the errors of `Allowance.check`."""
        needed = [name for name in batch.schema.names if name in self.columns]
        looked_at = batch.select(needed) if needed else batch
        if self._slices is None:
            check()
            return self._mask(_Rows(looked_at))
        masks = [self._mask(_Rows(part)) for part in self._slices.parts(looked_at)]
        return masks[0] if len(masks) == 1 else pa.concat_arrays(masks)

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The matching rows, in order."""
        mask = self.mask(batch)
        matching = mask.true_count
        return batch if matching == len(batch) else batch.slice(0, 0) if matching == 0 else batch.filter(mask)


# ---------------------------------------------------------------- AND, OR, NOT


def _compile(where: Expression, compare: Callable[[Condition], _Term]) -> _Term:
    match where:
        case Condition():
            return compare(where)
        case Not(inner):
            term = _compile(inner, compare)
            return _Term(lambda rows: pc.invert(term.mask(rows)), term.cost, term.columns)
        case And(inner) | Or(inner):
            terms = sorted((_compile(one, compare) for one in inner), key=lambda term: term.cost)
            masks = [term.mask for term in terms]
            read = frozenset[str]().union(*(term.columns for term in terms))
            undecided = isinstance(where, And)  # rows with this mask value are still undecided
            return _Term(lambda rows: _chain(masks, rows, undecided=undecided), terms[-1].cost, read)


def _chain(masks: list[Mask], rows: _Rows, *, undecided: bool) -> pa.BooleanArray:
    """AND (`undecided` True) or OR of masks, each evaluated only for rows that the previous ones left undecided."""
    mask = masks[0](rows)
    for i in range(1, len(masks)):
        left = mask.true_count if undecided else len(mask) - mask.true_count
        if left == 0:
            return mask
        if left * _FEW < len(mask):
            open_rows = pc.indices_nonzero(mask if undecided else pc.invert(mask))
            decided = _chain(masks[i:], rows.take(open_rows), undecided=undecided)
            result = np.full(len(mask), not undecided)
            result[np.asarray(open_rows)] = np.asarray(decided)
            return pa.array(result)
        mask = pc.and_(mask, masks[i](rows)) if undecided else pc.or_(mask, masks[i](rows))
    return mask


# ---------------------------------------------------------------- comparisons


def _comparison(condition: Condition, columns: Columns, now_ns: int) -> _Term:
    name, functions = innermost(condition.operand)
    target, op, value = target_of(name), condition.op, condition.value
    if isinstance(target, Timestamp):
        return _times(columns.timestamp, op, value, now_ns)
    if isinstance(target, JsonPath):
        if functions:
            raise LqlError(f"{functions[-1]} takes only msg, fields and columns", mark=name.mark)
        test = path_test(target.steps, op, value)
        return _Term(
            lambda rows: test(rows.make(columns.message, lambda batch: _present(batch.column(columns.message)))),
            _JSON_COST,
            frozenset({columns.message}),
        )
    typed = _typed_column(name, target, functions, columns)
    if typed is not None and isinstance(target, Field) and not value.number and is_numeric(value_type(typed.type)):
        typed = None  # quoted text: a field is compared as text, whether it is in a column or in the map
    if typed is not None and (op in SYMBOLS or pa.types.is_null(typed.type)):
        if isinstance(target, Field) and columns.extra is not None:
            return _typed_or_text(typed, condition, now_ns, columns)
        return _typed(typed, condition, now_ns)
    return _text(target, functions, op, value, columns)


def _standing(condition: Condition, columns: Columns, now_ns: int) -> _Term:
    """The same for a condition older than the columns: records without a suitable column still match."""
    try:
        return _comparison(condition, columns, now_ns)
    except LqlError:
        name, functions = innermost(condition.operand)
        target = target_of(name)
        if not isinstance(target, Column):
            raise
        return _text(_Variable(target.name), functions, condition.op, condition.value, columns)


def _times(column: str, op: str, value: Value, now_ns: int) -> _Term:
    micros_since = Fraction(resolve_time(value.text, now_ns, value.mark), NANOS_PER_MICRO)
    test, absent = integer.bound(op, micros_since, *_INT64), op == "!="
    return _Term(
        lambda rows: integer.run(test, rows.make(("us", column), _micros_of(column))).fill_null(absent),
        _NUMBER_COST,
        frozenset({column}),
    )


def _micros_of(column: str) -> Callable[[pa.RecordBatch], pa.Array]:
    return lambda batch: micros(batch.column(column))


def _typed_column(name: Name, target: Target, functions: tuple[str, ...], columns: Columns) -> pa.Field | None:
    """The column to compare by its own type; None: compare text. Raises LqlError for a column that does not exist."""
    if not isinstance(target, Column | Field):
        return None
    if target.name not in columns.names:
        if isinstance(target, Column) and not _may_be_tag(target.name, columns):
            hint = our_name(target.name) or did_you_mean(target.name, ["ts", "msg", *columns.names])
            raise LqlError(
                f"unknown column {target.name!r}",
                mark=name.mark,
                hint=hint or f"write fields:{target.name} for a field that may be absent",
            )
        return None
    column = columns.schema.field(target.name)
    return None if functions or is_text(value_type(column.type)) else column


def _may_be_tag(name: str, columns: Columns) -> bool:
    """Whether a name that is not a column can be a field or a tag, as in GROUP BY."""
    return columns.tags is not None and (columns.extra is not None or name in columns.tag_names)


def _text(target: Target | _Variable, functions: tuple[str, ...], op: str, value: Value, columns: Columns) -> _Term:
    as_number = value.number and op in SYMBOLS and not isinstance(target, Message)
    test = (number_test if as_number else text_test)(op, value.text)
    cost = _REGEX_COST if functions or as_number or op not in SYMBOLS else _TEXT_COST
    source, read = _text_source(target, columns)
    return _Term(lambda rows: _test_text(rows, test, (target, functions), source), cost, frozenset(read))


def _text_source(
    target: Target | _Variable, columns: Columns
) -> tuple[Callable[[pa.RecordBatch], pa.Array | None], set[str]]:
    """A function that extracts the text from a batch (None: no row has it), and the columns that it needs."""
    if isinstance(target, Message):
        return lambda batch: batch.column(columns.message), {columns.message}
    assert isinstance(target, Field | Column | _Variable)
    name = target.name
    own = {name} & set(columns.names)
    if own and (isinstance(target, Column) or (columns.extra is None and isinstance(target, Field))):
        return lambda batch: _text_column(batch.column(name)), own
    extra = {columns.extra} if columns.extra is not None else set()
    if not isinstance(target, Field):  # a field, or else a tag
        tags = {columns.tags} if columns.tags is not None else set()
        return lambda batch: var_text(batch, columns, name), own | extra | tags
    return lambda batch: field_text(batch, columns, name), own | extra


def _text_column(column: pa.Array) -> pa.Array:
    return column if is_text(value_type(column.type)) else as_text(column)


def _test_text(
    rows: _Rows,
    test: Test,
    key: tuple[Target | _Variable, tuple[str, ...]],
    source: Callable[[pa.RecordBatch], pa.Array | None],
) -> pa.BooleanArray:
    """Test each text, or each distinct one if the column is a dictionary; absent values are empty."""

    def operand(batch: pa.RecordBatch) -> pa.Array:
        texts = source(batch)
        if texts is None:
            return pa.repeat(pa.scalar(""), batch.num_rows).dictionary_encode()
        if not pa.types.is_dictionary(texts.type) or len(texts.dictionary) > len(texts):
            return changed_case(_present(texts), key[1])
        values = changed_case(_present(texts.dictionary), key[1])
        return pa.DictionaryArray.from_arrays(texts.indices, values)

    texts = rows.make(key, operand)
    if not pa.types.is_dictionary(texts.type):
        return test(texts)
    absent = test(pa.array([""]))[0].as_py()
    return test(texts.dictionary).take(texts.indices).fill_null(absent)


def _present(texts: pa.Array) -> pa.Array:
    texts = decoded(texts)
    return texts if texts.null_count == 0 else texts.fill_null(b"" if is_binary(texts.type) else "")


# ---------------------------------------------------------------- typed columns


def _typed(column: pa.Field, condition: Condition, now_ns: int) -> _Term:
    op, value = condition.op, condition.value
    test = _typed_test(column, op, value, now_ns)
    absent = op == "!="
    name = column.name
    return _Term(
        lambda rows: test(rows.make(name, lambda batch: decoded(batch.column(name)))).fill_null(absent),
        _NUMBER_COST,
        frozenset({name}),
    )


def _typed_or_text(column: pa.Field, condition: Condition, now_ns: int, columns: Columns) -> _Term:
    """A field: the column of its name in rows with a value there, otherwise the text in the map of fields."""
    target, op, value = Field(column.name), condition.op, condition.value
    text = _text(target, (), op, value, columns)
    try:
        typed = _typed(column, condition, now_ns)
    except LqlError:  # the value does not fit the column's type, so no text form of a column value equals it
        return text

    def mask(rows: _Rows) -> pa.BooleanArray:
        there = rows.make(("there", column.name), lambda batch: batch.column(column.name).is_valid())
        return pc.if_else(there, typed.mask(rows), text.mask(rows))

    return _Term(mask, text.cost, typed.columns | text.columns)


def _typed_test(column: pa.Field, op: str, value: Value, now_ns: int) -> Test:
    """Compile the comparison for the column's type. Raises LqlError if the value does not fit it."""
    type_ = value_type(column.type)
    if pa.types.is_null(type_):
        always = pa.scalar(op == "!=")
        return lambda values: pa.repeat(always, len(values))
    if pa.types.is_boolean(type_):
        return _truth(column, op, value)
    if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
        times = pa.timestamp("ms") if pa.types.is_date(type_) else type_  # a date is the time when it begins
        unit = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}[times.unit]
        stamps = integer.bound(op, Fraction(resolve_time(value.text, now_ns, value.mark), unit), *_INT64)
        return lambda values: integer.run(stamps, values.cast(times).cast(pa.int64()))
    if not is_numeric(type_):
        raise LqlError(
            f"column {column.name!r} is of type {type_}, which cannot be compared",
            mark=value.mark,
            hint="CONTAINS, PREFIX, SUFFIX, LIKE and MATCHES compare its text",
        )
    number = _number(column, value)
    if pa.types.is_integer(type_):
        wide, limits = (pa.uint64(), (0, 2**64 - 1)) if pa.types.is_uint64(type_) else (pa.int64(), _INT64)
        whole = integer.bound(op, number, *limits)
        return lambda values: integer.run(whole, values.cast(wide))
    if pa.types.is_decimal(type_) and type_.scale >= 0:  # Arrow compares no others
        most, step = 10**type_.precision - 1, Fraction(10) ** -type_.scale
        steps = integer.bound(op, Fraction(number) / step, -most, most)
        return lambda values: integer.run(steps, values, type_.scale)
    return _real_test(op, number)


def _real_test(op: str, number: Decimal) -> Test:
    """Compare floats with the one nearest to a number.

    No float equals a number so large or small that the nearest float is infinity or 0.
    """
    near = float(number)
    if math.isinf(near) or (near == 0 and number != 0):
        if op in ("=", "!="):
            return lambda values: integer.run(op == "!=", values)
        beyond = (near > number) == op.startswith(">")  # whether the nearest float itself satisfies `op`
        op = f"{op[0]}=" if beyond else op[0]
    compare, real = comparison(op), pa.scalar(near)
    return lambda values: compare(values.cast(pa.float64()), real)


def _number(column: pa.Field, value: Value) -> Decimal:
    try:
        return parse_number(value.text)
    except ValueError as error:
        raise LqlError(f"{error}, and column {column.name!r} holds numbers", mark=value.mark) from None


def _truth(column: pa.Field, op: str, value: Value) -> Test:
    known = {"true": True, "false": False}
    if op not in ("=", "!=") or value.text.lower() not in known:
        raise LqlError(f"column {column.name!r} is true or false", mark=value.mark, hint=f"write {column.name} = true")
    wanted = known[value.text.lower()] == (op == "=")
    return lambda values: values if wanted else pc.invert(values)
