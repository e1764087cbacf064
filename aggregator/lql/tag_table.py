"""The tag sets of all streams in columns, and expressions over them: one comparison per distinct value, not per stream.

A missing tag is empty text. Values compare as text.
"""

from __future__ import annotations

import functools
import threading
from array import array
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from aggregator.lql.columns import changed_case
from aggregator.lql.operand import check_tags, innermost
from aggregator.lql.predicate import text_test
from aggregator.lql.tag_set import TagSet
from aggregator.lql.tree import And, Condition, Expression, Not, Or, Source

Mask = npt.NDArray[np.bool_]


class _Tag:
    """One tag name: which streams have it, and with which of its distinct values."""

    def __init__(self) -> None:
        self.streams = array("q")
        self.codes = array("q")
        self.values: dict[str, int] = {}
        self.distinct: pa.Array = pa.array([], pa.large_string())

    def add(self, stream: int, value: str) -> None:
        self.streams.append(stream)
        self.codes.append(self.values.setdefault(value, len(self.values)))

    def texts(self) -> pa.Array:
        """The distinct values by code."""
        if len(self.distinct) < len(self.values):
            self.distinct = pa.array(list(self.values), pa.large_string())
        return self.distinct


class TagTable:
    """Tag sets by number, in the order in which they were added. Safe to share between threads."""

    def __init__(self, tag_sets: Iterable[TagSet] = ()) -> None:
        self._lock = threading.Lock()
        self._tags: dict[str, _Tag] = {}
        self._count = 0
        for tags in tag_sets:
            self.add(tags)

    def __len__(self) -> int:
        return self._count

    def add(self, tags: TagSet) -> int:
        """Add a set; its number, counted from 0."""
        with self._lock:
            number = self._count
            for name, value in tags.items:
                self._tags.setdefault(name, _Tag()).add(number, value)
            self._count += 1
            return number

    def names(self) -> list[str]:
        """Every tag name, ascending."""
        with self._lock:
            return sorted(self._tags)

    def values(self, name: str) -> list[str]:
        """Every value of a tag, ascending."""
        with self._lock:
            return sorted(self._tags[name].values) if name in self._tags else []

    def select(self, source: Source | None, *, without_tag: str | None = None) -> npt.NDArray[np.int64]:
        """Numbers of the sets that match and do not have a tag, ascending; None matches all. Raises LqlError."""
        if source is not None and not isinstance(source, TagSet):
            check_tags(source)
        with self._lock:
            mask = self._mask(source)
            tag = self._tags.get(without_tag) if without_tag is not None else None
            if tag is not None:
                mask[_numbers(tag.streams)] = False
            return np.flatnonzero(mask)

    def _mask(self, source: Source | None) -> Mask:
        if source is None:
            return np.ones(self._count, dtype=np.bool_)
        if isinstance(source, TagSet):
            mask = np.ones(self._count, dtype=np.bool_)
            for name, value in source.items:
                mask &= self._having(name, value)
            return mask
        return self._evaluate(source)

    def _having(self, name: str, value: str) -> Mask:
        """Sets that have the tag with exactly that value: a missing one is not an empty one here."""
        mask = np.zeros(self._count, dtype=np.bool_)
        tag = self._tags.get(name)
        if tag is not None and value in tag.values:
            mask[_numbers(tag.streams)[_numbers(tag.codes) == tag.values[value]]] = True
        return mask

    def _evaluate(self, expression: Expression) -> Mask:
        match expression:
            case Condition():
                return self._compare(expression)
            case Not(term):
                return ~self._evaluate(term)
            case And(terms):
                return functools.reduce(np.logical_and, map(self._evaluate, terms))
            case Or(terms):
                return functools.reduce(np.logical_or, map(self._evaluate, terms))

    def _compare(self, condition: Condition) -> Mask:
        name, functions = innermost(condition.operand)
        test = text_test(condition.op, condition.value.text)
        mask = np.full(self._count, test(pa.array([""]))[0].as_py())
        tag = self._tags.get(name.text)
        if tag is not None:
            texts = tag.texts()
            for function in functions:
                texts = changed_case(texts, function)
            mask[_numbers(tag.streams)] = np.asarray(test(texts))[_numbers(tag.codes)]
        return mask


def matches(source: Source | None, tags: TagSet) -> bool:
    """Tell whether one tag set matches. Raises LqlError."""
    return len(TagTable([tags]).select(source)) == 1


def _numbers(stored: array[int]) -> npt.NDArray[np.int64]:
    return np.array(stored, dtype=np.int64)  # a copy: an array that is looked into cannot grow
