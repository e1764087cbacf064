"""Parsing a pyarrow expression yields every step, or None if any is unknown."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from esformat.read.ask.arrow_filter import Call, Field, Literal, take_apart

space = pc.field("space")
UTC_NS = pa.timestamp("ns", "UTC")


def shown(expression: pc.Expression) -> list[object] | None:
    """Steps in short form: column paths, (value,) for literals, function/arity."""
    steps = take_apart(expression)
    if steps is None:
        return None
    short: list[object] = []
    for step in steps:
        if isinstance(step, Field):
            short.append(".".join(step.path))
        elif isinstance(step, Literal):
            short.append((step.scalar.as_py(),))
        else:
            short.append(f"{step.function}/{step.arity}")
    return short


CASES = [
    (space, ["space"]),
    (pc.scalar(True), [(True,)]),
    (space == "a", ["space", ("a",), "equal/2"]),
    ((space == "a") & (pc.field("n") < 3), ["space", ("a",), "equal/2", "n", (3,), "less/2", "and_kleene/2"]),
    (~(space >= "b") | pc.scalar(None), ["space", ("b",), "greater_equal/2", "invert/1", (None,), "or_kleene/2"]),
    (pc.field("place", "x") == 1, ["place.x", (1,), "equal/2"]),
    (pc.field("n").cast("int8") == 1, ["n", "cast/1", (1,), "equal/2"]),
    (pc.starts_with(space, "a"), ["space", "starts_with/1"]),
    (space.is_null() & space.is_valid(), ["space", "is_null/1", "space", "is_valid/1", "and_kleene/2"]),
    (pc.if_else(pc.field("f"), space, "z") == "a", ["f", "space", ("z",), "if_else/3", ("a",), "equal/2"]),
    (pc.field("a\n'b': end") == "x'\nend: 'equal'", ["a\n'b': end", ("x'\nend: 'equal'",), "equal/2"]),
]


@pytest.mark.parametrize(("expression", "expected"), CASES, ids=[str(case[0]) for case in CASES])
def test_steps(expression, expected):
    """Operands precede their function, whatever their names and values."""
    assert shown(expression) == expected


def test_literal_keeps_its_type():
    """A literal keeps its type: nanoseconds do not become microseconds."""
    literal = take_apart(pc.field("timestamp") > pa.scalar(1, UTC_NS))[1]
    assert literal == Literal(pa.scalar(1, UTC_NS))


def test_options_belong_to_their_call():
    """A call has its own options, such as the typed values of `isin`; a call without options has none."""
    steps = take_apart(pc.field("n").isin(pa.array([1, None], pa.int8())) & (space == "a"))
    called = {step.function: step.options for step in steps if isinstance(step, Call)}
    assert called["is_in"]["value_set"].values.equals(pa.array([1, None], pa.int8()))
    assert called["equal"] is None
    assert called["and_kleene"] is None


def test_deep_expression():
    """Thousands of alternatives, as some engines write IN, are parsed."""
    expression = space == "0"
    for number in range(1, 3000):
        expression = expression | (space == str(number))
    steps = take_apart(expression)
    assert len(steps) == 3000 * 3 + 2999


@pytest.mark.parametrize(
    "expression",
    [pc.field(1) == 2, (space == "a") & (pc.field(0) == "b")],
    ids=str,
)
def test_positions_are_not_understood(expression):
    """A column named by its position, which pyarrow does not serialise, is not understood."""
    assert take_apart(expression) is None


@pytest.mark.parametrize(
    "items",
    [
        [],
        [("call", "equal")],
        [("field_ref", "a"), ("field_ref", "b")],
        [("end", "equal")],
        [("call", "equal"), ("field_ref", "a"), ("end", "less")],
        [("nested_field_ref", "2"), ("field_ref", "a")],
        [("nested_field_ref", "1"), ("literal", "0")],
        [("literal", "1")],
        [("literal", "x")],
        [("strange", "a")],
    ],
    ids=str,
)
def test_what_does_not_look_as_expected_is_not_understood(monkeypatch, items):
    """A serialised form other than expected, as from another pyarrow, is not understood."""
    monkeypatch.setattr("esformat.read.ask.arrow_filter._metadata", lambda schema: items)
    assert take_apart(space == "a") is None
