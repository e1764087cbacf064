"""`erase`: the result is the segment without the spaces and without traces of them, and the report is right."""

from __future__ import annotations

import errno
import os
import random
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from effort import examples, long
from event_strategies import Recording, recordings
from hypothesis import given
from hypothesis import strategies as st
from segments import check_segment, phrases, write_rows
from small_pieces import cut_small

import esformat
from esformat.format.templates import TemplateTable
from esformat.tools import erase
from esformat.tools.selection import everything


@examples(60)
@given(st.data(), recordings())
def test_erase_is_a_segment_without_the_spaces(data: st.DataObject, recording: Recording) -> None:
    """Any spaces of any file can be erased; the original stays unchanged."""
    keys = sorted({row.space for row in recording.rows})
    if not keys:
        return
    doomed = data.draw(st.lists(st.sampled_from(keys), min_size=1, unique=True))
    with tempfile.TemporaryDirectory() as directory, cut_small(recording.pieces):
        folder = Path(directory)
        path = write_rows(folder / "all.esdb", recording, recording.rows, recording.codec)
        before = path.read_bytes()
        report = erase(path, folder / "rest.esdb", doomed)
        kept = [row for row in recording.rows if row.space not in doomed]
        check_segment(folder / "rest.esdb", recording, kept)
        assert report.ok
        assert report.events == len(recording.rows) - len(kept)
        assert path.read_bytes() == before


SECRET = b"Wilhelmina Secretsdottir, 12 Hidden Lane"


def _with_secret(path: Path, copies: int) -> Path:
    """A file large enough for dictionaries, in which one space has unique contents."""
    rnd = random.Random(5)
    count = 30_000
    names = [f"customer-{rnd.randrange(300):03}" for _ in range(count)] + ["the-secret-one"] * copies
    data = phrases(rnd, count)
    data += [b'{"page": "/%d", "who": "%s"}' % (i, SECRET) for i in range(copies)]
    kinds = [rnd.choice(["view", "click"]) for _ in range(count)] + ["wedding"] * copies
    notes = [rnd.choice(["calm", "busy"]) for _ in range(count)] + ["jubilee"] * copies
    table = pa.table(
        {
            "space": names,
            "timestamp": pa.array(np.arange(len(names)), pa.int64()),
            "data": pa.array(data, pa.binary()),
            "type": kinds,
            "note": notes,
        }
    )
    with esformat.create(path, indexes=["type"]) as writer:
        writer.add_table(table)
    return path


def _everything_stored(path: Path) -> bytes:
    """All bytes of a file, and the decompressed contents of its dictionaries, indexes and directory."""
    with esformat.open(path) as segment:
        reader = segment._reader
        parts = [path.read_bytes(), str(segment.info()).encode()]
        for kind, number, _ in reader.table:
            if kind == 9:
                for column in reader.dictionary(number):
                    parts += [column.zstd, str(column.values).encode(), *_texts(column.templates)]
        parts += [str(list(segment.index_values(name).items())).encode() for name in segment.indexes]
        parts += [str(segment.scan().to_table().to_pylist()).encode()]
    return b"".join(parts)


def _texts(templates: TemplateTable | None) -> list[bytes]:
    """All texts in templates."""
    if templates is None:
        return []
    literals = [literal for template in templates.templates for literal in template.literals]
    return literals + [value for variable in templates.variables for value in variable.values]


@pytest.mark.parametrize("copies", [3, pytest.param(30_000, marks=long)])
def test_nothing_is_left(tmp_path, copies):
    """No key, payload, index value or coded value remains, not even in dictionaries; the report is right."""
    path = _with_secret(tmp_path / "all.esdb", copies)
    report = erase(path, tmp_path / "rest.esdb", ["the-secret-one"])
    assert report.ok
    assert (report.events, report.index_entries, report.index_values) == (copies, {"type": copies}, {"type": 1})
    assert report.dictionary_values == 2 if copies == 3 else report.dictionary_values > 2 or report.reencoded
    left = _everything_stored(tmp_path / "rest.esdb")
    for trace in (b"secret", b"wedding", b"jubilee", SECRET, *(SECRET[at : at + 8] for at in range(len(SECRET) - 8))):
        assert trace not in left
    assert esformat.verify(tmp_path / "rest.esdb").ok
    if copies == 3:
        assert b"the-secret-one" in _everything_stored(path)  # so that the check would find it
        assert report.copied_blocks > report.encoded_blocks
    with esformat.open(tmp_path / "rest.esdb") as segment:
        assert "the-secret-one" not in segment
        assert segment.scan_index("type", "click").count() == segment.index_values("type")["click"]


def test_words_of_lines_are_gone(tmp_path):
    """Words that only an erased space has are in no template; the other lines are unchanged."""
    rnd = random.Random(3)
    kept = [b"May 3 10:00:%02d app[%d]: user %d logged in" % (n % 60, rnd.randrange(9999), n) for n in range(20_000)]
    gone = [b"May 3 10:00:%02d vault[7]: passphrase %d opened by quuxwoman" % (n % 60, n) for n in range(400)]
    spaces = ["all"] * len(kept) + ["one"] * len(gone)
    with esformat.create(tmp_path / "all.esdb") as writer:
        writer.add_table(pa.table({"space": spaces, "timestamp": range(len(spaces)), "data": kept + gone}))
    with esformat.open(tmp_path / "all.esdb") as segment:
        assert segment.info()["templates"]
    assert b"passphrase" in _everything_stored(tmp_path / "all.esdb")
    assert erase(tmp_path / "all.esdb", tmp_path / "rest.esdb", ["one"]).ok
    left = _everything_stored(tmp_path / "rest.esdb")
    assert not any(word in left for word in (b"vault", b"passphrase", b"opened by", b"quuxwoman"))
    with esformat.open(tmp_path / "rest.esdb") as segment:
        assert segment.scan().to_table()["data"].to_pylist() == kept


def test_checks_can_fail(tmp_path, monkeypatch):
    """The report of an erase that misses something says so."""
    path = _with_secret(tmp_path / "all.esdb", 3)
    monkeypatch.setattr(sys.modules["esformat.tools.erase"], "rows_outside", lambda ranges, count: everything)
    report = erase(path, tmp_path / "rest.esdb", ["the-secret-one"])
    assert not report.ok
    failed = {check.what for check in report.checks if not check.ok}
    assert failed == {"find", "space filter", "directory", "events", "index type"}


def test_no_such_space(tmp_path):
    """An unknown space is an error and writes no file; among several spaces the unknown ones are named."""
    path = _with_secret(tmp_path / "all.esdb", 3)
    with pytest.raises(esformat.SpaceNotFoundError):
        erase(path, tmp_path / "rest.esdb", ["nobody"])
    assert list(tmp_path.iterdir()) == [path]
    assert erase(path, tmp_path / "rest.esdb", ["nobody", "the-secret-one"]).absent == ("nobody",)


def test_a_read_that_stops_early_hides_no_match(tmp_path, monkeypatch):
    """The remaining occurrences of the key are counted in the whole file, even if reads are short."""
    path = tmp_path / "a.esdb"
    with esformat.create(path, codec="none", templates=False) as writer:
        for number in range(50):
            writer.add("customer-1" if number % 10 else f"other-{number}", b"paid by customer-1", timestamp=number)
    expected = erase(path, tmp_path / "b.esdb", ["customer-1"]).stored_matches
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda file, size, at: real(file, min(size, 100), at))
    assert erase(path, tmp_path / "c.esdb", ["customer-1"]).stored_matches == expected
    assert expected["customer-1"] >= 5


@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_disk_that_fails_while_the_new_file_is_looked_at(tmp_path, monkeypatch, overwrite, place):
    """If the disk fails at the first or last read of the new file, it does not appear and existing files stay: the
    new file is checked before it gets its name.
    """
    path, out = tmp_path / "a.esdb", tmp_path / "b.esdb"
    with esformat.create(path) as writer:
        writer.add("customer-1", b"paid", timestamp=1)
    if overwrite:
        out.write_bytes(path.read_bytes())
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    real = os.pread

    reads, fails_at = [], None

    def failing(file, *asked):
        if os.fstat(file).st_ino != path.stat().st_ino:
            reads.append(asked)
            if len(reads) - 1 == fails_at:
                raise OSError(errno.EIO, "Input/output error")
        return real(file, *asked)

    monkeypatch.setattr(os, "pread", failing)
    assert erase(path, tmp_path / "whole.esdb", ["customer-1"]).ok
    (tmp_path / "whole.esdb").unlink()
    fails_at = range(len(reads))[place]
    reads.clear()
    with pytest.raises(OSError, match="Input/output error"):
        erase(path, out, ["customer-1"], overwrite=overwrite)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
