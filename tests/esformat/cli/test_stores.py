"""Commands accept object store locations as files."""

from __future__ import annotations

import pytest


def test_every_verb_takes_a_uri(esdb, s3, bucket, activity, tmp_path):
    """Every verb takes a URI and treats the object like a file."""
    (tmp_path / "clicks.jsonl").write_text('{"who": "ada", "at": "2026-03-01T08:00:00Z", "type": "page"}\n')
    out = f"s3://{bucket}/deep/clicks.esdb"
    written = esdb("write", out, "clicks.jsonl", "--space", "who", "--timestamp", "at", "--index", "type")
    assert (written.status, written.err) == (0, "")
    assert written.lines[0].startswith(f"{out}: 1 event of 1 space")
    assert out in esdb("info", out).text
    assert "ada" in esdb("spaces", out).text
    assert [row["space"] for row in esdb("scan", out, "--index", "type=page", "--format", "jsonl").rows] == ["ada"]
    assert esdb("verify", out).text.startswith(f"{out}: ok, 1 event")


@pytest.mark.parametrize("verb", ["info", "spaces", "scan", "verify"])
def test_what_is_not_there(esdb, bucket, verb):
    """A missing object is one line that names it."""
    result = esdb(verb, f"s3://{bucket}/none.esdb")
    assert (result.status, result.out) == (1, b"")
    assert "none.esdb" in result.err
    assert result.err.count("\n") == 1


def test_a_name_that_is_taken(esdb, s3, bucket, tmp_path):
    """An object is replaced only with `--force`."""
    (tmp_path / "clicks.jsonl").write_text('{"who": "ada", "at": "2026-03-01T08:00:00Z"}\n')
    command = ("write", f"s3://{bucket}/a.esdb", "clicks.jsonl", "--space", "who", "--timestamp", "at")
    assert esdb(*command).status == 0
    again = esdb(*command)
    assert again.status == 2
    assert "a.esdb: the object exists" in again.err
    assert esdb(*command, "--force").status == 0


def test_bad_rows_go_to_a_store(esdb, s3, bucket):
    """Bad rows are uploaded once all are known; an existing object, or one that is an input, stays unchanged."""
    rows = '{"who": "ada", "at": "2026-03-01T08:00:00Z"}\n{"who": "eve", "at": "never"}\n'
    s3.client.put_object(Bucket=bucket, Key="in.jsonl", Body=rows.encode())
    place = f"s3://{bucket}"
    command = ("write", f"{place}/out.esdb", f"{place}/in.jsonl", "--space", "who", "--timestamp", "at", "--on-error")
    written = esdb(*command, "collect", f"{place}/bad.jsonl")
    assert (written.status, written.err) == (0, "")
    assert f"1 bad row left out, see {place}/bad.jsonl" in written.text
    collected = s3.client.get_object(Bucket=bucket, Key="bad.jsonl")["Body"].read()
    assert b'"line": 2' in collected
    taken = esdb(*command, "collect", f"{place}/bad.jsonl")
    assert (taken.status, "exists: choose another name" in taken.err) == (2, True)
    same = esdb(*command, "collect", f"{place}/in.jsonl", "--force")
    assert (same.status, "is an input, too" in same.err) == (2, True)
    assert s3.client.get_object(Bucket=bucket, Key="in.jsonl")["Body"].read() == rows.encode()
