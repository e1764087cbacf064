"""Arrow's C streams end column names at a NUL character, so that another column seems meant."""

from __future__ import annotations

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import aggregator
import esformat
from esformat.cli import run

ROWS = pa.table({"space": ["ada"], "timestamp": [1], "a\0b": ["lost"]})
NESTED = pa.table({"space": ["ada"], "timestamp": [1], "x": [{"a\0b": "lost", "a": "kept"}]})
FORMS = {
    "table": lambda: ROWS,
    "batch": lambda: ROWS.to_batches()[0],
    "reader": lambda: ROWS.to_reader(),
    "pandas": lambda: ROWS.to_pandas(),
    "polars": lambda: pl.DataFrame({"space": ["ada"], "timestamp": [1], "a\0b": ["lost"]}),
    "nested": lambda: NESTED.to_batches()[0],
    "nested in pandas": lambda: pd.DataFrame({"space": ["ada"], "timestamp": [1], "x": [{"a\0b": "lost"}]}),
    "nested in polars": lambda: pl.DataFrame({"space": ["ada"], "timestamp": [1], "x": [[{"a\0b": "lost"}]]}),
}
SAID = "cannot have a NUL character: 'a\\\\x00b'"


@pytest.mark.parametrize("form", FORMS)
def test_tables(form, tmp_path):
    """A table with such names is refused in every form; a nested name is reported with its column."""
    with esformat.create(tmp_path / "x.esdb") as writer:
        with pytest.raises(esformat.InvalidEventError, match=SAID) as caught:
            writer.add_table(FORMS[form]())
        assert "nested" not in form or "column 'x'" in str(caught.value)
        writer.add_table(ROWS.select(["space", "timestamp"]))


def test_catalogs(tmp_path):
    """A topic refuses it, too."""
    with aggregator.open(tmp_path / "data") as catalog:
        topic = catalog.create_topic("t")
        with pytest.raises(esformat.InvalidEventError, match=SAID):
            topic.append(ROWS.to_reader())


@pytest.mark.parametrize("line", ['"x": {"a\\u0000b": "lost", "a": "kept"}', '"a\\u0000b": "lost", "a": "kept"'])
def test_lines_of_json(line, tmp_path, capsys):
    """A JSON key with NUL is named, escaped, in a one-line error."""
    (tmp_path / "x.jsonl").write_text('{"space": "ada", "timestamp": 1, ' + line + "}")
    assert run(["write", str(tmp_path / "x.esdb"), str(tmp_path / "x.jsonl")]) == 1
    assert "a name cannot have a NUL character: 'a\\x00b'" in capsys.readouterr().err
    assert not (tmp_path / "x.esdb").exists()
