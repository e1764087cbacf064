"""Statements that counts answer: the number of events, in total, per space or per value of an index.

If a statement uses only one column, whose values are counted without reading events, it runs on a small table instead:
each value once, with its number of events. `count(*)` becomes the sum of these numbers. Statements for which the number
of equal rows matters in other ways, such as averages, are left alone. Combinations of several indexed columns are
counted from the codes of all events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from esformat.sql.expressions import is_scalar
from esformat.sql.prefix import beginning
from esformat.sql.table import Table, folded
from esformat.sql.tree import (
    Node,
    alias_of,
    arguments,
    conjuncts,
    expression,
    expressions,
    is_table,
    quoted,
    relation,
    text_of,
)

EVENTS = "events\N{MIDDLE DOT}"
"""The column with the number of events of a value; no other column has this name."""
NAME = "summary\N{MIDDLE DOT}"
LEAST_EVENTS = 32
"""The fewest events per value for which a summary pays off: counting values costs more than reading a few events."""
FEW_VALUES = 1_000
_REPEATABLE = frozenset({"min", "max"})
"""Aggregates that do not depend on repetitions of equal values."""


class Summary(NamedTuple):
    """A small table that is queried instead of the events."""

    make: Callable[[], pa.Table]
    tallied: bool = False
    """Whether building it reads the codes of all events, each time."""


def summarised(connection: duckdb.DuckDBPyConnection, node: Node, table: Table, names: Sequence[str]) -> Summary | None:
    """Change a SELECT to read a summary called NAME, and return the summary; None if the SELECT was not changed.

    names: the result columns of the SELECT, which stay the same.
    """
    if not _is_plain(node) or not _folds_rows(node):
        return None
    columns = _columns(node, table.schema)
    summary = None if columns is None else _summary(columns, node, table)
    if summary is None:
        return None
    for each, name in zip(node["select_list"], names, strict=True):
        each["alias"] = each["alias"] or name
    for each in list(expressions(_parts(node))):
        _count_by_sum(connection, each)
    node["from_table"] = relation(connection, f"{quoted(NAME)} AS {quoted(alias_of(node['from_table']))}")
    return summary


def _parts(node: Node) -> list[Any]:
    return [node[part] for part in ("select_list", "where_clause", "group_expressions", "having", "modifiers")]


def _is_plain(node: Node) -> bool:
    """Whether a SELECT is understood: one table, and known expressions of a row or a group."""
    if node["type"] != "SELECT_NODE" or not is_table(node["from_table"]) or node["cte_map"]["map"]:
        return False
    if node["sample"] is not None or node["qualify"] is not None:
        return False
    if any(each.get("distinct_on_targets") for each in node["modifiers"]):
        return False
    return all(is_scalar(each) or _is_known(each) for each in expressions(_parts(node)))


def _is_known(call: Node) -> bool:
    """Whether a summary can compute an aggregate."""
    if call["class"] != "FUNCTION" or call["schema"] or call["catalog"] or call["order_bys"]["orders"]:
        return False
    name = call["function_name"]
    if name == "count_star":
        return not call["distinct"]
    if name == "count":
        (argument,) = arguments(call) if len(arguments(call)) == 1 else (None,)
        plain = argument is not None and argument["class"] == "COLUMN_REF"
        return plain and (call["distinct"] or call["filter"] is None)
    if name in _REPEATABLE:
        return len(arguments(call)) == 1
    return False


def _folds_rows(node: Node) -> bool:
    """Whether rows with equal values are combined."""
    aggregates = {"count", "count_star", *_REPEATABLE}
    calls = (each.get("function_name") for each in expressions([node["select_list"], node["having"]]))
    distinct = any(each["type"] == "DISTINCT_MODIFIER" for each in node["modifiers"])
    return bool(node["group_expressions"]) or distinct or any(name in aggregates for name in calls)


def _columns(node: Node, schema: pa.Schema) -> frozenset[str] | None:
    """The table's columns that a SELECT uses; None if it uses an unknown name."""
    known = {folded(name): name for name in schema.names}
    table = folded(alias_of(node["from_table"]))
    aliases = {folded(each["alias"]) for each in node["select_list"]}
    found = set()
    for each in expressions(_parts(node)):
        if each["class"] != "COLUMN_REF":
            continue
        *of, name = (folded(part) for part in each["column_names"])
        if of not in ([], [table]) or (name not in known and (of or name not in aliases)):
            return None
        if name in known:
            found.add(known[name])
    return frozenset(found)


def _summary(columns: frozenset[str], node: Node, table: Table) -> Summary | None:
    """The values of the columns with their numbers of events; None if that requires reading whole events."""
    if len(columns) > 1:
        return _combinations(columns, node, table)
    counted = _counted(columns, node, table)
    return None if counted is None else Summary(lambda: counted)


def _counted(columns: frozenset[str], node: Node, table: Table) -> pa.Table | None:
    """The values of a column with their numbers of events; None if that requires reading events."""
    if not columns:
        return pa.table({EVENTS: [table.num_events]})
    (name,) = columns
    if name == "timestamp":
        return _ends(table) if node["where_clause"] is None and _asks_for_ends(node) else None
    if name != "space" and name not in table.indexes:
        return None
    kind = table.schema.field(name).type
    if not (pa.types.is_string(kind) or name in table.indexes):
        return None  # DuckDB compares binary keys with text by its own rules
    most = max(FEW_VALUES, table.num_events // LEAST_EVENTS)
    pairs = list(islice(_pairs(name, node, table), most + 1))
    if len(pairs) > most:
        return None
    return pa.table({name: pa.array([key for key, _ in pairs], kind), EVENTS: [count for _, count in pairs]})


def _pairs(name: str, node: Node, table: Table) -> Iterator[tuple[Any, int]]:
    """Yield values that may satisfy the condition of a SELECT, with their numbers of events."""
    counts = table.spaces(_prefix(node)) if name == "space" else table.index_values(name)
    wanted = _equal_to(name, node["where_clause"])
    if wanted is not None and pa.types.is_string(table.schema.field(name).type):
        return iter([(wanted, counts.get(wanted, 0))] if counts.get(wanted, 0) else [])
    found: Iterable[tuple[Any, int]] = counts.items()
    return iter(found) if name == "space" else _with_nulls(found, table.num_events)


def _prefix(node: Node) -> str | None:
    """The prefix that the condition requires of spaces; None if it requires none."""
    found = (beginning(each) for each in conjuncts(node["where_clause"]))
    return next((each.text for each in filter(None, found) if _names(each.column, "space")), None)


def _with_nulls(pairs: Iterable[tuple[Any, int]], events: int) -> Iterator[tuple[Any, int]]:
    """Yield the pairs, then None with the number of events without a value."""
    for value, count in pairs:
        events -= count
        yield value, count
    if events:
        yield None, events


def _equal_to(name: str, condition: Node | None) -> str | None:
    """The text that a condition requires a column to equal; None if it requires none."""
    for each in conjuncts(condition):
        if each["type"] == "COMPARE_EQUAL":
            for one, other in ((each["left"], each["right"]), (each["right"], each["left"])):
                text = text_of(other)
                if text is not None and _names(one, name):
                    return text
    return None


def _names(expression: Node, name: str) -> bool:
    """Whether an expression is the column `name`; the caller knows that it belongs to this table."""
    return expression["class"] == "COLUMN_REF" and folded(str(expression["column_names"][-1])) == folded(name)


def _asks_for_ends(node: Node) -> bool:
    """Whether times are used only in `min` and `max`."""
    calls = [each for each in expressions(_parts(node)) if each.get("function_name") in _REPEATABLE]
    inside = [each for call in calls for each in arguments(call) if _names_times(each)]
    named = [each for each in expressions(_parts(node)) if _names_times(each)]
    return len(inside) == len(named) and all(call["filter"] is None for call in calls)


def _names_times(expression: Node) -> bool:
    return expression["class"] == "COLUMN_REF" and _names(expression, "timestamp")


def _combinations(columns: frozenset[str], node: Node, table: Table) -> Summary | None:
    """The combinations of values of several indexed columns; with times, if only their minimum and maximum matter."""
    timed = "timestamp" in columns
    names = [name for name in table.schema.names if name in columns and name != "timestamp"]
    if not set(names) <= set(table.indexes) or (timed and not _asks_for_ends(node)):
        return None
    found = table.dataset().tally(names, EVENTS, timed=timed)
    if found is None:
        return None
    first = iter([found])

    def make() -> pa.Table:
        made = next(first, None)
        return table.dataset().tally(names, EVENTS, timed=timed) if made is None else made

    return Summary(make, tallied=True)


def _ends(table: Table) -> pa.Table:
    """Return the first and last timestamps with counts, as if all events but the last had the first one's time."""
    kind = table.schema.field("timestamp").type
    low, high, events = table.min_timestamp, table.max_timestamp, table.num_events
    times, counts = ([low, high], [events - 1, 1]) if events > 1 else ([low], [1])
    if not events:
        times, counts = [], []
    return pa.table({"timestamp": pa.array(times, pa.int64()).cast(kind), EVENTS: pa.array(counts, pa.int64())})


def _count_by_sum(connection: duckdb.DuckDBPyConnection, call: Node) -> None:
    """Replace a count of rows by a sum of the summary's counts."""
    name = call.get("function_name")
    if name == "count_star":
        made = _sum(connection, "TRUE")
    elif name == "count" and not call["distinct"]:
        column = ".".join(map(quoted, arguments(call)[0]["column_names"]))
        made = _sum(connection, f"{column} IS NOT NULL")
    else:
        return
    if call["filter"] is not None:
        (summed,) = (each for each in expressions(made) if each.get("function_name") == "sum")
        summed["filter"] = call["filter"]
    alias = call["alias"]
    call.clear()
    call.update(made, alias=alias)


def _sum(connection: duckdb.DuckDBPyConnection, condition: str) -> Node:
    text = f"CAST(COALESCE(sum({quoted(EVENTS)}) FILTER (WHERE {condition}), 0) AS BIGINT)"
    return expression(connection, text)
