"""Rows as read from an input, and their origin. Readers create these values; nothing is parsed here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

LINE = "line"
"""The unit of row numbers in text inputs; others count rows."""


@dataclass(frozen=True, slots=True)
class BadRow:
    """One row that cannot become an event."""

    path: str
    unit: str  # what `number` counts: "line" or "row"
    number: int  # from 1
    reason: str  # what is wrong and, if possible, what to do
    text: str  # the row as written; bytes that are not UTF-8 appear as \\xNN

    def __str__(self) -> str:
        return f"{self.path}: {self.unit} {self.number}: {self.reason}"

    def as_dict(self) -> dict[str, str | int]:
        """Return the row as `--on-error collect` writes it."""
        return {"file": self.path, self.unit: self.number, "reason": self.reason, "text": self.text}


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of the rows of one batch. `locate` may be slow: it is called only for bad rows."""

    path: str
    unit: str
    locate: Callable[[int], tuple[int, str]]  # row of the batch -> (number in the file from 1, its text)

    def bad_row(self, row: int, reason: str) -> BadRow:
        number, text = self.locate(row)
        return BadRow(self.path, self.unit, number, reason, text)


@dataclass(frozen=True, slots=True)
class Rows:
    """One batch of rows, their guessed types, and the rows that could not be read at all.

    `batch` contains the columns as read; text formats leave them as bytes. `types` is the guessed type of each column
    in this batch, which it gets unless other batches differ.
    """

    batch: pa.RecordBatch
    types: Mapping[str, pa.DataType]
    origin: Origin
    bad: Sequence[BadRow] = ()
    rest: pa.StringArray | None = None  # verbatim JSON of the columns without another role, if the input is JSON
    words: Mapping[str, pa.BinaryArray] = field(default_factory=dict)
    """Columns that become bytes, if the input distinguishes text from other values, which are kept verbatim."""
    meant: Mapping[str, str] = field(default_factory=dict)  # types that segments lack, such as arrow.uuid
