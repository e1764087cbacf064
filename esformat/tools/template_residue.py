"""Find and remove residue of erased events in the templates of a file.

A template's literals and the values of enumerations are text of events. Those that erased events used and no kept event
uses are overwritten in place, so that all numbers keep their meaning.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from esformat.format.arrays import bytes_of, validity_of
from esformat.format.codec import Codec
from esformat.format.data_block import I64, DataBlock
from esformat.format.dictionary import ColumnDictionary
from esformat.format.node import DecodeContext, EncodeContext
from esformat.format.template_node import TemplateNode
from esformat.format.templates import Kind, Template, TemplateTable, Variable
from esformat.tools.original import OpenOriginal
from esformat.tools.selection import Selection, kept_data
from esformat.write.template_choice import column_context
from esformat.write.templated import Matched

Column = tuple[int, int]
"""The number of a dictionary block and the place of a column."""


@dataclass(slots=True)
class Usage:
    """What some events use: numbers of templates, and enumeration values as pairs of variable and value number."""

    templates: set[int] = field(default_factory=set)
    values: set[tuple[int, int]] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.templates or self.values)


class ErasedTemplates:
    """Records what payloads of erased events use, in each template table that the file has for their column."""

    def __init__(self, dictionaries: dict[int, list[ColumnDictionary]]) -> None:
        self._contexts: dict[Column, EncodeContext] = {}
        self._tables: dict[Column, TemplateTable] = {}
        self.used: dict[Column, Usage] = {}
        for number, columns in dictionaries.items():
            for column in columns:
                if column.templates is not None:
                    key = number, column.column
                    self._tables[key] = column.templates
                    self._contexts[key] = column_context(column, Codec.NONE, None, None)
                    self.used[key] = Usage()

    @property
    def places(self) -> set[int]:
        """The columns that have templates."""
        return {place for _, place in self._tables}

    def record(self, place: int, column: pa.Array) -> None:
        """Record what the values of a column use."""
        offsets, text = bytes_of(column)
        for key, context in self._contexts.items():
            if key[1] == place:
                matched = Matched(text.cast("B"), offsets, validity_of(column), context)
                self._note(self.used[key], self._tables[key], matched)
                for code in np.unique(matched.codes[matched.codes > 0]).tolist():
                    chosen = np.repeat(matched.codes == code, np.diff(offsets))
                    self._note_elsewhere(self.used[key], self._tables[key], code, np.asarray(text)[chosen].tobytes())

    def _note(self, used: Usage, table: TemplateTable, matched: Matched) -> None:
        used.templates |= set((np.unique(matched.codes[matched.codes > 0]) - 1).tolist())
        strings: list[bytes] = []
        for number in matched.counts.nonzero()[0].tolist():
            if table.variables[number].kind is Kind.STRING:
                strings.append(bytes(bytes_of(matched.strings(number))[1]))
            elif table.variables[number].kind is Kind.ENUM:
                used.values |= {(number, value) for value in np.unique(matched.numbers(number)).tolist()}
        text = b"\0".join(strings)  # a listed value can be part of what another template took as a string
        for number, variable in enumerate(table.variables):
            used.values |= {(number, n) for n, value in enumerate(variable.values) if value and value in text}

    def _note_elsewhere(self, used: Usage, table: TemplateTable, code: int, text: bytes) -> None:
        """Record what templates other than the matching one contain of these events: their lists and literals come from
        a sample that may have had the events. For lines, a last template lists the words that most others have as
        literals.
        """
        shown = set(table.templates[code - 1].slots)
        for number, variable in enumerate(table.variables):
            if number not in shown:
                used.values |= {(number, n) for n, value in enumerate(variable.values) if value and value in text}
        used.templates |= {
            n
            for n, template in enumerate(table.templates)
            if n not in used.templates and all(literal in text for literal in template.literals)
        }


def templates_to_overwrite(
    original: OpenOriginal, selection: Selection, erased: dict[Column, Usage]
) -> dict[Column, Usage]:
    """What to overwrite: enumeration values that erased events use and no kept event does, and unused templates."""
    tables = {(n, c.column): c.templates for n, columns in original.dictionaries().items() for c in columns}
    left = {key: _Remaining(tables[key], set(used.templates), set(used.values)) for key, used in erased.items() if used}
    for block, rows in kept_data(original, selection) if left else ():
        for (number, place), usage in left.items():
            if number == block.dictionary:
                usage.subtract(block, place, rows, original.contexts(number)[place])
        left = {key: usage for key, usage in left.items() if usage}
        if not left:
            break
    return {key: Usage(usage.unshared, usage.values) for key, usage in left.items()}


class _Remaining:
    """What erased events use of a template table, less what the kept events seen so far use."""

    def __init__(self, table: TemplateTable | None, templates: set[int], values: set[tuple[int, int]]) -> None:
        assert table is not None
        self._table, self._kept = table, set[int]()
        self.values = values
        self.unshared = self._unshared() if templates else templates
        self._used = templates

    def __bool__(self) -> bool:
        return bool(self.unshared or self.values)

    def subtract(self, block: DataBlock, place: int, rows: I64 | None, context: DecodeContext) -> None:
        """Remove what the kept rows of a block use. rows: None for all."""
        node = block.bytes_node(place, context)
        if not isinstance(node, TemplateNode):
            return
        if self.unshared:
            codes = node.codes if rows is None else node.codes[rows]
            found = {code - 1 for code in _distinct(codes) if code}
            if not found <= self._kept:
                self._kept |= found
                self._used -= found
                self.unshared = self._unshared() if self._used else set()
        for variable, values in node.enumerated({variable for variable, _ in self.values}, context):
            if rows is not None:
                values = values[np.isin(node.that_show(variable).nonzero()[0], rows)]
            self.values -= {(variable, value) for value in _distinct(values)}

    def _unshared(self) -> set[int]:
        """The templates that no kept event uses and that have a literal which no kept template contains. A literal with
        a NUL always counts, because it could match across two joined literals.
        """
        templates = dict(enumerate(self._table.templates))
        kept = b"\0".join(literal for number in self._kept for literal in templates[number].literals)
        return {
            number
            for number, template in templates.items()
            if number not in self._kept
            and any(b"\0" in literal or literal not in kept for literal in template.literals)
        }


def _distinct(numbers: npt.NDArray[np.integer]) -> list[int]:
    """The distinct values of small numbers from 0."""
    return np.flatnonzero(np.bincount(numbers)).tolist()


def without_templates(
    dictionaries: dict[int, list[ColumnDictionary]], removed: dict[Column, Usage]
) -> tuple[dict[int, list[ColumnDictionary]], int]:
    """The dictionaries with some templates and values overwritten, and the number of these."""
    made = {
        number: [
            replace(column, templates=_overwritten(column.templates, removed[number, column.column]))
            if column.templates is not None and (number, column.column) in removed
            else column
            for column in columns
        ]
        for number, columns in dictionaries.items()
    }
    return made, sum(len(usage.templates) + len(usage.values) for usage in removed.values())


def _overwritten(table: TemplateTable, removed: Usage) -> TemplateTable:
    variables = [
        _without(variable, {value for number, value in removed.values if number == place})
        for place, variable in enumerate(table.variables)
    ]
    templates = [
        Template((b"(erased)", *(b"" for _ in template.slots)), template.slots) if n in removed.templates else template
        for n, template in enumerate(table.templates)
    ]
    return TemplateTable(tuple(variables), tuple(templates))


def _without(variable: Variable, removed: set[int]) -> Variable:
    known = set(variable.values)
    names = (name for number in count(1) if (name := b"(erased %d)" % number) not in known)
    values = (next(names) if n in removed else value for n, value in enumerate(variable.values))
    return replace(variable, values=tuple(values))
