"""Templates of a column in a dictionary block: what its values have in common, and the variables that stand between.

A row names a template; each variable of it has one value in that row. The values lie in the data blocks, column by
column: see `template_node.py`.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from esformat.core.bytes_nodes import read_texts
from esformat.core.numbers import read_bounded
from esformat.core.templates import DATE_FORMS, MOST_SLOTS, Templates
from esformat.errors import CorruptSegmentError, UnsupportedVersionError
from esformat.format.encoding import encode_node
from esformat.format.layout import MAX_PAGE_ENTRIES
from esformat.format.node import WHOLE_BYTES, DecodeContext, EncodeContext
from esformat.format.packing import encode_ints

MAX_TEMPLATES = 4096
MAX_VARIABLES = 4096

_HEAD = struct.Struct(
    "<"
    "I"  # bytes of what follows these eight
    "I"  # variables
)
HEAD_BYTES = _HEAD.size

I64 = npt.NDArray[np.int64]


class Kind(enum.IntEnum):
    """How the values of a variable are written out. The numbers are part of the format."""

    STRING = 0
    ENUM = 1
    INTEGER = 2
    PADDED = 3
    DECIMAL = 4
    HEX = 5
    DATE = 6


DATE = int(Kind.DATE)


@dataclass(frozen=True, slots=True)
class Variable:
    """What one variable holds. `parameter`: digits, scale or form, as its kind says; `values`: of an enumeration."""

    kind: Kind
    parameter: int = 0
    values: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Template:
    """Literals, one more than slots, and the variable that each slot between them shows."""

    literals: tuple[bytes, ...]
    slots: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TemplateTable:
    """The templates of a column, in the order in which a writer tries them: the last one takes any value."""

    variables: tuple[Variable, ...]
    templates: tuple[Template, ...]

    def compiled(self) -> Templates:
        """The same for the loops over rows. Raises CorruptSegmentError where the parts do not fit each other."""
        values = [value for variable in self.variables for value in variable.values]
        literals = [literal for template in self.templates for literal in template.literals]
        return _compiled(
            _array([variable.kind for variable in self.variables]),
            _array([variable.parameter for variable in self.variables]),
            _array([len(variable.values) for variable in self.variables]),
            (_array(list(map(len, values))), b"".join(values)),
            _array([len(template.slots) for template in self.templates]),
            _array([slot for template in self.templates for slot in template.slots]),
            (_array(list(map(len, literals))), b"".join(literals)),
        )

    def encode(self, context: EncodeContext) -> bytes:
        """Its bytes in a dictionary block."""
        variables, plain = self.variables, context.plain
        numbers: list[list[int]] = [
            [variable.kind for variable in variables],
            [variable.parameter for variable in variables],
            [len(variable.values) for variable in variables],
        ]
        values = [value for variable in variables for value in variable.values]
        literals = [literal for template in self.templates for literal in template.literals]
        whole = replace(context, frame_bytes=WHOLE_BYTES)  # all texts are read at once
        body = b"".join(
            [
                *(encode_ints(_array(column), plain) for column in numbers),
                encode_node(pa.array(values, pa.binary()), whole),
                encode_ints(_array([len(template.slots) for template in self.templates]), plain),
                encode_ints(_array([slot for template in self.templates for slot in template.slots]), plain),
                encode_node(pa.array(literals, pa.binary()), whole),
            ]
        )
        return _HEAD.pack(len(body), len(variables)) + body


def _array(numbers: list[int]) -> I64:
    return np.array(numbers, dtype=np.int64)


Texts = tuple[I64, bytes]
"""The lengths of texts, and their bytes side by side."""


@dataclass(frozen=True, slots=True)
class StoredTemplates:
    """The parts of a table of templates as arrays, each number within its bounds."""

    kinds: I64
    parameters: I64
    value_counts: I64
    values: Texts
    slot_counts: I64
    slots: I64
    literals: Texts

    def compiled(self) -> Templates:
        """For the loops over rows. Raises CorruptSegmentError where the parts do not fit each other."""
        return _compiled(
            self.kinds,
            self.parameters,
            self.value_counts,
            self.values,
            self.slot_counts,
            self.slots,
            self.literals,
        )

    def table(self) -> TemplateTable:
        """The same as plain objects, for whoever changes it."""
        values, literals = _each(self.values), _each(self.literals)
        slots = iter(self.slots.tolist())
        facts = zip(self.kinds.tolist(), self.parameters.tolist(), self.value_counts.tolist(), strict=True)
        return TemplateTable(
            tuple(Variable(Kind(k), p, tuple(next(values) for _ in range(n))) for k, p, n in facts),
            tuple(
                Template(tuple(next(literals) for _ in range(n + 1)), tuple(next(slots) for _ in range(n)))
                for n in self.slot_counts.tolist()
            ),
        )


def _each(texts: Texts) -> Iterator[bytes]:
    ends = accumulate(texts[0].tolist(), initial=0)
    return (texts[1][start:end] for start, end in pairwise(ends))


def _compiled(
    kinds: I64,
    parameters: I64,
    value_counts: I64,
    values: Texts,
    slot_counts: I64,
    slots: I64,
    literals: Texts,
) -> Templates:
    try:
        return Templates(kinds, parameters, value_counts, *values, slot_counts, slots, *literals)
    except (ValueError, OverflowError) as error:
        raise CorruptSegmentError(f"the templates of a column break the format: {error}") from None


def end_of_templates(body: memoryview, at: int) -> int:
    """The byte after what `TemplateTable.encode` wrote at byte `at`. Raises CorruptSegmentError."""
    if len(body) - at < _HEAD.size:
        raise CorruptSegmentError("the templates of a column are cut short")
    end: int = at + _HEAD.size + _HEAD.unpack_from(body, at)[0]
    if end > len(body):
        raise CorruptSegmentError("the templates of a column are cut short")
    return end


def decode_templates(body: memoryview, templates: int, context: DecodeContext) -> StoredTemplates:
    """Read so many templates, which take all of `body`. Raises CorruptSegmentError,
    UnsupportedVersionError.
    """
    if end_of_templates(body, 0) != len(body):
        raise CorruptSegmentError("the templates of a column are longer than their parts")
    variables = _HEAD.unpack_from(body)[1]
    if variables > MAX_VARIABLES or not 0 < templates <= MAX_TEMPLATES:
        raise CorruptSegmentError(f"a column has {templates} templates of {variables} variables")
    plain = context.plain
    kinds, _, at = read_bounded(body, _HEAD.size, variables, 0xFF, plain)
    parameters, _, at = read_bounded(body, at, variables, 0xFF, plain)
    counts, values_count, at = read_bounded(body, at, variables, MAX_PAGE_ENTRIES, plain)
    dates = [place for place, kind in enumerate(kinds) if kind >= DATE]
    if any(kinds[place] > DATE or parameters[place] >= DATE_FORMS for place in dates):
        raise UnsupportedVersionError(
            "templates have a variable of an unknown kind", hint="read the file with a newer esformat"
        )
    values, at = _texts(body, at, values_count, context)
    slot_counts, total, at = read_bounded(body, at, templates, MOST_SLOTS, plain)
    if total > MAX_PAGE_ENTRIES:
        raise CorruptSegmentError(f"the templates of a column have {total} slots")
    slots, _, at = read_bounded(body, at, total, max(0, variables - 1), plain)
    literals, at = _texts(body, at, total + templates, context)
    if at != len(body):
        raise CorruptSegmentError("the templates of a column are longer than their parts")
    return StoredTemplates(kinds, parameters, counts, values, slot_counts, slots, literals)


def _texts(body: memoryview, at: int, count: int, context: DecodeContext) -> tuple[Texts, int]:
    if count > 2 * MAX_PAGE_ENTRIES:
        raise CorruptSegmentError(f"the templates of a column have {count} texts")
    lengths, stored, end = read_texts(body, at, count, context.plain, context.framed)
    return (lengths, stored), end
