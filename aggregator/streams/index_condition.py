"""Which comparisons of a statement the indexes of a topic can look up."""

from __future__ import annotations

import pyarrow as pa

from aggregator.lql import equalities
from aggregator.lql.parse.operand import Field, innermost, target_of
from aggregator.lql.parse.tree import Expression, Value, conditions
from aggregator.storage.state.state import Snapshot


def index_conditions(snapshot: Snapshot, where: Expression | None) -> tuple[tuple[str, object], ...]:
    """Equalities that indexes of the topic can look up, where every schema of it has the column with one type."""
    found: list[tuple[str, object]] = []
    indexes = snapshot.topic.indexes
    if where is None or not indexes:
        return ()
    fields = {target.name for c in conditions(where) if isinstance(target := target_of(innermost(c.operand)[0]), Field)}
    for name, values in equalities(where).items():
        if name not in indexes or name in fields or len(values) != 1:
            continue
        types = {s.schema.arrow.field(name).type if name in s.schema.positions else None for s in snapshot.schemas}
        value = _typed(next(iter(values)), types.pop()) if len(types) == 1 else None
        if value is not None:
            found.append((name, value))
    return tuple(found)


def _typed(value: Value, kind: pa.DataType | None) -> object:
    """A value as an index of that type holds it; None where that is not plain, as for a number among texts."""
    text = value.text
    if kind is None:
        return None
    if pa.types.is_string(kind):
        return None if value.number else text
    if pa.types.is_integer(kind) and text.isascii() and text.removeprefix("-").isdigit() and len(text) < 19:
        return int(text)
    return None
