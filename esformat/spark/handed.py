"""What a query needs of each of its sources, as Spark's optimised plan says: columns, a condition, a limit.

The plan is made for stand-ins: relations with the sources' columns and no rows, which Spark knows nothing else about.
An optimised plan gives the answers of the query for any rows that have those columns. So rows that its filter on a
source rules out need not be given, and columns that it does not look at may hold anything.
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
"""Nodes that Spark works out of rows that the driver has without a job."""
_BELOW_FIGURES: tuple[list[str], ...] = ([], ["Filter"], ["Project"], ["Filter", "Project"])
"""Nodes between a source and an aggregate that sees each row of the source that the filter leaves."""
_PLAIN = ("Aggregate", "Filter", "GlobalLimit", "Join", "LocalLimit", "LocalRelation", "Project", "Sort", "Union")
"""Nodes that hold no plans but their children. To ask costs a call of Java's each."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One of a query's answers: `count`, `min` or `max` of a column's values; with None the count of all rows."""

    function: str
    column: str | None


@dataclass(frozen=True, slots=True)
class Handed:
    """What is handed to one source.

    columns: those that are needed, in the source's order, but for those of `equal`. conditions: what all rows that are
    needed meet. equal: columns that have one value in all of them, by a condition each. limit: so many of the rows are
    enough, whichever; None: all are needed. shown: whether the answer is those rows, one by one, and no more is done.
    figures: the answer's one row, where the query is counts and extremes of just those rows; (): it is not.
    """

    columns: tuple[str, ...]
    conditions: tuple[str, ...] = ()
    equal: tuple[tuple[str, Any], ...] = ()
    limit: int | None = None
    shown: bool = False
    figures: tuple[Figure, ...] = ()

    @property
    def where(self) -> str:
        """The conditions as the option `where` takes them; "": none."""
        return " AND ".join(self.conditions)


@dataclass(slots=True)
class _Use:
    """What one place of a plan needs: numbers of columns, None for all; conditions, and whether those are all."""

    needed: set[int] | None = field(default_factory=set)
    conditions: list[Any] = field(default_factory=list)
    limit: int | None = None


def handed_over(
    plan: Any, stand_ins: Sequence[int], columns: Sequence[Sequence[Column]], *, conditions: bool
) -> list[Handed | None]:
    """What a plan needs of each source; None of one that it does not show, as inside some commands.

    stand_ins: the numbers of their RDDs. columns: theirs. conditions: whether conditions may be handed over.
    """
    uses: dict[int, list[Handed]] = {number: [] for number in stand_ins}
    known = dict(zip(stand_ins, columns, strict=True))
    for leaf, above in _leaves(plan):
        number = int(leaf.rdd().id())
        if number in uses:
            whole = bool(above) and above[0][1] is plan  # and no subquery of it
            uses[number].append(_handed(leaf, above, known[number], conditions=conditions, whole=whole))
    return [_united(uses[number], known[number]) for number in stand_ins]


def _leaves(root: Any) -> Iterator[tuple[Any, list[tuple[str, Any]]]]:
    """Stand-ins of a plan and its subqueries, each with the nodes above it up to its own root, and their classes."""
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


def _handed(
    leaf: Any, above: list[tuple[str, Any]], known: Sequence[Column], *, conditions: bool, whole: bool
) -> Handed:
    numbers = numbers_of(leaf.output())
    use = _use(above)
    columns = dict(zip(numbers, known, strict=True))
    texts, fixed, left = _conditions(use.conditions, columns) if conditions else ([], {}, bool(use.conditions))
    figures = () if left or not whole else _figures(above, columns)
    return Handed(
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
    """What a plan gives, where it is an aggregate of all rows that a filter leaves, of figures alone; () where not."""
    kinds = [kind for kind, _ in reversed(above)]
    if kinds[-1:] != ["Aggregate"] or kinds[:-1] not in _BELOW_FIGURES:
        return ()
    node = above[0][1]
    if not node.groupingExpressions().isEmpty():
        return ()
    found = [figure(each, columns) for each in items(node.aggregateExpressions())]
    return () if None in found else tuple(Figure(*each) for each in found if each is not None)


def _use(above: list[tuple[str, Any]]) -> _Use:
    """Follow a plan from a source upwards, as far as it says what it needs."""
    use = _Use()
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
    """The conditions that can be handed over, as text; the columns that they give one value; whether more are left."""
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


def _united(uses: Sequence[Handed], columns: Sequence[Column]) -> Handed | None:
    """What several places need of one source together."""
    if len(set(uses)) < 2:
        return uses[0] if uses else None
    needed = {name for use in uses for name in (*use.columns, *dict(use.equal))}
    wheres = dict.fromkeys(use.where for use in uses)
    together = (
        "" if "" in wheres else " OR ".join(f"({each})" for each in wheres) if len(wheres) > 1 else next(iter(wheres))
    )
    return Handed(tuple(each.name for each in columns if each.name in needed), (together,) if together else ())


def everything(names: Sequence[str]) -> Handed:
    """All columns of all rows."""
    return Handed(tuple(names))
