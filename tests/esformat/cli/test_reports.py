"""`--json`: every verb that reports prints its report as JSON, with the same facts as the text."""

from __future__ import annotations

import json

import pytest

REPORTS = [
    (["write", "new.esdb", "rows.csv"], {"path": "new.esdb", "events": 1, "spaces": 1, "bad_rows": 0}),
    (["convert", "activity.esdb", "a.parquet"], {"path": "a.parquet", "events": 29, "notes": []}),
    (["merge", "all.esdb", "activity.esdb"], {"path": "all.esdb", "events": 29, "spaces": 4}),
    (["split", "activity.esdb", ".", "--space", "other"], {"parts": ["activity-0000.esdb", "activity-0001.esdb"]}),
    (["reindex", "activity.esdb", "plain.esdb", "--no-index"], {"path": "plain.esdb", "events": 29, "indexes": {}}),
    (["recompress", "activity.esdb", "x.esdb"], {"path": "x.esdb", "events": 29}),
    (["repair", "activity.esdb", "x.esdb"], {"saved_events": 29, "lost_events": 0, "complete": True, "problems": []}),
    (["erase", "activity.esdb", "x.esdb", "--space", "other"], {"ok": True, "erased": {"other": 1}}),
    (["diff", "activity.esdb", "activity.esdb"], {"same": True, "common": 29, "spaces": []}),
    (["info", "activity.esdb"], {"events": 29}),
]


@pytest.mark.parametrize(("arguments", "facts"), REPORTS, ids=lambda each: each[0] if isinstance(each, list) else "")
def test_reports(esdb, activity, tmp_path, arguments, facts):
    """The report is one JSON document on standard output and nothing else."""
    (tmp_path / "rows.csv").write_text("space,timestamp\na,2024-03-01\n")
    result = esdb(*arguments, "--json")
    assert (result.status, result.err) == (0, "")
    report = json.loads(result.text)
    assert {name: report[name] for name in facts} == facts


def test_reports_beside_an_output(esdb, activity):
    """The report goes to standard error if the result goes to standard output."""
    result = esdb("merge", "-", "activity.esdb", "--json")
    assert json.loads(result.err)["path"] == "<stdout>"


def test_verify(esdb, activity, tmp_path):
    """Each file has an entry, whether valid, damaged or missing; the status is 1 if any is not valid."""
    data = bytearray(activity.read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "damaged.esdb").write_bytes(data)
    result = esdb("verify", "activity.esdb", "damaged.esdb", "absent.esdb", "--json")
    assert (result.status, result.err) == (1, "")
    sound, damaged, absent = json.loads(result.text)
    assert (sound["ok"], sound["events"], sound["problems"]) == (True, 29, [])
    assert not damaged["ok"]
    assert damaged["problems"][0]["what"]
    assert (absent["ok"], "no such file" in absent["error"]) == (False, True)
