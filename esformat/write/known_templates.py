"""Templates that were found for one file and fit the next ones: to see that they do takes far less time than to look
for templates.

Nothing of another file's events gets into a file by them: it takes over what its own sample uses.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from esformat.format.data_block import I64
from esformat.format.templates import Kind, Template, TemplateTable
from esformat.write.templated import Matched

MOST_FILES = 64
"""After so many files new templates are looked for: later events may have other things in common."""
MOST_WORSE = 1.15
"""So many times the share that they left of the file they were found for, templates may leave of another one."""
MOST_PAUSE = 32
"""So many files at most are written without looking, after many for which looking found nothing."""


@dataclass(slots=True)
class KnownColumn:
    """What is known of one column. share: what `table` left of the bytes that are stored without it."""

    least_bytes: int = 0
    table: TemplateTable | None = None
    share: float = 1.0
    files: int = 0
    """Written since templates were looked for."""
    pause: int = 0

    def fits(self, share: float) -> bool:
        """Whether to take what is known, as it leaves such a share of the bytes."""
        if self.files >= MOST_FILES or share > MOST_WORSE * self.share:
            return False
        self.files += 1
        return True

    def may_look(self, byte_count: int) -> bool:
        """Whether to look for templates of a column of that size; where not, what is known is forgotten, as it did not
        fit.
        """
        if byte_count < self.least_bytes:
            self.table = None
            return False
        if self.table is None and self.files < self.pause:
            self.files += 1
            return False
        return True

    def note(self, table: TemplateTable | None, share: float = 1.0) -> None:
        """Remember what was found; None where nothing pays."""
        self.pause = 0 if table is not None else min(2 * self.pause + 1, MOST_PAUSE)
        self.table, self.share, self.files = table, share, 0


class KnownTemplates:
    """Remembers the templates of files that are written one after another: see `create`. Threads may share it: then one
    file may look for what another one is just finding.
    """

    def __init__(self, least_bytes: int = 0) -> None:
        """least_bytes: of a column; of fewer no templates are looked for, as that takes as long as to write them."""
        self._least_bytes = least_bytes
        self._columns: dict[str, KnownColumn] = {}

    @property
    def any_known(self) -> bool:
        """Whether an earlier file had templates that the last one could use."""
        return any(column.table is not None for column in list(self._columns.values()))

    def of(self, name: str) -> KnownColumn:
        """What is known of a column."""
        return self._columns.setdefault(name, KnownColumn(self._least_bytes))


def used_part(table: TemplateTable, matched: Matched) -> TemplateTable:
    """What some values use of a table of templates: templates that took one of them, or say nothing that those do not;
    of enumerations, the values that were there.
    """
    took = set((np.unique(matched.codes[matched.codes > 0]) - 1).tolist()) | {len(table.templates) - 1}
    said = b"\0".join(literal for number in took for literal in table.templates[number].literals)
    variables = {
        number: replace(variable, values=_shown(variable.values, matched.numbers(number)))
        if variable.kind is Kind.ENUM
        else variable
        for number, variable in enumerate(table.variables)
    }

    def is_kept(number: int, template: Template) -> bool:
        listed = all(variables[slot].kind is not Kind.ENUM or variables[slot].values for slot in template.slots)
        return number in took or (listed and all(each in said and b"\0" not in each for each in template.literals))

    kept = [template for number, template in enumerate(table.templates) if is_kept(number, template)]
    shown = sorted({slot for template in kept for slot in template.slots})
    places = {slot: place for place, slot in enumerate(shown)}
    templates = (Template(each.literals, tuple(places[slot] for slot in each.slots)) for each in kept)
    return TemplateTable(tuple(variables[slot] for slot in shown), tuple(templates))


def _shown(values: tuple[bytes, ...], numbers: I64) -> tuple[bytes, ...]:
    return tuple(values[number] for number in np.unique(numbers).tolist())
