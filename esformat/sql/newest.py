"""The newest or oldest rows: adds to `ORDER BY timestamp DESC LIMIT n` the time bound that it implies."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import duckdb

from esformat.sql.expressions import are_scalar
from esformat.sql.table import Table, folded
from esformat.sql.tree import Node, alias_of, and_also, expression, expressions, integer_of, is_table, quoted, select

MOST_ROWS = 10_000
_INFINITE = 2**63 - 1
"""DuckDB takes ±this many µs since 1970 for infinity."""
_STARS = ("exclude_list", "replace_list", "rename_list", "qualified_exclude_list", "columns", "expr")


def bounded(
    connection: duckdb.DuckDBPyConnection, node: Node, table: Table, ask: Callable[[Node], list[tuple[Any, ...]]]
) -> bool:
    """Add the time bound implied by ORDER BY and LIMIT to a SELECT; return whether it did. ask: runs another SELECT."""
    order = _order(node)
    if order is None or not _is_plain(node):
        return False
    count, newest = order
    if node["where_clause"] is None:
        moment = table.dataset().nth_time(count, newest=newest)
    else:
        moment = next((row[0] for row in ask(_nth(connection, node, count, newest=newest))), None)
    if moment is None or abs(moment) >= _INFINITE:
        return False
    column = f"{quoted(alias_of(node['from_table']))}.timestamp"
    and_also(connection, node, f"{column} {'>=' if newest else '<='} make_timestamptz({moment})")
    return True


def _order(node: Node) -> tuple[int, bool] | None:
    """The number of rows including OFFSET, and whether they are the newest; None if they are not chosen by time."""
    kinds = {each["type"]: each for each in node["modifiers"]}
    if set(kinds) != {"ORDER_MODIFIER", "LIMIT_MODIFIER"}:
        return None
    limit = kinds["LIMIT_MODIFIER"]
    count = integer_of(limit["limit"])
    offset = 0 if limit["offset"] is None else integer_of(limit["offset"])
    first = kinds["ORDER_MODIFIER"]["orders"][0]
    if (
        count is None
        or offset is None
        or not 0 < count + offset <= MOST_ROWS
        or not _is_time(first["expression"], node)
    ):
        return None
    return count + offset, first["type"] == "DESCENDING"


def _is_time(expression: Node, node: Node) -> bool:
    """Whether an expression is the table's timestamp column."""
    if expression["class"] != "COLUMN_REF" or not is_table(node["from_table"]):
        return False
    *of, name = (folded(part) for part in expression["column_names"])
    renamed = any(folded(each["alias"]) == "timestamp" for each in node["select_list"])
    return name == "timestamp" and of in ([], [folded(alias_of(node["from_table"]))]) and not renamed


def _is_plain(node: Node) -> bool:
    """Whether every row that satisfies the condition is a row of the result, apart from the limit."""
    if node["group_expressions"] or node["having"] or node["sample"] or node["qualify"] or node["cte_map"]["map"]:
        return False
    stars = [each for each in node["select_list"] if each["class"] == "STAR"]
    if any(star.get(part) for star in stars for part in _STARS):
        return False
    shown = [each for each in node["select_list"] if each["class"] != "STAR"]
    return are_scalar([shown, node["where_clause"], node["modifiers"]])


def _nth(connection: duckdb.DuckDBPyConnection, node: Node, count: int, *, newest: bool) -> Node:
    """Return the SELECT of the time of the last row within the limit."""
    way = "DESC" if newest else "ASC"
    nth = select(connection, f"SELECT epoch_us(x) FROM t ORDER BY x {way} LIMIT 1 OFFSET {count - 1}")  # noqa: S608
    time = expression(connection, f"{quoted(alias_of(node['from_table']))}.timestamp")
    for each in list(expressions(nth)):
        if each["class"] == "COLUMN_REF":
            each["column_names"] = time["column_names"]
    nth["from_table"] = copy.deepcopy(node["from_table"])
    nth["where_clause"] = copy.deepcopy(node["where_clause"])
    return nth
