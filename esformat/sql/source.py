"""`EventSource`: what DuckDB scans in place of a dataset; it tells how many rows it has and takes filters as they are.

DuckDB puts every dataset behind a source of its own, which tells no number of rows, so that a join takes our side for
the smaller one, and which translates each filter for pyarrow, for us to take apart again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Any

from duckdb._sources.nodes import Binary, Col, In, Lit, Node
from duckdb._sources.pyarrow import PyArrowDatasetSource
from duckdb._sources.to_arrow import to_arrow

MANY_SCANNERS = 100
Comparison = tuple[str, str, Any]
"""A column, an operator and a constant; of IN a list."""


class EventSource(PyArrowDatasetSource):
    """An `EventDataset` as DuckDB's Arrow scan reads it."""

    _last: tuple[Node, Any] | None = None
    """What was found of a predicate last: DuckDB shows each twice, when it plans and when it asks."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj)
        self._scanners: dict[tuple[int, ...] | None, Any] = {}
        """Of all rows, by columns: the same statement is asked again and again."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """All events. DuckDB takes what has this for something to scan."""
        return self.obj.scanner(None).__arrow_c_stream__(requested_schema)

    def rows(self) -> int:
        """How many rows there are at most."""
        return int(self.obj.events.most_events)

    def accepts(self, predicate: Node) -> bool:
        """Whether a stream holds only rows that a predicate is true of, if it is given that."""
        return self._bounds(predicate) is not None or super().accepts(predicate)

    def stream(self, columns: Sequence[int] | None, filters: Sequence[Node]) -> tuple[object, bool]:
        """The rows that filters are true of, and whether they have just the columns that are asked for."""
        schema = self.declared_schema()
        found = [(predicate, self._bounds(predicate)) for predicate in filters]
        others = [to_arrow(predicate, schema) for predicate, bounds in found if bounds is None]
        asked = None if columns is None else tuple(columns)
        scanner = None if others else self._scanners.get(asked)
        if scanner is None:
            names = None if asked is None else [schema.names[number] for number in asked]
            scanner = self.obj.scanner(names, reduce(and_, others) if others else None)
            if not others and len(self._scanners) < MANY_SCANNERS:
                self._scanners[asked] = scanner
        for _, bounds in found:
            scanner = scanner.within(bounds) if bounds else scanner
        return scanner.__arrow_c_stream__(), asked is not None

    def _bounds(self, predicate: Node) -> Any:
        """The bounds that a predicate says, where it says no more and events are given by them exactly."""
        last = self._last
        if last is not None and last[0] is predicate:
            return last[1]
        found = comparisons(predicate)
        bounds = None if found is None else self.obj.exact_bounds(found)
        self._last = predicate, bounds
        return bounds


def comparisons(predicate: Node) -> list[Comparison] | None:
    """The comparisons of columns with constants that must all be true; None where a predicate is something else."""
    found: list[Comparison] = []
    pending = [predicate]
    while pending:  # no recursion: hundreds of conditions of one column nest as deep
        match pending.pop():
            case Binary("AND", left, right):
                pending += [right, left]
            case Binary(operator, Col((name,)), Lit(value)):
                found.append((name, operator, value))
            case In(Col((name,)), values) if all(isinstance(each, Lit) for each in values):
                found.append((name, "IN", [each.value for each in values if isinstance(each, Lit)]))
            case _:
                return None
    return found
