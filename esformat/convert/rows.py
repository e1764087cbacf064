"""Rows as an input gave them, and where each one came from. Owns no parsing: readers make these values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

LINE = "line"
"""What rows of text are counted in; others are counted as rows."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """One row that cannot become an event."""

    path: str
    unit: str  # what `number` counts: "line" or "row"
    number: int  # from 1
    reason: str  # what is wrong and, where there is something, what to do
    text: str  # the row as it was written; bytes that are not UTF-8 appear as \\xNN

    def __str__(self) -> str:
        return f"{self.path}: {self.unit} {self.number}: {self.reason}"

    def as_dict(self) -> dict[str, str | int]:
        """Give the row as `--on-error collect` stores it."""
        return {"file": self.path, self.unit: self.number, "reason": self.reason, "text": self.text}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the rows of one batch came from. `locate` may be slow: it is asked about bad rows only."""

    path: str
    unit: str
    locate: Callable[[int], tuple[int, str]]  # row of the batch -> (number in the file from 1, its text)

    def bad_row(self, row: int, reason: str) -> BadRow:
        number, text = self.locate(row)
        return BadRow(self.path, self.unit, number, reason, text)


@dataclass(frozen=True, slots=True)
class Rows:
    """One batch of rows, their natural types, and the rows that could not be read at all.

    `batch` holds the columns as they were read: text formats leave them as bytes. `types` tells what each column
    looks like in this batch, which is the type it should get unless other batches look different.
    """

    batch: pa.RecordBatch
    types: Mapping[str, pa.DataType]
    origin: Origin
    bad: Sequence[BadRow] = ()
    rest: pa.StringArray | None = None  # the JSON of what has no other role, where the input has it word for word
    words: Mapping[str, pa.BinaryArray] = field(default_factory=dict)
    """Columns that become bytes, where the input tells texts from other values: texts, and others word for word."""
    meant: Mapping[str, str] = field(default_factory=dict)  # types that segments do not have, such as arrow.uuid
