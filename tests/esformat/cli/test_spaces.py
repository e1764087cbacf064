"""`esdb spaces`: keys and their numbers of events."""

from __future__ import annotations

import pytest

import esformat

COUNTS = {"customer-0": 9, "customer-1": 10, "customer-2": 9, "other": 1}


def test_all(esdb, activity):
    """Every space is printed with its number of events, by key."""
    result = esdb("spaces", "activity.esdb")
    assert (result.status, result.err) == (0, "")
    assert result.rows == [{"space": space, "events": count} for space, count in COUNTS.items()]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--prefix", "customer-"], ["customer-0", "customer-1", "customer-2"]),
        (["--prefix", "nope"], []),
        (["--prefix-hex", "6f"], ["other"]),
        (["--sort", "count"], ["customer-1", "customer-0", "customer-2", "other"]),
        (["--sort", "count", "--limit", "2"], ["customer-1", "customer-0"]),
        (["--limit", "2"], ["customer-0", "customer-1"]),
        (["--limit", "0"], []),
    ],
)
def test_options(esdb, activity, options, expected):
    """Options select spaces and change their order."""
    assert [row["space"] for row in esdb("spaces", "activity.esdb", *options).rows] == expected


def test_groupings(esdb, activity):
    """`--groupings` prints a line for each grouping."""
    result = esdb("spaces", "activity.esdb", "--groupings", "--prefix", "customer-1")
    assert result.rows == [
        {"space": "customer-1", "grouping": "", "events": 5},
        {"space": "customer-1", "grouping": "web", "events": 5},
    ]
    assert esdb("spaces", "activity.esdb", "--groupings", "--sort", "count", "--limit", "1").rows[0]["events"] == 5


def test_formats(esdb, activity):
    """The list is available as CSV and as a table."""
    assert (
        esdb("spaces", "activity.esdb", "--format", "csv", "--limit", "1").text == '"space","events"\n"customer-0",9\n'
    )
    lines = esdb("spaces", "activity.esdb", "--format", "table").lines
    assert [line.split() for line in lines[:1] + lines[2:]] == [
        ["space", "events"], *([space, str(count)] for space, count in COUNTS.items()),
    ]  # fmt: skip


def test_table_shows_the_first_fifty(esdb, tmp_path):
    """A table shows the first fifty rows and the number of the others."""
    with esformat.create(tmp_path / "long.esdb") as writer:
        for number in range(120):
            writer.add(f"{number:03}", b"", timestamp=number)
    lines = esdb("spaces", "long.esdb", "--format", "table").lines
    assert len(lines) == 53
    assert lines[-1] == "… and 70 more: --limit N shows more, --format jsonl all"
    assert len(esdb("spaces", "long.esdb", "--format", "table", "--limit", "60").lines) == 62
    assert len(esdb("spaces", "long.esdb").lines) == 120


def test_binary_keys(esdb, tmp_path):
    """Keys that are not text are printed as base64."""
    with esformat.create(tmp_path / "binary.esdb", keys="binary") as writer:
        writer.add(b"\xff\x00", b"x", timestamp=1)
        writer.add(b"text", b"y", timestamp=2)
    assert esdb("spaces", "binary.esdb").rows == [
        {"space": "text", "events": 1}, {"space": {"base64": "/wA="}, "events": 1},
    ]  # fmt: skip
    assert len(esdb("spaces", "binary.esdb", "--prefix-hex", "ff").rows) == 1
