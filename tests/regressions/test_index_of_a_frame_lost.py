"""A named pandas index became a column of the events only if its values did not increase by one."""

from __future__ import annotations

import pandas as pd
import pytest

import aggregator
import esformat
from esformat.pandas import read_esdb


@pytest.mark.parametrize("values", [[3, 7, 8], [1, 2, 3], [9, 7, 5]])
def test_files_and_topics_keep_it(tmp_path, values):
    """A named index is kept whatever its values; one without a name, or named like a column, adds no column."""
    plain = pd.DataFrame({"space": ["a", "b", "c"], "timestamp": [1, 2, 3], "x": [0.5, 1.5, 2.5], "n": values})
    frame = plain.set_index("n")
    with esformat.create(tmp_path / "a.esdb") as writer:
        writer.add_table(frame)
        writer.add_table(plain)
    assert read_esdb(tmp_path / "a.esdb")["n"].tolist() == [each for each in values for _ in range(2)]
    with aggregator.open(tmp_path / "data") as catalog:
        topic = catalog.create_topic("t")
        topic.append(frame)
        assert topic.scan().to_table()["n"].to_pylist() == values
    with esformat.create(tmp_path / "b.esdb") as writer:
        writer.add_table(plain.set_index("n", drop=False))
    assert read_esdb(tmp_path / "b.esdb")["n"].tolist() == values
