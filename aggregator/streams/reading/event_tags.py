"""LQL tags of events that belong to no stream: topic, partition, space and grouping."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from aggregator.lql import TagSet
from aggregator.lql.parse.columns import changed_case
from aggregator.lql.parse.operand import innermost
from aggregator.lql.parse.tag_set import MAX_TAG_BYTES, written
from aggregator.lql.parse.tag_text import each_written
from aggregator.lql.parse.tree import And, Condition, Expression, Not, Or, Source, Value
from aggregator.lql.text.predicate import text_test

Truth = bool | np.bool_ | npt.NDArray[np.bool_] | None
"""The same for all events, or one for each; None if their columns are needed to decide."""
Leaf = Callable[[str, tuple[str, ...], str, Value], Truth]
_Outcomes = tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]
"""For each topic and partition, whether the result can be true, and whether it can be false."""
_IN_COLUMNS = ("space", "grouping")
_IN_NAMES = ("topic", "partition")
MOST_REMEMBERED = 256
"""Comparisons with a text of up to this many characters are cached."""
EVENT_TAGS = frozenset({*_IN_NAMES, *_IN_COLUMNS})
"""Tags of events that belong to no stream."""


@dataclass(frozen=True, slots=True)
class Streams:
    """Names of many streams of a topic."""

    names: frozenset[str]

    def mask(self, spaces: pa.Array) -> npt.NDArray[np.bool_]:
        """Which events of a batch belong to the streams. Compares distinct spaces, which are far fewer."""
        different = pc.unique(spaces)
        mine = [name for name in different.to_pylist() if name in self.names]
        if len(mine) == len(different):
            return np.ones(len(spaces), np.bool_)
        found = pc.is_in(spaces, value_set=pa.array(mine, spaces.type))
        return np.asarray(found.to_numpy(zero_copy_only=False))


@lru_cache(maxsize=16)
def streams_of(names: tuple[str, ...]) -> Streams:
    """The `Streams` of these names, cached for tails and pipes while the streams do not change."""
    return Streams(frozenset(names))


@dataclass(frozen=True, slots=True)
class EventTags:
    """Selects, by tags, events of a topic that belong to none of its `streams`."""

    topic: str
    source: Source
    streams: tuple[str, ...]

    def match_by_partition(self, partition: str) -> bool | None:
        """Whether the events of a partition match, if topic and partition decide it; else None."""
        truth = self._evaluate(lambda *asked: self._constant(partition, *asked))
        return None if truth is None else bool(truth)

    def space(self) -> str | None:
        """The only space that can match, if FROM names one."""
        if isinstance(self.source, TagSet):
            return self.source.as_dict().get("space")
        terms = self.source.terms if isinstance(self.source, And) else (self.source,)
        for term in terms:
            if isinstance(term, Condition) and term.op == "=":
                name, functions = innermost(term.operand)
                if name.text == "space" and not functions:
                    return term.value.text
        return None

    def mask(self, partition: str, batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Which rows of a batch with the columns `space` and `grouping` match."""

        def leaf(name: str, functions: tuple[str, ...], op: str, value: Value) -> Truth:
            if name not in _IN_COLUMNS:
                return self._constant(partition, name, functions, op, value)
            found = text_test(op, value.text)(changed_case(batch.column(name), functions))
            return np.asarray(found.to_numpy(zero_copy_only=False))

        found = np.broadcast_to(np.asarray(self._evaluate(leaf), np.bool_), len(batch))
        return found & ~streams_of(self.streams).mask(batch.column("space")) if self.streams else found

    def _constant(self, partition: str, name: str, functions: tuple[str, ...], op: str, value: Value) -> Truth:
        if name in _IN_COLUMNS:
            return None
        return _holds({"topic": self.topic, "partition": partition}.get(name, ""), functions, op, value)

    def _evaluate(self, leaf: Leaf) -> Truth:
        if not isinstance(self.source, TagSet):
            return _truth(self.source, leaf)
        truths: list[Truth] = [  # an event without a grouping lacks that tag
            leaf(name, (), "=", Value(value)) if name in EVENT_TAGS and (name, value) != ("grouping", "") else False
            for name, value in self.source.items
        ]
        return _all(truths)


def _holds(text: str, functions: tuple[str, ...], op: str, value: Value) -> bool:
    """Whether a comparison of a text is true."""
    is_so = _is_so if len(value.text) <= MOST_REMEMBERED else _is_so.__wrapped__
    return is_so(text, functions, op, value.text)


@lru_cache(maxsize=1 << 12)
def _is_so(text: str, functions: tuple[str, ...], op: str, value: str) -> bool:
    """`_holds`, cached, because most comparisons repeat."""
    return bool(text_test(op, value)(changed_case(pa.array([text]), functions))[0].as_py())


def topics_of(source: Source, partitions: Mapping[str, Collection[str]]) -> set[str]:
    """Topics that may have matching events that belong to no stream. partitions: their names by topic."""
    pairs = [(topic, partition) for topic, names in partitions.items() for partition in names]
    texts = {name: pa.array([pair[place] for pair in pairs], pa.string()) for place, name in enumerate(_IN_NAMES)}
    anywhere, nowhere = np.ones(len(pairs), np.bool_), np.zeros(len(pairs), np.bool_)

    def leaf(name: str, functions: tuple[str, ...], op: str, value: Value) -> _Outcomes:
        if name in _IN_COLUMNS:
            return anywhere, anywhere
        if name not in texts:
            return (anywhere, nowhere) if _holds("", functions, op, value) else (nowhere, anywhere)
        found = np.asarray(text_test(op, value.text)(changed_case(texts[name], functions)))
        return found, ~found

    if isinstance(source, TagSet):
        known = all(name in EVENT_TAGS and (name, value) != ("grouping", "") for name, value in source.items)
        found = [leaf(name, (), "=", Value(value))[0] for name, value in source.items if known]
        can = np.logical_and.reduce(found) if found else anywhere if known else nowhere
    else:
        can = _outcomes(source, leaf)[0]
    return {pairs[place][0] for place in can.nonzero()[0].tolist()}


def _outcomes(expression: Expression, leaf: Callable[[str, tuple[str, ...], str, Value], _Outcomes]) -> _Outcomes:
    match expression:
        case Condition(operand, op, value):
            name, functions = innermost(operand)
            return leaf(name.text, functions, op, value)
        case Not(term):
            true, false = _outcomes(term, leaf)
            return false, true
        case And(terms):
            found = [_outcomes(term, leaf) for term in terms]
            return np.logical_and.reduce([true for true, _ in found]), np.logical_or.reduce([no for _, no in found])
        case Or(terms):
            found = [_outcomes(term, leaf) for term in terms]
            return np.logical_or.reduce([true for true, _ in found]), np.logical_and.reduce([no for _, no in found])


def _truth(expression: Expression, leaf: Leaf) -> Truth:
    match expression:
        case Condition(operand, op, value):
            name, functions = innermost(operand)
            return leaf(name.text, functions, op, value)
        case Not(term):
            return _not(_truth(term, leaf))
        case And(terms):
            return _all([_truth(term, leaf) for term in terms])
        case Or(terms):
            return _not(_all([_not(_truth(term, leaf)) for term in terms]))


def _not(truth: Truth) -> Truth:
    return None if truth is None else np.logical_not(truth)


def _all(truths: list[Truth]) -> Truth:
    if any(truth is not None and np.ndim(truth) == 0 and not truth for truth in truths):
        return False
    found: Truth = True
    for truth in truths:
        found = None if found is None or truth is None else np.logical_and(found, truth)
    return found


def tag_texts(topic: str, partition: str, batch: pa.RecordBatch, streams: tuple[str, ...]) -> pa.Array:
    """The canonical text of each row's tags: for a stream its name, for other events the tags of this module."""
    spaces = batch.column("space")
    mine = streams_of(streams).mask(spaces) if streams else np.zeros(len(batch), np.bool_)
    if mine.all():
        return spaces
    middle, tail = f",partition={written(partition)},space=", f",topic={written(topic)}}}"
    groupings = pc.fill_null(batch.column("grouping"), "")
    heads = pc.binary_join_element_wise("{grouping=", _each_written(groupings), middle, "")
    heads = pc.if_else(pc.equal(groupings, ""), "{" + middle[1:], heads)
    made = pc.binary_join_element_wise(heads, _each_written(spaces), tail, "")
    return pc.if_else(pa.array(mine), spaces, made) if mine.any() else made


def _each_written(texts: pa.Array) -> pa.Array:
    """Texts as values of tags: cut to the maximum length, and quoted if necessary."""
    texts = texts.cast(pa.large_string())
    long = pc.greater(pc.binary_length(texts), MAX_TAG_BYTES)
    if pc.any(long).as_py():
        cut = [text.encode()[:MAX_TAG_BYTES].decode("utf-8", "ignore") for text in texts.filter(long).to_pylist()]
        texts = pc.replace_with_mask(texts, long, pa.array(cut, texts.type))
    return each_written(texts).cast(pa.string())
