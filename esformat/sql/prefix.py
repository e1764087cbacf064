"""Beginnings of keys and indexed values, as `LIKE 'x%'` asks for them, as the range or the values that they imply.

DuckDB hands comparisons down to scans, but no patterns. A range takes the place of a condition that says no more, so
that nobody looks at the text; beside any other it changes no answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple

import duckdb
import pyarrow as pa

from esformat.sql.table import Table
from esformat.sql.tree import Node, and_also, arguments, column_of, conjuncts, expression, literal, quoted, text_of

MOST_VALUES = 1_000
"""Of an index that are looked through for those that begin so."""
_BEGINNINGS = ("~~", "starts_with", "prefix", "^@")
_LAST = 0x10FFFF


def bounded(connection: duckdb.DuckDBPyConnection, node: Node, tables: Mapping[str, Table]) -> bool:
    """Put into a SELECT what its conditions on beginnings imply. tables: ours, by the names that it has for them."""
    changed = False
    for each in conjuncts(node["where_clause"]):
        found = beginning(each)
        if found is None:
            continue
        reference = found.column
        owner, name = column_of(reference, node["from_table"], tables)
        if owner is None or name not in owner.schema.names:
            continue
        text = _condition(owner, ".".join(map(quoted, reference["column_names"])), name, found.text)
        if text is None:
            continue
        if found.whole:
            each.clear()
            each.update(expression(connection, text))
        else:
            and_also(connection, node, text)
        changed = True
    return changed


class Beginning(NamedTuple):
    """How text must begin."""

    column: Node
    text: str
    whole: bool
    """Whether that is all that the condition says."""


def beginning(condition: Node) -> Beginning | None:
    """What a condition says of a beginning."""
    if condition["class"] != "FUNCTION" or condition["function_name"] not in _BEGINNINGS:
        return None
    given = arguments(condition)
    if len(given) != 2:  # `column.starts_with('x')` has one
        return None
    reference, text = given[0], text_of(given[1])
    if reference["class"] != "COLUMN_REF" or text is None:
        return None
    whole = True
    if condition["function_name"] == "~~":
        end = min((at for at in map(text.find, "%_\\") if at >= 0), default=len(text))
        text, whole = text[:end], text[end:] == "%"
    return Beginning(reference, text, whole) if text else None


def _condition(table: Table, column: str, name: str, prefix: str) -> str | None:
    """What a column must be for its text to begin so."""
    if not pa.types.is_string(table.schema.field(name).type):
        return None
    if name in ("space", "grouping"):
        end = following(prefix)
        upper = "" if end is None else f" AND {column} < {literal(end)}"
        return f"{column} >= {literal(prefix)}{upper}"
    if name not in table.indexes:
        return None
    values = [value for value, _ in islice(table.index_values(name).items(), MOST_VALUES + 1)]
    wanted = [value for value in values if value.startswith(prefix)]
    if len(values) > MOST_VALUES or not wanted or any("\0" in value for value in wanted):
        return None  # DuckDB's trees end texts at NUL
    return f"{column} IN ({', '.join(map(literal, wanted))})"


def following(prefix: str) -> str | None:
    """The first text behind all that begin so, in the order of code points; None where there is none."""
    kept = prefix.rstrip(chr(_LAST))
    if not kept:
        return None
    after = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if 0xD800 <= after < 0xE000 else after)
