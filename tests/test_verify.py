"""`verify`: each rule of the format is checked, one damaged block is one problem, and no bytes make it fail.

Damage by bits and cuts is in `tests/spec/`. Here are files of a writer that breaks a rule, with all checksums right.
"""

from __future__ import annotations

import random
from dataclasses import replace
from types import SimpleNamespace

import make_damaged
import make_golden
import numpy as np
import pyarrow as pa
import pytest
from small_pieces import Pieces, cut_small

import esformat
from esformat import builder, codec, encoding, writer
from esformat.block import encode_block
from esformat.builder import SegmentBuilder
from esformat.directory import BlockSpan
from esformat.footer import _ENTRY
from esformat.layout import BlockKind, Trailer
from esformat.order import Ranked
from esformat.postings import BLOCKS
from esformat.verify import coverage
from esformat.verify.report import MAX_PROBLEMS, Findings

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


# ── a writer that breaks one rule ───────────────────────────────────────────────────────────────────────────────────


def _wrap(patch, owner, name, make):
    """Put `make(original)` in the place of a function."""
    patch.setattr(owner, name, make(getattr(owner, name)))


def _postings(change):
    """Change (events, form, numbers) of the first value for which that gives anything."""

    def breaks(patch):
        def make(choose):
            def chosen(*args):
                done = False
                for posting in choose(*args):
                    new = None if done else change(*posting)
                    done = done or new is not None
                    yield posting if new is None else new

            return chosen

        _wrap(patch, builder, "choose_postings", make)

    return breaks


def _spans(change):
    """Change what the directory says of each data block."""

    def breaks(patch):
        def make(add):
            return lambda self, block: add(self, replace(block, span=change(block.span)))

        _wrap(patch, SegmentBuilder, "add_block", make)

    return breaks


def _statistics(**changes):
    def breaks(patch):
        _wrap(patch, SegmentBuilder, "_statistics", lambda make: lambda self: replace(make(self), **changes))

    return breaks


def _metadata(**changes):
    """Another metadata block at the end than the spare one."""

    def breaks(patch):
        def make(finish):
            def changed(self):
                self._metadata = replace(self._metadata, **changes)
                return finish(self)

            return changed

        _wrap(patch, SegmentBuilder, "finish", make)

    return breaks


def _footer(change):
    """Change the list of footer entries (kind, copy, ordinal, handle bytes)."""

    def breaks(patch):
        def encode(table):
            entries = [(kind, copy, n, handle.encode()) for (kind, n, copy), handle in sorted(table.items())]
            changed = change(entries)
            return encode_block(BlockKind.FOOTER, b"".join(_ENTRY.pack(*e) for e in changed), count=len(changed))

        patch.setattr(builder, "encode_footer", encode)

    return breaks


def _between(stored: bytes):
    """Bytes that nothing leads to, before the first data block."""

    def breaks(patch):
        def make(start):
            def changed(self):
                start(self)
                self._sink.write(stored)
                self._offset += len(stored)
                self._data_offset = self._offset

            return changed

        _wrap(patch, SegmentBuilder, "start", make)

    return breaks


def _leaf(change):
    """Change the runs that a leaf is written with."""

    def breaks(patch):
        _wrap(patch, builder, "encode_leaf", lambda encode: lambda runs, *rest: encode(change(runs), *rest))

    return breaks


def _root(**change):
    def breaks(patch):
        def make(encode):
            return lambda entries, context: encode([*entries[:-1], replace(entries[-1], **change)], context)

        _wrap(patch, builder, "encode_root", make)

    return breaks


def _pages(change):
    def breaks(patch):
        _wrap(patch, builder, "encode_page", lambda encode: lambda values, *rest: encode(change(values), *rest))

    return breaks


def _index_without(rank):
    """An index that knows nothing of one value of its column."""

    def breaks(patch):
        def make(add):
            def changed(self, column, ranked):
                add(self, column, Ranked(np.where(ranked.ranks == rank, -1, ranked.ranks), ranked.values))

            return changed

        _wrap(patch, SegmentBuilder, "add_index", make)

    return breaks


def _filter(change):
    def breaks(patch):
        _wrap(patch, builder, "build_filter", lambda build: lambda hashes: change(build(hashes)))

    return breaks


def _no_sorting(patch):
    """Events in the order in which they were added."""
    patch.setattr(writer, "sort_order", lambda *_: None)


def _opening_offset(patch):
    patch.setattr(builder, "Trailer", lambda opening, footer: Trailer(opening + 1, footer))


def _zstd_checksums(patch):
    params = codec.zstandard.ZstdCompressionParameters
    honest = params.from_level

    def from_level(level, **options):
        return honest(level, **(options | {"write_checksum": True}))

    patch.setattr(codec.zstandard, "ZstdCompressionParameters", SimpleNamespace(from_level=from_level), raising=True)


def _two_dictionaries(patch):
    """A spare dictionary that is not the first: another value."""

    def make(encode):
        calls = []

        def changed(self):
            calls.append(1)
            if len(calls) == 1:
                return encode_block(BlockKind.DICTIONARY, b"", count=0)
            return encode(self)

        return changed

    _wrap(patch, SegmentBuilder, "_dictionary", make)


def _null_slots(patch):
    """Whatever stood in the memory of a null is stored."""

    def make(numbers_of):
        def changed(array):
            return np.frombuffer(array.buffers()[1], np.int32) if array.type == pa.int32() else numbers_of(array)

        return changed

    _wrap(patch, encoding, "numbers_of", make)


def _fewer(count, form, numbers):
    return (count, form, numbers[1:]) if not form & BLOCKS and len(numbers) > 1 else None


def _one_fewer_counted(count, form, numbers):
    return (count - 1, form, numbers[1:]) if not form & BLOCKS and len(numbers) > 1 else None


def _shifted(count, form, numbers):
    return (count, form, numbers - 1) if not form & BLOCKS and numbers[0] > 0 else None


def _beyond(count, form, numbers):
    return (count, form, numbers + 10**6) if not form & BLOCKS else None


def _block_missing(count, form, numbers):
    return (count, form, numbers[1:]) if form & BLOCKS else None


def _block_count(count, form, numbers):
    return (count - 1, form, numbers) if form & BLOCKS and count > 60 else None


def _other_form(count, form, numbers):
    return (count, BLOCKS, numbers) if not form & BLOCKS else None


def _other_space(runs):
    spaces = [*runs.spaces.to_pylist()[:-1], runs.spaces[-1].as_py() + b"!"]
    return replace(runs, spaces=pa.array(spaces, pa.binary()))


def _reversed_runs(runs):
    return replace(runs, spaces=runs.spaces[::-1], groupings=runs.groupings[::-1], rows=runs.rows[::-1])


def _later(span: BlockSpan) -> BlockSpan:
    return replace(span, max_timestamp=span.max_timestamp + 1)


ORPHAN = encode_block(BlockKind.POSTINGS, b"", count=0)

BROKEN = {
    "posting list too short": (_postings(_fewer), "lists 1 rows"),
    "posting list lacks a row": (_postings(_one_fewer_counted), "contradict the column"),
    "posting list of another row": (_postings(_shifted), "contradict the column"),
    "posting list beyond the file": (_postings(_beyond), "the last number of a posting list"),
    "posting list lacks a block": (_postings(_block_missing), "contradicts the column"),
    "events of a value": (_postings(_block_count), "contradicts the column"),
    "form of a posting list": (_postings(_other_form), "form for another density"),
    "index lacks its first value": (_index_without(0), "lacks values that its column holds"),
    "index lacks another value": (_index_without(1), "contradict the column"),
    "values do not ascend": (_pages(lambda values: values[::-1]), "do not ascend"),
    "time span of a block": (_spans(_later), "the time span of a data block is not"),
    "rows of a block": (_spans(lambda span: replace(span, rows=span.rows + 1)), "different numbers of rows"),
    "check of a block": (_spans(lambda span: replace(span, check=span.check ^ 1)), "another block lies here"),
    "keys of a leaf": (_leaf(_other_space), "keys of a data block are not those that the directory says"),
    "order of a leaf": (_leaf(_reversed_runs), "the runs of a leaf do not ascend"),
    "first space of a leaf": (_root(first_space=b"zzz"), "a leaf is not what the directory's root says"),
    "runs of a leaf": (_root(runs=1), "a leaf is not what the directory's root says"),
    "time span of a leaf": (_root(max_timestamp=10**7), "the time span of a leaf is not"),
    "statistics of spaces": (_statistics(spaces=41), "the statistics say spaces 41"),
    "statistics of runs": (_statistics(runs=1), "the statistics say runs 1"),
    "statistics of times": (_statistics(min_timestamp=-5), "the statistics say min_timestamp -5"),
    "statistics of indexes": (_statistics(indexes={n: {"values": 3, "events": 1} for n in ("type", "id")}), "of index"),
    "statistics without an index": (_statistics(indexes={}), "do not name the indexes"),
    "spare metadata": (_metadata(properties={"other": "text"}), "the spare copy of the metadata differs"),
    "unknown codec": (_metadata(codec="zip"), "unknown codec 'zip'"),
    "spare dictionary": (_two_dictionaries, "the spare copy of a dictionary differs"),
    "filter is empty": (_filter(lambda pages: [bytes(len(page)) for page in pages]), "turns away"),
    "filter is too large": (_filter(lambda pages: [page * 2 for page in pages]), "buckets, expected"),
    "filter page of odd size": (_filter(lambda pages: [page + b"1" for page in pages]), "a page of the space filter"),
    "footer is not sorted": (_footer(lambda entries: entries[::-1]), "the entries of the footer are not in order"),
    "footer entry twice": (_footer(lambda entries: [entries[0], *entries]), "not in order"),
    "footer names a second copy": (_footer(lambda e: [*e[:2], (*e[2][:1], 1, *e[2][2:]), *e[2:]]), "the footer names"),
    "footer lacks an index": (_footer(lambda e: [x for x in e if x[0] != BlockKind.INDEX_ROOT]), "is missing"),
    "footer lacks the directory": (_footer(lambda e: [x for x in e if x[0] != 4]), "does not name the directory_root"),
    "two handles to one block": (
        _footer(lambda entries: [*entries, (200, 0, 0, entries[0][3])]),
        "two handles lead to the same bytes",
    ),
    "opening offset": (_opening_offset, "the opening offset"),
    "bytes between blocks": (_between(b"12345"), "5 bytes are no block"),
    "a block too many": (_between(ORPHAN), "nothing leads to this block of kind POSTINGS"),
    "events are not sorted": (_no_sorting, "do not ascend"),
    "frames with a checksum": (_zstd_checksums, "a zstd frame has a checksum"),
}  # fmt: skip


@pytest.mark.parametrize("rule", BROKEN)
def test_broken_rule(tmp_path, monkeypatch, rule):
    """A file that breaks one rule of the format is not sound, though its checksums are right; the report says why."""
    breaks, words = BROKEN[rule]
    with monkeypatch.context() as patch:
        breaks(patch)
        source = _write(tmp_path)
    report = esformat.verify(source)
    assert not report.ok
    assert any(words in problem.what for problem in report.problems), [*map(str, report.problems)]


def test_sound_file(tmp_path):
    """The same file of a writer that breaks none: no problem, and the facts of the report."""
    source = _write(tmp_path)
    seen: list[tuple[int, int]] = []
    report = esformat.verify(source, progress=lambda done, total: seen.append((done, total)))
    assert report == esformat.Report("written.esdb", source.size, 300, report.num_blocks, ())
    assert report.ok
    assert report.num_blocks == len(make_damaged.blocks(source.read_at(0, source.size)))
    assert seen == sorted(seen)
    assert seen[-1] == (source.size, source.size)
    assert all(total == source.size for _, total in seen)


def test_times_within_a_run(tmp_path, monkeypatch):
    """Time does not go back within a run, neither inside a block nor from one to the next."""
    for block_rows in (1, 5):
        table = pa.table({"space": ["a"] * 5, "timestamp": pa.array([5, 4, 3, 9, 8], pa.int64())})
        with monkeypatch.context() as patch:
            _no_sorting(patch)
            with cut_small(Pieces(block_rows=block_rows)):
                path = tmp_path / f"{block_rows}.esdb"
                with esformat.create(path) as out:
                    out.add_table(table.append_column("data", pa.array([b""] * 5, pa.binary())))
        problems = esformat.verify(path).problems
        words = "do not come after" if block_rows == 1 else "decrease within a run"
        assert any(words in problem.what for problem in problems), [*map(str, problems)]


def test_slots_of_nulls(tmp_path, monkeypatch):
    """Where a null is, 0 is stored, not what happened to lie in memory."""
    garbage = pa.Array.from_buffers(
        pa.int32(), 4, [pa.py_buffer(b"\x0b"), pa.py_buffer(np.array([1, 2, 3, 4], np.int32))]
    )
    table = pa.table({"space": ["a"] * 4, "timestamp": pa.array(range(4), pa.int64()), "n": garbage})
    with monkeypatch.context() as patch:
        _null_slots(patch)
        source = _write(tmp_path, table, indexes=[])
    assert "the slot of a null does not hold 0" in str(esformat.verify(source).problems[0])
    assert esformat.verify(_write_again(tmp_path, table)).ok


def _write_again(folder, table):
    (folder / "written.esdb").unlink()
    return _write(folder, table, indexes=[])


# ── damage ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_damaged_block_is_one_problem(tmp_path):
    """Whatever block is damaged, its loss is the only thing that is reported, at its place, and with what it costs."""
    source = _write(tmp_path)
    data = source.read_at(0, source.size)
    for place in make_damaged.blocks(data):
        for at in (place.offset + 8, place.offset + 16, place.end - 1):
            damaged = make_damaged.flip(data, 8 * at)
            report = esformat.verify(esformat.BytesSource(damaged))
            assert [problem.offset for problem in report.problems] == [place.offset], [*map(str, report.problems)]
            assert report.num_blocks == len(make_damaged.blocks(data)) - 1
            lost = place.kind in (make_damaged.DATA, make_damaged.FOOTER)
            assert (report.num_events < 300) == (place.kind == make_damaged.DATA) or lost


def test_damaged_blocks_are_counted(tmp_path):
    """Several damaged blocks are as many problems, and the events of the others are still counted."""
    source = _write(tmp_path)
    data = source.read_at(0, source.size)
    hit = make_damaged.blocks_of(data, make_damaged.DATA)[1::3]
    for place in hit:
        data = make_damaged.flip(data, 8 * (place.offset + 20))
    report = esformat.verify(esformat.BytesSource(data))
    assert [problem.offset for problem in report.problems] == [place.offset for place in hit]
    assert report.num_events == 300 - 16 * len(hit)


@pytest.mark.parametrize("kind", ["METADATA", "DICTIONARY"])
def test_both_copies_damaged(kind):
    """Without either copy nothing that needs it can be decoded; what can be checked is, and nothing more is said."""
    data = (make_golden.FOLDER / "zstd-dictionary.esdb").read_bytes()
    places = make_damaged.blocks_of(data, getattr(make_damaged, kind))
    assert len(places) == 2
    for place in places:
        data = make_damaged.flip(data, 8 * (place.offset + 20))
    report = esformat.verify(esformat.BytesSource(data))
    assert [problem.offset for problem in report.problems] == [place.offset for place in places]


def test_trailer_damaged(tmp_path, monkeypatch):
    """Without its trailer a file is checked all the same, from the footer that ends where the trailer began."""
    with monkeypatch.context() as patch:
        BROKEN["posting list of another row"][0](patch)
        source = _write(tmp_path)
    data = source.read_at(0, source.size)
    wrong = [problem.what for problem in esformat.verify(source).problems]
    assert len(wrong) == 1
    report = esformat.verify(esformat.BytesSource(make_damaged.flip(data, 8 * (len(data) - 40))))
    assert [problem.what for problem in report.problems] == [*wrong, "the trailer's checksum does not match"]
    assert report.num_events == 300


def test_versions_differ():
    """Header and trailer name one version; the header's is not used by readers, but checked."""
    data = bytearray((make_golden.FOLDER / "one-event.esdb").read_bytes())
    data[10] = 1
    (problem,) = esformat.verify(esformat.BytesSource(bytes(data))).problems
    assert "different versions" in problem.what


def test_nothing_but_data_blocks():
    """A file cut off after its data blocks tells how many events they hold."""
    data = (make_golden.FOLDER / "uncompressed.esdb").read_bytes()
    end = make_damaged.blocks_of(data, make_damaged.DATA)[-1].end
    report = esformat.verify(esformat.BytesSource(data[:end]))
    assert [problem.what for problem in report.problems] == [
        "no segment trailer at the end: not an .esdb file, or cut off"
    ]
    assert report.num_events == 300


@pytest.mark.parametrize("size", [0, 1, 15, 16, 47, 48, 63, 64, 100, 5000])
def test_not_a_segment(size):
    """Other bytes are no segment: said, not raised."""
    for data in (bytes(size), b"\xff" * size, random.Random(size).randbytes(size), (b"ESBK" * size)[:size]):
        report = esformat.verify(esformat.BytesSource(data))
        assert not report.ok
        assert report.num_events == 0


def test_random_bodies_sealed_again():
    """Bodies changed at random, with all checksums right again: whatever that gives, `verify` does not fail."""
    rnd = random.Random(11)
    for name in ("integers", "numbers", "strings", "nested", "zstd"):
        data = (make_golden.FOLDER / f"{name}.esdb").read_bytes()
        for _ in range(60):
            place = rnd.choice(make_damaged.blocks(data))
            body = bytearray(data[place.offset + 16 : place.end - 8])
            for _ in range(rnd.choice([1, 3])):
                body[rnd.randrange(len(body))] = rnd.choice([0, 1, 2, 8, 127, 128, 255])
            esformat.verify(esformat.BytesSource(make_damaged.seal(data, {place.offset: bytes(body)})))


def test_files(tmp_path):
    """A path, as text or not, or a source; only a file that cannot be read is an error."""
    path = make_golden.FOLDER / "zstd.esdb"
    assert esformat.verify(path) == esformat.verify(str(path)) == esformat.verify(esformat.FileSource(path))
    assert esformat.verify(path).path == str(path)
    with pytest.raises(FileNotFoundError):
        esformat.verify(tmp_path / "nowhere.esdb")
    with pytest.raises(IsADirectoryError):
        esformat.verify(tmp_path)


def test_reads_block_by_block(tmp_path):
    """No read is larger than a block: memory does not grow with the file."""

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
    """A problem reads as one line whatever the bytes brought into it."""
    problem = esformat.Problem(5, "a key 'x\ny' is\todd", "look")
    assert str(problem) == "at byte 5: a key 'x y' is odd; look"


def test_findings_are_bounded():
    """A file with very many problems does not fill memory with them, but they are counted."""
    findings = Findings()
    for i in range(MAX_PROBLEMS + 7):
        findings.add(i, "something")
    assert len(findings) == MAX_PROBLEMS + 7
    assert len(findings.problems()) == MAX_PROBLEMS + 1
    assert "7 more" in findings.problems()[-1].what


def test_coverage():
    """Ranges against a plain set of bytes: overlaps are refused, neighbours melt, gaps are what is left."""
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
