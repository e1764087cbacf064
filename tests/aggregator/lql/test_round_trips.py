"""Hypothesis tests: trees and tag sets to text and back, and arbitrary text."""

from __future__ import annotations

import lql_strategies as strategies
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from aggregator.lql import (
    LqlError,
    TagSet,
    expression_to_text,
    parse_source,
    parse_statement,
    parse_where,
    source_to_text,
    to_text,
)


@examples(300)
@given(strategies.statements)
def test_statements(statement):
    """A tree's text parses to an equal tree, whose text is the same."""
    text = to_text(statement)
    again = parse_statement(text)
    assert again == statement
    assert to_text(again) == text


@examples(150)
@given(strategies.sources)
def test_sources(source):
    """A source parses back from its text."""
    assert parse_source(source_to_text(source)) == source


@examples(150)
@given(strategies.event_expressions)
def test_conditions(expression):
    """A condition parses back from its text."""
    assert parse_where(expression_to_text(expression)) == expression


@examples(300)
@given(st.dictionaries(strategies.texts, strategies.texts, max_size=5))
def test_tag_sets(given_tags):
    """Any names and values have a canonical text that parses back, whatever their order."""
    tags = TagSet.of(given_tags)
    assert TagSet.parse(str(tags)) == tags
    assert tags.as_dict() == given_tags
    assert str(TagSet.of(dict(reversed(given_tags.items())))) == str(tags)


@examples(300)
@given(
    st.dictionaries(strategies.texts, strategies.texts, max_size=3),
    st.dictionaries(strategies.texts, strategies.texts, max_size=3),
)
def test_canonical_text_tells_tag_sets_apart(one, other):
    """Canonical texts are equal exactly if the tags are."""
    assert (str(TagSet.of(one)) == str(TagSet.of(other))) == (one == other)


@examples(500)
@given(
    st.text(st.one_of(st.sampled_from(strategies.SIGNS), st.characters()), max_size=60),
    st.sampled_from(["", "SELECT FROM ", "SELECT WHERE "]),
)
def test_any_text(text, start):
    """Any text is a statement or raises LqlError with a place inside the text."""
    complaint = None
    try:
        parse_statement(start + text)
    except LqlError as error:
        complaint = error
    if complaint is not None:
        assert 0 <= complaint.start <= len(start + text)
        assert complaint.message in str(complaint)


@pytest.mark.parametrize(
    "value", ["x" * 1024, "å" * 2048, '"', "{}", "=", ",", "", " ", "\\", "a b", "\n", "\0", "'", "`"]
)
def test_odd_tags(value):
    """Names and values that need quotes, up to kilobytes, survive the canonical text."""
    tags = TagSet.of({value: value, "name": value})
    assert TagSet.parse(str(tags)) == tags


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ('{name="app1",ip=27.3.2.1}', "{ip=27.3.2.1,name=app1}"),
        ("name=app1,ip=27.3.2.1", "{ip=27.3.2.1,name=app1}"),
        (" { b = x y , a = 'q' } ", '{a=q,b="x y"}'),
        ("", "{}"),
        ("{}", "{}"),
        ("{a=}", '{a=""}'),
        ('{"a b"="c=d,e"}', '{"a b"="c=d,e"}'),
        ("{`a``b`=1}", '{"a`b"=1}'),
        ("{logrange.pipe=errors}", "{logrange.pipe=errors}"),
        ("{a='\\n'}", '{a="\\\\n"}'),
        ('{a="\\n"}', '{a="\\n"}'),
    ],
)
def test_canonical_text(written, canonical):
    """Common spellings of tags have one canonical text."""
    assert str(TagSet.parse(written)) == canonical


@pytest.mark.parametrize(
    ("given_tags", "told"),
    [({"a": 5}, "int"), ({5: "a"}, "int"), ({"a": "x" * 5000}, "5000 bytes"), ({"a": "\ud800"}, "UTF-8"),
     ({str(i): "x" * 4000 for i in range(10)}, "in total")],
)  # fmt: skip
def test_no_tags(given_tags, told):
    """Invalid tags are refused with the reason."""
    with pytest.raises(LqlError, match=told):
        TagSet.of(given_tags)
