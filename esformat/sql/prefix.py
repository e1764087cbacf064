"""Beginnings of keys and indexed values, as `LIKE 'x%'` asks for them, with the range or the values that they imply.

DuckDB hands comparisons down to scans, but no patterns. A condition that follows from another changes no answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice

import duckdb
import pyarrow as pa

from esformat.sql.table import Table
from esformat.sql.tree import Node, and_also, arguments, column_of, conjuncts, literal, quoted, text_of

MOST_VALUES = 1_000
"""Of an index that are looked through for those that begin so."""
_BEGINNINGS = ("~~", "starts_with", "prefix", "^@")
_LAST = 0x10FFFF


def bounded(connection: duckdb.DuckDBPyConnection, node: Node, tables: Mapping[str, Table]) -> bool:
    """Add to a SELECT what its conditions on beginnings imply. tables: ours, by the names that it has for them."""
    implied: list[str] = []
    for each in conjuncts(node["where_clause"]):
        found = beginning(each)
        if found is None:
            continue
        reference, prefix = found
        owner, name = column_of(reference, node["from_table"], tables)
        if owner is not None and name in owner.schema.names:
            text = _condition(owner, ".".join(map(quoted, reference["column_names"])), name, prefix)
            implied += [] if text is None else [text]
    for text in implied:
        and_also(connection, node, text)
    return bool(implied)


def beginning(condition: Node) -> tuple[Node, str] | None:
    """The column and the beginning that a condition asks for."""
    if condition["class"] != "FUNCTION" or condition["function_name"] not in _BEGINNINGS:
        return None
    reference, pattern = arguments(condition)[:2]
    text = text_of(pattern)
    if reference["class"] != "COLUMN_REF" or text is None:
        return None
    if condition["function_name"] == "~~":
        text = text[: min((at for at in map(text.find, "%_\\") if at >= 0), default=len(text))]
    return (reference, text) if text else None


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
    if len(values) > MOST_VALUES or not wanted:
        return None
    return f"{column} IN ({', '.join(map(literal, wanted))})"


def following(prefix: str) -> str | None:
    """The first text behind all that begin so, in the order of code points; None where there is none."""
    kept = prefix.rstrip(chr(_LAST))
    if not kept:
        return None
    after = ord(kept[-1]) + 1
    return kept[:-1] + chr(0xE000 if 0xD800 <= after < 0xE000 else after)
