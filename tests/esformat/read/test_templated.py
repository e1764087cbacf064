"""Payloads stored by templates are read back byte for byte, by every method."""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa
import pytest
import read_esdb
from effort import ALL
from payloads import payload_table, write_payloads

import esformat


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A file with templates in two columns, and its events."""
    path = tmp_path_factory.mktemp("templated") / "p.esdb"
    return path, write_payloads(path, payload_table(6000))


def test_both_columns_have_templates(stored):
    """Both columns have templates with all kinds of variables, as the other tests assume."""
    path, _ = stored
    file = read_esdb.File(path.read_bytes())
    found = {place: entry.templates for place, entry in file.dictionaries[1].items() if entry.templates}
    assert set(found) == {0, 1}
    for templates in found.values():
        assert {variable.kind for variable in templates.variables} >= {*range(read_esdb.DATE + 1)} - {read_esdb.DECIMAL}


def test_the_independent_reader(stored):
    """The independent reader reads the same events."""
    path, events = stored
    read = list(read_esdb.File(path.read_bytes()).events())
    assert [event["columns"]["data"] for event in read] == events["data"].to_pylist()
    assert [event["columns"]["text"] for event in read] == events["text"].to_pylist()


@pytest.mark.parametrize("columns", [["data"], ["text"], None])
def test_scans(stored, columns):
    """Whole files are right as tables and events, forward, backward and limited."""
    path, events = stored
    names = columns or ["data", "text", "type"]
    with esformat.open(path) as segment:
        for reverse in (False, True):
            for limit in (None, 1, 3000):
                expected = events.select(names).take(list(range(len(events)))[:: -1 if reverse else 1][:limit])
                table = segment.scan(columns=columns, reverse=reverse, limit=limit).to_table()
                assert table.select(names).equals(expected.cast(table.select(names).schema))
                read = segment.scan(columns=columns, reverse=reverse, limit=limit)
                if "data" in names:
                    assert [event.data for event in read] == expected["data"].to_pylist()


def test_histories(stored):
    """Histories of each space are right: all events, the newest, by time, by index value; then from the cache."""
    path, events = stored
    rows = events.to_pylist()
    with esformat.open(path) as segment:
        for space in [*segment][::3] * 2:
            mine = [row for row in rows if row["space"] == space]
            assert [event.data for event in segment[space].scan()] == [row["data"] for row in mine]
            assert segment[space].scan().to_table()["text"].to_pylist() == [row["text"] for row in mine]
            newest = segment[space].scan(reverse=True, limit=10)
            assert [event.data for event in newest] == [row["data"] for row in mine[:-11:-1]]
            some = [row["data"] for row in mine if row["type"] == "b" and row["timestamp"] >= 3000]
            found = segment[space].scan_index("type", "b", start=3000)
            assert [event.data for event in found] == some
            assert segment[space].scan_index("type", "b", start=3000).to_table()["data"].to_pylist() == some


def test_index_over_the_file(stored):
    """Rows that are far apart are right."""
    path, events = stored
    for value, count in Counter(events["type"].to_pylist()).items():
        expected = [row["text"] for row in events.to_pylist() if row["type"] == value]
        assert len(expected) == count
        with esformat.open(path) as segment:
            for _ in range(3):
                assert segment.scan_index("type", value).to_table()["text"].to_pylist() == expected


def test_verify(stored):
    """A file with templates is valid."""
    assert esformat.verify(stored[0]).problems == ()


def test_a_few_events_have_no_templates(tmp_path):
    """A few events get no templates, which would cost more than they save."""
    path = tmp_path / "few.esdb"
    write_payloads(path, payload_table(100))
    assert not read_esdb.File(path.read_bytes()).dictionaries


def test_same_events_same_bytes(tmp_path):
    """The bytes do not depend on memory or the number of threads."""
    table = payload_table(6000 if ALL else 3000)
    files = [tmp_path / f"{n}.esdb" for n in range(3)]
    for path, options in zip(files, ({}, {"threads": 1}, {"memory": 1 << 20}), strict=True):
        write_payloads(path, table, **options)
    assert len({path.read_bytes() for path in files}) == 1


def test_values_larger_than_a_block(tmp_path):
    """A payload of megabytes among small ones is read back."""
    table = payload_table(4000)
    large = json.dumps({"url": "x" * (20 << 20)}).encode()
    data = [*table["data"].to_pylist()[:-1], large]
    table = table.set_column(2, "data", pa.array(data, pa.binary()))
    path = tmp_path / "large.esdb"
    events = write_payloads(path, table)
    with esformat.open(path) as segment:
        assert segment.scan(columns=["data"]).to_table()["data"].to_pylist() == events["data"].to_pylist()


def test_texts_that_wanted_rows_hold(tmp_path):
    """Rows with a text of each list are found among blocks that templates exclude; without lists no row is excluded."""
    texts = [b"GET /a/%d took %d ms" % (n % 7, n * 31 % 997) if n % 500 else b"odd %d failed" % n for n in range(6000)]
    with esformat.create(tmp_path / "x.esdb") as writer:
        for n, text in enumerate(texts):
            writer.add(f"s{n // 2000}", text, timestamp=n)
    with esformat.open(tmp_path / "x.esdb") as segment:
        assert segment.info()["templates"]
        for lists in (
            [],
            [[b"failed"]],
            [[b"odd"], [b"failed", b"none"]],
            [[b"none"], [b"GET"]],
            [[b"/a/3"], [b"9 ms"]],
        ):

            def wanted(batch, lists=lists):
                rows = batch.column("data").to_pylist()
                return pa.array([all(any(text in row for text in some) for some in lists) for row in rows], pa.bool_())

            found = [
                row for b in segment.scan().matching(["data"], wanted, {"data": lists}) for row in b["data"].to_pylist()
            ]
            assert found == [row for row in texts if all(any(text in row for text in some) for some in lists)]
