"""Values at a path of JSON documents that are stored as templates, without rendering the documents around them.

The template of a document determines where a value is, unless something that a slot shows could be taken for JSON
syntax. Within a string, a slot must show text without quotes, escapes and control characters; elsewhere a number, or an
enumeration value that is JSON itself. Then one sample document of a template represents all of its rows: the value of
each row consists of some of the literals and slots, which are rendered alone. The documents of rows with other
templates are rendered completely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from esformat.core.json_paths import FLOAT, INTEGER, MISSING, NULL
from esformat.core.templates import DATE, DECIMAL, ENUM, HEX, PADDED, STRING, Templates
from esformat.core.templates import INTEGER as WHOLE
from esformat.format.json_values import JsonValues, Step
from esformat.format.template_search import TemplateTexts

_SHOWN_IN_STRINGS = b"x"
"""Placeholder for what a slot shows within a string."""
_NUMBERS = {WHOLE: (b"7", INTEGER), DECIMAL: (b"7.5", FLOAT)}
"""By kind of variable: placeholder for a slot that shows a value, and the JSON kind of that value."""
UNKNOWN, WITH_STRINGS = 0x80, 0x40
"""Bits next to the kind of a value: its template does not determine it, or only if its strings are plain."""
_SPACE = b" \t\r\n"
_SPECIAL = np.zeros(256, np.bool_)
_SPECIAL[[*range(32), ord('"'), ord("\\")]] = True


@dataclass(slots=True)
class ValueTemplates:
    """What the templates of a column say about the value at one path.

    templates: templates that show only the value, for strings without the quotes. kinds: by code, the kinds of
    `JsonValues`, with the bits above. strings: by code, the variables whose strings must be plain.
    """

    templates: Templates
    kinds: npt.NDArray[np.uint8]
    strings: dict[int, frozenset[int]]
    size_bytes: int


@dataclass(slots=True)
class SampleDocuments:
    """One document that represents all documents of each template. flags: by code, the bits above. documents: by code.
    strings: as above.
    """

    flags: npt.NDArray[np.uint8]
    documents: dict[int, bytes]
    strings: dict[int, frozenset[int]]
    size_bytes: int


def sample_documents(texts: TemplateTexts) -> SampleDocuments:
    """What the templates say about the fields of documents, and the kinds of their values."""
    samples = [_Sample(texts, template) for template in range(len(texts.slots))]
    documents = {code: found for code, each in enumerate(samples, 1) if (found := each.document()) is not None}
    strings = {code: samples[code - 1].strings for code in documents if samples[code - 1].strings}
    flags = [UNKNOWN if c not in documents else WITH_STRINGS if c in strings else 0 for c in range(1, len(samples) + 1)]
    size_bytes = 1000 + sum(map(len, documents.values())) + 200 * len(samples)
    return SampleDocuments(np.array([0, *flags], np.uint8), documents, strings, size_bytes)


class _Value(NamedTuple):
    """The value in one template: its kind, its literals and slots, and the variables whose strings must be plain."""

    kind: int
    literals: list[bytes]
    slots: list[int]
    strings: frozenset[int]


_NOTHING = _Value(MISSING, [b""], [], frozenset())


def value_templates(texts: TemplateTexts, steps: Sequence[Step]) -> ValueTemplates:
    """What the templates say about the value at the path `steps`."""
    found = [_Sample(texts, template).value(steps) for template in range(len(texts.slots))]
    values = [each or _NOTHING for each in found]
    literals = [literal for each in values for literal in each.literals]
    shortened = texts.templates.shortened(
        np.array([len(each.slots) for each in values], np.int64),
        np.array([slot for each in values for slot in each.slots], np.int64),
        np.array(list(map(len, literals)), np.int64),
        b"".join(literals),
    )
    return ValueTemplates(
        shortened,
        np.array([MISSING, *map(_with_bits, found)], np.uint8),
        {code: each.strings for code, each in enumerate(values, 1) if each.strings},
        1000 + sum(map(len, shortened.memory)) + 100 * len(values),
    )


def _with_bits(value: _Value | None) -> int:
    return UNKNOWN if value is None else value.kind | (WITH_STRINGS if value.strings else 0)


def are_plain(edges: Sequence[int] | npt.NDArray[np.int64], text: bytes) -> bool:
    """Whether texts can be copied unescaped into JSON strings. Text i is text[edges[i]:edges[i + 1]].

    edges: an array of int64.
    """
    if bool(_SPECIAL[np.frombuffer(text, np.uint8, int(edges[-1] - edges[0]), int(edges[0]))].any()):
        return False
    if text.isascii():
        return True
    array = pa.Array.from_buffers(pa.large_string(), len(edges) - 1, [None, pa.py_buffer(edges), pa.py_buffer(text)])
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


class _Sample:
    """A sample document of a template: each slot shows a placeholder for everything that it may show."""

    def __init__(self, texts: TemplateTexts, template: int) -> None:
        self._texts = texts
        self._literals, self._slots = texts.literals[template], texts.slots[template]
        self._document = bytearray()
        self._spans: list[tuple[int, int]] = []  # of the slots
        self._kinds: list[set[int]] = []  # JSON kinds of each slot that is a value; empty for slots within strings
        self._in_string = False

    def value(self, steps: Sequence[Step]) -> _Value | None:
        """The value at a path; None if the template does not determine it."""
        if not self._make():
            return None
        document = bytes(self._document)
        found = JsonValues(pa.array([document], pa.binary()), steps)
        kind, start, end = int(found.kinds[0]), int(found.starts[0]), int(found.ends[0])
        inside = [n for n, (low, high) in enumerate(self._spans) if start <= low and high <= end]
        alone = len(inside) == 1 and self._spans[inside[0]] == (start, end) and self._kinds[inside[0]]
        if alone and len(alone) > 1:
            return None  # kinds differ
        if kind in (MISSING, NULL):
            return _Value(kind, [b""], [], self.strings)
        edges = [start, *(edge for n in inside for edge in self._spans[n]), end]
        literals = [document[low:high] for low, high in zip(edges[::2], edges[1::2], strict=True)]
        return _Value(kind, literals, [self._slots[n] for n in inside], self.strings)

    def document(self) -> bytes | None:
        """The document, if all others of the template have the same fields with values of the same kinds; else None."""
        if not self._make() or any(len(kinds) > 1 for kinds in self._kinds):
            return None
        return bytes(self._document)

    @property
    def strings(self) -> frozenset[int]:
        """The variables whose strings must be plain."""
        slots = zip(self._slots, self._kinds, strict=True)
        return frozenset(variable for variable, kinds in slots if not kinds and self._texts.kinds[variable] == STRING)

    def _make(self) -> bool:
        """Assemble the document. Return False if a slot is part of a key, or may show something like JSON syntax."""
        for n, literal in enumerate(self._literals):
            if not self._add_literal(literal):
                return False
            if n < len(self._slots) and not self._add_slot(self._slots[n], self._literals[n + 1]):
                return False
        in_strings = (end for (_, end), kinds in zip(self._spans, self._kinds, strict=True) if not kinds)
        return not any(map(self._is_in_key, in_strings))

    def _add_literal(self, literal: bytes) -> bool:
        """Append a literal. Return False if it ends within an escape."""
        at = 0
        while at < len(literal):
            letter = literal[at : at + 1]
            if self._in_string and letter == b"\\":
                at += 6 if literal[at + 1 : at + 2] == b"u" else 2
                continue
            if letter == b'"':
                self._in_string = not self._in_string
            at += 1
        self._document += literal
        return at == len(literal)

    def _add_slot(self, variable: int, following: bytes) -> bool:
        show = self._shown_in_string if self._in_string else self._shown_as_value
        shown, kinds = show(variable, self._texts.kinds[variable])
        if shown is None or not (self._in_string or self._is_whole(following)):
            return False
        self._spans.append((len(self._document), len(self._document) + len(shown)))
        self._kinds.append(kinds)
        self._document += shown
        return True

    def _shown_in_string(self, variable: int, kind: int) -> tuple[bytes | None, set[int]]:
        plain = kind in (STRING, WHOLE, PADDED, DECIMAL, HEX, DATE)
        if kind == ENUM:
            values = self._texts.listed[variable]
            edges = np.cumsum([0, *map(len, values)])
            plain = are_plain(edges, b"".join(values))
        return (_SHOWN_IN_STRINGS if plain else None), set()

    def _shown_as_value(self, variable: int, kind: int) -> tuple[bytes | None, set[int]]:
        if kind in _NUMBERS:
            shown, as_json = _NUMBERS[kind]
            return shown, {as_json}
        if kind != ENUM or not self._texts.listed[variable]:
            return None, set()
        values = self._texts.listed[variable]
        if any(value[:1] in (b'"', b"{", b"[") or value.strip(_SPACE) != value for value in values):
            return None, set()
        kinds = set(JsonValues(pa.array(values, pa.binary()), ()).kinds.tolist())
        return (None if MISSING in kinds else values[0]), kinds

    def _is_whole(self, following: bytes) -> bool:
        """Whether the slot is a complete value, next to JSON punctuation, space or the document's end only."""
        before = bytes(self._document[-1:])
        return (not before or before in b"[:," + _SPACE) and (following[:1] in b",]}" + _SPACE or not following)

    def _is_in_key(self, at: int) -> bool:
        """Whether the string around a byte is followed by a colon."""
        document = self._document
        while at < len(document) and document[at : at + 1] != b'"':
            at += 2 if document[at : at + 1] == b"\\" else 1
        return bytes(document[at + 1 :]).lstrip(_SPACE)[:1] == b":"
