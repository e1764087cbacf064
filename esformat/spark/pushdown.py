"""What a query needs of each of its sources according to Spark's optimised plan: columns, a condition, a limit.

The plan is made for stand-ins: relations with the sources' columns and no rows, about which Spark knows nothing else.
An optimised plan is correct for any rows with these columns. So rows that its filter on a source excludes can be left
out, and columns that it does not use may contain anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from esformat.spark.catalyst import (
    Column,
    Columns,
    class_of,
    compared_column,
    condition_text,
    conjuncts,
    equality,
    figure,
    items,
    numbers_of,
)

STAND_IN = "LogicalRDD"
_ROW_BY_ROW = {"Filter", "GlobalLimit", "LocalLimit", "Project"}
"""Nodes that Spark evaluates without a job if the driver has the rows."""
_BELOW_FIGURES: tuple[list[str], ...] = ([], ["Filter"], ["Project"], ["Filter", "Project"])
"""The nodes allowed between a source and an aggregate over all rows that pass the filter."""
_PLAIN = ("Aggregate", "Filter", "GlobalLimit", "Join", "LocalLimit", "LocalRelation", "Project", "Sort", "Union")
"""Nodes whose only subplans are their children. Listed because asking costs a Java call each."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One result of a query: `count`, `min` or `max` of a column; if the column is None, the count of all rows."""

    function: str
    column: str | None


@dataclass(frozen=True, slots=True)
class Pushdown:
    """The part of a query that is pushed down to one source.

    columns: the needed columns in the source's order, except those of `equal`.
    conditions: conditions that all needed rows satisfy.
    equal: columns that have one value in all needed rows, because of a condition each.
    limit: any so many of the rows suffice; None: all are needed.
    shown: whether the result consists of these rows one by one, without further work.
    figures: the result row, if the query only computes counts, minima and maxima of these rows; else ().
    """

    columns: tuple[str, ...]
    conditions: tuple[str, ...] = ()
    equal: tuple[tuple[str, Any], ...] = ()
    limit: int | None = None
    shown: bool = False
    figures: tuple[Figure, ...] = ()

    @property
    def where(self) -> str:
        """The conditions as text for the option `where`; "" if there are none."""
        return " AND ".join(self.conditions)


@dataclass(slots=True)
class _Needs:
    """What one part of a plan needs: the numbers of columns (None: all), conditions, and a limit."""

    needed: set[int] | None = field(default_factory=set)
    conditions: list[Any] = field(default_factory=list)
    limit: int | None = None


def find_pushdown(
    plan: Any, stand_ins: Sequence[int], columns: Sequence[Sequence[Column]], *, conditions: bool
) -> list[Pushdown | None]:
    """What a plan needs of each source; None for a source that it does not contain, as inside some commands.

    stand_ins: the RDD numbers of the sources. columns: of the sources. conditions: whether conditions may be pushed
    down.
    """
    needs: dict[int, list[Pushdown]] = {number: [] for number in stand_ins}
    known = dict(zip(stand_ins, columns, strict=True))
    for leaf, above in _leaves(plan):
        number = int(leaf.rdd().id())
        if number in needs:
            whole = bool(above) and above[0][1] is plan  # not a subquery
            needs[number].append(_pushdown(leaf, above, known[number], conditions=conditions, whole=whole))
    return [_united(needs[number], known[number]) for number in stand_ins]


def _leaves(root: Any) -> Iterator[tuple[Any, list[tuple[str, Any]]]]:
    """Yield the stand-ins of a plan and its subqueries, each with the nodes above it and their classes, root first."""
    for each in (root, *items(root.subqueriesAll())):
        yield from _below(each, [])


def _below(node: Any, above: list[tuple[str, Any]]) -> Iterator[tuple[Any, list[tuple[str, Any]]]]:
    kind = class_of(node)
    if kind == STAND_IN:
        yield node, above
        return
    for child in items(node.children()):
        yield from _below(child, [*above, (kind, node)])
    for inner in () if kind in _PLAIN else items(node.innerChildren()):
        if hasattr(inner, "subqueriesAll"):
            yield from _leaves(inner)


def _pushdown(
    leaf: Any, above: list[tuple[str, Any]], known: Sequence[Column], *, conditions: bool, whole: bool
) -> Pushdown:
    numbers = numbers_of(leaf.output())
    use = _use(above)
    columns = dict(zip(numbers, known, strict=True))
    texts, fixed, left = _conditions(use.conditions, columns) if conditions else ([], {}, bool(use.conditions))
    figures = () if left or not whole else _figures(above, columns)
    return Pushdown(
        tuple(
            each.name
            for number, each in columns.items()
            if (use.needed is None or number in use.needed) and each.name not in fixed
        ),
        tuple(texts),
        tuple(fixed.items()),
        None if left else use.limit,
        {kind for kind, _ in above} <= _ROW_BY_ROW,
        figures,
    )


def _figures(above: list[tuple[str, Any]], columns: Columns) -> tuple[Figure, ...]:
    """The results of a plan that only aggregates all filtered rows to figures; () for any other plan."""
    kinds = [kind for kind, _ in reversed(above)]
    if kinds[-1:] != ["Aggregate"] or kinds[:-1] not in _BELOW_FIGURES:
        return ()
    node = above[0][1]
    if not node.groupingExpressions().isEmpty():
        return ()
    found = [figure(each, columns) for each in items(node.aggregateExpressions())]
    return () if None in found else tuple(Figure(*each) for each in found if each is not None)


def _use(above: list[tuple[str, Any]]) -> _Needs:
    """Follow a plan upwards from a source, as long as the nodes show what is needed."""
    use = _Needs()
    projected = False
    for kind, node in reversed(above):
        if kind == "Filter" and not projected:
            use.conditions += conjuncts(node.condition())
        elif kind == "LocalLimit":
            use.limit = _count(node.limitExpr())
            break
        elif kind not in ("Project", "Aggregate") or (kind == "Aggregate" and projected):
            break
        if not projected and use.needed is not None:
            use.needed |= set(numbers_of(node.references().toSeq()))
        projected = projected or kind != "Filter"
        if kind == "Aggregate":
            break
    if not projected:
        use.needed = None
    return use


def _count(expression: Any) -> int | None:
    return int(expression.value()) if class_of(expression) == "Literal" else None


def _conditions(found: list[Any], columns: dict[int, Column]) -> tuple[list[str], dict[str, Any], bool]:
    """Return the translated conditions, the columns that they fix to one value, and whether others are left."""
    texts: list[str] = []
    equal: dict[str, Any] = {}
    left = False
    translated = [(condition, condition_text(condition, columns)) for condition in found]
    compared = {compared_column(condition, columns) for condition, text in translated if text is not None} - {None}
    for condition, text in translated:
        left = left or text is None
        implied = class_of(condition) == "IsNotNull" and columns.get(_number(condition.child())) in compared
        if text is not None and text not in texts and not implied:
            texts.append(text)
            one = equality(condition, columns)
            if one is not None:
                equal[one[0]] = one[1]
    return texts, equal, left


def _number(expression: Any) -> int:
    return int(expression.exprId().id()) if class_of(expression) == "AttributeReference" else -1


def _united(needs: Sequence[Pushdown], columns: Sequence[Column]) -> Pushdown | None:
    """Combine the needs of several references to one source."""
    if len(set(needs)) < 2:
        return needs[0] if needs else None
    needed = {name for use in needs for name in (*use.columns, *dict(use.equal))}
    wheres = dict.fromkeys(use.where for use in needs)
    together = (
        "" if "" in wheres else " OR ".join(f"({each})" for each in wheres) if len(wheres) > 1 else next(iter(wheres))
    )
    return Pushdown(tuple(each.name for each in columns if each.name in needed), (together,) if together else ())


def everything(names: Sequence[str]) -> Pushdown:
    """A pushdown that needs all columns of all rows."""
    return Pushdown(tuple(names))
