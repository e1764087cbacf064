"""Bounds that a filter sets on the columns that a segment finds events by. Pure functions, no I/O.

A filter, taken apart by `arrow_filter`, becomes `Bounds`: for some columns, the values that an event must have to
satisfy the filter. Bounds may admit more events than the filter, never fewer, so the reader still applies the filter
unless the bounds are known to be exact. A part that is not understood sets no bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.types as pt

from esformat.format.schema import EventSchema
from esformat.read.ask.arrow_filter import Call, Field, Literal, Step


@dataclass(frozen=True, slots=True)
class Domain:
    """Values that a column may have: those `listed`, or if that is None, those in [low, high). None: no bound."""

    listed: frozenset[Any] | None = None
    low: Any = None
    high: Any = None

    @property
    def empty(self) -> bool:
        """Whether the domain has no value."""
        if self.listed is not None:
            return not self.listed
        return self.low is not None and self.high is not None and bool(self.low >= self.high)

    def holds(self, value: Any) -> bool:
        """Whether a value is in the domain."""
        if self.listed is not None:
            return value in self.listed
        return (self.low is None or value >= self.low) and (self.high is None or value < self.high)

    def meet(self, other: Domain) -> Domain:
        """The values that are in both domains."""
        if self.listed is not None:
            return Domain(frozenset(value for value in self.listed if other.holds(value)))
        if other.listed is not None:
            return other.meet(self)
        lows = [low for low in (self.low, other.low) if low is not None]
        highs = [high for high in (self.high, other.high) if high is not None]
        return Domain(None, max(lows, default=None), min(highs, default=None))

    def join(self, other: Domain, after: Callable[[Any], Any]) -> Domain:
        """The values that are in either domain, and perhaps some between them. after: returns the next larger value."""
        if self.listed is not None and other.listed is not None:
            return Domain(self.listed | other.listed)
        one, two = self.hull(after), other.hull(after)
        low = None if one.low is None or two.low is None else min(one.low, two.low)
        high = None if one.high is None or two.high is None else max(one.high, two.high)
        return Domain(None, low, high)

    def hull(self, after: Callable[[Any], Any]) -> Domain:
        """The smallest range that contains all values of the domain, which must not be empty."""
        return self if self.listed is None else Domain(None, min(self.listed), after(max(self.listed)))


Bounds = Mapping[str, Domain]
"""The values that each bounded column may have; all bounds must hold. Keys are bytes, timestamps µs."""

NOTHING: Bounds = {"": Domain(frozenset())}
"""Bounds that no event satisfies."""
UNBOUNDED: Bounds = {}


def admits_nothing(bounds: Bounds) -> bool:
    """Whether no event can satisfy the bounds."""
    return any(domain.empty for domain in bounds.values())


def meet(one: Bounds, two: Bounds) -> Bounds:
    """Bounds that an event satisfies if it satisfies both."""
    if not one or not two:
        return one or two
    both = {name: domain.meet(two[name]) if name in two else domain for name, domain in one.items()}
    met = {**two, **both}
    return NOTHING if admits_nothing(met) else met


def span_of_times(bounds: Bounds) -> tuple[int | None, int | None]:
    """The times [start, end), µs, that bounds allow; None: no bound. The bounds must admit something."""
    times = bounds.get("timestamp", Domain()).hull(lambda moment: moment + 1)
    return times.low, times.high


def columns_of(steps: Sequence[Step]) -> set[str]:
    """The columns that a filter refers to."""
    return {step.path[0] for step in steps if isinstance(step, Field)}


class Bounded(NamedTuple):
    """The bounds of a filter."""

    bounds: Bounds
    exact: bool
    """Whether every event within the bounds satisfies the filter."""


def bounded_by(steps: Sequence[Step], schema: EventSchema) -> Bounded:
    """The bounds that a filter sets on keys, timestamps and indexed columns of a schema, and whether they are exact."""
    evaluation = _Evaluation(schema)
    bounds = evaluation.run(steps)
    return Bounded(bounds, evaluation.exact)


def bounded_by_all(comparisons: Sequence[tuple[str, str, Any]], schema: EventSchema) -> Bounded:
    """The bounds of comparisons that must all hold. Each is a column, an operator (= < <= > >= or IN) and a constant.

    Constants are values of the column, timestamps in µs; for IN, a list of such values.
    """
    evaluation = _Evaluation(schema)
    bounds = UNBOUNDED
    for name, operator, value in comparisons:
        bounds = meet(bounds, evaluation.comparison(name, operator, value))
    return Bounded(bounds, evaluation.exact)


_FLIPPED = {
    "equal": "equal",
    "less": "greater",
    "less_equal": "greater_equal",
    "greater": "less",
    "greater_equal": "less_equal",
}


_OPERATORS = {"=": "equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}


class _Evaluation:
    """One pass over the steps of a filter. Uses a stack, because an OR of a thousand values would recurse as deep."""

    def __init__(self, schema: EventSchema) -> None:
        self._columns: dict[str, _Column | None] = {"space": _KEY, "grouping": _KEY, "timestamp": _TIMESTAMP}
        self._schema = schema
        self.exact = True
        """Whether every step so far is fully expressed by its bounds."""

    def run(self, steps: Sequence[Step]) -> Bounds:
        stack: list[Field | Literal | Bounds] = []
        for step in steps:
            if isinstance(step, Call):
                operands = stack[len(stack) - step.arity :]
                del stack[len(stack) - step.arity :]
                stack.append(self._call(step, operands))
            else:
                stack.append(step)
        return self._condition(stack[0])

    def comparison(self, name: str, operator: str, value: Any) -> Bounds:
        """The bounds of one comparison, in the form that `bounded_by_all` takes."""
        column = self._named(name)
        if column is None:
            return self._unknown()
        if operator == "=" and column.plain is not None and value is not None:  # the usual case: without Arrow
            return {name: Domain(frozenset([column.plain(value)]))}
        field, kind = Field((name,)), self._schema.arrow.field(name).type
        if operator == "IN":
            return self._listed(field, pa.array(value, kind))
        if operator not in _OPERATORS:
            return self._unknown()
        return self._compared(field, _OPERATORS[operator], pa.scalar(value, kind))

    def _condition(self, operand: Field | Literal | Bounds, wanted: bool = True) -> Bounds:
        """The bounds under which an operand is true; `wanted=False`: under which a boolean column is false."""
        if isinstance(operand, Literal):
            return UNBOUNDED if operand.scalar.as_py() else NOTHING
        if isinstance(operand, Field):
            return self._listed(operand, pa.array([wanted]))
        return operand

    def _call(self, call: Call, operands: list[Field | Literal | Bounds]) -> Bounds:
        match call.function, operands:
            case (("and" | "and_kleene"), [left, right]):
                return meet(self._condition(left), self._condition(right))
            case (("or" | "or_kleene" as function), [left, right]):
                self.exact &= function == "or_kleene"  # `or` is null if either side is
                return self._join(self._condition(left), self._condition(right))
            case "if_else", [condition, yes, no]:
                otherwise = self._condition(no)
                self.exact &= admits_nothing(otherwise)
                return self._join(meet(self._condition(condition), self._condition(yes)), otherwise)
            case "invert", [Field() as field]:
                return self._condition(field, wanted=False)
            case "is_in", [Field() as field] if call.options is not None:
                return self._listed(field, call.options["value_set"].values)
            case "starts_with", [Field() as field] if (
                call.options is not None and not call.options["ignore_case"].as_py()
            ):
                return self._beginning(field, call.options["pattern"].as_buffer().to_pybytes())
            case function, [Field() as field, Literal() as literal] if function in _FLIPPED:
                return self._compared(field, function, literal.scalar)
            case function, [Literal() as literal, Field() as field] if function in _FLIPPED:
                return self._compared(field, _FLIPPED[function], literal.scalar)
            case "is_valid", [Field() as field] if getattr(self._column(field), "never_null", False):
                return UNBOUNDED
        return self._unknown()

    def _unknown(self) -> Bounds:
        self.exact = False
        return UNBOUNDED

    def _column(self, field: Field) -> _Column | None:
        return self._named(field.path[0]) if len(field.path) == 1 else None

    def _named(self, name: str) -> _Column | None:
        """The column with a name; None unless events are found by it."""
        if name not in self._columns:
            place = self._schema.positions.get(name)
            field = None if place is None else self._schema.fields[place]
            self._columns[name] = _index_column(field.type) if field is not None and field.indexed else None
        return self._columns[name]

    def _listed(self, field: Field, values: pa.Array) -> Bounds:
        column = self._column(field)
        if column is None or not column.takes(values.type) or (values.null_count and not column.never_null):
            return self._unknown()
        if column.plain is not None:
            return {field.path[0]: Domain(frozenset(map(column.plain, values.drop_null().to_pylist())))}
        found = [column.span(value) for value in values.drop_null()]
        if any(first != last for first, last in found):
            return self._unknown()  # the column cannot represent the value: pyarrow decides how it compares
        return {field.path[0]: Domain(frozenset(first for first, _ in found))}

    def _compared(self, field: Field, function: str, scalar: pa.Scalar) -> Bounds:
        column = self._column(field)
        if column is None or not column.takes(scalar.type):
            return self._unknown()
        if not scalar.is_valid:
            return NOTHING
        at_most, at_least = column.span(scalar)
        if function == "equal":
            return NOTHING if at_most != at_least else {field.path[0]: Domain(frozenset([at_least]))}
        if not column.ordered:
            return self._unknown()
        domain = {
            "less": Domain(None, None, at_least),
            "less_equal": Domain(None, None, column.after(at_most)),
            "greater": Domain(None, column.after(at_most), None),
            "greater_equal": Domain(None, at_least, None),
        }[function]
        return {field.path[0]: domain}

    def _beginning(self, field: Field, prefix: bytes) -> Bounds:
        """Bounds of the keys that start with a prefix."""
        column = self._column(field)
        if column is not _KEY or not prefix:
            return self._unknown()
        kept = prefix.rstrip(b"\xff")
        return {field.path[0]: Domain(None, prefix, kept[:-1] + bytes([kept[-1] + 1]) if kept else None)}

    def _join(self, one: Bounds, two: Bounds) -> Bounds:
        if admits_nothing(one):
            return two
        if admits_nothing(two):
            return one
        self.exact = False
        joined = {}
        for name in one.keys() & two.keys():
            column = self._named(name)
            assert column is not None, "it has bounds"
            domain = one[name].join(two[name], column.after)
            if domain.listed is not None or column.ordered:
                joined[name] = domain
        return joined


@dataclass(frozen=True, slots=True)
class _Column:
    """Converts constants to values of a column."""

    takes: Callable[[pa.DataType], bool]
    """Whether constants of an Arrow type compare with the column as their values do."""
    span: Callable[[pa.Scalar], tuple[Any, Any]]
    """The column's largest value <= a constant, and its smallest value >= the constant: usually the same."""
    after: Callable[[Any], Any]
    """The next larger value."""
    ordered: bool = True
    """Whether the segment finds events by ranges of the column, not by single values alone."""
    never_null: bool = False
    plain: Callable[[Any], Any] | None = None
    """Converts a constant to the column's value; None if a constant can fall between two values of the column."""


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def _is_key(kind: pa.DataType) -> bool:
    return _is_text(kind) or bool(pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_binary_view(kind))


def _key(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _key_span(scalar: pa.Scalar) -> tuple[bytes, bytes]:
    return (_key(scalar.as_py()),) * 2


_PER_MICROSECOND = {"s": (1_000_000, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}


def _timestamp_span(scalar: pa.Scalar) -> tuple[int, int]:
    times, parts = _PER_MICROSECOND[scalar.type.unit]
    return scalar.value * times // parts, -(-scalar.value * times // parts)


def _value_span(scalar: pa.Scalar) -> tuple[Any, Any]:
    return (scalar.as_py(),) * 2


_KEY = _Column(_is_key, _key_span, lambda key: key + b"\0", never_null=True, plain=_key)
_TIMESTAMP = _Column(
    lambda kind: bool(pt.is_timestamp(kind) and kind.tz), _timestamp_span, lambda moment: moment + 1, never_null=True
)


def _index_column(kind: pa.DataType) -> _Column:
    takes = pt.is_boolean if pt.is_boolean(kind) else pt.is_integer if pt.is_integer(kind) else _is_text
    return _Column(takes, _value_span, lambda value: value, ordered=False, plain=lambda value: value)
