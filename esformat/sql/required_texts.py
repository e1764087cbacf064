"""Texts required by conditions, so that events that cannot contain them are not decoded.

DuckDB checks all rows again, so passing too many is harmless; matching rows are never left out. Payloads that are not
UTF-8 or not JSON, for which DuckDB would fail, may be skipped with the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from esformat.format.json_values import texts_around
from esformat.format.schema import KEY_COLUMNS
from esformat.sql.table import Table, folded
from esformat.sql.tree import Node, alias_of, arguments, conjuncts, is_read_once, is_table, root, text_of

RequiredTexts = Mapping[str, Sequence[Sequence[bytes]]]
"""By column, lists of texts: a value must contain at least one text of each list."""
MOST_TEXTS = 16
"""The most texts of one list."""
_WITHIN = ("contains", "starts_with", "prefix", "^@", "ends_with", "suffix")
_OF_JSON = ("->>", "json_extract_string")
_ANY_SIGNS = re.compile("[%_]")


def find_required_texts(tree: Node, table: Table) -> RequiredTexts:
    """Return the texts that the columns of matching rows contain, for a SELECT over one table."""
    node = root(tree)
    source = node["from_table"]
    if not is_table(source) or not is_read_once(tree, source["table_name"]):
        return {}
    found: dict[str, list[Sequence[bytes]]] = {}
    columns = _Columns(table, folded(alias_of(source)))
    for condition in conjuncts(node["where_clause"]):
        for column, texts in _texts_of(condition, columns):
            found.setdefault(column, []).append(texts)
    return found


class _Columns:
    """Resolves column references of a statement to the columns of a table."""

    def __init__(self, table: Table, alias: str) -> None:
        self._fields = {folded(field.name): field for field in table.schema if field.name not in KEY_COLUMNS}
        self._alias = alias
        self.indexes = table.indexes

    def text(self, node: Node) -> str | None:
        """The column whose text an expression stands for: a text column, or `decode` of a binary one; else None."""
        wanted = pa.types.is_string, pa.types.is_large_string
        if node["class"] == "FUNCTION" and _is_called(node, ("decode",)):
            ((node, *more), wanted) = arguments(node), (pa.types.is_binary, pa.types.is_large_binary)
            if more:
                return None
        if node["class"] != "COLUMN_REF":
            return None
        *of, name = map(folded, node["column_names"])
        field = self._fields.get(name)
        if field is None or of not in ([], [self._alias]):
            return None
        return str(field.name) if any(test(field.type) for test in wanted) else None


def _is_called(node: Node, names: Sequence[str]) -> bool:
    return node["function_name"] in names and not node.get("schema") and not node.get("filter")


def _texts_of(condition: Node, columns: _Columns) -> Iterator[tuple[str, Sequence[bytes]]]:
    """Yield columns with texts: where the condition is true, the column contains one of them."""
    if condition["class"] == "FUNCTION":
        given = arguments(condition)
        if len(given) != 2 or (text := text_of(given[1])) is None or (column := columns.text(given[0])) is None:
            return
        pieces = [text] if _is_called(condition, _WITHIN) else []
        if _is_called(condition, ("~~",)):
            pieces = _ANY_SIGNS.split(text)
        yield from ((column, (piece.encode(),)) for piece in pieces if piece)
        return
    if condition["type"] == "COMPARE_EQUAL":
        sides = condition["left"], condition["right"]
        found = [_any_of(sides[at], [sides[1 - at]], columns) for at in (0, 1)]
    elif condition["type"] == "COMPARE_IN":
        found = [_any_of(condition["children"][0], condition["children"][1:], columns)]
    else:
        return
    yield from (each for each in found if each is not None)


def _any_of(node: Node, values: Sequence[Node], columns: _Columns) -> tuple[str, Sequence[bytes]] | None:
    """Return a column and texts, one of which it contains if the expression equals one of `values`."""
    given = [text_of(value) for value in values]
    texts = [text for text in given if text]
    if not texts or len(texts) < len(given) or len(texts) > MOST_TEXTS:
        return None
    around: list[tuple[bytes, ...]] = [(text.encode(),) for text in texts]
    if node["class"] == "FUNCTION" and _is_called(node, _OF_JSON):
        node, *path = arguments(node)
        if len(path) != 1 or (place := text_of(path[0])) is None or "*" in place or ".." in place:
            return None  # a path to several values returns a list
        around = [texts_around(text) for text in texts]
    column = columns.text(node)
    if column is None or not all(around):
        return None
    if column in columns.indexes and node["class"] == "COLUMN_REF":
        return None  # the index finds the value itself
    return column, tuple(dict.fromkeys(each for some in around for each in some))
