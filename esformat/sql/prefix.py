"""Rewriting of prefix conditions such as `LIKE 'x%'` on keys and indexed values to ranges or lists of values.

DuckDB passes comparisons to scans, but not patterns. A pure prefix condition is replaced, so that no text is compared;
next to any other pattern, the added condition does not change the result.
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
"""The most values of an index to search for a prefix."""
_BEGINNINGS = ("~~", "starts_with", "prefix", "^@")
_LAST = 0x10FFFF


def bounded(connection: duckdb.DuckDBPyConnection, node: Node, tables: Mapping[str, Table]) -> bool:
    """Add to a SELECT what its prefix conditions imply; return whether it did. tables: event tables, by name."""
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
    """A prefix condition on a column."""

    column: Node
    text: str
    whole: bool
    """Whether the prefix is the whole condition."""


def beginning(condition: Node) -> Beginning | None:
    """The prefix that a condition requires; None if it requires none."""
    if condition["class"] != "FUNCTION" or condition["function_name"] not in _BEGINNINGS:
        return None
    given = arguments(condition)
    if len(given) != 2:  # `column.starts_with('x')` has only one
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
    """Return the SQL condition on a column that a prefix implies; None if there is none."""
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
        return None  # DuckDB's serialised trees end text at NUL
    return f"{column} IN ({', '.join(map(literal, wanted))})"


def following(prefix: str) -> str | None:
    """Return the first text after all that have a prefix, in code point order; None if there is none."""
    kept = prefix.rstrip(chr(_LAST))
    if not kept:
        return None
    after = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if 0xD800 <= after < 0xE000 else after)
