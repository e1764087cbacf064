"""Parameter types of the command line."""

from __future__ import annotations

import click
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esformat.cli.params import ColumnType, Hex, Limit, Moment, Names, Pair, Several
from esformat.cli.root import main

MOMENTS = [
    ("2006-04-07", 1_144_368_000_000_000),
    ("2006-04-07T17:08", 1_144_429_680_000_000),
    ("2006-04-07 17:08:00.000001Z", 1_144_429_680_000_001),
    ("2006-04-07T17:08+02:00", 1_144_422_480_000_000),
    ("1969-12-31T23:59:59.999999", -1),
    ("1144429680000000", 1_144_429_680_000_000),
    ("1144429680000000000", 1_144_429_680_000_000),
    ("1144429680", 1_144_429_680_000_000),
    ("1144429680.25", 1_144_429_680_250_000),
    ("1144429680250", 1_144_429_680_250_000),
    ("-5us", -5),
    ("20060407ms", 20_060_407_000),
    ("0", 0),
]


@pytest.mark.parametrize(("text", "micros"), MOMENTS)
def test_moment(text, micros):
    """A time is ISO 8601, in UTC unless it has a zone, or a number since 1970 with a unit, written or inferred."""
    assert Moment().convert(text, None, None) == micros


@pytest.mark.parametrize("text", [
    "", "now", "-1h", "2006-02-30", "12:00", "2006-04-07T17:08:00.0000001", "20060407", "20060407170800", "1.5us",
    "9e9", "99999999999999s", "ms",
])  # fmt: skip
def test_no_moment(text):
    """Text that is not a time is refused."""
    with pytest.raises(click.BadParameter):
        Moment().convert(text, None, None)


@pytest.mark.parametrize(("text", "limit"), [("0", 0), ("7", 7), ("9" * 30, 2**63 - 1)])
def test_limit(text, limit):
    """A limit above the maximum is the maximum."""
    assert Limit().convert(text, None, None) == limit


@pytest.mark.parametrize("text", ["-1", "x", "1.5", "", "٣"])
def test_no_limit(text):
    """Text that is not a count is refused."""
    with pytest.raises(click.BadParameter, match="is not a number of lines"):
        Limit().convert(text, None, None)


@given(st.binary())
def test_hex(value):
    """Any bytes can be written in hexadecimal, in capitals or not."""
    assert Hex().convert(value.hex(), None, None) == value
    assert Hex().convert(value.hex(" ").upper(), None, None) == value


@pytest.mark.parametrize("text", ["0", "0x00", "xy", "é"])
def test_no_hex(text):
    """Text that is not whole bytes in hexadecimal is refused."""
    with pytest.raises(click.BadParameter, match="is not hexadecimal bytes"):
        Hex().convert(text, None, None)


def test_pair():
    """The first equals sign separates name and value; the value may be empty or contain more of them."""
    assert [Pair().convert(text, None, None) for text in ("a=b", "a=", "a=b=c")] == [
        ("a", "b"),
        ("a", ""),
        ("a", "b=c"),
    ]
    for text in ("a", "=b", ""):
        with pytest.raises(click.BadParameter, match="is not of the form NAME=VALUE"):
            Pair().convert(text, None, None)


def test_column_type():
    """Column types have familiar names."""
    assert ColumnType().convert("a=int64", None, None) == ("a", pa.int64())
    assert ColumnType().convert("a=timestamp", None, None) == ("a", pa.timestamp("us", "UTC"))
    with pytest.raises(click.BadParameter, match="invalid type 'json': expected one of string, int64"):
        ColumnType().convert("a=json", None, None)


def test_names():
    """Commas separate names, unless quoted."""
    assert Names().convert("a,b c,é", None, None) == ("a", "b c", "é")
    assert Names().convert('a,"b,c"', None, None) == ("a", "b,c")


@pytest.mark.parametrize(
    ("kind", "value"), [(Moment(), 5), (Limit(), 5), (Hex(), b"a"), (Pair(), ("a", "b")), (Names(), ("a",))]
)
def test_converted_already(kind, value):
    """A default that already has the right type stays unchanged."""
    assert kind.convert(value, None, None) == value


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        (["values"], "FILE..."),
        (["values", "shop.esdb"], "INDEX"),
        (["convert"], "FROM..."),
        (["convert", "shop.esdb"], "TO"),
        (["reindex", "shop.esdb", "--index", "code"], "OUT"),
        (["split", "shop.esdb", "--size", "1MiB"], "DIRECTORY"),
        (["merge", "shop.esdb"], "INPUT..."),
        (["scan"], "FILE..."),
    ],
    ids=" ".join,
)
def test_missing_arguments(esdb, given, missing):
    """Without arguments the first one is reported as missing; with only one, the last."""
    refused = esdb(*given)
    assert (refused.status, f"Missing argument '{missing}'" in refused.err) == (2, True)


def test_several_stand_alone_or_as_such():
    """Every argument of many values that precedes another argument reports missing values this way."""
    for name, command in main.commands.items():
        arguments = [each for each in command.params if isinstance(each, click.Argument)]
        for each in arguments[:-1]:
            assert each.nargs == 1 or isinstance(each, Several), name
