"""Conditions applied while decoding segments: the answers equal filtering everything, and less is read."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest
from effort import share_of
from small_pieces import Pieces, cut_small

import aggregator
import esformat
from aggregator.lql.text import substring
from aggregator.lql.text.predicate import text_test
from aggregator.read import segment_source as source
from esformat.read import scan as scan_module
from esformat.read import scan as scans
from esformat.read.decode import matched_rows
from esformat.read.decode.block_group import BlockGroup


def make(path):
    """Two partitions with a segment each: 40 interleaved streams, unordered times, and a space that is no stream."""
    catalog = aggregator.open(path, durability="none")
    rng = np.random.default_rng(3)
    for number in range(40):
        stamps = pa.array(rng.integers(0, 10_000, 100))
        words = pa.array([f"line {n % 97} of {number}" for n in range(100)])
        records = pa.table({"ts": stamps, "msg": words, "n": pa.array(range(100), pa.int64())})
        catalog.write({"s": str(number)}, records, partition=str(number % 2))
    other = pa.table({"space": ["no stream"] * 9, "timestamp": range(9), "data": [b"line 5"] * 9})
    catalog.topic("logs").append(other)
    catalog.seal()
    return catalog


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    """A catalog that no test changes."""
    with make(tmp_path_factory.mktemp("filtering") / "c") as made:
        yield made


CASES = {
    'msg CONTAINS "line 5"': lambda r: b"line 5" in r["data"],
    'msg CONTAINS "of 17"': lambda r: b"of 17" in r["data"],
    "n < 3": lambda r: r["n"] is not None and r["n"] < 3,
    "n = -1": lambda r: False,
    'ts < "1970-01-01T00:00:00.0005" AND n > 40': lambda r: (
        r["timestamp"].timestamp() * 1e6 < 499.5 and (r["n"] or 0) > 40
    ),
    "n >= 0 AND msg SUFFIX 5": lambda r: r["n"] is not None and r["data"].endswith(b"5"),
}
"""Each condition with its equivalent for a row in Python."""


@pytest.mark.parametrize(("few", "estimate_rows"), [(0, 1 << 14), (300, 1), (1 << 18, 1 << 14)])
@pytest.mark.parametrize("streams", share_of(["", "FROM s LIKE '*'", "FROM s = 7 OR s = 8", "FROM s != 9"], 2))
def test_answers_are_those_of_filtering_everything(catalog, monkeypatch, few, estimate_rows, streams):
    """Answers equal filtering everything, whether sorted together or in windows, newest first or last."""
    monkeypatch.setattr(source, "FEW_KEPT_ROWS", few)
    monkeypatch.setattr(source, "ESTIMATE_ROWS", estimate_rows)
    monkeypatch.setattr(scans, "BATCH_BLOCKS", 1)
    everything = catalog.query(f"SELECT {streams}").to_table()
    rows = everything.to_pylist()
    for where, holds in CASES.items():
        expected = everything.filter(pa.array([holds(row) for row in rows]))
        text = f"SELECT {streams} WHERE {where}"
        assert catalog.query(text).to_table().equals(expected), where
        newest = catalog.query(f"{text} ORDER BY ts DESC").to_table()
        assert newest.equals(expected.take(pa.array(np.arange(len(expected))[::-1]))), where
        assert catalog.query(text).count() == len(expected), where
        assert catalog.query(f"{text} LIMIT 7").to_table().equals(expected.slice(0, 7)), where


@pytest.mark.parametrize("span", ["", ' AND ts < "1970-01-01T00:00:00.005"'])
def test_many_rows_are_soon_told(tmp_path, monkeypatch, span):
    """If the first blocks promise more rows than are sorted together, reading stops there; the following windows are as
    large as the memory allows.
    """
    monkeypatch.setattr(source, "ESTIMATE_ROWS", 10)
    monkeypatch.setattr(source, "FEW_KEPT_ROWS", 400)
    monkeypatch.setattr(source, "WINDOW_ROWS", 400)
    gathered = []
    up_to = source._up_to

    def spy(*args):
        found, whole = up_to(*args)
        gathered.append((sum(map(len, found)), whole))
        return found, whole

    monkeypatch.setattr(source, "_up_to", spy)
    with cut_small(Pieces(block_rows=16, batch_blocks=3)), make(tmp_path / "c") as catalog:
        kept = len(catalog.query(f"SELECT WHERE n >= 50{span}").to_table())
    tries = [rows for rows, whole in gathered if not whole]
    windows = [rows for rows, whole in gathered if whole]
    assert len(tries) == 2  # one for each partition
    assert max(tries) < 300
    assert sum(windows) == kept
    assert len(windows) <= kept // 200


def test_erased_streams_stay_hidden(tmp_path):
    """Cached results of a segment contain no erased events."""
    with make(tmp_path / "c") as catalog:
        catalog.topic("logs").erase("{s=7}")
        found = catalog.query("SELECT WHERE n = 3").to_table()
        assert len(found) == 39
        assert "{s=7}" not in found["space"].to_pylist()


def test_other_columns_of_other_rows_are_not_decoded(catalog, monkeypatch):
    """Columns that the condition does not need are read only where it matches, block by block."""
    decoded = []
    whole = scans.BlockGroup.to_batch

    def spy(self, columns, places):
        decoded.append((tuple(columns), self.row_count if places is None else len(places)))
        return whole(self, columns, places)

    monkeypatch.setattr(scans.BlockGroup, "to_batch", spy)
    assert len(catalog.query("SELECT WHERE n = 3").to_table()) == 40
    assert sum(rows for columns, rows in decoded if "data" in columns) == 40
    assert sum(rows for columns, rows in decoded if "n" in columns) == 4_009
    decoded.clear()
    assert catalog.query("SELECT COUNT WHERE n = 3").to_pylist() == [{"count": 40}]
    assert {name for columns, _ in decoded for name in columns} == {"n"}  # no time and no record index


def test_explain_counts_the_blocks_that_are_read(tmp_path, monkeypatch):
    """EXPLAIN counts exactly the blocks that the query then decodes."""
    read = set()
    group = scans.BlockGroup.__init__

    def spy(self, reader, portions, blocks=None):
        read.update((reader.name, p.leaf.first_block + p.block) for p in portions)
        group(self, reader, portions, blocks)

    monkeypatch.setattr(scans.BlockGroup, "__init__", spy)
    with aggregator.open(tmp_path / "c", durability="none") as catalog:
        for stream in "ab":
            catalog.write({"s": stream}, pa.table({"ts": range(6_000), "n": range(6_000)}))
        catalog.seal()
        for text in ("WHERE msg = x", "FROM s = a WHERE n = 3", 'RANGE [0 : "1970-01-01T00:00:00.001"] WHERE n = 3'):
            read.clear()
            (estimate_rows,) = catalog.query(f"EXPLAIN SELECT {text}").to_pylist()
            assert not read
            catalog.query(f"SELECT {text}").to_table()
            assert (estimate_rows["blocks read"], estimate_rows["blocks pruned"]) == (
                len(read),
                estimate_rows["blocks"] - len(read),
            ), text
            assert (estimate_rows["blocks pruned"] > 0) == (text != "WHERE msg = x")


@pytest.mark.parametrize("wanted", [b"abc", b"needle", b"\x00\xff\x00", b"aaaa", b"x" * 12, b"end"])
@pytest.mark.parametrize("shift", [0, 3])
@pytest.mark.parametrize("address", [0, 1])
def test_texts_with_a_substring(monkeypatch, wanted, shift, address):
    """Exactly the texts with the substring are found, wherever batches, texts and chunks start in memory."""
    monkeypatch.setattr(substring, "LEAST_BYTES", 1)
    monkeypatch.setattr(substring, "_CHUNK", 64)
    rng = np.random.default_rng(5)
    texts = [bytes(rng.integers(97, 123, rng.integers(0, 40)).astype(np.uint8)) for _ in range(300)]
    for place in (0, 3, 4, 150, 299):
        texts[place] = texts[place][:7] + wanted + texts[place][7:]
    for place in (10, 11, 200, 201):  # one part here, the other in the next text
        texts[place], texts[place + 1] = texts[place] + wanted[: 1 + place % 2], wanted[1 + place % 2 :]
    for place in (20, 21):  # almost nothing
        texts[place : place + 3] = [b"", texts[place][: place % 2] + wanted, b""]
    array = pa.array(texts, pa.large_binary() if address else pa.binary())
    moved = pa.py_buffer(b"-" * address + array.buffers()[2].to_pybytes()).slice(address)
    array = pa.Array.from_buffers(array.type, len(array), [None, array.buffers()[1], moved]).slice(shift)
    found = substring.texts_with(array, wanted)
    assert found is not None
    assert found.tolist() == [wanted in text for text in texts[shift:]]


def test_substrings_that_are_sought_text_by_text(monkeypatch):
    """Searching all bytes at once is skipped for two bytes, few texts or a frequent pair; texts are searched singly."""
    monkeypatch.setattr(substring, "LEAST_BYTES", 100)
    everywhere = pa.array([b"abababababab"] * 100)
    assert substring.texts_with(everywhere, b"aba") is None
    assert substring.texts_with(everywhere, b"ab") is None
    assert substring.texts_with(pa.array([b"abc"] * 33), b"xyz") is None
    assert substring.texts_with(pa.array([b"abc"] * 34), b"xyz").tolist() == [False] * 34
    for wanted in ("aba", "ab", "bab", "abc", "b"):
        assert text_test("CONTAINS", wanted)(everywhere).tolist() == [wanted != "abc"] * 100


def segment_answers(segment, wanted):
    """The payloads that `wanted` selects from a segment."""
    batch = segment.scan(columns=["data"]).to_table().combine_chunks().to_batches()[0]
    return batch.filter(wanted(batch)).column(0).to_pylist()


def test_matching_of_a_file(tmp_path):
    """`matching` works forward, in reverse, with a limit, and for a space with groupings."""
    with esformat.create(tmp_path / "a.esdb", indexes=["kind"]) as writer:
        for n in range(3000):
            writer.add(f"s{n % 3}", b"%d" % n, timestamp=n, grouping=f"g{n % 2}", indexes={"kind": str(n % 5)})
    with esformat.open(tmp_path / "a.esdb") as segment:

        def odd(batch):
            assert batch.schema.names == ["data"]
            return pa.array([int(value.as_py()) % 7 == 1 for value in batch.column(0)])

        for scan in (
            segment.scan(), segment.scan(reverse=True), segment.scan(columns=["kind", "data"], start=100, end=2000),
            segment["s1"].scan(), segment["s1"].scan(reverse=True, grouping="g1"), segment.scan_index("kind", "3"),
        ):  # fmt: skip
            table = scan.to_table()
            expected = table.filter(odd(table.select(["data"]).combine_chunks().to_batches()[0]))
            found = pa.Table.from_batches(scan.matching(["data"], odd), schema=scan.schema)
            assert found.equals(expected)
        few = pa.Table.from_batches(segment.scan(limit=5).matching(["data"], odd))
        assert few["data"].to_pylist() == segment_answers(segment, odd)[:5]


@pytest.mark.parametrize("gathered", share_of([(24, 1 << 15), (3, 1 << 15), (24, 5)], 2), ids=str)
def test_rare_rows_of_many_blocks(tmp_path, monkeypatch, gathered):
    """Other columns of rare rows are decoded for several block groups together and match their rows."""
    for name, number in zip(("GATHERED_BLOCKS", "GATHERED_ROWS"), gathered, strict=True):
        for module in (matched_rows, scan_module):
            monkeypatch.setattr(module, name, number, raising=False)
    with cut_small(Pieces(block_rows=16, leaf_blocks=4, batch_blocks=3)):
        with esformat.create(tmp_path / "a.esdb", indexes=["kind"]) as writer:
            for n in range(3000):
                writer.add(f"s{n // 70:02d}", b"%d" % n, timestamp=n * n % 5003, indexes={"kind": str(n % 5)})
        completed = []
        whole = matched_rows.MatchedRows.complete

        def spy(self, schema, *, reverse):
            completed.append(len(self))
            return whole(self, schema, reverse=reverse)

        monkeypatch.setattr(matched_rows.MatchedRows, "complete", spy)
        with esformat.open(tmp_path / "a.esdb") as segment:

            def wanted(batch):
                numbers = [int(value.as_py()) for value in batch.column(0)]
                return pa.array([n % 29 == 3 or 1000 <= n < 1200 or n in (1999, 2000) for n in numbers])

            scans_of = (
                segment.scan(),
                segment.scan(reverse=True),
                segment.scan_index("kind", "3"),
                segment.scan(start=9),
            )
            for scan in scans_of:
                table = scan.to_table()
                expected = table.filter(wanted(table.select(["data"]).combine_chunks().to_batches()[0]))
                completed.clear()
                found = pa.Table.from_batches(scan.matching(["data"], wanted), schema=scan.schema)
                assert found.equals(expected)
                assert sum(completed) == len(expected)
            assert len(completed) < len(table) // 48


@pytest.mark.parametrize(
    ("where", "read"),
    [
        ('msg CONTAINS "took="', False),
        ('msg CONTAINS "took=" AND msg CONTAINS "GET"', False),
        ('msg CONTAINS "took=12"', True),  # numbers may be longer
        ('msg CONTAINS "took=" AND n < 7000', True),
    ],
)
def test_messages_that_templates_tell_of_are_not_read(tmp_path, monkeypatch, where, read):
    """Counting messages with a text reads no messages if templates suffice; the count equals that of reading them."""
    kinds = (b"POST /b", b"GET /a", b"GET /a")
    lines = [b"%s took=%d trace=%016x" % (kinds[n % 3], n % 977, n * 0x9E3779B97F4A7C15 % 2**64) for n in range(9000)]
    columns = set()
    known = BlockGroup.to_batch

    def to_batch(group, names, places):
        columns.update(names)
        return known(group, names, places)

    with aggregator.open(tmp_path / "c", durability="none") as catalog:
        for part in (slice(0, 4500), slice(4500, 9000)):
            catalog.write({"a": "b"}, pa.table({"ts": range(9000)[part], "msg": lines[part], "n": range(9000)[part]}))
            catalog.seal()
        catalog.compact()  # which stores them with templates
        monkeypatch.setattr(BlockGroup, "to_batch", to_batch)
        (counted,) = catalog.query(f"SELECT COUNT WHERE {where}").to_pylist()
        assert ("data" in columns) == read
        assert counted["count"] == len(catalog.query(f"SELECT WHERE {where}").to_table())
    texts = [text.encode() for text in re.findall(r'CONTAINS "(.*?)"', where)]
    wanted = [n for n, line in enumerate(lines) if all(text in line for text in texts)]
    assert counted["count"] == sum(n < 7000 or " n < " not in where for n in wanted)
