"""Tags read from columns of canonical texts equal those of each set parsed alone, however many sets there are."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest
from effort import examples, share_of
from hypothesis import given
from hypothesis import strategies as st

from aggregator.lql import Columns, TagSet
from aggregator.lql.parse.tag_text import each_written, tag_lists, tag_values
from aggregator.lql.parse.template import Template, var_text

ODD = st.text(st.sampled_from("ab.=,{}\"'`\\ \n\x00üß😀"), max_size=6)
NAMES = st.one_of(st.sampled_from(["app", "space", "a.b", "(a|b)*", ""]), ODD)
VALUES = st.one_of(st.sampled_from(["app=web", ',app="x",', "web"]), ODD, st.text(max_size=5))
SETS = st.lists(st.dictionaries(NAMES, VALUES, max_size=4), min_size=1, max_size=6)


@examples(300)
@given(SETS, NAMES)
def test_values_of_a_column_are_those_of_each_set(sets, name):
    """Values of a column equal those of each set, whatever characters names and values contain."""
    made = [TagSet.of(tags) for tags in sets]
    texts = pa.array([*map(str, made), None])
    assert tag_values(texts, name).to_pylist() == [*(tags.get(name) for tags in sets), None]
    assert tag_lists(texts).to_pylist() == [*(str(tags)[1:-1] or None for tags in made), None]
    values = [value for tags in sets for value in tags.values()]
    assert [
        TagSet.parse(f"{{a={text}}}").get("a") for text in each_written(pa.array(values, pa.string())).to_pylist()
    ] == values


@pytest.mark.parametrize("space", share_of(["Ann {}", "r{}"], 2))
def test_a_set_for_each_row_is_soon_looked_through(space):
    """Grouping 30,000 small spaces by a tag and printing their tags takes under a second; each took longer before."""
    rows = 30_000
    texts = [str(TagSet.of({"topic": "reviews", "partition": "0", "space": space.format(row)})) for row in range(rows)]
    batch = pa.record_batch(
        {"timestamp": pa.array(range(rows), pa.timestamp("us", "UTC")), "data": [b""] * rows, "space": texts}
    )
    columns = Columns(batch.schema)
    begun = time.process_time()
    found = var_text(batch, columns, "space")
    assert var_text(batch, columns, "app").null_count == rows
    printed = Template.compile("{vars}").render(batch, columns)
    assert time.process_time() - begun < 1
    assert found[7].as_py() == space.format(7)
    assert printed[7].as_py() == texts[7][1:-1]
