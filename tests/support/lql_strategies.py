"""Hypothesis strategies for syntax trees: only trees that some text produces."""

from __future__ import annotations

from decimal import Decimal

from hypothesis import strategies as st

from aggregator.lql import TagSet
from aggregator.lql.parse.tree import (
    SYMBOLS,
    Call,
    Condition,
    CreatePipe,
    DeletePipe,
    DescribePartition,
    DescribePipe,
    Every,
    Explain,
    Measure,
    Name,
    Not,
    Position,
    Range,
    Select,
    ShowPartitions,
    ShowPipes,
    Time,
    Truncate,
    Value,
    all_of,
    any_of,
)

# Characters with a meaning in the language are drawn often.
SIGNS = "\"'`{}=,\\ \n\t*?[]()<>!.:;/-_%&|~0aA\0åß\U0001f600"
texts = st.text(st.one_of(st.sampled_from(SIGNS), st.characters(exclude_categories=["Cs"])), max_size=12)
words = st.sampled_from(["a", "name", "limit", "like", "not", "k8s.io/x", "fields:q", "größe", "7up", "count", "order"])
names = st.one_of(words, texts)
numbers = st.one_of(st.integers(-(10**9), 10**9).map(str), st.sampled_from(["-0.5", "1e3", ".5", "7.", "+3"]))
values = st.one_of(texts.map(Value), numbers.map(lambda text: Value(text, True)))
plain_patterns = st.text("abc*?", max_size=8).map(Value)
tag_sets = st.dictionaries(texts, texts, max_size=4).map(TagSet.of)
times = st.sampled_from(["-1.5h", "day", "week", "2026-03-01", "2026-03-01T08:00:00.5Z", "08:15", "1550000000000"])
marked_times = times.map(Time)
counts = st.one_of(st.none(), st.integers(0, 2**62))


def _functions(operands):
    return st.builds(Call, st.sampled_from(["UPPER", "LOWER"]), operands)


tag_operands = st.recursive(names.map(Name), _functions, max_leaves=2)
tag_conditions = st.one_of(
    st.builds(Condition, tag_operands, st.sampled_from([*SYMBOLS, "CONTAINS", "PREFIX", "SUFFIX"]), values),
    st.builds(Condition, tag_operands, st.sampled_from(["LIKE", "MATCHES"]), st.text("abc*", max_size=0).map(Value)),
    st.builds(Condition, tag_operands, st.just("LIKE"), plain_patterns),
)  # fmt: skip

columns = st.sampled_from(["fields:a", "fields:b c", "status", "who", "msg.a", "MSG.b.0", "fields.x"])
steps = st.lists(st.one_of(texts, st.integers(-5, 5)), min_size=1, max_size=3)
paths = st.builds(Name, st.sampled_from(["msg", "msg.a"]), steps.map(tuple))
event_conditions = st.one_of(
    st.builds(Condition, st.one_of(columns.map(Name), paths), st.sampled_from([*SYMBOLS, "CONTAINS"]), values),
    st.builds(Condition, st.just(Name("ts")), st.sampled_from(SYMBOLS), times.map(Value)),
    st.builds(Condition, st.just(Name("msg")), st.sampled_from(["=", "CONTAINS", "PREFIX", "SUFFIX"]), values),
    st.builds(Condition, st.just(Call("LOWER", Name("msg"))), st.just("LIKE"), plain_patterns),
)  # fmt: skip


def _expressions(conditions):
    def deeper(terms):
        several = st.lists(terms, min_size=2, max_size=4)
        return st.one_of(terms.map(Not), several.map(all_of), several.map(any_of))

    return st.recursive(conditions, deeper, max_leaves=8)


tag_expressions = _expressions(tag_conditions)
event_expressions = _expressions(event_conditions)
sources = st.one_of(tag_sets, tag_expressions)
maybe_sources, maybe_wheres = st.one_of(st.none(), sources), st.one_of(st.none(), event_expressions)
ranges = st.one_of(
    st.builds(Range, marked_times, st.one_of(st.none(), marked_times)), st.builds(Range, st.none(), marked_times)
)
positions = st.one_of(
    st.sampled_from([Position("head"), Position("tail")]),
    texts.filter(lambda text: text.lower() not in ("head", "tail")).map(lambda text: Position("token", text)),
    times.map(lambda text: Position("time", text)),
)
templates = st.sampled_from([None, "{msg}\n", "{ts.format(15:04)} {vars:a b} {{x}}", '"\\{msg.json()}'])
limits = st.one_of(st.none(), st.integers(-1, 2**62))
group_keys = st.one_of(
    columns.map(Name), paths, st.builds(Every, st.integers(1, 2**40)), st.just(Call("UPPER", Name("x")))
)
operands = st.one_of(columns.map(Name), paths, st.just(Name("ts")))
measures = st.one_of(
    st.builds(Measure),
    st.builds(Measure, st.sampled_from(["SUM", "AVG", "MIN", "MAX"]), operands),
    st.builds(
        Measure, st.sampled_from(["COUNT", "DISTINCT"]), st.one_of(operands, operands.map(lambda x: Call("LOWER", x)))
    ),
    st.builds(Measure, st.just("PERCENTILE"), operands, st.integers(0, 10**6).map(lambda n: Decimal(n) / 10**4)),
)
several = st.lists(measures, min_size=1, max_size=4, unique=True).map(tuple).filter(lambda all_: all_ != (Measure(),))


@st.composite
def measured_selects(draw):
    """SELECT of measures, perhaps by keys and ordered by one of the measures."""
    asked, keys = draw(several), draw(st.lists(group_keys, max_size=2).map(tuple))
    most_first = draw(st.one_of(st.none(), st.booleans())) if keys else None
    order_by = Measure() if most_first is None else draw(st.sampled_from([*asked, Measure()]))
    where = draw(maybe_wheres)
    return Select(count=True, measures=asked, where=where, group_by=keys, most_first=most_first, order_by=order_by)


selects = st.one_of(
    measured_selects(),
    st.builds(
        Select, count=st.just(True), distinct=st.just(True), where=maybe_wheres, limit=limits,
        group_by=st.lists(group_keys, min_size=1, max_size=3).map(tuple),
    ),
    st.builds(
        Select, format=templates, source=maybe_sources, range=st.one_of(st.none(), ranges), where=maybe_wheres,
        position=st.one_of(st.none(), positions), newest_first=st.booleans(),
        offset=st.one_of(st.none(), st.integers(-(2**40), 2**40)), limit=limits,
    ),
    st.builds(
        Select, count=st.just(True), source=maybe_sources, where=maybe_wheres, limit=limits, offset=counts,
        group_by=st.lists(group_keys, max_size=3).map(tuple),
    ),
)  # fmt: skip
pipe_names = names.filter(bool)
sizes = st.one_of(st.none(), st.integers(0, 2**60))
statements = st.one_of(
    selects,
    selects.map(Explain),
    st.builds(ShowPartitions, maybe_sources, counts, limits),
    st.builds(ShowPipes, counts, limits),
    tag_sets.map(DescribePartition),
    pipe_names.map(DescribePipe),
    pipe_names.map(DeletePipe),
    st.builds(CreatePipe, pipe_names, maybe_sources, maybe_wheres, st.booleans()),
    st.builds(Truncate, st.booleans(), maybe_sources, sizes, sizes, st.one_of(st.none(), marked_times), sizes),
)
