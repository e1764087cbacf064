"""`verify`: each rule of the format is checked, a damaged block is one problem, and no bytes make it fail.

Damage by bits and cuts is in `tests/spec/`. These files break a rule but have valid checksums.
"""

from __future__ import annotations

import random

import make_damaged
import make_golden
import numpy as np
import pyarrow as pa
import pytest
from broken_writer import BROKEN, no_sorting, null_slots
from effort import ALL, share_of
from small_pieces import Pieces, cut_small

import esformat
from esformat.tools.verification import coverage
from esformat.tools.verification.report import MAX_PROBLEMS, Findings

PIECES = Pieces(block_rows=16, leaf_blocks=4, leaf_runs=20, page_values=8, chunk_entries=12)


def _table(count: int = 300) -> pa.Table:
    rnd = random.Random(1)
    return pa.table(
        {
            "space": [f"s{rnd.randrange(40):02}" for _ in range(count)],
            "grouping": [rnd.choice(["", "g"]) for _ in range(count)],
            "timestamp": pa.array([rnd.randrange(10**6) for _ in range(count)], pa.int64()),
            "data": pa.array([b"%d" % rnd.randrange(10**9) for _ in range(count)], pa.binary()),
            "type": [rnd.choice(["view", "view", "buy", None]) for _ in range(count)],
            "id": pa.array([i // 2 if i % 3 else None for i in range(count)], pa.int32()),
        }
    )


def _write(folder, table: pa.Table | None = None, **options) -> esformat.BytesSource:
    path = folder / "written.esdb"
    with cut_small(PIECES), esformat.create(path, **({"indexes": ["type", "id"]} | options)) as out:
        out.add_table(_table() if table is None else table)
    return esformat.BytesSource(path.read_bytes(), "written.esdb")


@pytest.mark.parametrize("rule", share_of(BROKEN, 2))
def test_broken_rule(tmp_path, monkeypatch, rule):
    """A file that breaks one rule despite valid checksums is reported with the reason."""
    breaks, words = BROKEN[rule]
    with monkeypatch.context() as patch:
        breaks(patch)
        source = _write(tmp_path)
    report = esformat.verify(source)
    assert not report.ok
    assert any(words in problem.what for problem in report.problems), [*map(str, report.problems)]


def test_sound_file(tmp_path):
    """The same file without a broken rule has no problem, and the report has its facts."""
    source = _write(tmp_path)
    seen: list[tuple[int, int]] = []
    report = esformat.verify(source, progress=lambda done, total: seen.append((done, total)))
    assert report == esformat.Report("written.esdb", source.size, 300, report.blocks, ())
    assert report.ok
    assert report.blocks == len(make_damaged.blocks(source.read_at(0, source.size)))
    assert seen == sorted(seen)
    assert seen[-1] == (source.size, source.size)
    assert all(total == source.size for _, total in seen)


def test_times_within_a_run(tmp_path, monkeypatch):
    """Timestamps must not decrease within a run, neither inside a block nor from one to the next."""
    for block_rows in (1, 5):
        table = pa.table({"space": ["a"] * 5, "timestamp": pa.array([5, 4, 3, 9, 8], pa.int64())})
        with monkeypatch.context() as patch:
            no_sorting(patch)
            with cut_small(Pieces(block_rows=block_rows)):
                path = tmp_path / f"{block_rows}.esdb"
                with esformat.create(path) as out:
                    out.add_table(table.append_column("data", pa.array([b""] * 5, pa.binary())))
        problems = esformat.verify(path).problems
        words = "do not follow" if block_rows == 1 else "decrease within a run"
        assert any(words in problem.what for problem in problems), [*map(str, problems)]


def test_slots_of_nulls(tmp_path, monkeypatch):
    """The slot of a null must contain 0, not leftover memory."""
    garbage = pa.Array.from_buffers(
        pa.int32(), 4, [pa.py_buffer(b"\x0b"), pa.py_buffer(np.array([1, 2, 3, 4], np.int32))]
    )
    table = pa.table({"space": ["a"] * 4, "timestamp": pa.array(range(4), pa.int64()), "n": garbage})
    with monkeypatch.context() as patch:
        null_slots(patch)
        source = _write(tmp_path, table, indexes=[])
    assert "the slot of a null does not hold 0" in str(esformat.verify(source).problems[0])
    assert esformat.verify(_write_again(tmp_path, table)).ok


def _write_again(folder, table):
    (folder / "written.esdb").unlink()
    return _write(folder, table, indexes=[])


# ── damage ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_damaged_block_is_one_problem(tmp_path):
    """Any damaged block is reported as the only problem, with its position and consequences."""
    source = _write(tmp_path)
    data = source.read_at(0, source.size)
    for number, place in share_of(enumerate(make_damaged.blocks(data)), 4):
        places = (place.offset + 8, place.offset + 16, place.end - 1)
        for at in places if ALL else places[number % 3 :][:1]:
            damaged = make_damaged.flip(data, 8 * at)
            report = esformat.verify(esformat.BytesSource(damaged))
            assert [problem.offset for problem in report.problems] == [place.offset], [*map(str, report.problems)]
            assert report.blocks == len(make_damaged.blocks(data)) - 1
            assert (report.events < 300) == (place.kind == make_damaged.DATA)


def test_damaged_blocks_are_counted(tmp_path):
    """Each damaged block is one problem; the events of the others are still counted."""
    source = _write(tmp_path)
    data = source.read_at(0, source.size)
    hit = make_damaged.blocks_of(data, make_damaged.DATA)[1::3]
    for place in hit:
        data = make_damaged.flip(data, 8 * (place.offset + 20))
    report = esformat.verify(esformat.BytesSource(data))
    assert [problem.offset for problem in report.problems] == [place.offset for place in hit]
    assert report.events == 300 - 16 * len(hit)


@pytest.mark.parametrize("kind", ["METADATA", "DICTIONARY"])
def test_both_copies_damaged(kind):
    """If both copies are damaged, exactly these two problems are reported."""
    data = (make_golden.FOLDER / "zstd-dictionary.esdb").read_bytes()
    places = make_damaged.blocks_of(data, getattr(make_damaged, kind))
    assert len(places) == 2
    for place in places:
        data = make_damaged.flip(data, 8 * (place.offset + 20))
    report = esformat.verify(esformat.BytesSource(data))
    assert [problem.offset for problem in report.problems] == [place.offset for place in places]


def _renumbered(data: bytes, numbers: dict[int, int]) -> bytes:
    """A file whose footer numbers its dictionaries differently."""
    footer = make_damaged.blocks(data)[-1]
    entries = data[footer.offset + 16 : footer.end - 8]
    changed = [bytearray(entries[at : at + 20]) for at in range(0, len(entries), 20)]
    for entry in changed:
        if entry[0] == make_damaged.DICTIONARY:
            entry[2] = numbers[entry[2]]
    changed.sort(key=lambda entry: (entry[0], entry[2], entry[1]))
    return make_damaged.seal(data, {footer.offset: b"".join(changed)})


@pytest.mark.parametrize("numbers", [{1: 1, 2: 3}, {1: 2, 2: 3}, {1: 2, 2: 1}], ids=str)
def test_numbers_of_dictionaries(numbers):
    """Dictionaries are numbered from 1 in order of position: otherwise the numbers change when the footer is lost."""
    data = (make_golden.FOLDER / "two-dictionaries.esdb").read_bytes()
    assert esformat.verify(esformat.BytesSource(_renumbered(data, {1: 1, 2: 2}))).ok
    report = esformat.verify(esformat.BytesSource(_renumbered(data, numbers)))
    assert {problem.what for problem in report.problems} >= {
        "the dictionaries are not adjacent and numbered from 1",
        "the spare dictionaries are not adjacent and numbered from 1, behind the spare metadata",
    }


def test_trailer_damaged(tmp_path, monkeypatch):
    """Without its trailer a file is checked from the footer, which ends where the trailer began."""
    with monkeypatch.context() as patch:
        BROKEN["posting list of another row"][0](patch)
        source = _write(tmp_path)
    data = source.read_at(0, source.size)
    wrong = [problem.what for problem in esformat.verify(source).problems]
    assert len(wrong) == 1
    report = esformat.verify(esformat.BytesSource(make_damaged.flip(data, 8 * (len(data) - 40))))
    assert [problem.what for problem in report.problems] == [*wrong, "the trailer's checksum does not match"]
    assert report.events == 300


def test_versions_differ():
    """The version in the header, which readers ignore, must equal the one in the trailer."""
    data = bytearray((make_golden.FOLDER / "one-event.esdb").read_bytes())
    data[10] = 1
    (problem,) = esformat.verify(esformat.BytesSource(bytes(data))).problems
    assert "different versions" in problem.what


def test_nothing_but_data_blocks():
    """The events of a file cut off after its data blocks are counted."""
    data = (make_golden.FOLDER / "uncompressed.esdb").read_bytes()
    end = make_damaged.blocks_of(data, make_damaged.DATA)[-1].end
    report = esformat.verify(esformat.BytesSource(data[:end]))
    assert [problem.what for problem in report.problems] == [
        "no segment trailer at the end: not an .esdb file, or cut off"
    ]
    assert report.events == 300


@pytest.mark.parametrize("size", [0, 1, 15, 16, 47, 48, 63, 64, 100, 5000])
def test_not_a_segment(size):
    """Bytes that are not a segment are reported, not raised."""
    for data in (bytes(size), b"\xff" * size, random.Random(size).randbytes(size), (b"ESBK" * size)[:size]):
        report = esformat.verify(esformat.BytesSource(data))
        assert not report.ok
        assert report.events == 0


def test_random_bodies_sealed_again():
    """`verify` reports blocks with random changes and valid checksums; if it does not, every event can be read."""
    rnd = random.Random(11)
    reported = 0
    for name in ("integers", "numbers", "strings", "nested", "zstd"):
        data = (make_golden.FOLDER / f"{name}.esdb").read_bytes()
        for _ in range(60 if ALL else 12):
            place = rnd.choice(make_damaged.blocks(data))
            body = bytearray(data[place.offset + 16 : place.end - 8])
            for _ in range(rnd.choice([1, 3])):
                body[rnd.randrange(len(body))] = rnd.choice([0, 1, 2, 8, 127, 128, 255])
            damaged = make_damaged.seal(data, {place.offset: bytes(body)})
            report = esformat.verify(esformat.BytesSource(damaged))
            if report.ok:
                with esformat.open(esformat.BytesSource(damaged)) as segment:
                    assert len(segment.scan().to_table()) == segment.num_events == report.events
            else:
                reported += 1
    assert reported > (240 if ALL else 45)


def test_files(tmp_path):
    """A path, as text or not, and a source are accepted; only an unreadable file raises an error."""
    path = make_golden.FOLDER / "zstd.esdb"
    assert esformat.verify(path) == esformat.verify(str(path)) == esformat.verify(esformat.FileSource(path))
    assert esformat.verify(path).path == str(path)
    with pytest.raises(FileNotFoundError):
        esformat.verify(tmp_path / "nowhere.esdb")
    with pytest.raises(IsADirectoryError):
        esformat.verify(tmp_path)


def test_reads_block_by_block(tmp_path):
    """No read is larger than a block, so that memory does not grow with the file."""

    class Watched(esformat.CountingSource):
        largest = 0

        def read_at(self, offset: int, length: int) -> bytes:
            self.largest = max(self.largest, length)
            return super().read_at(offset, length)

    data = (make_golden.FOLDER / "many-spaces.esdb").read_bytes()
    source = Watched(esformat.BytesSource(data))
    assert esformat.verify(source).ok
    assert source.largest == max(place.length for place in make_damaged.blocks(data)) < len(data) / 5


# ── parts ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_problem_is_one_line():
    """A problem is printed in one line, whatever the bytes in it."""
    problem = esformat.Problem(5, "a key 'x\ny' is\todd", "look")
    assert str(problem) == "at byte 5: a key 'x y' is odd; look"


def test_findings_are_bounded():
    """The list of problems is limited in memory; the others are counted."""
    findings = Findings()
    for i in range(MAX_PROBLEMS + 7):
        findings.add(i, "something")
    assert len(findings) == MAX_PROBLEMS + 7
    assert len(findings.problems()) == MAX_PROBLEMS + 1
    assert "7 more" in findings.problems()[-1].what


def test_coverage():
    """Ranges agree with a plain set of bytes: overlaps are refused, adjacent ranges are joined, gaps are the rest."""
    rnd = random.Random(2)
    for _ in range(200):
        covered, plain = coverage.Coverage(), set()
        for _ in range(30):
            start = rnd.randrange(100)
            new = set(range(start, start + rnd.randrange(1, 12)))
            assert covered.add(min(new), max(new) + 1) == (not new & plain)
            if not new & plain:
                plain |= new
        gaps = {at for start, end in covered.gaps(5, 95) for at in range(start, end)}
        assert gaps == set(range(5, 95)) - plain
