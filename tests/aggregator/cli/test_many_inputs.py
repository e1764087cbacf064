"""Files, directories, patterns and store locations as inputs of `append` and `import`, and as outputs of `export`."""

from __future__ import annotations

import gzip

import pytest
from effort import long

HOW = ("--space", "who", "--timestamp", "at")
CLICKS = (
    '{"who": "ada", "at": "2026-03-01T08:00:00Z", "n": 1}\n'
    '{"who": "bob", "at": "2026-03-01T08:00:05Z", "n": 2}\n'
    '{"who": "ada", "at": "2026-03-01T08:01:00Z", "n": 3}\n'
)


@pytest.fixture(params=["disk", pytest.param("store", marks=long)])
def place(request, tmp_path):
    """An empty directory on disk or an empty prefix of a store, with a function that writes a file there."""
    if request.param == "disk":

        def put(name: str, data: bytes) -> None:
            (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "in" / name).write_bytes(data)

        return str(tmp_path / "in"), put
    s3, bucket = request.getfixturevalue("s3"), request.getfixturevalue("bucket")
    client = s3.client
    return f"s3://{bucket}/in", lambda name, data: client.put_object(Bucket=bucket, Key=f"in/{name}", Body=data)


def test_inputs_and_outputs(command, place):
    """A directory is imported whole and exported to a segment inside it; segments there can be imported again."""
    root, put = place
    put("a.jsonl", CLICKS.encode())
    put("deep/b.jsonl.gz", gzip.compress(CLICKS.encode()))
    put("_SUCCESS", b"")
    put("notes.txt", b"nothing")
    command("init", "data")
    imported = command("import", "data", "clicks", root, *HOW, "--json")
    assert (imported.status, imported.json["events"]) == (0, 6)
    assert command("append", "data", "clicks", f"{root}/*.jsonl", *HOW, "--json").json["events"] == 3
    assert command("export", "data", "clicks", f"{root}/all.esdb").status == 0
    assert command("scan", "data", "clicks", "-o", f"{root}/ada.esdb").status == 0
    again = command("import", "data", "again", f"{root}/*.esdb", "--json")
    assert again.err == ""
    assert (again.status, again.json["events"]) == (0, 18)
    both = command("import", "data", "both", root)
    assert (both.status, "cannot be imported together" in both.err) == (2, True)
    assert command("import", "data", "none", f"{root}/none/*.csv").status == 2
    assert "none" not in command("topics", "data").text
