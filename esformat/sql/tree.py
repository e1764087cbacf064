"""Statements as JSON trees of DuckDB's own parser, and back to text.

Versions of DuckDB differ in how they represent constants and arguments. Both forms are read here, and neither is
written by hand: new parts of a tree are parsed from text. Trees in any other form are not changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import duckdb

from esformat.sql.table import folded

Node = dict[str, Any]
T = TypeVar("T")


def parse(connection: duckdb.DuckDBPyConnection, text: str) -> Node | None:
    """Return the tree of a statement; None if DuckDB cannot serialise it, because it is not a plain query."""
    ((stored,),) = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()
    tree: Node = json.loads(stored)
    return None if tree.get("error") or len(tree.get("statements", ())) != 1 else tree


def to_text(connection: duckdb.DuckDBPyConnection, tree: Node) -> str:
    """Return the text of a tree."""
    ((text,),) = connection.execute("SELECT json_deserialize_sql(?)", [json.dumps(tree)]).fetchall()
    return str(text)


def root(tree: Node) -> Node:
    """Return the outermost node: a SELECT, a UNION …"""
    node: Node = tree["statements"][0]["node"]
    return node


def expression(connection: duckdb.DuckDBPyConnection, text: str) -> Node:
    """Parse an expression to a node."""
    node: Node = _snippet(connection, f"SELECT {text}")["select_list"][0]
    return node


def relation(connection: duckdb.DuckDBPyConnection, text: str) -> Node:
    """Parse a table reference, as after FROM, to a node."""
    node: Node = _snippet(connection, f"FROM {text}")["from_table"]
    return node


def select(connection: duckdb.DuckDBPyConnection, text: str) -> Node:
    """Parse a SELECT to a node."""
    return _snippet(connection, text)


_snippets: dict[str, str] = {}
"""Cache of parsed texts, with their nodes as JSON."""
_MOST_SNIPPETS = 1_000


def _snippet(connection: duckdb.DuckDBPyConnection, text: str) -> Node:
    """Parse a SELECT to a node that the caller may change. Cached, since the same few recur."""
    stored = _snippets.get(text)
    if stored is None:
        tree = parse(connection, text)
        assert tree is not None, text
        stored = json.dumps(root(tree))
        if len(_snippets) >= _MOST_SNIPPETS:
            _snippets.clear()
        _snippets[text] = stored
    node: Node = json.loads(stored)
    return node


def nodes(tree: Any) -> Iterator[Node]:
    """Yield every node of a tree, outer nodes first."""
    if isinstance(tree, dict):
        yield tree
        for value in tree.values():
            yield from nodes(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from nodes(value)


def expressions(tree: Any) -> Iterator[Node]:
    """Yield the nodes of a tree that are expressions."""
    return (node for node in nodes(tree) if "class" in node and "type" in node)


def table_names(tree: Node) -> list[str]:
    """The names of tables, each once, including those defined by WITH, which may read the table that they hide."""
    return list(dict.fromkeys(node["table_name"] for node in nodes(tree) if is_table(node)))


def given_names(tree: Node) -> set[str]:
    """The names defined by WITH clauses, in lower case."""
    return {folded(entry["key"]) for node in nodes(tree) if "cte_map" in node for entry in node["cte_map"]["map"]}


def is_table(node: Node) -> bool:
    """Whether a node is a table by its bare name, with all rows and unchanged column names."""
    return node.get("type") == "BASE_TABLE" and not (
        node.get("schema_name")
        or node.get("catalog_name")
        or node.get("sample")
        or node.get("column_name_alias")
        or node.get("at_clause")
    )


_QUERIES = ("query", "query_table")
"""Functions that read tables whose names are given as text."""


def is_read_once(tree: Node, name: str) -> bool:
    """Whether a SELECT reads a table only once and filters it before anything else.

    If so, rows that do not satisfy its conditions may be left out of the table.
    """
    named = 0
    for node in nodes(tree):
        named += folded(node.get("table_name", "")) == folded(name)
        if folded(node.get("function_name", "")) in _QUERIES:
            return False
    return named == 1 and not root(tree).get("sample")


def arguments(function: Node) -> list[Node]:
    """Return the arguments of a function."""
    if "arguments" in function:
        return [each["expression"] for each in function["arguments"]]
    return list(function.get("children", ()))


def text_of(node: Node) -> str | None:
    """The value of a text constant; None for other nodes."""
    if node["class"] != "CONSTANT":
        return None
    if "literal" in node:
        return str(node["literal"]["text"]) if node["literal"]["kind"] == "STRING" else None
    held = node["value"]
    return held["value"] if held["type"]["id"] == "VARCHAR" and not held["is_null"] else None


def integer_of(node: Node | None) -> int | None:
    """The value of an integer constant; None for other nodes."""
    if node is None or node["class"] != "CONSTANT":
        return None
    if "literal" in node:
        return int(node["literal"]["text"]) if node["literal"]["kind"] == "INTEGER" else None
    held = node["value"]
    whole = held["type"]["id"] in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT") and not held["is_null"]
    return int(held["value"]) if whole else None


def conjuncts(condition: Node | None) -> list[Node]:
    """The parts of a condition that AND joins."""
    if condition is None:
        return []
    if condition["type"] == "CONJUNCTION_AND":
        return [each for child in condition["children"] for each in conjuncts(child)]
    return [condition]


def quoted(name: str) -> str:
    """Quote a name for SQL."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Quote a text for SQL."""
    return "'" + text.replace("'", "''") + "'"


def and_also(connection: duckdb.DuckDBPyConnection, node: Node, text: str) -> None:
    """Add a condition to a SELECT with AND."""
    added = expression(connection, text)
    if node["where_clause"] is None:
        node["where_clause"] = added
        return
    both = expression(connection, "a AND b")
    both["children"] = [node["where_clause"], added]
    node["where_clause"] = both


def column_of(reference: Node, from_: Node, tables: Mapping[str, T]) -> tuple[T | None, str]:
    """Return the table that a column reference belongs to and the column's name; None as table if that is uncertain.

    tables: by name, in lower case.
    """
    *of, name = (folded(part) for part in reference["column_names"])
    sources = [node for node in nodes(from_) if node.get("type") == "BASE_TABLE"]
    if len(of) > 1 or any(
        node.get("type") not in ("BASE_TABLE", "JOIN")
        for node in nodes(from_)
        if "alias" in node and "class" not in node
    ):
        return None, name
    for source in sources:
        alias = folded(source["alias"] or source["table_name"])
        if is_table(source) and (of == [alias] or (not of and len(sources) == 1)):
            return tables.get(folded(source["table_name"])), name
    return None, name


def alias_of(table: Node) -> str:
    """The alias of a table in a SELECT, else its name."""
    return str(table["alias"] or table["table_name"])
