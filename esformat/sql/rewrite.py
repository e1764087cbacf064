"""Statements made such that less is read for them. Every way keeps the answer; what is not understood is left alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import duckdb

from esformat.sql import newest, prefix
from esformat.sql.held import Held, held_texts
from esformat.sql.joined import Ask, joined_spaces, listed_spaces
from esformat.sql.summary import Summary, summarised
from esformat.sql.table import Table, folded
from esformat.sql.tree import Node, given_names, nodes, root, to_text


class Rewritten(NamedTuple):
    """What is asked instead of a statement."""

    text: str
    of: str = ""
    """The name, as the statement has it, of a table that something else stands for:"""
    summary: Summary | None = None
    """what `text` asks instead of its events,"""
    spaces: Callable[[Ask], Sequence[str] | None] | None = None
    """or its events of some spaces; this gives those, or None where they are many, and then it is the whole,"""
    held: Held = MappingProxyType({})
    """or its events without some that lack these texts."""


def rewritten(
    connection: duckdb.DuckDBPyConnection, tree: Node, tables: Mapping[str, Table], names: Sequence[str], ask: Ask
) -> Rewritten | None:
    """The same question for less, its tree changed for that; None where there is nothing to change.

    tables: ours, by name. names: of the columns that the statement gives. ask: gives the rows of another statement.
    """
    ours = {folded(name): table for name, table in tables.items() if _has_plain_names(table)}
    given = given_names(tree)
    for name in given & ours.keys():
        del ours[name]  # what a WITH calls so hides it
    select = root(tree)
    if select["type"] != "SELECT_NODE":
        text = _bounded(connection, tree, ours, changed=False)
        return None if text is None else Rewritten(text)
    written = select["from_table"].get("table_name", "")
    name = folded(written)
    if name in ours:
        summary = summarised(connection, select, ours[name], names)
        if summary is not None:
            return Rewritten(to_text(connection, tree), written, summary)

    def ask_of(node: Node) -> list[tuple[Any, ...]]:
        return ask(statement_of(node))

    def statement_of(node: Node) -> str:
        whole = {**tree, "statements": [{**tree["statements"][0], "node": node}]}
        bounded = _bounded(connection, json.loads(json.dumps(whole)), ours, changed=True)
        assert bounded is not None
        return bounded

    changed, only = False, None
    held: Held = {}
    if name in ours:
        held = held_texts(tree, ours[name])
        changed = newest.bounded(connection, select, ours[name], ask_of)
        only = listed_spaces(tree, ours[name])
    elif not given:
        only = joined_spaces(connection, tree, ours, statement_of)
    text = _bounded(connection, tree, ours, changed=changed or only is not None or bool(held))
    if text is None:
        return None
    of, spaces = only or (written if held else "", None)
    return Rewritten(text, of, spaces=spaces, held=held)


def _has_plain_names(table: Table) -> bool:
    """Whether capitals alone tell no two of its columns apart: of those DuckDB renames all but the first."""
    names = table.schema.names
    return len(set(map(folded, names))) == len(names)


def _bounded(
    connection: duckdb.DuckDBPyConnection, tree: Node, ours: Mapping[str, Table], *, changed: bool
) -> str | None:
    """A tree as text, with what conditions on beginnings imply; None where nothing of it was changed."""
    for node in [node for node in nodes(tree) if node.get("type") == "SELECT_NODE"]:
        changed |= prefix.bounded(connection, node, ours)
    return to_text(connection, tree) if changed else None
