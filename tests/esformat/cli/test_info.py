"""`esdb info` reports facts that agree with the segment."""

from __future__ import annotations

import json

import esformat


def test_json(esdb, activity):
    """`--json` prints everything as one JSON object."""
    result = esdb("info", "activity.esdb", "--json")
    assert (result.status, result.err) == (0, "")
    facts = json.loads(result.out)
    assert (facts["events"], facts["spaces"], facts["keys"], facts["codec"]) == (29, 4, "text", "zstd")
    assert facts["size_bytes"] == activity.stat().st_size
    assert facts["indexes"]["type"] == {"values": 2, "events": 28}
    assert facts["schema"]["timestamp"] == "timestamp[us, tz=UTC]"
    with esformat.open(activity) as segment:
        assert facts["min_timestamp"] == segment.min_timestamp
    assert sum(block["bytes"] for block in facts["blocks"].values()) <= facts["size_bytes"]


def test_table(esdb, activity):
    """The default output has the same facts for people."""
    result = esdb("info", "activity.esdb")
    assert result.status == 0
    facts = {line.split()[0]: line.split()[1:] for line in result.lines if line.strip()}
    assert facts["events"] == ["29"]
    assert facts["first"] == ["2024-03-01T12:00:00Z"]
    assert facts["last"] == ["2024-03-28T12:00:00Z"]
    assert facts["type"] == ["string", "2", "values", "in", "28", "events"]
    stored = json.loads(esdb("info", "activity.esdb", "--json").out)["blocks"]["data"]
    column, block = [line.split()[1:] for line in result.lines if line.split()[:1] == ["data"]]
    assert column == ["binary"]
    assert block[:2] == [str(stored["count"]), str(stored["bytes"])]
    assert any(line.startswith("bytes per event") for line in result.lines)
    assert "activity.esdb" in result.lines[0]


def test_no_events(esdb, tmp_path):
    """A segment without events has facts, too."""
    esformat.create(tmp_path / "empty.esdb").finish()
    result = esdb("info", "empty.esdb")
    assert result.status == 0
    assert ["first", "-"] in [line.split() for line in result.lines]


def test_properties(esdb, tmp_path):
    """The writer's properties are shown."""
    esformat.create(tmp_path / "kept.esdb", properties={"source.space": "user id"}).finish()
    assert ["source.space", "user", "id"] in [line.split() for line in esdb("info", "kept.esdb").lines]
