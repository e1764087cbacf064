"""Roles of columns are checked before anything is read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from esformat import UsageError
from esformat.convert.errors import InputError
from esformat.convert.roles import Roles, stored_names

NAMES = ["u", "t", "g", "i", "a", "b", "data"]


def roles(**options) -> Roles:
    return Roles(**{"space": "u", "timestamp": "t", "grouping": "g", "indexes": ("i",), **options})


LEFT_OVER = [
    ({}, ["a", "b"], "data", []),
    ({"columns": ("b", "a", "i")}, ["b", "a"], None, []),
    ({"data": "a"}, [], "a", []),
    ({"data": "a", "columns": ("b",)}, ["b"], "a", []),
    ({"data_json": True}, [], None, ["a", "b", "data"]),
    ({"data_json": True, "columns": ("b",)}, ["b"], None, ["a", "data"]),
    ({"space": "data"}, ["u", "a", "b"], None, []),
]


@pytest.mark.parametrize(("options", "typed", "payload", "json"), LEFT_OVER)
def test_what_is_left_over(options, typed, payload, json):
    """Columns without another role are typed columns, the payload, JSON or ignored."""
    found = roles(**options)
    assert found.typed(NAMES) == typed
    assert found.payload == payload
    assert found.json(NAMES) == json
    assert set(found.wanted(NAMES)) >= {*typed, *json, "t", "g", "i"}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"data": "a", "data_json": True}, "--data and --data-json cannot be combined; give one"),
        ({"indexes": ("i", "i")}, "--index names 'i' twice"),
        ({"columns": ("a", "b", "a")}, "--columns names 'a' twice"),
        ({"indexes": ("timestamp",)}, "--index timestamp: that name is reserved in segments; rename"),
    ],
)
def test_contradictions(options, complaint):
    """Contradictory options are refused immediately."""
    with pytest.raises(UsageError, match=complaint):
        roles(**options)


def test_text_columns():
    """Keys, times, indexes and payload are text in text formats, unless a type is requested."""
    assert roles(data="a").text == {"u", "t", "g", "i", "a"}
    assert roles(types={"i": pa.int64()}).text == {"u", "t", "g", "data"}


def test_check():
    """A named column must exist; a column that is kept by default need not."""
    roles().check(["u", "t", "g", "i"], "file")
    with pytest.raises(InputError, match="file: has no columns 'g' and 'i', only 'u', 't'"):
        roles().check(["u", "t"], "file")
    with pytest.raises(
        InputError, match="has no columns 'u' and 't' and 'g' and 'i', nor any other; choose the columns"
    ):
        roles().check([], "file")
    told = "has no columns 'u' and 't', only 'who', 'At'; choose the columns with --space and --timestamp, perhaps"
    with pytest.raises(InputError, match=f"{told} --space who --timestamp At$"):
        Roles(space="u", timestamp="t").check(["who", "At"], "file")
    for name in ("death_date", "pickupTime", "first.at"):
        with pytest.raises(InputError, match=rf"choose the column with --timestamp, perhaps --timestamp {name}$"):
            Roles(space="u", timestamp="t").check(["u", "update", "rate", name], "file")
    with pytest.raises(InputError, match=r"has no column 't', only 'u', 'x'; choose the column with --timestamp$"):
        Roles(space="u", timestamp="t").check(["u", "x"], "file")


def test_stored_names():
    """A typed column with a reserved name gets a free name."""
    assert stored_names(roles(), ["a", "space", "i", "space_", "timestamp"]) == {
        "a": "a", "space": "space_", "i": "i_", "space_": "space__", "timestamp": "timestamp_",
    }  # fmt: skip
