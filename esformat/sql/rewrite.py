"""Rewriting of statements to read less, with the same result. Statements that are not understood are left alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import duckdb

from esformat.sql import newest, prefix
from esformat.sql.joined import Ask, joined_spaces, listed_spaces
from esformat.sql.required_texts import RequiredTexts, find_required_texts
from esformat.sql.summary import Summary, summarised
from esformat.sql.table import Table, folded
from esformat.sql.tree import Node, given_names, nodes, root, to_text


class Rewritten(NamedTuple):
    """A rewritten statement."""

    text: str
    of: str = ""
    """The name, as written in the statement, of the table that is replaced by one of the following."""
    summary: Summary | None = None
    """A summary that `text` reads instead of the table's events."""
    spaces: Callable[[Ask], Sequence[str] | None] | None = None
    """Returns the only relevant spaces of the table; if it returns None, there are too many and all are read."""
    required_texts: RequiredTexts = MappingProxyType({})
    """Texts required of the table's events: those that lack them may be left out."""
    is_fixed: bool = False
    """Whether the restriction of the table depends on the statement and the table's events alone."""


def rewritten(
    connection: duckdb.DuckDBPyConnection, tree: Node, tables: Mapping[str, Table], names: Sequence[str], ask: Ask
) -> Rewritten | None:
    """Rewrite a statement, changing its tree, to read less; None if there is nothing to change.

    tables: event tables, by name. names: the statement's result columns. ask: runs another statement.
    """
    ours = {folded(name): table for name, table in tables.items() if _has_plain_names(table)}
    given = given_names(tree)
    for name in given & ours.keys():
        del ours[name]  # hidden by a name of the WITH clause
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
    required_texts: RequiredTexts = {}
    if name in ours:
        required_texts = find_required_texts(tree, ours[name])
        changed = newest.bounded(connection, select, ours[name], ask_of)
        only = listed_spaces(tree, ours[name])
    elif not given:
        only = joined_spaces(connection, tree, ours, statement_of)
    text = _bounded(connection, tree, ours, changed=changed or only is not None or bool(required_texts))
    if text is None:
        return None
    of, spaces = only or (written if required_texts else "", None)
    return Rewritten(text, of, spaces=spaces, required_texts=required_texts, is_fixed=name in ours)


def _has_plain_names(table: Table) -> bool:
    """Whether no two column names differ only in case: DuckDB renames all but the first of those."""
    names = table.schema.names
    return len(set(map(folded, names))) == len(names)


def _bounded(
    connection: duckdb.DuckDBPyConnection, tree: Node, ours: Mapping[str, Table], *, changed: bool
) -> str | None:
    """Return a tree as text after adding what prefix conditions imply; None if nothing was changed."""
    for node in [node for node in nodes(tree) if node.get("type") == "SELECT_NODE"]:
        changed |= prefix.bounded(connection, node, ours)
    return to_text(connection, tree) if changed else None
