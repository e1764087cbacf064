"""Bounds that a filter implies for columns: valid for every row that satisfies it, and as narrow as possible."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from esformat.format.schema import EventSchema, Field
from esformat.read.ask.arrow_filter import take_apart
from esformat.read.ask.bounds import NOTHING, Domain, admits_nothing, bounded_by, bounded_by_all, columns_of

SCHEMA = EventSchema(
    (
        Field("type", pa.string(), indexed=True),
        Field("code", pa.int8(), indexed=True),
        Field("flag", pa.bool_(), indexed=True),
        Field("data", pa.binary()),
        Field("amount", pa.int64()),
    )
)
space, grouping, moment = pc.field("space"), pc.field("grouping"), pc.field("timestamp")
kind, code, flag, amount = pc.field("type"), pc.field("code"), pc.field("flag"), pc.field("amount")
NULL = pa.scalar(None, pa.bool_())


def at(value: int, unit: str = "us", zone: str | None = "UTC") -> pa.Scalar:
    """A timestamp."""
    return pa.scalar(value, pa.timestamp(unit, zone))


def values(*listed: object) -> Domain:
    """A domain of some values."""
    return Domain(frozenset(listed))


def between(low: object, high: object) -> Domain:
    """A domain [low, high)."""
    return Domain(None, low, high)


def in_duckdb(field: pc.Expression, listed: object) -> pc.Expression:
    """IN as DuckDB writes it."""
    return pc.if_else(field.is_valid(), field.isin(listed), NULL)


CASES = [
    # one comparison
    (space == "a", {"space": values(b"a")}),
    (space == "é", {"space": values("é".encode())}),
    (space == pa.scalar("a", pa.large_string()), {"space": values(b"a")}),
    (space == pa.scalar(b"a"), {"space": values(b"a")}),
    (space < "b", {"space": between(None, b"b")}),
    (space <= "b", {"space": between(None, b"b\0")}),
    (space > "b", {"space": between(b"b\0", None)}),
    (space >= "b", {"space": between(b"b", None)}),
    (pc.scalar("b") >= space, {"space": between(None, b"b\0")}),
    (grouping == "", {"grouping": values(b"")}),
    (moment == at(5), {"timestamp": values(5)}),
    (moment < at(5), {"timestamp": between(None, 5)}),
    (moment <= at(5), {"timestamp": between(None, 6)}),
    (moment > at(5), {"timestamp": between(6, None)}),
    (moment >= at(5, zone="Asia/Tokyo"), {"timestamp": between(5, None)}),
    (moment >= at(5, "ms"), {"timestamp": between(5000, None)}),
    (moment >= at(5001, "ns"), {"timestamp": between(6, None)}),
    (moment > at(5001, "ns"), {"timestamp": between(6, None)}),
    (moment > at(5000, "ns"), {"timestamp": between(6, None)}),
    (moment < at(-5001, "ns"), {"timestamp": between(None, -5)}),
    (moment <= at(-5001, "ns"), {"timestamp": between(None, -5)}),
    (moment == at(5000, "ns"), {"timestamp": values(5)}),
    (moment == at(5001, "ns"), NOTHING),
    (kind == "page", {"type": values("page")}),
    (code == 3, {"code": values(3)}),
    (flag == True, {"flag": values(True)}),  # noqa: E712 - an expression, not a comparison
    (flag, {"flag": values(True)}),
    (~flag, {"flag": values(False)}),
    (kind == pa.scalar(None, pa.string()), NOTHING),
    # a prefix
    (pc.starts_with(space, "a"), {"space": between(b"a", b"b")}),
    (pc.starts_with(space, "") & (grouping == "g"), {"grouping": values(b"g")}),
    (pc.starts_with(space, "a", ignore_case=True) & (grouping == "g"), {"grouping": values(b"g")}),
    (pc.starts_with(kind, "a") & (grouping == "g"), {"grouping": values(b"g")}),
    # one of several
    (space.isin(["a", "b"]), {"space": values(b"a", b"b")}),
    (space.isin(["a", None]), {"space": values(b"a")}),
    (space.isin(pa.array([], pa.string())), NOTHING),
    (kind.isin(["page", "cart"]), {"type": values("page", "cart")}),
    (in_duckdb(kind, ["page", "cart"]), {"type": values("page", "cart")}),
    (in_duckdb(code, pa.array([1, 2], pa.int8())), {"code": values(1, 2)}),
    (moment.isin(pa.array([5000, 7000], pa.timestamp("ns", "UTC"))), {"timestamp": values(5, 7)}),
    ((space == "a") | (space == "b") | (space == "c"), {"space": values(b"a", b"b", b"c")}),
    ((space == "a") | (space > "x"), {"space": between(b"a", None)}),
    ((moment == at(3)) | (moment == at(9)), {"timestamp": values(3, 9)}),
    ((moment < at(3)) | (moment == at(9)), {"timestamp": between(None, 10)}),
    # a conjunction
    ((space == "a") & (moment >= at(3)) & (moment < at(9)), {"space": values(b"a"), "timestamp": between(3, 9)}),
    ((space == "a") & (kind == "page"), {"space": values(b"a"), "type": values("page")}),
    ((space >= "a") & (space < "b"), {"space": between(b"a", b"b")}),
    (space.isin(["a", "b", "c"]) & (space > "a") & (space != "b"), {"space": values(b"b", b"c")}),
    ((space == "a") & (space == "b"), NOTHING),
    ((moment >= at(9)) & (moment < at(9)), NOTHING),
    (pc.and_kleene(space == "a", grouping == "g"), {"space": values(b"a"), "grouping": values(b"g")}),
    (pc.or_kleene(space == "a", space == "b"), {"space": values(b"a", b"b")}),
    # an OR bounds what all its sides bound
    (((space == "a") & (moment < at(5))) | ((space == "b") & (grouping == "g")), {"space": values(b"a", b"b")}),
    ((space == "a") | (grouping == "g"), {}),
    ((space == "a") | (amount == 1), {}),
    ((kind == "page") | ((space == "a") & (space == "b")), {"type": values("page")}),
    (((space == "a") & (space == "b")) | (kind == "page"), {"type": values("page")}),
    (pc.scalar(False) | (space == "a"), {"space": values(b"a")}),
    (pc.if_else(flag, space == "a", space == "b"), {"space": values(b"a", b"b")}),
    # unknown parts bound nothing, and do not hide the bounds beside them
    (space != "a", {}),
    (~(space == "a"), {}),
    (space.is_valid(), {}),
    (kind.is_null(), {}),
    (amount == 1, {}),
    (pc.field("nowhere") == 1, {}),
    (pc.field("type", "x") == "page", {}),
    (space == grouping, {}),
    (pc.ends_with(space, "a"), {}),
    (pc.utf8_lower(space) == "a", {}),
    (code.cast("int64") == 3, {}),
    (code == 3.0, {}),
    (code < 3, {}),
    (kind > "page", {}),
    (kind == pa.scalar(b"page"), {}),
    (kind.isin(["page", None]), {}),
    (moment == at(5, zone=None), {}),
    (moment.isin(pa.array([5001], pa.timestamp("ns", "UTC"))), {}),
    (pc.scalar(True), {}),
    (pc.scalar(False), NOTHING),
    (NULL, NOTHING),
    ((space == "a") & pc.starts_with(kind, "p") & (pc.field("data") == b"x"), {"space": values(b"a")}),
    (pc.is_in(space, options=pc.SetLookupOptions(pa.array(["a"]))), {"space": values(b"a")}),
]


def expression(case: object) -> pc.Expression:
    """A case as an expression; some cases are bare scalars."""
    return case if isinstance(case, pc.Expression) else pc.scalar(case)


@pytest.mark.parametrize(("case", "expected"), CASES, ids=[str(case[0]) for case in CASES])
def test_bounds(case, expected):
    """The bounds of a filter are keys as bytes, microseconds and index values."""
    bounds = bounded_by(take_apart(expression(case)), SCHEMA).bounds
    if expected is NOTHING:
        assert admits_nothing(bounds)
    else:
        assert bounds == expected


@pytest.mark.parametrize(("prefix", "end"), [(b"\xfe\xff", b"\xff"), (b"\xff", None), (b"a\xff\0", b"a\xff\x01")])
def test_prefix_of_bytes(prefix, end):
    """A prefix of binary keys need not be UTF-8; one of another column bounds nothing."""
    binary = EventSchema(SCHEMA.fields, binary_keys=True)
    assert bounded_by(take_apart(pc.starts_with(space, prefix)), binary).bounds == {"space": between(prefix, end)}
    assert bounded_by(take_apart(pc.starts_with(pc.field("data"), prefix)), binary).bounds == {}


EXACT = [
    (space == "a") & (moment >= at(5)) & (kind == "page"),
    in_duckdb(space, ["a", "b"]),
    pc.starts_with(space, "a") & flag & ~flag,
    (kind == "page") | ((space == "a") & (space == "b")),
    pc.scalar(False),
    kind == pa.scalar(None, pa.string()),
]
NOT_EXACT = [
    space != "a",
    (space == "a") & (amount == 1),
    in_duckdb(kind, ["page"]) & (code < 3),
    (space == "a") | (grouping == "g"),
    (moment < at(3)) | (moment > at(9)),
    pc.if_else(flag, pc.scalar(False), space == "b"),
    pc.or_(kind == "page", NULL),
    kind.isin(["page", None]),
    moment.isin(pa.array([5001], pa.timestamp("ns", "UTC"))),
    pc.starts_with(space, "a", ignore_case=True),
]


@pytest.mark.parametrize("case", [*EXACT, *NOT_EXACT], ids=str)
def test_bounds_that_say_all(case):
    """Bounds are exact if every event within them is known to satisfy the filter."""
    assert bounded_by(take_apart(expression(case)), SCHEMA).exact == any(case is each for each in EXACT)


COMPARISONS = [
    ([], True),
    ([("space", "=", "a"), ("timestamp", ">", 5), ("timestamp", "<=", 9)], True),
    ([("space", ">=", "é"), ("space", "<", "z"), ("grouping", "IN", ["", "g"])], True),
    ([("type", "IN", ["page", "click"]), ("flag", "=", True), ("code", "=", 3)], True),
    ([("space", "=", "a"), ("space", "=", "b")], True),
    ([("space", "=", None)], True),
    ([("type", "IN", ["page", None])], False),
    ([("space", "IN", ["a", None])], True),
    ([("space", "!=", "a")], False),
    ([("code", "<", 3), ("space", "=", "a")], False),
    ([("amount", "=", 3), ("space", "=", "a")], False),
    ([("nowhere", "=", 3)], False),
]
_COMPARED = {"=": "equal", "!=": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}


@pytest.mark.parametrize(("comparisons", "exact"), COMPARISONS, ids=str)
def test_comparisons(comparisons, exact):
    """Comparisons have the same bounds as the equivalent pyarrow filter."""
    said = bounded_by_all(comparisons, SCHEMA)
    assert said.exact == exact
    expected = pc.scalar(True)
    for name, operator, value in comparisons:
        if name in SCHEMA.arrow.names:
            column = SCHEMA.arrow.field(name).type
            one = pc.field(name).isin(pa.array(value, column)) if operator == "IN" else None
            one = getattr(pc, _COMPARED[operator])(pc.field(name), pa.scalar(value, column)) if one is None else one
            expected = expected & one
    assert said.bounds == bounded_by(take_apart(expected), SCHEMA).bounds


def test_binary_keys():
    """Binary keys are bounded by bytes."""
    steps = take_apart((space > b"\xff") & (grouping == b"\0"))
    assert bounded_by(steps, EventSchema((), binary_keys=True)).bounds == {
        "space": between(b"\xff\0", None),
        "grouping": values(b"\0"),
    }


def test_deep_filter():
    """Thousands of alternatives need no deep stack."""
    many = space == "0"
    for number in range(1, 3000):
        many = many | (space == str(number))
    assert bounded_by(take_apart(many), SCHEMA).bounds == {"space": values(*(str(n).encode() for n in range(3000)))}


def test_columns():
    """The columns of a filter are found; a nested field counts as its column."""
    assert columns_of(take_apart((space == "a") & (pc.field("place", "x") > amount))) == {"space", "place", "amount"}
