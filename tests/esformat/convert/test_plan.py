"""A plan widens as rows arrive, in any order, and determines the columns of the segment."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esformat.convert.plan import Plan
from esformat.convert.roles import Roles

INT, TEXT, NULL = pa.int64(), pa.string(), pa.null()
ROLES = Roles(space="u", timestamp="t", indexes=("i",))


def test_widened():
    """A batch that fits changes nothing; one that does not widens the plan."""
    plan = Plan(ROLES).widened({"a": INT}, has_nanos=False)
    assert plan.widened({"a": INT}, has_nanos=False) is plan
    assert plan.widened({"a": NULL}, has_nanos=False) is plan
    assert plan.widened({}, has_nanos=False) is plan
    assert plan.widened({"a": TEXT}, has_nanos=False).types == {"a": TEXT}
    assert plan.widened({"b": INT}, has_nanos=False).types == {"a": INT, "b": INT}
    assert plan.widened({}, has_nanos=True).has_nanos
    assert plan.widened({}, has_nanos=True).widened({}, has_nanos=False).has_nanos


BATCHES = st.lists(st.dictionaries(st.sampled_from("ab"), st.sampled_from([NULL, INT, pa.float64(), TEXT, pa.bool_()])))


@given(BATCHES)
def test_order_of_batches_does_not_matter(batches):
    """The order of batches does not affect the types."""
    forward, backward = Plan(ROLES), Plan(ROLES)
    for types in batches:
        forward = forward.widened(types, has_nanos=False)
    for types in reversed(batches):
        backward = backward.widened(types, has_nanos=False)
    assert dict(forward.types) == dict(backward.types)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (INT, INT),
        (pa.int8(), pa.int8()),
        (pa.bool_(), pa.bool_()),
        (TEXT, TEXT),
        (NULL, TEXT),
        (pa.float64(), TEXT),
        (pa.date32(), TEXT),
        (pa.binary(), TEXT),
        (pa.list_(INT), TEXT),
    ],
)
def test_index_types(found, expected):
    """Indexes are text, integers or booleans; other types become text."""
    assert Plan(ROLES).widened({"i": found}, has_nanos=False).indexes == {"i": expected}


def test_typed():
    """A typed column has the requested type or its own; without values, or nested too deeply, it is text."""
    deep = INT
    for _ in range(40):
        deep = pa.list_(deep)
    roles = Roles(space="u", timestamp="t", types={"a": pa.float64()})
    plan = Plan(roles).widened({"u": TEXT, "t": TEXT, "a": INT, "b": NULL, "c": deep}, has_nanos=False)
    assert plan.typed == {"a": pa.float64(), "b": TEXT, "c": TEXT}


def test_payload():
    """A column named data is the payload if it exists; an explicitly named payload column always is."""
    assert Plan(ROLES).payload is None
    assert Plan(ROLES).widened({"data": TEXT}, has_nanos=False).payload == "data"
    assert Plan(Roles(space="u", timestamp="t", data="x")).payload == "x"


def test_nanoseconds():
    """The column of nanoseconds is named after the timestamp column and never replaces another column."""
    assert Plan(ROLES).nanos is None
    assert Plan(ROLES).widened({"a": INT}, has_nanos=True).nanos == "t_ns"
    assert Plan(ROLES).widened({"t_ns": INT}, has_nanos=True).nanos == "t_ns_"
