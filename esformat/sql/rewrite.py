"""Statements made such that less is read for them. Every way keeps the answer; what is not understood is left alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import duckdb

from esformat.sql import newest, prefix
from esformat.sql.joined import joined_spaces
from esformat.sql.summary import Summary, summarised
from esformat.sql.table import Table
from esformat.sql.tree import Node, nodes, root, to_text

Ask = Callable[[str], list[tuple[Any, ...]]]


class Rewritten(NamedTuple):
    """What is asked instead of a statement."""

    text: str | None
    """None: the same."""
    summary: Summary | None = None
    """Of a table, which `text` asks instead of its events."""
    of: str = ""
    """The table's name."""
    spaces: Sequence[str] | None = None
    """The only ones of a table that matter."""

    @property
    def lasts(self) -> bool:
        """Whether it was found in less than events, so that it is kept for the next time."""
        return self.spaces is None and not (self.summary is not None and self.summary.tallied)


def rewritten(
    connection: duckdb.DuckDBPyConnection, tree: Node, tables: Mapping[str, Table], names: Sequence[str], ask: Ask
) -> Rewritten | None:
    """The same question for less, its tree changed for that; None where there is nothing to change.

    tables: ours, by name. names: of the columns that the statement gives. ask: gives the rows of another statement.
    """
    ours = {name.casefold(): table for name, table in tables.items()}
    given = {entry["key"].casefold() for node in nodes(tree) if "cte_map" in node for entry in node["cte_map"]["map"]}
    for name in given & ours.keys():
        del ours[name]  # what a WITH calls so hides it
    select = root(tree)
    if select["type"] != "SELECT_NODE":
        return _bounded(connection, tree, ours, changed=False)
    name = select["from_table"].get("table_name", "").casefold()
    if name in ours:
        summary = summarised(connection, select, ours[name], names)
        if summary is not None:
            return Rewritten(to_text(connection, tree), summary, name)

    def ask_of(node: Node) -> list[tuple[Any, ...]]:
        whole = {**tree, "statements": [{**tree["statements"][0], "node": node}]}
        bounded = _bounded(connection, json.loads(json.dumps(whole)), ours, changed=True)
        assert bounded is not None
        return ask(str(bounded.text))

    if name in ours:
        return _bounded(connection, tree, ours, changed=newest.bounded(connection, select, ours[name], ask_of))
    spaces = None if given else joined_spaces(connection, tree, ours, ask_of)
    text = _bounded(connection, tree, ours, changed=False)
    if spaces is None:
        return text
    return Rewritten(None if text is None else text.text, None, *spaces)


def _bounded(
    connection: duckdb.DuckDBPyConnection, tree: Node, ours: Mapping[str, Table], *, changed: bool
) -> Rewritten | None:
    """A tree as text, with what conditions on beginnings imply."""
    for node in [node for node in nodes(tree) if node.get("type") == "SELECT_NODE"]:
        changed |= prefix.bounded(connection, node, ours)
    return Rewritten(to_text(connection, tree)) if changed else None
