"""The tag sets of all streams in columns, and expressions over them: one comparison per distinct value, not per stream.

A missing tag is empty text. Values are compared as text.
"""

from __future__ import annotations

import functools
import threading
from array import array
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from aggregator.lql.parse.columns import changed_case
from aggregator.lql.parse.operand import check_tags, innermost
from aggregator.lql.parse.tag_set import TagSet
from aggregator.lql.parse.tree import And, Condition, Expression, Not, Or, Source
from aggregator.lql.run.adaptive_slices import AdaptiveSlices
from aggregator.lql.text.predicate import text_test

Mask = npt.NDArray[np.bool_]
I64 = npt.NDArray[np.int64]


class _Tag:
    """One tag name: the streams that have it, and which of its distinct values each has."""

    def __init__(self) -> None:
        self.streams = array("q")
        self.codes = array("q")
        self.values: dict[str, int] = {}
        self.distinct: pa.Array = pa.array([], pa.large_string())

    def texts(self) -> pa.Array:
        """The distinct values by code."""
        if len(self.distinct) < len(self.values):
            self.distinct = pa.array(list(self.values), pa.large_string())
        return self.distinct


class _Having(NamedTuple):
    """Sets with a tag: their numbers, the code of each one's value, and the values by code."""

    streams: I64
    codes: I64
    texts: pa.Array


class TagTable:
    """Tag sets by number, in insertion order. Thread-safe."""

    def __init__(self, tag_sets: Iterable[TagSet] = ()) -> None:
        self._lock = threading.Lock()
        self._tags: dict[str, _Tag] = {}
        self._count = 0
        self._add(tag_sets)

    def __len__(self) -> int:
        return self._count

    def add(self, tags: TagSet) -> int:
        """Add a set; return its number, counted from 0."""
        with self._lock:
            self._add([tags])
            return self._count - 1

    def _add(self, tag_sets: Iterable[TagSet]) -> None:
        known = self._tags
        for tags in tag_sets:
            for name, value in tags.items:
                tag = known.get(name)
                if tag is None:
                    tag = known[name] = _Tag()
                values = tag.values
                tag.streams.append(self._count)
                tag.codes.append(values.setdefault(value, len(values)))
            self._count += 1

    def names(self) -> list[str]:
        """All tag names, ascending."""
        with self._lock:
            return sorted(self._tags)

    def select(self, source: Source | None, *, without_tag: str | None = None) -> I64:
        """Numbers of the sets that match and do not have the tag `without_tag`, ascending; source None matches all.

        Raises LqlError, and the errors of `Allowance.check`. Holds no lock while texts are compared.
        """
        if source is not None and not isinstance(source, TagSet):
            check_tags(source)
        with self._lock:
            count = self._count
        mask = self._mask(source, count)
        if without_tag is not None:
            mask[self._having(without_tag, count).streams] = False
        return np.flatnonzero(mask)

    def _mask(self, source: Source | None, count: int) -> Mask:
        if source is None:
            return np.ones(count, dtype=np.bool_)
        if isinstance(source, TagSet):
            mask = np.ones(count, dtype=np.bool_)
            for name, value in source.items:
                mask &= self._equal(name, value, count)
            return mask
        return self._evaluate(source, count)

    def _having(self, name: str, count: int) -> _Having:
        """Those of the first `count` sets that have the tag."""
        with self._lock:
            tag = self._tags.get(name) or _Tag()
            streams, codes, texts = _numbers(tag.streams), _numbers(tag.codes), tag.texts()
        known = np.searchsorted(streams, count)
        return _Having(streams[:known], codes[:known], texts)

    def _equal(self, name: str, value: str, count: int) -> Mask:
        """Sets that have the tag with exactly this value: here a missing tag is not an empty one."""
        having = self._having(name, count)
        mask = np.zeros(count, dtype=np.bool_)
        with self._lock:
            code = self._tags[name].values.get(value) if name in self._tags else None
        if code is not None:
            mask[having.streams[having.codes == code]] = True
        return mask

    def _evaluate(self, expression: Expression, count: int) -> Mask:
        match expression:
            case Condition():
                return self._compare(expression, count)
            case Not(term):
                return ~self._evaluate(term, count)
            case And(terms):
                return functools.reduce(np.logical_and, (self._evaluate(term, count) for term in terms))
            case Or(terms):
                return functools.reduce(np.logical_or, (self._evaluate(term, count) for term in terms))

    def _compare(self, condition: Condition, count: int) -> Mask:
        name, functions = innermost(condition.operand)
        test = text_test(condition.op, condition.value.text)
        mask = np.full(count, test(pa.array([""]))[0].as_py())
        having = self._having(name.text, count)
        if len(having.streams):
            values = pa.RecordBatch.from_arrays([having.texts], ["value"])
            found = [
                np.asarray(test(changed_case(part.column(0), functions))) for part in AdaptiveSlices().parts(values)
            ]
            mask[having.streams] = np.concatenate(found)[having.codes]
        return mask


def matches(source: Source | None, tags: TagSet) -> bool:
    """Whether one tag set matches. Raises LqlError."""
    return len(TagTable([tags]).select(source)) == 1


def _numbers(stored: array[int]) -> I64:
    return np.array(stored, dtype=np.int64)  # a copy, because an array with an exported buffer cannot grow
