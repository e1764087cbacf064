"""References of a statement to columns, fields and tags, and comparisons for which indexes can be used."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from aggregator.lql import Columns, equalities
from aggregator.lql.parse.operand import Column, Field, Message, Target, Timestamp, innermost, target_of
from aggregator.lql.parse.tree import Every, Expression, Select, Value, conditions
from aggregator.storage.state.state import Snapshot


def index_conditions(snapshot: Snapshot, where: Expression | None) -> tuple[tuple[str, object], ...]:
    """Equalities that the topic's indexes can look up, on columns that every schema has with one type."""
    found: list[tuple[str, object]] = []
    indexes = snapshot.topic.indexes
    if where is None or not indexes:
        return ()
    targets = (target_of(innermost(each.operand)[0]) for each in conditions(where))
    fields = {target.name for target in targets if isinstance(target, Field)}
    for name, values in equalities(where).items():
        if name not in indexes or name in fields or len(values) != 1:
            continue
        types = {s.schema.arrow.field(name).type if name in s.schema.positions else None for s in snapshot.schemas}
        value = _typed(next(iter(values)), types.pop()) if len(types) == 1 else None
        if value is not None:
            found.append((name, value))
    return tuple(found)


def _typed(value: Value, kind: pa.DataType | None) -> object:
    """A value in the type of an index; None if the conversion is not obvious, as for a number and a text column."""
    text = value.text
    if kind is None:
        return None
    if pa.types.is_string(kind):
        return None if value.number else text
    if pa.types.is_integer(kind) and text.isascii() and text.removeprefix("-").isdigit() and len(text) < 19:
        return int(text)
    return None


def referenced_fields(select: Select) -> set[str]:
    """Fields that the statement refers to."""
    return {target.name for target in _targets(select) if isinstance(target, Field)}


def other_references(select: Select, columns: Columns) -> set[str]:
    """Names in the statement that are not columns, but fields or tags."""
    return {each.name for each in _targets(select) if isinstance(each, Column)} - set(columns.names)


_OWN = {Message: ("msg", "msg is the message"), Timestamp: ("ts", "ts is the time of the record")}


def hidden_columns(select: Select, columns: Columns) -> list[str]:
    """Hints for `msg` and `ts` if the statement uses them and a column has the same name."""
    kinds = {type(target) for target in _targets(select)}
    return [
        f"{meaning}; to read the topic's column of that name, write fields:{name}"
        for kind, (name, meaning) in _OWN.items()
        if kind in kinds and name in columns.names
    ]


def _targets(select: Select) -> Iterator[Target]:
    """The targets of conditions, keys and measures."""
    operands = [] if select.where is None else [each.operand for each in conditions(select.where)]
    operands += [key for key in select.group_by if not isinstance(key, Every)]
    operands += [measure.operand for measure in select.measures if measure.operand is not None]
    return (target_of(innermost(operand)[0]) for operand in operands)
