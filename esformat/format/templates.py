"""Templates of a column in a dictionary block: what its values have in common, and the variables in between.

A row names a template; each variable of the template has one value in that row. The values are stored in the data
blocks, column by column: see `template_node.py`.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from esformat.core.templates import Templates, read_templates
from esformat.errors import CorruptSegmentError
from esformat.format.codec import Codec, make_compressor
from esformat.format.encoding import encode_texts
from esformat.format.node import DecodeContext, EncodeContext
from esformat.format.packing import encode_ints

_FEW_BYTES = 1 << 10  # of texts: compressing so few bytes saves less than decompressing them costs the first read
_RAW = EncodeContext(make_compressor(Codec.NONE), make_compressor(Codec.NONE))

_HEAD = struct.Struct(
    "<"
    "I"  # bytes that follow these eight
    "I"  # variables
)

I64 = npt.NDArray[np.int64]


class Kind(enum.IntEnum):
    """How the values of a variable are rendered. The numbers are part of the format."""

    STRING = 0
    ENUM = 1
    INTEGER = 2
    PADDED = 3
    DECIMAL = 4
    HEX = 5
    DATE = 6


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable. `parameter`: digits, scale or form, depending on its kind; `values`: of an enumeration."""

    kind: Kind
    parameter: int = 0
    values: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Template:
    """Literals, and for each slot between two of them the variable that it shows."""

    literals: tuple[bytes, ...]
    slots: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TemplateTable:
    """The templates of a column, in the order in which a writer tries them: the last one matches any value."""

    variables: tuple[Variable, ...]
    templates: tuple[Template, ...]

    def compiled(self) -> Templates:
        """The templates compiled for the loops over rows. Raises CorruptSegmentError if the parts do not match."""
        values = [value for variable in self.variables for value in variable.values]
        literals = [literal for template in self.templates for literal in template.literals]
        try:
            return Templates(
                _array([variable.kind for variable in self.variables]),
                _array([variable.parameter for variable in self.variables]),
                _array([len(variable.values) for variable in self.variables]),
                _array(list(map(len, values))),
                b"".join(values),
                _array([len(template.slots) for template in self.templates]),
                _array([slot for template in self.templates for slot in template.slots]),
                _array(list(map(len, literals))),
                b"".join(literals),
            )
        except (ValueError, OverflowError) as error:
            raise CorruptSegmentError(f"the templates of a column break the format: {error}") from None

    def encode(self, context: EncodeContext) -> bytes:
        """Encode the table as it is stored in a dictionary block."""
        variables, plain = self.variables, context.plain
        numbers: list[list[int]] = [
            [variable.kind for variable in variables],
            [variable.parameter for variable in variables],
            [len(variable.values) for variable in variables],
        ]
        values = [value for variable in variables for value in variable.values]
        literals = [literal for template in self.templates for literal in template.literals]
        body = b"".join(
            [
                *(encode_ints(_array(column), plain) for column in numbers),
                _encode_texts(values, context),
                encode_ints(_array([len(template.slots) for template in self.templates]), plain),
                encode_ints(_array([slot for template in self.templates for slot in template.slots]), plain),
                _encode_texts(literals, context),
            ]
        )
        return _HEAD.pack(len(body), len(variables)) + body


def _encode_texts(texts: list[bytes], context: EncodeContext) -> bytes:
    few = sum(map(len, texts)) <= _FEW_BYTES
    return encode_texts(pa.array(texts, pa.binary()), _RAW if few else context)


def _array(numbers: list[int]) -> I64:
    return np.array(numbers, dtype=np.int64)


def table_of(templates: Templates) -> TemplateTable:
    """Convert templates to plain objects, for callers that modify them."""
    literals, values, *numbers = templates.memory[:9]
    first, slots, literal, value_first, value, kinds, parameters = (np.frombuffer(each, np.int32) for each in numbers)
    of_kinds = zip(kinds.tolist(), parameters.tolist(), pairwise(value_first.tolist()), strict=False)
    return TemplateTable(
        tuple(Variable(Kind(kind), one, _texts(values, value[a : b + 1])) for kind, one, (a, b) in of_kinds),
        tuple(
            Template(_texts(literals, literal[a + t : b + t + 2]), tuple(slots[a:b].tolist()))
            for t, (a, b) in enumerate(pairwise(first.tolist()))
        ),
    )


def _texts(stored: bytes, edges: npt.NDArray[np.int32]) -> tuple[bytes, ...]:
    return tuple(stored[start:end] for start, end in pairwise(edges.tolist()))


def end_of_templates(body: memoryview, at: int) -> int:
    """The byte after what `TemplateTable.encode` wrote at byte `at`. Raises CorruptSegmentError."""
    if len(body) - at < _HEAD.size:
        raise CorruptSegmentError("the templates of a column are cut short")
    end: int = at + _HEAD.size + _HEAD.unpack_from(body, at)[0]
    if end > len(body):
        raise CorruptSegmentError("the templates of a column are cut short")
    return end


def decode_templates(body: memoryview, templates: int, context: DecodeContext) -> Templates:
    """Decode this many templates, which occupy all of `body`. Raises CorruptSegmentError, UnsupportedVersionError."""
    return read_templates(body, templates, context.plain)
