"""Templates that were found for one file, for reuse in the next ones: checking that they fit is much faster than a
search for templates.

No event data of another file gets into a file this way: a file adopts only what its own sample uses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from esformat.format.data_block import I64
from esformat.format.templates import Kind, Template, TemplateTable
from esformat.write.templated import Matched

MOST_FILES = 64
"""After this many files templates are searched for again: later events may have other things in common."""
MOST_WORSE = 1.15
"""Templates fit another file if their `share` is at most this many times the share in the file that led to them."""
MOST_PAUSE = 32
"""Most files that are written without a search, after many searches that found nothing."""


@dataclass(slots=True)
class KnownColumn:
    """What is known about one column. share: stored bytes with `table`, relative to those without it."""

    least_bytes: int = 0
    table: TemplateTable | None = None
    share: float = 1.0
    files: int = 0
    """Files written since the last search."""
    pause: int = 0

    def fits(self, share: float) -> bool:
        """Whether to use the known templates, which store a column in this share of the bytes."""
        if self.files >= MOST_FILES or share > MOST_WORSE * self.share:
            return False
        self.files += 1
        return True

    def may_look(self, byte_count: int) -> bool:
        """Whether to search for templates of a column of this size. If the column is too small, forgets the known
        templates, because they did not fit.
        """
        if byte_count < self.least_bytes:
            self.table = None
            return False
        if self.table is None and self.files < self.pause:
            self.files += 1
            return False
        return True

    def note(self, table: TemplateTable | None, share: float = 1.0) -> None:
        """Remember the result of a search; None if no templates pay off."""
        self.pause = 0 if table is not None else min(2 * self.pause + 1, MOST_PAUSE)
        self.table, self.share, self.files = table, share, 0


class KnownTemplates:
    """Remembers the templates of files that are written one after another: see `create`. Thread-safe, but files written
    at the same time may each search for the same templates.
    """

    def __init__(self, least_bytes: int = 0) -> None:
        """least_bytes: smaller columns are not searched for templates, because that takes as long as writing them."""
        self._least_bytes = least_bytes
        self._columns: dict[str, KnownColumn] = {}

    @property
    def any_known(self) -> bool:
        """Whether an earlier file had templates that the last one could use."""
        return any(column.table is not None for column in list(self._columns.values()))

    def of(self, name: str) -> KnownColumn:
        """What is known about a column."""
        return self._columns.setdefault(name, KnownColumn(self._least_bytes))


def used_part(table: TemplateTable, matched: Matched) -> TemplateTable:
    """The part of a template table that some values use: the templates that match one of them, those whose literals the
    matching templates contain, and the enumeration values that occur.
    """
    took = set((np.unique(matched.codes[matched.codes > 0]) - 1).tolist()) | {len(table.templates) - 1}
    literals = b"\0".join(literal for number in took for literal in table.templates[number].literals)
    variables = {
        number: replace(variable, values=_shown(variable.values, matched.numbers(number)))
        if variable.kind is Kind.ENUM
        else variable
        for number, variable in enumerate(table.variables)
    }

    def is_kept(number: int, template: Template) -> bool:
        listed = all(variables[slot].kind is not Kind.ENUM or variables[slot].values for slot in template.slots)
        return number in took or (listed and all(each in literals and b"\0" not in each for each in template.literals))

    kept = [template for number, template in enumerate(table.templates) if is_kept(number, template)]
    shown = sorted({slot for template in kept for slot in template.slots})
    places = {slot: place for place, slot in enumerate(shown)}
    templates = (Template(each.literals, tuple(places[slot] for slot in each.slots)) for each in kept)
    return TemplateTable(tuple(variables[slot] for slot in shown), tuple(templates))


def _shown(values: tuple[bytes, ...], numbers: I64) -> tuple[bytes, ...]:
    return tuple(values[number] for number in np.unique(numbers).tolist())
