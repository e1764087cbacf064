"""Errors about the contents of a file name the file, whatever the query."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from broken_writer import BROKEN
from small_pieces import Pieces, cut_small

import esformat
from esformat.core.cached_segment import NamedErrors
from esformat.core.values import gather
from tests.fuzz.segment import QUESTIONS

PIECES = Pieces(block_rows=16, leaf_blocks=4, leaf_runs=20, page_values=8, chunk_entries=12)


def _table(count: int = 120) -> pa.Table:
    rnd = random.Random(1)
    return pa.table(
        {
            "space": [f"s{rnd.randrange(9):02}" for _ in range(count)],
            "grouping": [rnd.choice(["", "g"]) for _ in range(count)],
            "timestamp": pa.array([rnd.randrange(10**6) for _ in range(count)], pa.int64()),
            "data": pa.array([b"%d" % rnd.randrange(10**9) for _ in range(count)], pa.binary()),
            "type": [rnd.choice(["view", "view", "buy", None]) for _ in range(count)],
            "id": pa.array([i // 2 if i % 3 else None for i in range(count)], pa.int32()),
        }
    )


def _broken(tmp_path, monkeypatch, rule: str) -> esformat.Segment:
    return esformat.open(_written(tmp_path / "broken.esdb", monkeypatch, rule))


def _written(path, monkeypatch, rule: str):
    with monkeypatch.context() as patch, cut_small(PIECES):
        BROKEN[rule][0](patch)
        with esformat.create(path, indexes=["type", "id"]) as out:
            out.add_table(_table())
    return path


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.__name__)
def test_codes_without_a_value(tmp_path, monkeypatch, question):
    """Codes without a dictionary value are reported as damage of the file, however they are read."""
    with _broken(tmp_path, monkeypatch, "codes without a value") as segment:
        if question.__name__ in ("_facts", "_payloads"):  # which read no code
            question(segment)
            return
        with pytest.raises(esformat.CorruptSegmentError, match="a code has no value") as caught:
            question(segment)
        assert caught.value.path == segment.path


@pytest.mark.parametrize("rule", ["rows of a block", "check of a block", "order of a leaf", "events are not sorted"])
def test_rule_that_a_reader_meets(tmp_path, monkeypatch, rule):
    """A file that breaks a rule is refused with its name when opened, or by some query."""
    path = _written(tmp_path / "broken.esdb", monkeypatch, rule)
    errors = []
    for question in QUESTIONS:
        try:
            with esformat.open(path) as segment:
                question(segment)
        except esformat.EsdbError as error:
            errors.append(error)
    assert errors
    assert {error.path for error in errors} == {str(path)}


def _outside(values: pa.Array) -> object:
    return values.take(pa.array([7]))


def _too_large(_: pa.Array) -> object:
    return gather(
        np.zeros(3, np.uint8), np.array([0, 1 << 30], np.int32), np.zeros(1 << 30, np.uint8), pa.allocate_buffer
    )


def _not_text(_: pa.Array) -> object:
    return pa.array([b"\xff"]).cast(pa.string())


def _no_code(_: pa.Array) -> object:
    return gather(np.array([9], np.uint8), np.zeros(2, np.int32), np.zeros(1, np.uint8), pa.allocate_buffer)


@pytest.mark.parametrize("work", [_outside, _too_large, _not_text, _no_code], ids=lambda work: work.__name__)
def test_what_arrow_and_the_core_say(work):
    """IndexError, OverflowError and ValueError become an error of the file, with the original as cause."""
    said = r"^a\.esdb: stored values are broken: "
    with pytest.raises(esformat.CorruptSegmentError, match=said) as caught, NamedErrors("a.esdb"):
        work(pa.array(["one"]))
    assert isinstance(caught.value.__cause__, IndexError | OverflowError | ValueError)


def test_other_errors():
    """An error that already has a name keeps it; errors that are not the file's pass through."""
    with pytest.raises(esformat.ClosedError) as caught, NamedErrors("b.esdb"):
        raise esformat.ClosedError("closed", path="a.esdb")
    assert caught.value.path == "a.esdb"
    with pytest.raises(MemoryError), NamedErrors("b.esdb"):
        raise MemoryError
