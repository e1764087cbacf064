"""Statements as DuckDB's own parser gives them: trees of JSON, and back to text.

Versions of DuckDB differ in how they write constants and arguments; both ways are read here, and none is written by
hand: new pieces of a tree are parsed from text. A tree that looks otherwise is one that nobody changes.
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
    """The tree of a statement; None for those that DuckDB does not give, which are not plain questions."""
    ((stored,),) = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()
    tree: Node = json.loads(stored)
    return None if tree.get("error") or len(tree.get("statements", ())) != 1 else tree


def to_text(connection: duckdb.DuckDBPyConnection, tree: Node) -> str:
    """The statement of a tree."""
    ((text,),) = connection.execute("SELECT json_deserialize_sql(?)", [json.dumps(tree)]).fetchall()
    return str(text)


def root(tree: Node) -> Node:
    """The outermost node: a SELECT, a UNION …"""
    node: Node = tree["statements"][0]["node"]
    return node


def expression(connection: duckdb.DuckDBPyConnection, text: str) -> Node:
    """The node of an expression."""
    node: Node = _snippet(connection, f"SELECT {text}")["select_list"][0]
    return node


def relation(connection: duckdb.DuckDBPyConnection, text: str) -> Node:
    """The node of what stands behind FROM."""
    node: Node = _snippet(connection, f"FROM {text}")["from_table"]
    return node


def select(connection: duckdb.DuckDBPyConnection, text: str) -> Node:
    """The node of a SELECT."""
    return _snippet(connection, text)


_snippets: dict[str, str] = {}
"""Texts that were parsed, and their nodes as JSON."""
_MOST_SNIPPETS = 1_000


def _snippet(connection: duckdb.DuckDBPyConnection, text: str) -> Node:
    """The node of a SELECT, for the caller to change; the same few are asked for again and again."""
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
    """Every node of a tree, the outer ones first."""
    if isinstance(tree, dict):
        yield tree
        for value in tree.values():
            yield from nodes(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from nodes(value)


def expressions(tree: Any) -> Iterator[Node]:
    """Those that are expressions."""
    return (node for node in nodes(tree) if "class" in node and "type" in node)


def table_names(tree: Node) -> list[str]:
    """The names of tables, each once, and those that a WITH gives: it may ask the table that it hides."""
    return list(dict.fromkeys(node["table_name"] for node in nodes(tree) if is_table(node)))


def given_names(tree: Node) -> set[str]:
    """The names that a WITH gives, in small letters."""
    return {folded(entry["key"]) for node in nodes(tree) if "cte_map" in node for entry in node["cte_map"]["map"]}


def is_table(node: Node) -> bool:
    """Whether it is a table by its bare name, all rows of it, with the names of its columns as they are."""
    return node.get("type") == "BASE_TABLE" and not (
        node.get("schema_name")
        or node.get("catalog_name")
        or node.get("sample")
        or node.get("column_name_alias")
        or node.get("at_clause")
    )


_QUERIES = ("query", "query_table")
"""Functions that give the rows of tables whose names are text."""


def is_read_once(tree: Node, name: str) -> bool:
    """Whether a SELECT reads a table once, and asks its conditions before all else: then rows that do not fulfil these
    may be left out of the table.
    """
    named = 0
    for node in nodes(tree):
        named += folded(node.get("table_name", "")) == folded(name)
        if folded(node.get("function_name", "")) in _QUERIES:
            return False
    return named == 1 and not root(tree).get("sample")


def arguments(function: Node) -> list[Node]:
    """The arguments of a function."""
    if "arguments" in function:
        return [each["expression"] for each in function["arguments"]]
    return list(function.get("children", ()))


def text_of(node: Node) -> str | None:
    """A constant text."""
    if node["class"] != "CONSTANT":
        return None
    if "literal" in node:
        return str(node["literal"]["text"]) if node["literal"]["kind"] == "STRING" else None
    held = node["value"]
    return held["value"] if held["type"]["id"] == "VARCHAR" and not held["is_null"] else None


def integer_of(node: Node | None) -> int | None:
    """A constant whole number."""
    if node is None or node["class"] != "CONSTANT":
        return None
    if "literal" in node:
        return int(node["literal"]["text"]) if node["literal"]["kind"] == "INTEGER" else None
    held = node["value"]
    whole = held["type"]["id"] in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT") and not held["is_null"]
    return int(held["value"]) if whole else None


def conjuncts(condition: Node | None) -> list[Node]:
    """The conditions that AND joins."""
    if condition is None:
        return []
    if condition["type"] == "CONJUNCTION_AND":
        return [each for child in condition["children"] for each in conjuncts(child)]
    return [condition]


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"


def and_also(connection: duckdb.DuckDBPyConnection, node: Node, text: str) -> None:
    """Add a condition to those of a SELECT."""
    added = expression(connection, text)
    if node["where_clause"] is None:
        node["where_clause"] = added
        return
    both = expression(connection, "a AND b")
    both["children"] = [node["where_clause"], added]
    node["where_clause"] = both


def column_of(reference: Node, from_: Node, tables: Mapping[str, T]) -> tuple[T | None, str]:
    """The table that surely has a column that a SELECT names, and the column's name; None where others may have it.

    tables: by name, in small letters.
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
    """What a SELECT calls a table."""
    return str(table["alias"] or table["table_name"])
