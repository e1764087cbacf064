"""`Sizing`: the number of events in the next batch, from how the last one went."""

from __future__ import annotations

from dataclasses import dataclass

from aggregator.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class Sizing:
    """Batches grow while events pile up and the server responds quickly, and shrink when it is busy or slow.

    Small batches are sent sooner, large ones cost less per event; which is better depends on the load.
    """

    min_rows: int = 100
    max_rows: int = 20_000
    max_bytes: int = 4 << 20
    target_s: float = 0.5

    def __post_init__(self) -> None:
        if not 1 <= self.min_rows <= self.max_rows or self.max_bytes < 1 or self.target_s <= 0:
            raise InvalidRequestError(
                "a batch needs at least one row and one byte, and max_rows must not be below min_rows"
            )

    def next_rows(self, rows: int, *, sent: int, took_s: float, refusals: int, waiting: int) -> int:
        """Return the maximum number of rows of the next batch, after one with a maximum of `rows`.

        sent: rows that it had. took_s: until it was acknowledged. refusals: how often the server was too busy. waiting:
        rows in the backlog now.
        """
        if refusals:
            wanted = rows // 2
        elif took_s > self.target_s:
            wanted = rows * 3 // 4
        elif sent >= rows and waiting >= rows:
            wanted = rows * 2
        else:
            wanted = rows
        return max(self.min_rows, min(self.max_rows, wanted))
