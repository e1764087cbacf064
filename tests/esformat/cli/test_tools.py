"""The verbs that make new segments from old ones: their output and statuses."""

from __future__ import annotations

import json

import pytest

import esformat


def test_merge_and_diff(esdb, activity):
    """`merge` of the parts that `split` makes gives the same events, and `diff` says so."""
    assert esdb("split", "activity.esdb", "parts", "--space", "customer-1", "--space", "other").lines == [
        "parts/activity-0000.esdb", "parts/activity-0001.esdb", "parts/activity-0002.esdb", "3 parts",
    ]  # fmt: skip
    parts = sorted(str(path) for path in (activity.parent / "parts").iterdir())
    result = esdb("merge", "merged.esdb", *parts)
    assert (result.status, result.err) == (0, "")
    assert result.lines[0] == "merged.esdb: 29 events of 4 spaces"
    result = esdb("diff", "activity.esdb", "merged.esdb")
    assert (result.status, result.lines) == (0, ["29 events in both, 0 only in activity.esdb, 0 only in merged.esdb"])


def test_diff_tells_by_its_status(esdb, activity):
    """Other indexes over the same events are not a difference; a file that cannot be compared has another status."""
    esdb("reindex", "activity.esdb", "bare.esdb", "--no-index")
    result = esdb("diff", "activity.esdb", "bare.esdb")
    assert (result.status, result.lines[0]) == (0, "index 'country': only in activity.esdb")
    for other in ("nowhere.esdb", "torn.esdb"):
        (activity.parent / "torn.esdb").write_bytes(activity.read_bytes()[:-9])
        result = esdb("diff", "activity.esdb", other)
        assert (result.status, result.err.count("\n")) == (2, 1)


def test_erase(esdb, activity):
    """`erase` reports what it erased and checked; `diff` confirms that only those events are gone."""
    result = esdb("erase", "activity.esdb", "rest.esdb", "--space", "customer-1", "--space", "nobody")
    assert (result.status, result.err) == (0, "")
    assert result.lines[:3] == [
        "rest.esdb: 10 events of 1 space erased", "  customer-1: 10 events", "  nobody: was not in the file",
    ]  # fmt: skip
    assert all(": ok, " in line for line in result.lines[result.lines.index("checked in the new file:") + 1 :][:6])
    result = esdb("diff", "activity.esdb", "rest.esdb")
    assert result.status == 1
    assert result.lines == [
        "customer-1: 10 only in activity.esdb, 0 only in rest.esdb",
        "19 events in both, 10 only in activity.esdb, 0 only in rest.esdb",
    ]


def test_erase_of_nothing(esdb, activity):
    """`erase` of an unknown space is an error and writes no file."""
    result = esdb("erase", "activity.esdb", "rest.esdb", "--space", "nobody")
    assert (result.status, result.err) == (1, "esdb: activity.esdb: no space 'nobody'\n")
    assert not (activity.parent / "rest.esdb").exists()


def test_repair(esdb, activity, tmp_path):
    """The status is 0 if no event is lost, even without the file's end, otherwise 1; both cases print counts."""
    assert esdb("repair", "activity.esdb", "saved.esdb").lines == ["saved.esdb: 29 events saved, none lost"]
    data = bytearray(activity.read_bytes())
    with esformat.open(activity) as segment:
        at = segment.info()["size_bytes"] - len(data)
    place = data.index(b"ESBK\x02") + 40 + at
    data[place] ^= 1
    (tmp_path / "bad.esdb").write_bytes(data)
    result = esdb("repair", "bad.esdb", "nothing.esdb")
    assert (result.status, result.lines) == (1, ["nothing.esdb: 0 events saved, 29 lost"])
    assert result.err.startswith("bad.esdb: at byte ")
    (tmp_path / "cut.esdb").write_bytes(activity.read_bytes()[:-60])
    result = esdb("repair", "cut.esdb", "whole.esdb")
    assert (result.status, result.lines) == (0, ["whole.esdb: 29 events saved, none lost"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["split", "activity.esdb", "."],
        ["split", "activity.esdb", ".", "--size", "0"],
        ["split", "activity.esdb", ".", "--size", "many"],
        ["erase", "activity.esdb", "x.esdb"],
        ["reindex", "activity.esdb", "x.esdb"],
        ["reindex", "activity.esdb", "x.esdb", "--index", "nothing"],
        ["recompress", "activity.esdb", "x.esdb", "--codec", "lz4", "--level", "3"],
        ["merge", "activity.esdb", "activity.esdb"],
    ],
)
def test_wrong_use(esdb, activity, arguments):
    """Wrong usage is one line and status 2, and writes nothing."""
    result = esdb(*arguments)
    assert result.status == 2, result
    assert result.err.count("\n") == 1
    assert list(activity.parent.iterdir()) == [activity]


def test_an_index_that_one_file_lacks(esdb, activity):
    """`scan --index` names the file without the index, and `merge` says that it drops it."""
    assert esdb("reindex", "activity.esdb", "plain.esdb", "--index", "country").status == 0
    refused = esdb("scan", "activity.esdb", "plain.esdb", "--index", "type=view")
    assert refused.status == 2
    assert "no index 'type' in plain.esdb; use --where, which needs no index" in refused.err
    refused = esdb("scan", "activity.esdb", "plain.esdb", "--index", "nope=view")
    assert "2 files: no index 'nope'; the indexes are: country" in refused.err
    merged = esdb("merge", "all.esdb", "activity.esdb", "plain.esdb")
    assert merged.lines[-1].startswith("note: index 'type' is dropped: not every INPUT with that column has it")
    assert "type" in json.loads(esdb("merge", "-", "activity.esdb", "plain.esdb", "--json").err)["notes"][0]
