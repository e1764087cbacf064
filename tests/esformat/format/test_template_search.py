"""A text search in values stored by templates misses no row that contains the text, and skips most others."""

from __future__ import annotations

import itertools
import json
import random

import numpy as np
import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from noise import noise
from template_strategies import rows_of, tables, text_of

import esformat
from esformat.format.codec import Codec, Decompressor
from esformat.format.dictionary import ColumnDictionary
from esformat.format.node import DecodeContext
from esformat.format.template_node import TemplateNode
from esformat.format.template_search import TemplateTexts
from esformat.format.templates import Kind, Template, TemplateTable, Variable
from esformat.read import scan as scans
from esformat.read.decode import block_group
from esformat.read.decode.block_group import BlockGroup
from esformat.write.template_choice import column_context
from esformat.write.templated import encode_templated

PLAIN = Decompressor()


def found(table, values, text):
    """Whether each value may contain a text; None if the values are not stored by templates."""
    templates = table.compiled()
    context = column_context(ColumnDictionary(0, b"", None, table), Codec.NONE, None, None)
    (stored,) = encode_templated(pa.array(values, pa.binary()), [0, len(values)], context)
    read = DecodeContext(PLAIN, PLAIN, templates=templates)
    if stored[:1] != b"\x08":
        return None
    node = TemplateNode(memoryview(stored), 0, len(values), read)
    candidates = TemplateTexts(templates).candidates([text])
    assert candidates.size_bytes > 0
    may = node.rows_that_may_contain(candidates, read).tolist()
    if candidates.are_exact:
        assert may == [value is not None and text in value for value in values]
    return may


@examples(500)
@given(st.data())
def test_no_row_is_left_out(data):
    """Parts of values are found wherever they begin and end, alone and with another byte."""
    table = data.draw(tables())
    values = [text_of(table, row) for row in data.draw(rows_of(table))]
    values += data.draw(st.lists(st.none() | st.binary(max_size=9), max_size=2))
    texts = [value for value in values if value]
    if not texts:
        return
    for _ in range(5):
        text = data.draw(st.sampled_from(texts))
        first = data.draw(st.integers(0, len(text) - 1))
        text = text[first : data.draw(st.integers(first + 1, len(text)))] + data.draw(st.binary(max_size=1))
        may = found(table, values, text)
        if may is not None:
            assert all(told or value is None or text not in value for told, value in zip(may, values, strict=True))


VARIABLES = (
    Variable(Kind.ENUM, 0, (b"/", b"/cart", b"/product/")), Variable(Kind.INTEGER), Variable(Kind.STRING),
    Variable(Kind.DATE, 9), Variable(Kind.STRING),
)  # fmt: skip
TABLE = TemplateTable(
    VARIABLES,
    (
        Template((b'{"url": "', b'", "n": ', b"}"), (0, 1)),
        Template((b"ERROR ", b" at ", b""), (2, 1)),
        Template((b"", b" ok"), (3,)),
        Template((b"", b""), (4,)),
    ),
)
VALUES = [b'{"url": "/cart", "n": 7}', b'{"url": "/", "n": 70}', b'{"url": "/product/", "n": 7}', b"ERROR disk at 7",
          b"ERROR net at 12", b"17/May/2015:10:05:03 ok", b"nothing", None]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        (b'"/cart"', [0]),
        (b'/"', [1, 2, 5]),  # and in any date made of the same characters
        (b"/", [0, 1, 2, 5]),
        (b'"n": 7}', [0, 2, 3]),  # templates with the same variable
        (b'", "n": 70', [0, 1, 2]),  # the number may have more digits
        (b"ERROR", [3, 4]),
        (b"ERROR d", [3, 4]),  # the beginnings of strings are not checked
        (b"disk", [3]),
        (b"thin", [6]),
        (b"y/2015", [5]),
        (b"ay ", [3, 4]),  # strings may end like this
        (b"absent", []),
        (b"ok", [5]),
        (b"x", []),
    ],
)
def test_where_a_text_stands(text, rows):
    """Texts are found in literals, across slots, and in enumerations, numbers, dates and strings."""
    assert [row for row, may in enumerate(found(TABLE, VALUES, text)) if may] == rows


@pytest.mark.parametrize(
    ("texts", "exact"),
    [
        ([b"ERROR "], True),  # or within a string
        ([b'"n":'], True),
        ([b'", "n": '], False),  # a string may end like this, before a space
        ([b"isk"], True),  # only within strings
        ([b"absent"], True),
        ([b'"n": 7}'], False),
        ([b"/cart"], True),  # in the values of an enumeration
        ([b"cart", b"prod"], True),
        ([b"/product/", b'"/"'], False),
        ([b'/cart"'], False),
        ([b'"url": "/cart", "n": 7}'], False),
        ([b"OR d"], False),  # a string may begin like this
        ([b"RROR ", b"ROR "], True),
        ([b"RROR ", b"/cart"], True),
        ([b"RROR ", b'/cart"'], False),
    ],
)
def test_exact_places(texts, exact):
    """A search is exact, without a check of rows, if a text can only occur within a literal, an enumeration value or
    a string. Dates, which many texts could match, are left out here.
    """
    table = TemplateTable(VARIABLES, (*TABLE.templates[:2], TABLE.templates[3]))
    assert TemplateTexts(table.compiled()).candidates(texts).are_exact == exact


LINES = [b"%s took=%dms user=%d" % (b"GET /a" if n % 3 else b"POST /b status=304", n % 977, n) for n in range(20_000)]


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """A segment of lines of two templates, a third of which contain `status=304`."""
    path = tmp_path_factory.mktemp("lines") / "a.esdb"
    with esformat.create(path) as writer:
        writer.add_table(
            pa.table(
                {"space": ["s"] * len(LINES), "timestamp": range(len(LINES)), "data": LINES, "n": range(len(LINES))}
            )
        )
    with esformat.open(path) as segment:
        yield segment


@pytest.mark.parametrize(
    ("texts", "asks"), [([[b"tus=304"]], False), ([[b"tus=304"], [b"POST"]], False), ([[b"tus=304"], [b"er=17"]], True)]
)
@pytest.mark.parametrize("limit", [None, 50])
@pytest.mark.parametrize("columns", [["timestamp", "data"], ["timestamp"]], ids=["with the text", "without"])
def test_what_templates_tell_is_not_asked(lines, texts, asks, limit, columns):
    """`matches` is not called if containing a text is the whole condition and the templates decide it for every row."""
    asked = []

    def matches(batch):
        asked.append(len(batch))
        return pa.array([all(any(t in v for t in each) for each in texts) for v in batch["data"].to_pylist()])

    wanted = [n for n, line in enumerate(LINES) if all(any(t in line for t in each) for each in texts)][:limit]
    for enough in (True, False):
        asked.clear()
        scan = lines.scan(columns=columns, limit=limit)
        found = scan.matching(["data"], matches, {"data": texts}, required_texts_suffice=enough)
        got = pa.Table.from_batches(found, scan.schema)
        assert got["timestamp"].cast("int64").to_pylist() == wanted
        if "data" in columns:
            assert got["data"].to_pylist() == [LINES[n] for n in wanted]
        assert bool(asked) == (asks or not enough)


def test_what_is_not_known_of_all_is_asked(lines, monkeypatch):
    """`matches` is called for blocks without templates and for columns without text."""
    asked = []

    def matches(batch):
        asked.append(len(batch))
        return pa.array([b"tus=304" in value for value in batch["data"].to_pylist()])

    def found(held):
        asked.clear()
        scan = lines.scan()
        batches = scan.matching(["data"], matches, held, required_texts_suffice=True)
        assert pa.Table.from_batches(batches, scan.schema)["data"].to_pylist() == [v for v in LINES if b"tus=304" in v]
        return bool(asked)

    held = {"data": [[b"tus=304"]]}
    assert not found(held)
    assert found(held | {"n": [[b"1"]]})
    known = block_group.codes_that_may
    monkeypatch.setattr(block_group, "codes_that_may", lambda *given: [None, *known(*given)[1:]])
    assert found(held)


def test_some_groups_are_asked_and_some_not(lines, monkeypatch):
    """Row groups that the templates decide and others are combined in one result."""
    known, told = BlockGroup.rows_that_may_contain, itertools.cycle([True, False])
    monkeypatch.setattr(BlockGroup, "rows_that_may_contain", lambda *given: (known(*given)[0], next(told)))
    monkeypatch.setattr(scans, "BATCH_BLOCKS", 1)
    monkeypatch.setattr(scans, "THREADS", 1)
    asked = []

    def matches(batch):
        asked.append(len(batch))
        return pa.array([True] * len(batch))

    scan = lines.scan(start=100)
    found = scan.matching(["data"], matches, {"data": [[b"tus=304"]]}, required_texts_suffice=True)
    got = pa.Table.from_batches(found, scan.schema)
    assert got["data"].to_pylist() == [line for line in LINES[100:] if b"tus=304" in line]
    assert 0 < sum(asked) < len(got)


def test_scans_ask_about_no_more_than_that(tmp_path):
    """`matches` receives only the rows that may contain the texts, with or without other conditions."""
    rnd = random.Random(3)
    pages = ["/", "/cart", "/about", "/product"]
    rows = [{"url": rnd.choice(pages), "n": n, "to": f"w{rnd.randrange(9)}"} for n in range(20_000)]
    table = pa.table({
        "space": [f"s{n % 3}" for n in range(len(rows))], "timestamp": range(len(rows)),
        "data": [json.dumps(row).encode() for row in rows], "kind": ["ab"[n % 2] for n in range(len(rows))],
    })  # fmt: skip
    with esformat.create(tmp_path / "a.esdb", indexes=["kind"]) as writer:
        writer.add_table(table)
    asked = []

    def matches(batch):
        asked.append(len(batch))
        texts = batch["data"].to_pylist()
        return pa.array([b'"/cart"' in text and (b"w1" in text or b"w2" in text) for text in texts])

    held = {"data": [[b'"/cart"'], [b"w1", b"w2"]]}
    with esformat.open(tmp_path / "a.esdb") as segment:
        for conditions in ({}, {"start": 1000, "end": 3000}, {"limit": 7}):
            asked.clear()
            scan = segment.scan(**conditions)
            got = pa.Table.from_batches(scan.matching(["data"], matches, held), scan.schema)
            assert sum(asked) == len(got) or "limit" in conditions
            plain = segment.scan(**conditions)
            assert got == pa.Table.from_batches(plain.matching(["data"], matches), plain.schema)
        scan = segment.scan_index("kind", "a", reverse=True)
        got = pa.Table.from_batches(scan.matching(["data"], matches, held), scan.schema)
        assert got == pa.Table.from_batches(segment.scan_index("kind", "a", reverse=True).matching(["data"], matches))
        asked.clear()
        assert list(segment.scan().matching(["data"], matches, {"data": [[b"/nowhere"]]})) == []
        assert asked == []


def test_values_without_templates(tmp_path):
    """Without templates `matches` receives every row."""
    rnd = np.random.default_rng(1)
    data = noise(rnd, 3000, 40).to_pylist()
    with esformat.create(tmp_path / "a.esdb") as writer:
        writer.add_table(pa.table({"space": ["a"] * 3000, "timestamp": range(3000), "data": data}))
    wanted = data[17][5:9]
    with esformat.open(tmp_path / "a.esdb") as segment:
        batches = segment.scan().matching(
            ["data"], lambda batch: pa.array([wanted in value for value in batch["data"].to_pylist()]),
            {"data": [[wanted]]},
        )  # fmt: skip
        assert [row for batch in batches for row in batch["data"].to_pylist()] == [v for v in data if wanted in v]


def test_templates_that_nobody_writes():
    """A thousand adjacent slots of repetitive values do not slow down a search; every text may match there."""
    listed = Variable(Kind.ENUM, 0, (b"", b"a", b"aa", b"aaa"))
    templates = (Template((b"",) * 1001, (0,) * 1000), Template((b"", b""), (1,)))
    texts = TemplateTexts(TemplateTable((listed, Variable(Kind.STRING)), templates).compiled())
    assert texts.candidates([b"a" * 300 + b"b"]).anywhere.tolist() == [False, True, False]
