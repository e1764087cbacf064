"""Templates of earlier files are reused if they fit, without texts of those files' events."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from payloads import payload
from template_strategies import rows_of, tables, text_of

import esformat
from esformat.core.matching import Matcher
from esformat.format.arrays import bytes_of, validity_of
from esformat.format.codec import Codec, make_compressor
from esformat.format.node import EncodeContext
from esformat.format.templates import Kind, Template, TemplateTable, Variable
from esformat.write import template_choice
from esformat.write.known_templates import MOST_FILES, MOST_PAUSE, KnownColumn, KnownTemplates, used_part
from esformat.write.template_choice import choose_dictionary
from esformat.write.templated import Matched

PLAIN = make_compressor(Codec.NONE)


def _matched(table, values):
    array, templates = pa.array(values, pa.binary()), table.compiled()
    offsets, text = bytes_of(array)
    context = replace(EncodeContext(PLAIN, PLAIN), templates=templates, matcher=Matcher(templates))
    return Matched(text.cast("B"), offsets, validity_of(array), context)


@examples(150)
@given(st.data())
def test_what_values_use_of_a_table(data):
    """Each value takes the same template as before, and every remaining text occurs in some value."""
    table = data.draw(tables())
    values = [text_of(table, row) for row in data.draw(rows_of(table))]
    values += data.draw(st.lists(st.none() | st.binary(max_size=4), max_size=3))
    before = _matched(table, values)
    used = used_part(table, before)
    after = _matched(used, values)
    taken = [code and table.templates[code - 1].literals for code in before.codes.tolist()]
    assert [code and used.templates[code - 1].literals for code in after.codes.tolist()] == taken
    texts = [text for template in used.templates for text in template.literals]
    texts += [text for variable in used.variables for text in variable.values]
    assert all(any(text in value for value in values if value is not None) for text in texts if text)
    assert used.templates[-1].literals == (b"", b"")


def test_what_stands_across_two_literals_is_not_said():
    """A template is kept only for literals that occur in a single literal of the values' templates, not across two."""
    number, whole = Variable(Kind.INTEGER), Variable(Kind.STRING)
    said, other = Template((b"a ", b" b"), (0,)), Template((b"a \0 b",), ())
    table = TemplateTable((number, whole), (said, other, Template((b"", b""), (1,))))
    assert used_part(table, _matched(table, [b"a 1 b"])).templates == (said, table.templates[-1])


@cache  # making the samples takes ten times as long as finding templates for them
def _rows(first, count):
    return [payload(random.Random(n)) for n in range(first, first + count)]


def _sample(first, count=3000, names=("ann", "bob", "cid")):
    rows = _rows(first, count)
    return pa.array([b'{"who":"%s",' % names[n % len(names)].encode() + row[1:] for n, row in enumerate(rows)])


@pytest.fixture
def looks(monkeypatch):
    """The calls that search for templates."""
    seen = []
    find = template_choice.find_templates
    monkeypatch.setattr(template_choice, "find_templates", lambda *of: seen.append(of) or find(*of))
    return seen


def _chosen(sample, known, byte_count=50 << 20):
    chosen = choose_dictionary(0, sample, byte_count, Codec.ZSTD, None, templates=True, known=known)
    return None if chosen is None else chosen.templates


def _texts(table):
    return [t for v in table.variables for t in v.values] + [t for each in table.templates for t in each.literals]


def test_files_of_one_kind(looks):
    """Later files reuse the first one's templates without its texts, up to a number of files."""
    known = KnownColumn()
    first = _chosen(_sample(0), known)
    assert any(b"bob" in text for text in _texts(first))
    for number in range(1, MOST_FILES + 1):
        table = _chosen(_sample(3000 * (1 + number % 3), names=("ann", "cid")), known)  # three samples in turn
        assert not any(b"bob" in text for text in _texts(table))
        assert any(b"ann" in text for text in _texts(table))
        assert len(looks) == 1
    _chosen(_sample(0), known)
    assert len(looks) == 2


def test_files_of_another_kind(looks):
    """New templates are sought if the known ones fit worse, unless the file is small."""
    other = pa.array([b"GET /%d HTTP/1.1 %d ms from 10.0.0.%d" % (n * n, n % 97, n % 251) for n in range(3000)])
    known = KnownColumn(least_bytes=1 << 20)
    assert _chosen(_sample(0), known, 100 << 10) is None
    assert (known.table, looks) == (None, [])
    assert _chosen(_sample(0), known) == known.table
    assert known.table is not None
    assert _chosen(other, known, 1000 << 10) is None
    assert (len(looks), known.table) == (1, None)  # the next small file need not try them
    assert any(b"HTTP" in text for text in _texts(_chosen(other, known)))
    assert (len(looks), _chosen(_sample(0), known, 1000 << 10)) == (2, None)


def test_files_without_templates(looks):
    """If no templates are found, the searches become rarer."""
    noise = pa.array([random.Random(n).randbytes(100) for n in range(1000)])
    known, when = KnownColumn(), []
    for number in range(100):
        before = len(looks)
        assert _chosen(noise, known) is None
        when += [number] * (len(looks) - before)
    assert when == [0, 2, 6, 14, 30, 62, 62 + MOST_PAUSE + 1]


def test_files_in_turn(tmp_path, looks):
    """Files in turn are read back; a file has no texts that only another one's events had."""
    known = KnownTemplates()
    assert not known.any_known
    for number, names in enumerate([("ann", "bob", "cid"), ("ann", "cid"), ("dan",)]):
        path, values = tmp_path / f"{number}.esdb", _sample(3000 * number, names=names)
        table = pa.table({"space": ["s"] * len(values), "timestamp": range(len(values)), "data": values})
        with esformat.create(path, templates=known) as writer:
            writer.add_table(table)
        with esformat.open(path) as segment:
            assert segment.info()["templates"]
            assert segment.scan().to_table()["data"].to_pylist() == values.to_pylist()
            stored = b"".join(_texts(segment._reader.dictionary(1)[0].templates))
        assert [name.encode() in stored for name in ("ann", "bob")] == [name in names for name in ("ann", "bob")]
    assert (len(looks), known.any_known) == (1, True)
    with pytest.raises(esformat.UsageError, match="templates need codec"):
        esformat.create(tmp_path / "a.esdb", codec="lz4", templates=known)
