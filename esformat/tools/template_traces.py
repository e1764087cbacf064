"""What erased events could leave behind in the templates of a file, and how it is taken out.

A template's literals and the values of enumerations are text of events. What erased events used and no kept event
does is overwritten, in its place, so that all numbers still mean what they meant.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa

from esformat.format.arrays import bytes_of, validity_of
from esformat.format.codec import Codec
from esformat.format.data_block import I64
from esformat.format.dictionary import ColumnDictionary
from esformat.format.node import EncodeContext
from esformat.format.template_node import TemplateNode
from esformat.format.templates import Kind, Template, TemplateTable, Variable
from esformat.tools.original import OpenOriginal, open_data_block
from esformat.tools.selection import Selection, single_blocks
from esformat.write.template_choice import column_context
from esformat.write.templated import Matched

Column = tuple[int, int]
"""The number of a dictionary block and the place of a column."""


@dataclass(slots=True)
class Usage:
    """What some events use: templates by number, and values of enumerations by the numbers of variable and value."""

    templates: set[int] = field(default_factory=set)
    values: set[tuple[int, int]] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.templates or self.values)

    def less(self, other: Usage) -> Usage:
        """What the others do not use."""
        return Usage(self.templates - other.templates, self.values - other.values)


class ErasedTemplates:
    """Takes notice of the payloads of erased events, for each table of templates that the file has of their column."""

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

    def see(self, place: int, column: pa.Array) -> None:
        """Take notice of values."""
        offsets, text = bytes_of(column)
        for key, context in self._contexts.items():
            if key[1] == place:
                matched = Matched(text.cast("B"), offsets, validity_of(column), context)
                self._note(self.used[key], self._tables[key], matched)
                self._note_elsewhere(self.used[key], self._tables[key], matched.codes, column)

    def _note(self, used: Usage, table: TemplateTable, matched: Matched) -> None:
        used.templates |= set((np.unique(matched.codes[matched.codes > 0]) - 1).tolist())
        strings: list[bytes] = []
        for number in matched.counts.nonzero()[0].tolist():
            if table.variables[number].kind is Kind.STRING:
                strings.append(bytes(bytes_of(matched.strings(number))[1]))
            elif table.variables[number].kind is Kind.ENUM:
                used.values |= {(number, value) for value in np.unique(matched.numbers(number)).tolist()}
        text = b"\0".join(strings)  # a listed value can stand in what another template took as a string
        for number, variable in enumerate(table.variables):
            used.values |= {(number, n) for n, value in enumerate(variable.values) if value and value in text}

    def _note_elsewhere(self, used: Usage, table: TemplateTable, codes: I64, column: pa.Array) -> None:
        """What other templates say of these events than those that took them: lists and literals made of a sample that
        had them. Of lines, a last template lists the words that most others have in their literals.
        """
        for code in np.unique(codes[codes > 0]).tolist():
            text = bytes(bytes_of(column.filter(pa.array(codes == code)))[1])
            shown = set(table.templates[code - 1].slots)
            for number, variable in enumerate(table.variables):
                if number not in shown:
                    used.values |= {(number, n) for n, value in enumerate(variable.values) if value and value in text}
            used.templates |= {
                n
                for n, template in enumerate(table.templates)
                if n not in used.templates and all(literal in text for literal in template.literals)
            }


def templates_gone(original: OpenOriginal, selection: Selection, erased: dict[Column, Usage]) -> dict[Column, Usage]:
    """What is to be overwritten: what no kept event uses, of what erased ones do; of templates, all such."""
    left = {key: used for key, used in erased.items() if used}
    kept: dict[Column, Usage] = {key: Usage() for key in left}
    for each in single_blocks(selection(original)) if left else ():
        _see_kept(original, each.ref, each.choose, kept)
        if not any(used.less(kept[key]) for key, used in left.items()):
            return {}
    tables = {(n, c.column): c.templates for n, columns in original.dictionaries().items() for c in columns}
    gone = {}
    for key, used in left.items():
        found, table = used.less(kept[key]), tables[key]
        assert table is not None
        if found.templates:
            found.templates = _foreign(table, kept[key].templates)
        if found:
            gone[key] = found
    return gone


def _foreign(table: TemplateTable, kept: set[int]) -> set[int]:
    """The templates that are not kept and say something that no kept one does, or perhaps: what has a NUL could stand
    across two literals.
    """
    said = b"\0".join(literal for number in kept for literal in table.templates[number].literals)
    others = {n: template for n, template in enumerate(table.templates) if n not in kept}
    return {
        n for n, other in others.items() if any(b"\0" in literal or literal not in said for literal in other.literals)
    }


def _see_kept(original: OpenOriginal, ref: Any, choose: Any, kept: dict[Column, Usage]) -> None:
    """Take notice of what the kept rows of a block use."""
    ((_, stored),) = original.read([ref])
    block = open_data_block(original, ref, stored)
    rows: I64 = np.arange(block.row_count) if choose is None else choose(None)
    for (number, place), used in kept.items():
        if number != block.dictionary:
            continue
        context = original.contexts(number)[place]
        node = block.bytes_node(place, context)
        if isinstance(node, TemplateNode):
            used.templates |= set((np.unique(node.codes[rows][node.codes[rows] > 0]) - 1).tolist())
            for variable, shown, values in node.enumerated(context):
                used.values |= {(variable, value) for value in np.unique(values[np.isin(shown, rows)]).tolist()}


def without_templates(
    dictionaries: dict[int, list[ColumnDictionary]], gone: dict[Column, Usage]
) -> tuple[dict[int, list[ColumnDictionary]], int]:
    """Dictionaries with some of their templates and values overwritten, and how many these are."""
    made = {
        number: [
            replace(column, templates=_overwritten(column.templates, gone[number, column.column]))
            if column.templates is not None and (number, column.column) in gone
            else column
            for column in columns
        ]
        for number, columns in dictionaries.items()
    }
    return made, sum(len(usage.templates) + len(usage.values) for usage in gone.values())


def _overwritten(table: TemplateTable, gone: Usage) -> TemplateTable:
    variables = [
        _without(variable, {value for number, value in gone.values if number == place})
        for place, variable in enumerate(table.variables)
    ]
    templates = [
        Template((b"(erased)", *(b"" for _ in template.slots)), template.slots) if n in gone.templates else template
        for n, template in enumerate(table.templates)
    ]
    return TemplateTable(tuple(variables), tuple(templates))


def _without(variable: Variable, gone: set[int]) -> Variable:
    known = set(variable.values)
    names = (name for number in count(1) if (name := b"(erased %d)" % number) not in known)
    values = (next(names) if n in gone else value for n, value in enumerate(variable.values))
    return replace(variable, values=tuple(values))
