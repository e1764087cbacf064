"""A plan grows with the rows, whatever their order, and says which columns the segment gets."""

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
    """The same batches in another order make the same types."""
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
    """Indexes are of text, integers or truth values; what is none of these becomes text."""
    assert Plan(ROLES).widened({"i": found}, has_nanos=False).indexes == {"i": expected}


def test_typed():
    """Typed columns have the type asked for, or found; without any value they are text; very deep ones, too."""
    deep = INT
    for _ in range(40):
        deep = pa.list_(deep)
    roles = Roles(space="u", timestamp="t", types={"a": pa.float64()})
    plan = Plan(roles).widened({"u": TEXT, "t": TEXT, "a": INT, "b": NULL, "c": deep}, has_nanos=False)
    assert plan.typed == {"a": pa.float64(), "b": TEXT, "c": TEXT}


def test_payload():
    """A column called data is the payload where it is there; one that is asked for, always."""
    assert Plan(ROLES).payload is None
    assert Plan(ROLES).widened({"data": TEXT}, has_nanos=False).payload == "data"
    assert Plan(Roles(space="u", timestamp="t", data="x")).payload == "x"


def test_nanoseconds():
    """The column that keeps them is called after the timestamp's and takes no other's name."""
    assert Plan(ROLES).nanos is None
    assert Plan(ROLES).widened({"a": INT}, has_nanos=True).nanos == "t_ns"
    assert Plan(ROLES).widened({"t_ns": INT}, has_nanos=True).nanos == "t_ns_"
