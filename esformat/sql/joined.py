"""Spaces of another table as those that matter: of a join, so that those spaces alone are read.

DuckDB filters the larger side of a join by what it finds in the smaller one, but hands nothing of that to Arrow scans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import duckdb
import pyarrow as pa

from esformat.sql.table import Table
from esformat.sql.tree import Node, alias_of, is_table, nodes, quoted, root, select

MOST_SPACES = 1_000
"""That are handed down; of more, most blocks are read anyway."""


def joined_spaces(
    connection: duckdb.DuckDBPyConnection, tree: Node, tables: Mapping[str, Table],
    ask: Callable[[Node], list[tuple[Any, ...]]],
) -> tuple[str, list[str]] | None:  # fmt: skip
    """Of a SELECT over an inner join of one of our tables, by its spaces, with another one: our table's name, and the
    only spaces of it that matter. None: that is not known, or they are many.
    """
    sides = _sides(root(tree)["from_table"], tables)
    if sides is None:
        return None
    ours, other, key = sides
    name = ours["table_name"].casefold()
    named = [node for node in nodes(tree) if node.get("table_name", "").casefold() == name]
    if len(named) > 1 or not pa.types.is_string(tables[name].schema.field("space").type):
        return None
    of_other = select(connection, f"SELECT DISTINCT {quoted(key)} FROM t LIMIT {MOST_SPACES + 1}")  # noqa: S608 - quoted
    of_other["from_table"] = other
    keys = [row[0] for row in ask(of_other)]
    spaces = [key for key in keys if isinstance(key, str)]
    if len(keys) > MOST_SPACES or len(spaces) < len([key for key in keys if key is not None]):
        return None
    return str(ours["table_name"]), spaces


def _sides(join: Node, tables: Mapping[str, Table]) -> tuple[Node, Node, str] | None:
    """Our table, the other one, and its column that is equal to our space."""
    if join["type"] != "JOIN" or join["join_type"] != "INNER" or join["ref_type"] != "REGULAR":
        return None
    sides = (join["left"], join["right"])
    if not all(map(is_table, sides)):
        return None
    ours = [side for side in sides if side["table_name"].casefold() in tables]
    if len(ours) != 1:
        return None
    (other,) = (side for side in sides if side is not ours[0])
    key = _key(join, alias_of(ours[0]).casefold(), alias_of(other).casefold())
    return None if key is None else (ours[0], other, key)


def _key(join: Node, ours: str, other: str) -> str | None:
    if join["using_columns"]:
        return next((name for name in join["using_columns"] if name.casefold() == "space"), None)
    condition = join["condition"]
    if condition is None or condition["type"] != "COMPARE_EQUAL":
        return None
    one, two = condition["left"], condition["right"]
    if one["class"] != "COLUMN_REF" or two["class"] != "COLUMN_REF":
        return None
    for mine, theirs in ((one["column_names"], two["column_names"]), (two["column_names"], one["column_names"])):
        if [part.casefold() for part in mine] == [ours, "space"] and len(theirs) == 2 and theirs[0].casefold() == other:
            return str(theirs[1])
    return None
