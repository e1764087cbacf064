"""Templates in files that tools derive from others: the same events, and no traces of erased ones."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest
import read_esdb
from payloads import URLS, payload, payload_table, write_payloads

import esformat
from esformat import tools


def _texts(path) -> bytes:
    """All texts in the templates of a file."""
    found = []
    for columns in read_esdb.File(path.read_bytes()).dictionaries.values():
        for entry in columns.values():
            if entry.templates:
                found += [value for variable in entry.templates.variables for value in variable.values]
                found += [literal for template in entry.templates.templates for literal in template.literals]
    return b"\n".join(found)


def _events(path):
    with esformat.open(path) as segment:
        return segment.scan().to_table().select(["space", "timestamp", "data", "text"]).to_pylist()


@pytest.fixture(scope="module")
def secret(tmp_path_factory):
    """A file in which one space has its own value and template."""
    path = tmp_path_factory.mktemp("secret") / "s.esdb"
    rnd = random.Random(2)
    table = payload_table(5000)
    listed = json.loads(payload(rnd))
    mine = []
    for _ in range(400):
        listed |= {"url": "/secret/place", "ms": rnd.randrange(100)}
        mine.append(json.dumps(listed, separators=(",", ":")).encode())
        mine.append(b'{"only":"theirs","n":%d}' % rnd.randrange(1000))
    own = {
        "space": ["zz"] * 800,
        "timestamp": pa.array(range(800), pa.int64()),
        "data": pa.array(mine, pa.binary()),
        "text": pa.nulls(800, pa.string()),
        "type": ["a"] * 800,
    }
    write_payloads(path, pa.concat_tables([table, pa.table(own)]))
    assert b"/secret/place" in _texts(path)
    assert b'{"only":"theirs","n":' in _texts(path)
    return path


def test_erased_values_are_overwritten(secret, tmp_path):
    """Texts that only erased events had are in no template; the other events stay the same."""
    out = tmp_path / "o.esdb"
    report = tools.erase(secret, out, ["zz"])
    assert report.ok
    assert _events(out) == [event for event in _events(secret) if event["space"] != "zz"]
    texts = _texts(out)
    assert b"secret" not in texts
    assert b"theirs" not in texts
    assert b"only" not in texts
    assert not report.reencoded
    assert report.dictionary_values >= 2
    assert URLS[3].encode() in texts
    assert esformat.verify(out).problems == ()


def test_erased_literals_with_a_nul(tmp_path):
    """A text of an erased event is removed even if its parts occur in adjacent literals of other templates."""
    path, out = tmp_path / "l.esdb", tmp_path / "o.esdb"
    rnd = random.Random(3)
    kept = [b"loading of %d ms" % rnd.randrange(10**6) for _ in range(6000)]
    lines = [*kept, *[b"loading of \0 ms"] * 1000]
    spaces = ["kept"] * len(kept) + ["zz"] * 1000
    with esformat.create(path) as writer:
        writer.add_table(
            pa.table({"space": spaces, "timestamp": [1] * len(lines), "data": pa.array(lines, pa.binary())})
        )
    assert b"of \0 ms" in _texts(path)
    assert not tools.erase(path, out, ["zz"]).reencoded
    assert b"\0" not in _texts(out)


def test_erasing_others_leaves_it(secret, tmp_path):
    """Erasing other spaces keeps the texts of the remaining events."""
    out = tmp_path / "o.esdb"
    tools.erase(secret, out, ["s01", "s02"])
    assert _events(out) == [event for event in _events(secret) if event["space"] not in ("s01", "s02")]
    assert b"/secret/place" in _texts(out)


def test_recompressed(secret, tmp_path):
    """A recompressed file has templates if its codec supports them."""
    for codec in ("zstd", "lz4", "none"):
        out = tmp_path / f"{codec}.esdb"
        tools.recompress(secret, out, codec=codec, templates=codec == "zstd")
        assert _events(out) == _events(secret)
        assert bool(_texts(out)) == (codec == "zstd")


def test_merged(secret, tmp_path):
    """Each file's blocks keep their templates; interleaved ones get those of the first file."""
    other, out = tmp_path / "other.esdb", tmp_path / "o.esdb"
    write_payloads(other, payload_table(4000, seed=9))
    tools.merge([secret, other], out)
    key = lambda event: (event["space"], event["timestamp"])  # noqa: E731 - of two sorts
    assert sorted(_events(out), key=key) == sorted(_events(secret) + _events(other), key=key)
    assert esformat.verify(out).problems == ()
    assert len(read_esdb.File(out.read_bytes()).dictionaries) >= 2


def test_split_and_repaired(secret, tmp_path):
    """A repaired file with one damaged byte has all events except those of one block."""
    damaged = bytearray(secret.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    broken, out = tmp_path / "b.esdb", tmp_path / "o.esdb"
    broken.write_bytes(damaged)
    report = tools.repair(broken, out)
    events = {json.dumps([e["space"], str(e["timestamp"]), str(e["data"]), e["text"]]) for e in _events(secret)}
    saved = [json.dumps([e["space"], str(e["timestamp"]), str(e["data"]), e["text"]]) for e in _events(out)]
    assert report.saved_events == len(saved) >= len(events) // 2
    assert events.issuperset(saved)
