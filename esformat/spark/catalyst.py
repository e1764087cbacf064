"""Translation of conditions in Spark's optimised plans to text for the option `where`. Only reads Catalyst expressions.

The text means exactly the same, including for nulls. Anything that cannot be translated becomes None and is left to
Spark.
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
_NUMBER = re.compile(r"#(\d+)L?\Z")  # follows the name of an attribute
_FLIPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_ORDERED = (*_INTEGERS, "boolean", "string", "binary", "date", "timestamp", "timestamp_ntz")
"""Types that sort the same way here and in Spark. Excludes floats: to Spark, NaN is the largest number."""
_EPOCH = dt.datetime(1970, 1, 1)
_MOST_DEPTH = 60  # the option allows 100 levels of parentheses


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a relation: its name there, and the name of its Spark type."""

    name: str
    kind: str


Columns = Mapping[int, Column]
"""Columns by Spark's number for them in one plan, since the case of names may differ there."""


def class_of(node: Any) -> str:
    """The class name of a plan or expression node, without its package."""
    return str(node.nodeName())


def items(sequence: Any) -> list[Any]:
    """The elements of a Scala sequence."""
    return [sequence.apply(number) for number in range(sequence.size())]


def numbers_of(attributes: Any) -> list[int]:
    """The numbers of the attributes in a Scala sequence, in one call to Java instead of three per attribute."""
    text = str(attributes.mkString("\0"))
    return [int(_NUMBER.search(each)[1]) for each in text.split("\0")] if text else []  # type: ignore[index]


def conjuncts(condition: Any) -> Iterator[Any]:
    """Yield the parts of a condition that AND joins."""
    if class_of(condition) == "And":
        yield from conjuncts(condition.left())
        yield from conjuncts(condition.right())
    else:
        yield condition


def condition_text(expression: Any, columns: Columns, depth: int = 0) -> str | None:
    """Translate an expression to text for the option `where`; None if that is not possible."""
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
    """The column and value of `column = value` if the value is text, an integer or a boolean; else None."""
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
    """The column that is compared with literals, so not null if the comparison is true; None if there is none."""
    kind = class_of(expression)
    if kind in _COMPARISONS:
        return _column(expression.left(), columns) or _column(expression.right(), columns)
    inside = {"In": "value", "InSet": "child", "StartsWith": "left"}.get(kind)
    return _column(getattr(expression, inside)(), columns) if inside else None


def figure(expression: Any, columns: Columns) -> tuple[str, str | None] | None:
    """The function and column of a named `count`, `min` or `max`, if values sort here as in Spark; else None."""
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
    """Translate a condition on one column."""
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
    """Translate a literal of the column's type; None for another type, null or another expression."""
    if class_of(expression) != "Literal" or expression.dataType().simpleString() != column.kind:
        return None
    return _text(expression.value(), column.kind)


def _text(value: Any, kind: str) -> str | None:
    """Translate a value in Spark's internal form to a literal; None for null and types that compare differently here.

    Floats are among those: to Spark, NaN is the largest number.
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
    """Quote a column's name for the option `where` if necessary."""
    plain = name.isidentifier() and name.isascii() and name.upper() not in KEYWORDS
    return name if plain else "`" + name.replace("`", "``") + "`"
