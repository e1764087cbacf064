"""`EventSource`: the object that DuckDB scans in place of a dataset; it reports its row count and accepts filters.

DuckDB's own source for datasets reports no row count, so that joins take its side for the smaller one, and it
translates each filter to pyarrow, from which it would have to be parsed again.
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
"""A column, an operator and a constant; for IN, a list of constants."""


class EventSource(PyArrowDatasetSource):
    """An `EventDataset` for DuckDB's Arrow scan."""

    _last: tuple[Node, Any] | None = None
    """The last predicate with its bounds: DuckDB passes each predicate twice, for planning and for scanning."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj)
        self._scanners: dict[tuple[int, ...] | None, Any] = {}
        """Scanners of all rows, by columns, cached because the same statements are repeated."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """All events. DuckDB scans any object with this method."""
        return self.obj.scanner(None).__arrow_c_stream__(requested_schema)

    def rows(self) -> int:
        """The maximum number of rows."""
        return int(self.obj.events.most_events)

    def accepts(self, predicate: Node) -> bool:
        """Whether a stream with this predicate contains only rows that satisfy it."""
        return self._bounds(predicate) is not None or super().accepts(predicate)

    def stream(self, columns: Sequence[int] | None, filters: Sequence[Node]) -> tuple[object, bool]:
        """Return the rows that satisfy the filters, and whether they have exactly the requested columns."""
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
        """The bounds that express a predicate exactly; None if there are none."""
        last = self._last
        if last is not None and last[0] is predicate:
            return last[1]
        found = comparisons(predicate)
        bounds = None if found is None else self.obj.exact_bounds(found)
        self._last = predicate, bounds
        return bounds


def comparisons(predicate: Node) -> list[Comparison] | None:
    """The comparisons of columns with constants that a predicate joins by AND; None if it is anything else."""
    found: list[Comparison] = []
    pending = [predicate]
    while pending:  # no recursion: hundreds of conditions on one column nest that deep
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
