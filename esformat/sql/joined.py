"""Restriction to the relevant spaces: those of the other table of a join, or those of a long IN list.

DuckDB filters the larger side of a join by the keys of the smaller one, but does not pass this filter to Arrow scans,
and converts lists for them value by value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import duckdb
import pyarrow as pa

from esformat.sql.table import Table, folded
from esformat.sql.tree import Node, alias_of, conjuncts, is_read_once, is_table, quoted, root, select, text_of

Ask = Callable[[str], list[tuple[Any, ...]]]
Only = tuple[str, Callable[[Ask], list[str] | None]]
"""The name of an event table, and a function that returns its relevant spaces, or None if there are too many."""
FEW_SPACES = 16
"""Lists of up to this many spaces stay in the statement."""
MOST_SPACES = 1_000
"""The most spaces to pass to a scan; with more, most blocks are read anyway."""


def joined_spaces(
    connection: duckdb.DuckDBPyConnection,
    tree: Node,
    tables: Mapping[str, Table],
    statement_of: Callable[[Node], str],
) -> Only | None:
    """The only relevant spaces of a table that a SELECT inner-joins by space with another table; None for others.

    statement_of: converts a SELECT to text.
    """
    sides = _sides(root(tree)["from_table"], tables)
    if sides is None:
        return None
    ours, other, key = sides
    name = folded(ours["table_name"])
    if not is_read_once(tree, name) or not pa.types.is_string(tables[name].schema.field("space").type):
        return None
    of_other = select(connection, f"SELECT DISTINCT {quoted(key)} FROM t LIMIT {MOST_SPACES + 1}")  # noqa: S608 - quoted
    of_other["from_table"] = other
    statement = statement_of(of_other)

    def spaces(ask: Ask) -> list[str] | None:
        keys = [row[0] for row in ask(statement)]
        found = [key for key in keys if isinstance(key, str)]
        return None if len(keys) > MOST_SPACES or len(found) < len(keys) - keys.count(None) else found

    return str(ours["table_name"]), spaces


def listed_spaces(tree: Node, table: Table) -> Only | None:
    """The spaces in a long IN list of a SELECT over one table, or None; removes that condition from the SELECT."""
    node = root(tree)
    name = node["from_table"]["table_name"]
    once = is_table(node["from_table"]) and is_read_once(tree, name)
    if not once or not pa.types.is_string(table.schema.field("space").type):
        return None
    of = folded(alias_of(node["from_table"]))
    for each in conjuncts(node["where_clause"]):
        if each["type"] != "COMPARE_IN" or len(each["children"]) <= FEW_SPACES:
            continue
        reference, *listed = each["children"]
        path = [folded(part) for part in reference.get("column_names", ())]
        spaces = [text for text in map(text_of, listed) if text is not None]
        if path in (["space"], [of, "space"]) and len(spaces) == len(listed):
            node["where_clause"] = _without(node["where_clause"], each)
            return name, lambda ask, spaces=spaces: spaces
    return None


def _without(condition: Node, part: Node) -> Node | None:
    """Return an AND condition without one of its parts."""
    if condition is part:
        return None
    if condition["type"] == "CONJUNCTION_AND":
        left = [each for child in condition["children"] if (each := _without(child, part)) is not None]
        return left[0] if len(left) == 1 else {**condition, "children": left} if left else None
    return condition


def _sides(join: Node, tables: Mapping[str, Table]) -> tuple[Node, Node, str] | None:
    """The event table of a join, the other table, and its column that equals the space; None for other joins."""
    if join["type"] != "JOIN" or join["join_type"] != "INNER" or join["ref_type"] != "REGULAR":
        return None
    sides = (join["left"], join["right"])
    if not all(map(is_table, sides)):
        return None
    ours = [side for side in sides if folded(side["table_name"]) in tables]
    if len(ours) != 1:
        return None
    (other,) = (side for side in sides if side is not ours[0])
    key = _key(join, folded(alias_of(ours[0])), folded(alias_of(other)))
    return None if key is None else (ours[0], other, key)


def _key(join: Node, ours: str, other: str) -> str | None:
    if join["using_columns"]:
        return next((name for name in join["using_columns"] if folded(name) == "space"), None)
    condition = join["condition"]
    if condition is None or condition["type"] != "COMPARE_EQUAL":
        return None
    one, two = condition["left"], condition["right"]
    if one["class"] != "COLUMN_REF" or two["class"] != "COLUMN_REF":
        return None
    for mine, theirs in ((one["column_names"], two["column_names"]), (two["column_names"], one["column_names"])):
        if [folded(part) for part in mine] == [ours, "space"] and len(theirs) == 2 and folded(theirs[0]) == other:
            return str(theirs[1])
    return None
