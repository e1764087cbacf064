"""Find the events that cannot be sealed, by bisection.

Nothing is kept here: the caller writes the sealable events again, together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aggregator.model import SchemaInfo
from aggregator.storage.memtable.batch import MemtableBatch

MAX_TRIALS = 200
"""Maximum number of parts of a batch to try: enough to find five rows in a million. After that, parts are not split."""


@dataclass(frozen=True, slots=True)
class Poison:
    """Adjacent events of one schema that cannot be sealed, and the reason."""

    batches: tuple[MemtableBatch, ...]
    error: Exception


class Isolation:
    """Splits batches into groups that can be sealed and events that cannot. `run` it once."""

    def __init__(
        self,
        attempt: Callable[[Sequence[MemtableBatch]], Exception | None],
        check_system: Callable[[Exception], None],
        plain: Callable[[SchemaInfo], MemtableBatch | None],
    ) -> None:
        """attempt: tries to seal, and returns the error. What it raises is not the data's fault, and ends the search.

        check_system: raises the error if nothing at all can be sealed now. plain: returns an event without values in
        the columns of a schema, or None if the schema requires values. If even that event fails, no event of the schema
        is tried alone.
        """
        self._attempt, self._check_system, self._plain = attempt, check_system, plain
        self._trials = 0
        self._hopeless: dict[int, bool] = {}  # by schema
        self.sealable: list[list[MemtableBatch]] = []
        """Groups of batches, in order, each of which was tried and can be sealed."""
        self.poison: list[Poison] = []

    def run(self, batches: Sequence[MemtableBatch]) -> None:
        """Split the batches of a partition, in order. Raises MemoryError, and as `attempt` and `check_system`."""
        self._part(batches)
        found, self.poison = _joined(self.poison), []
        for one in found:  # the system may have lacked something the first time
            self._check_system(one.error)
            error = self._attempt(one.batches)
            if error is None:
                self.sealable.append(list(one.batches))
            elif isinstance(error, MemoryError):
                raise error
            else:
                self.poison.append(Poison(one.batches, error))
        self.sealable.sort(key=lambda group: group[0].first_index)

    def _part(self, batches: Sequence[MemtableBatch]) -> None:
        error = self._attempt(batches)
        if error is None:
            self.sealable.append(list(batches))
        elif len(batches) > 1:
            middle = len(batches) // 2
            self._part(batches[:middle])
            self._part(batches[middle:])
        elif self._is_hopeless(batches[0].schema):
            self.poison.append(Poison((batches[0],), error))
        else:
            self._trials = 0
            self._part_rows(batches[0], error)

    def _is_hopeless(self, schema: SchemaInfo) -> bool:
        if schema.number not in self._hopeless:
            plain = self._plain(schema)
            self._hopeless[schema.number] = plain is not None and self._attempt([plain]) is not None
        return self._hopeless[schema.number]

    def _part_rows(self, batch: MemtableBatch, error: Exception) -> None:
        """Split a batch that fails alone."""
        if batch.rows == 1 or self._trials >= MAX_TRIALS:
            self.poison.append(Poison((batch,), error))
            return
        middle = batch.rows // 2
        for half in (batch.part(0, middle), batch.part(middle, batch.rows)):
            self._trials += 1
            failed = self._attempt([half])
            if failed is None:
                self.sealable.append([half])
            else:
                self._part_rows(half, failed)


def _joined(found: Sequence[Poison]) -> list[Poison]:
    """Join adjacent poison of one schema."""
    joined: list[Poison] = []
    for one in found:
        last = joined[-1].batches[-1] if joined else None
        first = one.batches[0]
        if last is not None and last.end_index == first.first_index and last.schema is first.schema:
            joined[-1] = Poison((*joined[-1].batches, *one.batches), joined[-1].error)
        else:
            joined.append(one)
    return joined
