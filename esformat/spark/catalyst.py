"""Conditions of Spark's optimised plans as text for the option `where`. Reads Catalyst's expressions, changes nothing.

What is translated here means exactly the same there, nulls included. Anything else gives None, and stays Spark's.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from esformat.spark.condition import KEYWORDS

_COMPARISONS = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_NUMBER = re.compile(r"#(\d+)L?\Z")  # behind the name of an attribute
_FLIPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_ORDERED = (*_INTEGERS, "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz")
"""Types whose values have one order; to Spark NaN is a number like any other, the largest."""
_EPOCH = dt.datetime(1970, 1, 1)
_MOST_DEPTH = 60  # the option takes parentheses 100 deep


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a relation: its name there, and the name of its type in Spark."""

    name: str
    kind: str


Columns = Mapping[int, Column]
"""Columns by the number that Spark has for them in one plan, as names may have another case there."""


def class_of(node: Any) -> str:
    """The class of a node of a plan or expression, without its package."""
    return str(node.nodeName())


def items(sequence: Any) -> list[Any]:
    """The elements of a sequence of Scala."""
    return [sequence.apply(number) for number in range(sequence.size())]


def numbers_of(attributes: Any) -> list[int]:
    """The numbers of the attributes in a sequence of Scala; to ask each of them costs three calls of Java's."""
    text = str(attributes.mkString("\0"))
    return [int(_NUMBER.search(each)[1]) for each in text.split("\0")] if text else []  # type: ignore[index]


def conjuncts(condition: Any) -> Iterator[Any]:
    """The conditions that AND joins."""
    if class_of(condition) == "And":
        yield from conjuncts(condition.left())
        yield from conjuncts(condition.right())
    else:
        yield condition


def condition_text(expression: Any, columns: Columns, depth: int = 0) -> str | None:
    """An expression as the option `where` takes it; None where it cannot say that."""
    kind = class_of(expression)
    if depth > _MOST_DEPTH:
        return None
    if kind in ("And", "Or"):
        sides = [condition_text(side, columns, depth + 1) for side in (expression.left(), expression.right())]
        return None if None in sides else f"({sides[0]} {kind.upper()} {sides[1]})"
    if kind == "Not":
        child = condition_text(expression.child(), columns, depth + 1)
        return None if child is None else f"NOT ({child})"
    return _simple(kind, expression, columns)


def equality(expression: Any, columns: Columns) -> tuple[str, Any] | None:
    """Column and value of `column = value`, where the value is text, a whole number or a truth value."""
    if class_of(expression) != "EqualTo":
        return None
    for one, other in ((expression.left(), expression.right()), (expression.right(), expression.left())):
        column = _column(one, columns)
        if column is not None and _literal(other, column) is not None:
            value = other.value()
            if column.kind == "string":
                return column.name, str(value.toString())
            return (column.name, value) if column.kind in (*_INTEGERS, "boolean") else None
    return None


def compared_column(expression: Any, columns: Columns) -> Column | None:
    """The column that a comparison with literals looks at, which is null nowhere where that is true."""
    kind = class_of(expression)
    if kind in _COMPARISONS:
        return _column(expression.left(), columns) or _column(expression.right(), columns)
    inside = {"In": "value", "InSet": "child", "StartsWith": "left"}.get(kind)
    return _column(getattr(expression, inside)(), columns) if inside else None


def figure(expression: Any, columns: Columns) -> tuple[str, str | None] | None:
    """Function and column of a named `count`, `min` or `max`, where values compare here as they do in Spark."""
    call = expression.child() if class_of(expression) == "Alias" else None
    if call is None or class_of(call) != "AggregateExpression" or call.filter().isDefined():
        return None
    function = call.aggregateFunction()
    name, inner = class_of(function).lower(), items(function.children())
    if name not in ("count", "min", "max") or len(inner) != 1 or (name == "count" and call.isDistinct()):
        return None
    if name == "count" and class_of(inner[0]) == "Literal":
        return (name, None) if inner[0].value() is not None else None
    column = _column(inner[0], columns)
    if column is None or not (name == "count" or column.kind in _ORDERED or column.kind.startswith("decimal(")):
        return None
    return name, column.name


def _simple(kind: str, expression: Any, columns: Columns) -> str | None:
    """A condition on one column."""
    if kind == "AttributeReference":
        column = _column(expression, columns)
        return f"{quoted(column.name)} = TRUE" if column is not None and column.kind == "boolean" else None
    if kind in ("IsNull", "IsNotNull"):
        column = _column(expression.child(), columns)
        return None if column is None else f"{quoted(column.name)} IS {'NOT ' * (kind == 'IsNotNull')}NULL"
    if kind in _COMPARISONS:
        sign = _COMPARISONS[kind]
        return _compared(expression.left(), sign, expression.right(), columns) or _compared(
            expression.right(), _FLIPPED[sign], expression.left(), columns
        )
    if kind == "EqualNullSafe":
        same = _compared(expression.left(), "=", expression.right(), columns)
        column = _column(expression.left(), columns)
        return None if same is None or column is None else f"({quoted(column.name)} IS NOT NULL AND {same})"
    if kind == "StartsWith":
        return _prefix(expression, columns)
    return _listed(kind, expression, columns) if kind in ("In", "InSet") else None


def _compared(one: Any, sign: str, other: Any, columns: Columns) -> str | None:
    column = _column(one, columns)
    value = None if column is None else _literal(other, column)
    return None if column is None or value is None else f"{quoted(column.name)} {sign} {value}"


def _listed(kind: str, expression: Any, columns: Columns) -> str | None:
    column = _column(expression.value() if kind == "In" else expression.child(), columns)
    if column is None:
        return None
    values = (
        [_literal(each, column) for each in items(expression.list())]
        if kind == "In"
        else [_text(each, column.kind) for each in items(expression.hset().toIndexedSeq())]
    )
    if not values or None in values:
        return None
    return f"{quoted(column.name)} IN ({', '.join(str(value) for value in values)})"


def _prefix(expression: Any, columns: Columns) -> str | None:
    column = _column(expression.left(), columns)
    if column is None or column.kind != "string" or class_of(expression.right()) != "Literal":
        return None
    prefix = _literal(expression.right(), column)
    if prefix is None or set(prefix) & set("%_\\"):
        return None
    return f"{quoted(column.name)} LIKE {prefix[:-1]}%'"


def _column(expression: Any, columns: Columns) -> Column | None:
    if class_of(expression) != "AttributeReference":
        return None
    return columns.get(expression.exprId().id())


def _literal(expression: Any, column: Column) -> str | None:
    """A literal of a column's own type; None for another type, for null and for what is none."""
    if class_of(expression) != "Literal" or expression.dataType().simpleString() != column.kind:
        return None
    return _text(expression.value(), column.kind)


def _text(value: Any, kind: str) -> str | None:
    """A value as Spark has it inside, as a literal; None for null, and for types that compare in other ways here.

    Numbers with a fraction are among those: to Spark NaN is a number like any other, the largest.
    """
    if value is None:
        return None
    if kind == "string":
        return _text_literal(str(value.toString()))
    if kind == "binary":
        return f"X'{bytes(value).hex()}'"
    if kind == "boolean":
        return "TRUE" if value else "FALSE"
    if kind in _INTEGERS:
        return str(int(value))
    if kind.startswith("decimal("):
        text = str(value.toString())
        return None if "E" in text.upper() else text
    return _time_literal(value, kind)


def _text_literal(text: str) -> str | None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return "'" + text.replace("'", "''") + "'"


def _time_literal(value: Any, kind: str) -> str | None:
    try:
        if kind == "date":
            return f"DATE '{(_EPOCH + dt.timedelta(days=value)).date().isoformat()}'"
        if kind in ("timestamp", "timestamp_ntz"):
            moment = (_EPOCH + dt.timedelta(microseconds=value)).isoformat()
            return f"TIMESTAMP '{moment}{'+00:00' if kind == 'timestamp' else ''}'"
    except OverflowError:  # before the year 1 or after 9999
        return None
    return None


def quoted(name: str) -> str:
    """A column's name as the option `where` takes any name."""
    plain = name.isidentifier() and name.isascii() and name.upper() not in KEYWORDS
    return name if plain else "`" + name.replace("`", "``") + "`"
