"""LQL over ordinary topics: topic, partition, space and grouping of an event are tags, its columns are fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import aggregator
from aggregator.cli.root import run
from aggregator.lql import TagSet, matches, parse_source
from aggregator.streams.reading import event_tags

ODD = "r 2,{}"
EVENTS = {  # topic, partition: space, grouping, rating
    ("reviews", "0"): [("r1", "v1", 5), (ODD, "", 3), ("r1", "v2", 4)],
    ("reviews", "p1"): [("r3", "", 1)],
    ("logs", "0"): [("{a", "v1", 2)],  # not tags, though it begins like some; next to a stream
}
TAGS = [
    {"topic": topic, "partition": partition, "space": space} | ({"grouping": grouping} if grouping else {})
    for (topic, partition), rows in EVENTS.items()
    for space, grouping, _ in rows
]
STREAM = {"app": "web"}
VALUES = st.sampled_from(["reviews", "logs", "0", "p1", "r1", ODD, "r3", "v1", "v2", "web", "", "{a"])
NAMES = st.sampled_from(["topic", "partition", "space", "grouping", "app", "UPPER(space)"])
COMPARISONS = st.builds(
    lambda name, op, value: f'{name} {op} "{value}"', NAMES, st.sampled_from(["=", "!=", "<", "PREFIX"]), VALUES
)
TERMS = st.one_of(COMPARISONS, COMPARISONS.map("NOT {}".format), COMPARISONS.map("({} OR space = r1)".format))
EXPRESSIONS = st.builds(
    lambda first, others: " ".join([first, *(f"{word} {term}" for word, term in others)]),
    TERMS, st.lists(st.tuples(st.sampled_from(["AND", "OR"]), TERMS), max_size=3),
)  # fmt: skip
LISTS = st.dictionaries(st.sampled_from(["topic", "partition", "space", "grouping", "app"]), VALUES, max_size=3)


@pytest.fixture(scope="module", params=["unsealed", "sealed"])
def catalog(request, tmp_path_factory) -> Iterator[aggregator.Catalog]:
    with aggregator.open(tmp_path_factory.mktemp("tags") / "data", durability="none") as opened:
        for (topic, partition), rows in EVENTS.items():
            if topic not in opened.topics():
                opened.create_topic(topic, indexes=["rating"])
            opened.topic(topic).append(
                [
                    {"space": space, "grouping": grouping, "timestamp": number, "rating": rating}
                    for number, (space, grouping, rating) in enumerate(rows)
                ],
                partition,
            )
        opened.write(STREAM, [{"ts": 9, "msg": "hi"}])
        opened.create_topic("binary", keys="binary").append([{"space": b"x", "timestamp": 1}])
        if request.param == "sealed":
            opened.seal()
        yield opened


def texts(answer) -> Counter[str]:
    return Counter(answer.to_table()["space"].to_pylist())


def test_everything_is_read(catalog):
    """Without FROM, events of all topics with text keys are read, whether they are streams or not."""
    assert catalog.query("SELECT COUNT").to_pylist() == [{"count": 6}]
    assert texts(catalog.query("SELECT")) == Counter(str(TagSet.of(tags)) for tags in [*TAGS, STREAM])


@examples(60)
@given(st.one_of(EXPRESSIONS, LISTS.map(lambda tags: str(TagSet.of(tags)))))
def test_any_source(catalog, source):
    """FROM selects events by their tags, as it selects streams."""
    wanted = [str(TagSet.of(tags)) for tags in [*TAGS, STREAM] if matches(parse_source(source), TagSet.of(tags))]
    assert texts(catalog.query(f"SELECT FROM {source}")) == Counter(wanted)
    assert catalog.query(f"SELECT COUNT FROM {source}").to_pylist() == [{"count": len(wanted)}]


@pytest.mark.parametrize("others", [[], ["0"], ["0", "1"]], ids=["none", "one partition", "both"])
def test_streams_beside_other_events(tmp_path, others):
    """In one topic, stream records keep their tags, and only other events get tags for topic and keys."""
    wanted: Counter[str] = Counter()
    with aggregator.open(tmp_path / "data", durability="none") as opened:
        for partition in ("0", "1"):
            opened.write(STREAM, [{"ts": 9, "msg": "hi"}, {"ts": 11, "msg": "ho"}], partition=partition)
            wanted[str(TagSet.of(STREAM))] += 2
        for partition in others:
            opened.topic("logs").append([{"space": "s", "timestamp": 10}], partition)
            wanted[str(TagSet.of({"topic": "logs", "partition": partition, "space": "s"}))] += 1
        opened.seal()
        assert texts(opened.query("SELECT")) == wanted


def test_tags_and_columns_in_answers(catalog):
    """GROUP BY, WHERE and format strings accept these tags and columns."""
    counted = catalog.query("SELECT COUNT FROM topic = reviews GROUP BY space").to_pylist()
    assert {row["space"]: row["count"] for row in counted} == {"r1": 2, ODD: 1, "r3": 1}
    assert catalog.query("SELECT COUNT FROM topic = reviews WHERE rating >= 4").to_pylist() == [{"count": 2}]
    assert catalog.query("SELECT COUNT WHERE grouping = v1").to_pylist() == [{"count": 2}]
    lines = list(catalog.query('SELECT "{vars:topic}/{vars:partition}/{vars:space} {vars:rating}"').lines())
    expected = ["reviews/0/r1 5", "reviews/p1/r3 1", "logs/0/{a 2", f"reviews/0/{ODD} 3", "reviews/0/r1 4", "// "]
    assert sorted(lines) == sorted(expected)


def test_long_texts_are_not_remembered(catalog):
    """Long texts are not cached: statements with ever new ones would fill the memory."""
    event_tags._is_so.cache_clear()
    for condition, count in (('topic = "{}"', 0), ('topic != "{}"', 6), ('app = "{}"', 0), ('app != "{}"', 6)):
        assert catalog.query(f"SELECT COUNT FROM {condition.format('x' * 300)}").to_pylist() == [{"count": count}]
        assert event_tags._is_so.cache_info().currsize == 0
    assert catalog.query('SELECT COUNT FROM topic = "reviews"').to_pylist() == [{"count": 4}]
    assert event_tags._is_so.cache_info().currsize > 0


def test_a_space_is_looked_up(catalog):
    """FROM space = … skips segments without the space."""
    explained = catalog.query("EXPLAIN SELECT FROM {topic=reviews,space=r3}").to_pylist()
    assert [row["topic"] for row in explained] == ["reviews"]
    assert explained[0]["read"] <= 1
    assert catalog.query("SELECT COUNT FROM {topic=reviews,space=r3}").to_pylist() == [{"count": 1}]


@pytest.mark.parametrize(
    ("statement", "warning"),
    [
        ("FROM app = nowhere", ["FROM matches no stream and no topic"]),
        ("FROM {topic=nowhere}", ["FROM matches no stream and no topic"]),
        (
            "FROM {topic=logs,space=r1}",
            ["FROM matches no stream of the topic 'logs': streams do not have a tag named topic"],
        ),
        ("FROM topic = reviews WHERE fields:ratng = 1", ["no topic that is read has a field 'ratng'"]),
        ("FROM topic = reviews WHERE fields:rating = 7", []),
        ("", []),
    ],
)
def test_what_matches_nothing_anywhere_is_told(catalog, statement, warning):
    """A name that matches nothing causes a warning, because it may be mistyped; no record matches a missing field."""
    answer = catalog.query(f"SELECT {statement}")
    assert answer.warnings == warning
    counted = catalog.query(f"SELECT COUNT {statement}")
    assert (counted.schema.metadata or {}).get(b"warning", b"").decode() == "; ".join(warning)
    if warning:
        assert (answer.count(), counted.to_pylist()) == (0, [{"count": 0}])


def test_a_column_that_msg_hides_is_told(tmp_path):
    """`msg` is the message and `ts` the time, even if a topic has such columns; a warning explains a wrong 0."""
    with aggregator.open(tmp_path / "data") as opened:
        opened.create_topic("t").append([{"space": "s", "timestamp": 1, "msg": "hello", "ts": 5}])
        answer = opened.query("SELECT WHERE msg CONTAINS hello")
        assert answer.warnings == ["msg is the message; to read the topic's column of that name, write fields:msg"]
        counted = opened.query("SELECT COUNT WHERE ts = 5")
        wanted = b"ts is the time of the record; to read the topic's column of that name, write fields:ts"
        assert counted.schema.metadata == {b"warning": wanted}
        for statement in ("SELECT WHERE fields:msg = hello", 'SELECT RANGE "-1h"', "SELECT WHERE msg.a = 1"):
            assert opened.query(statement).warnings == []


def test_the_command_warns(tmp_path, capsys):
    """The command prints warnings to standard error; its output is unchanged."""
    with aggregator.open(tmp_path / "data") as opened:
        opened.create_topic("t").append([{"space": "s", "timestamp": 1}])
    for statement, answer in (("SELECT COUNT FROM {topic=tt}", '{"count":0}\n'), ("SELECT FROM {topic=tt}", "")):
        status = run(["query", str(tmp_path / "data"), statement, "--format", "jsonl"])
        told = capsys.readouterr()
        assert (status, told.out) == (0, answer)
        assert "warning: FROM matches no stream and no topic" in told.err
