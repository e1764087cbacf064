"""Queries that group events by key and count them, run on packed rows without unpacking.

A packed row stands for a number of events with the same keys. So `count(*)` over events is the sum of these numbers
over packed rows, and minima and maxima of keys are the same. The query's text is changed accordingly, and Spark's own
analysis of the new text shows whether the rows are used in no other way.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from esformat.spark.catalyst import class_of, items

_SAME_SCOPE = ("Distinct", "GlobalLimit", "LocalLimit", "Sort", "UnresolvedHaving", "UnresolvedOrderByAll")
"""Nodes above a SELECT that may repeat its counts."""
_EACH_ROW = ("Filter", "Project", "SubqueryAlias", "View")
"""Nodes that return at most one row per row."""


def sums_for_counts(plan: Any, relation: int, events: str) -> list[tuple[int, int, str]] | None:
    """Return the edits (start, end, new text) that make a query sum the column `events` instead of counting rows.

    They apply to the SELECT that reads a relation; None if it neither groups nor counts.
    plan: the parsed query. relation: the relation's offset in the text.
    """
    above = [node for node in _above(plan, relation) or () if class_of(node) not in ("Filter", "SubqueryAlias")]
    same = takewhile(lambda node: class_of(node) in _SAME_SCOPE, above[1:])
    calls = [call for node in (*above[:1], *same) for call in _counts(node)]
    kind = next((class_of(node) for node in above if class_of(node) != "Project"), "")
    if not calls and kind not in ("Aggregate", "Distinct"):
        return None
    return [
        (*_place(call), f"coalesce(sum({events}), 0L)" + (" AS `count(1)`" if alone else "")) for call, alone in calls
    ]


def only_counts(analyzed: Any, events: str) -> bool:
    """Whether an analysed plan uses the column `events` only to count events.

    If so, its result would be the same if each event were a row.
    """
    chain = _chain(analyzed, events)
    place = next((place for place, node in enumerate(chain) if class_of(node) not in _EACH_ROW), len(chain))
    if place == len(chain) or class_of(chain[place]) not in ("Aggregate", "Distinct"):
        return False
    grouped = chain[place]
    passed = (each for node in chain[:place] for each in items(node.expressions()))
    if any(class_of(each) != "AttributeReference" and _names(each, events) for each in passed):
        return False
    if not grouped.deterministic() or _gives(grouped, events):
        return False
    if class_of(grouped) == "Distinct":
        return True
    expressions = (*items(grouped.aggregateExpressions()), *items(grouped.groupingExpressions()))
    return all(_same_of_packed(each, events) for each in expressions)


def _above(node: Any, relation: int) -> list[Any] | None:
    """The nodes above the relation at an offset in a query's text, nearest first; None if it is not below `node`."""
    if class_of(node) == "UnresolvedRelation":
        return [] if _place(node)[0] == relation else None
    inner = [pair._2() for pair in items(node.cteRelations())] if class_of(node) == "UnresolvedWith" else []
    found = (_above(each, relation) for each in (*items(node.children()), *inner))
    return next(([*above, node] for above in found if above is not None), None)


def _place(node: Any) -> tuple[int, int]:
    """The start and end of a parsed node in the text."""
    return int(node.origin().startIndex().get()), int(node.origin().stopIndex().get()) + 1


def _counts(node: Any) -> Iterator[tuple[Any, bool]]:
    """Yield the row counts in a parsed node, each with whether it is a whole column without an alias."""
    for expression in items(node.expressions()):
        alone = class_of(expression) == "UnresolvedAlias" and class_of(expression.child()) == "UnresolvedFunction"
        yield from ((call, alone and _place(call) == _place(expression.child())) for call in _calls(expression))


def _calls(expression: Any) -> Iterator[Any]:
    """Yield the calls of `count(*)` or `count(1)` in a parsed expression."""
    if class_of(expression) == "UnresolvedFunction":
        given = [str(each) for each in items(expression.arguments())]
        if [str(each).lower() for each in items(expression.nameParts())] == ["count"] and given in (["1"], ["*"]):
            yield expression
            return
    for child in items(expression.children()):
        yield from _calls(child)


def _chain(node: Any, events: str) -> list[Any]:
    """A node and those below it, lowest first, down to the source of the column `events`; [] if there is none."""
    for child in items(node.children()):
        if below := _chain(child, events):
            return [*below, node]
    return [node] if _gives(node, events) else []


def _gives(node: Any, column: str) -> bool:
    return _is_among(node.output(), column)


def _same_of_packed(expression: Any, events: str) -> bool:
    """Whether an expression over groups of rows sums their events, or does not depend on how often rows repeat."""
    if class_of(expression) != "AggregateExpression":
        if class_of(expression) == "AttributeReference":
            return bool(str(expression.name()) != events)
        return all(_same_of_packed(each, events) for each in items(expression.children()))
    function = expression.aggregateFunction()
    kind, given = class_of(function), items(function.children())
    if kind == "Sum" and class_of(given[0]) == "AttributeReference" and str(given[0].name()) == events:
        return not expression.isDistinct() and not expression.filter().isDefined()
    return kind in ("Max", "Min") and not _names(expression, events)


def _names(expression: Any, column: str) -> bool:
    """Whether an expression refers to a column of that name."""
    return _is_among(expression.references().toSeq(), column)


def _is_among(attributes: Any, column: str) -> bool:
    return any(each.startswith(f"{column}#") for each in str(attributes.mkString("\0")).split("\0"))
