"""Directories `name=value`: rows are written into those of their values, and directory names are read as columns."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest
from clicks import click_table, write_clicks
from effort import long

import esformat
import esformat.spark
from esformat import UsageError
from esformat.spark.directories import roots_of, shared_out, values_of
from esformat.spark.source import EsdbDataSource
from tests.spark.test_read import rows
from tests.spark.test_write import left

ROLES = {"space": "user", "timestamp": "at", "grouping": "app", "indexes": ["type"]}


@long
def test_write_by_columns(spark, tmp_path):
    """Each row is in the directory of its values and keeps them; an overwrite also removes files in directories."""
    table = click_table(600).rename_columns(["user", "app", "at", "data", "type", "country"])
    df = spark.createDataFrame(table)
    out = str(tmp_path / "out")
    written = esformat.spark.write(df, out, partition_by=["type", "country"], partitions=2, **ROLES)
    assert written.events == 600
    found = {}
    for path in (tmp_path / "out").rglob("*.esdb"):
        with esformat.open(path) as segment:
            kinds = set(
                zip(*(segment.scan().to_table()[name].to_pylist() for name in ("type", "country")), strict=True)
            )
        (found[path.parent.relative_to(tmp_path / "out").as_posix()],) = kinds
    pairs = set(zip(table["type"].to_pylist(), table["country"].to_pylist(), strict=True))
    assert set(found.values()) == pairs
    assert "type=page/country=__HIVE_DEFAULT_PARTITION__" in found
    assert found["type=cart/country=C07"] == ("cart", "C07")
    assert rows(spark.read.format("esdb").load(out)) == rows(
        df.selectExpr("user AS space", "app AS grouping", "at AS timestamp", "data", "type", "country")
    )
    esformat.spark.write(df.where("type = 'cart'"), out, partition_by=["type"], mode="overwrite", **ROLES)
    assert {name.split("/")[0] for name in left(tmp_path / "out") if name.endswith(".esdb")} == {"type=cart"}
    with pytest.raises(Exception, match="unknown column 'nix'"):
        esformat.spark.write(df, out, partition_by=["nix"], **ROLES)


def test_columns_of_directories(tmp_path):
    """A column that files lack is read from directory names, as text; a condition on it opens only matching files."""
    for day, first in (("2026-03-01", 0), ("2026-03-02", 50), ("__HIVE_DEFAULT_PARTITION__", 100)):
        folder = tmp_path / f"day={day}" / "a%2Fb=1%3D2"
        folder.mkdir(parents=True)
        write_clicks(folder / "a.esdb", click_table(150).slice(first, 50))
    source = EsdbDataSource({"path": str(tmp_path)})
    assert source.schema().names[-2:] == ["day", "a/b"]

    def read(**options):
        source = EsdbDataSource({"path": str(tmp_path), "columns": "day,a/b,space", **options})
        reader = source.reader(source.schema())
        batches = [batch for task in reader.partitions() for batch in reader.read(task)]
        return [row for batch in batches for row in batch.to_pylist()], reader

    found, _ = read()
    assert len(found) == 150
    assert {(row["day"], row["a/b"]) for row in found} == {("2026-03-01", "1=2"), ("2026-03-02", "1=2"), (None, "1=2")}
    (tmp_path / "day=2026-03-01" / "a%2Fb=1%3D2" / "a.esdb").rename(tmp_path / "kept")
    (tmp_path / "day=2026-03-01" / "a%2Fb=1%3D2" / "a.esdb").symlink_to(tmp_path / "kept")
    chosen, reader = read(where="day >= '2026-03-02' AND space > ''")
    assert {row["day"] for row in chosen} == {"2026-03-02"}
    assert [reader._admits(str(path)) for path in sorted(tmp_path.rglob("a.esdb"))] == [False, True, False]
    assert {row["day"] for row in read(where="day IS NULL OR space = 'nobody'")[0]} == {None}


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("x = ''", {""}),
        ("x <> 'a'", {"", "__HIVE_DEFAULT_PARTITION__"}),
        ("x IN ('', 'a') AND y IS NOT NULL", {"", "a"}),
        ("x = '__HIVE_DEFAULT_PARTITION__'", {"__HIVE_DEFAULT_PARTITION__"}),
        ("x IS NULL OR y = 'b'", {None}),
    ],
)
def test_values_that_no_directory_is_called(tmp_path, where, expected):
    """A condition matches the events' own values, though null and empty text share a directory."""
    values = ["", None, "a", "__HIVE_DEFAULT_PARTITION__"]
    times = pa.array(range(4), pa.timestamp("us", "UTC"))
    table = pa.table({"space": ["s"] * 4, "timestamp": times, "x": values, "y": [""] * 4})
    for number, (name, part) in enumerate(shared_out(table, ["x", "y"])):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
        with esformat.create(tmp_path / name / f"{number}.esdb") as writer:
            writer.add_table(part)
    source = EsdbDataSource({"path": str(tmp_path), "where": where, "columns": "x"})
    reader = source.reader(source.schema())
    found = [batch for task in reader.partitions() for batch in reader.read(task)]
    assert {row["x"] for batch in found for row in batch.to_pylist()} == expected


def test_names_of_directories():
    """Values are converted to directory names and back; null and empty text share a name."""
    table = pa.table(
        {
            "day": [dt.date(2026, 3, 1), None, dt.date(2026, 3, 1), dt.date(2026, 3, 1)],
            "name": ["a/b=c ä", "", None, "a/b=c ä"],
            "n": [1, 2, 3, 4],
        }
    )
    found = {name: part["n"].to_pylist() for name, part in shared_out(table, ["day", "name"])}
    null = "__HIVE_DEFAULT_PARTITION__"
    escaped = "day=2026-03-01/name=a%2Fb%3Dc %C3%A4"
    assert found == {escaped: [1, 4], f"day={null}/name={null}": [2], f"day=2026-03-01/name={null}": [3]}
    assert values_of(f"/lake/{escaped}/x.esdb", ("/lake/",)) == {"day": "2026-03-01", "name": "a/b=c ä"}
    assert values_of("/a=1/lake/x.esdb", ("/a=1/lake/",)) == {}
    assert roots_of(["/lake", "/lake/day=*/x*.esdb", "/lake/day=1/x.esdb"]) == ("/lake/", "/lake/", "/lake/day=1/")
    ((stands_for_null, _),) = shared_out(pa.table({"x": [null]}), ["x"])
    assert values_of(f"/lake/{stands_for_null}/x.esdb", ("/lake/",)) == {"x": null}
    with pytest.raises(UsageError, match="'x' has a value that is too long for the name of a directory: x=%C3%A4%C3"):
        list(shared_out(pa.table({"x": ["ä" * 50]}), ["x"]))
    with pytest.raises(UsageError, match="'x' of type double cannot name directories"):
        list(shared_out(pa.table({"x": [1.5]}), ["x"]))
