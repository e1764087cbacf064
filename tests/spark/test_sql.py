"""The example script and the page for data engineers, run in the session of the tests."""

from __future__ import annotations

import bz2
import csv
import importlib.util
import io
import json
import os
import re
from collections import Counter
from datetime import datetime, timedelta
from itertools import groupby, pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from effort import long

import aggregator
import esformat

ROOT = Path(__file__).parents[2]
GIVEN = Path(os.environ.get("ESFORMAT_TEST_DATA", ROOT.parent / "shared" / "data"))
REVIEWS = GIVEN / "anonreviews.csv.bz2"
MOST = 20_000  # lines of half a million, to keep the test short


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    """Real reviews as CSV and as tuples."""
    if not REVIEWS.exists():
        pytest.skip(f"no {REVIEWS.name}; ESFORMAT_TEST_DATA may name its directory")
    path = tmp_path_factory.mktemp("reviews") / "reviews.csv"
    with bz2.open(REVIEWS, "rt", newline="") as file:
        lines = [line for line, _ in zip(file, range(MOST), strict=False)]
    path.write_text("".join(lines))
    return path, [tuple(row) for row in csv.reader(io.StringIO("".join(lines)))][1:]


def example(name):
    """A script of `docs/examples/` as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "examples" / f"{name}.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


@long
def test_demo(spark, tmp_path):
    """Real events are converted, read back, queried in SQL and loaded; no step loses an event."""
    answers = example("spark_demo").main(spark, tmp_path / "demo")
    events = answers["events"]
    assert events > 0
    assert answers["converted"].events == answers["loaded"].events == answers["in the catalog"] == events
    assert answers["history"] == answers["of that file"] == answers["most"][0].changes
    assert answers["converted"].ok
    assert answers["loaded"].ok


@long
def test_sessions_of_real_reviews(spark, reviews):
    """Real reviews round trip exactly; sessions and judges equal those computed in plain Python."""
    path, rows = reviews
    answers = example("spark_sessions").main(spark, str(path), str(path.with_name("segments")))

    found = spark.read.format("esdb").load(str(path.with_name("segments"))).toArrow()
    times = found["timestamp"].cast(pa.int64()).to_pylist()
    stored = zip(*(found[name].to_pylist() for name in ("space", "grouping", "rating")), times, strict=True)
    epoch = datetime(1970, 1, 1)
    given = [
        (r, v, n, (datetime.strptime(t, "%Y-%m-%d %H:%M") - epoch) // timedelta(microseconds=1)) for r, v, n, t in rows
    ]
    assert Counter(stored) == Counter(given)

    lengths = Counter()
    for _, history in groupby(sorted(given, key=lambda row: (row[0], row[3])), key=lambda row: row[0]):
        moments = [row[3] for row in history]
        sizes = [1]
        for before, after in pairwise(moments):
            if after - before > 30 * 60 * 1_000_000:
                sizes.append(0)
            sizes[-1] += 1
        lengths.update(sizes)
    assert {row.reviews: row.sessions for row in answers["lengths"]} == lengths
    judged = Counter(row[1] for row in given if row[2] == "0")
    best = sorted(judged.items(), key=lambda item: (-item[1], f"vendor {item[0]}"))[:5]
    assert [tuple(row) for row in answers["judges"]] == [(f"vendor {name}", count) for name, count in best]


@long
def test_page(spark, tmp_path, capsys):
    """The code of docs/spark.md runs unchanged."""
    folder = tmp_path / "clicks"
    folder.mkdir()
    with esformat.create(folder / "a.esdb", indexes=["type"]) as writer:
        writer.add("ada", b"{}", timestamp=1_790_000_000_000_000, indexes={"type": "page"})
    user = pa.table({"user_id": ["x"], "at": pa.array([1], pa.timestamp("us", "UTC")), "type": ["page"]})
    blocks = re.findall(r"^```pyspark\n(.*?)^```$", (ROOT / "docs" / "spark.md").read_text("utf-8"), re.M | re.S)
    root = tmp_path / "data"
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("visits", indexes=["type"])
        topic.append([{"space": "bea", "timestamp": 1_790_000_000_000_000, "data": b"{}", "type": "search"}] * 3)
    names = {"folder": str(folder), "events": spark.createDataFrame(user), "root": str(root), "spark": spark}
    names["checkpoint"] = str(tmp_path / "checkpoint")
    names |= {"page_checkpoint": str(tmp_path / "pages-checkpoint"), "page_folder": str(tmp_path / "pages")}
    assert len(blocks) >= 5
    for block in blocks:
        exec(compile(block, "docs/spark.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "|page|       1|" in printed
    assert "\n1 1\n" in printed
    assert "|search|     3|" in printed
    assert spark.table("counts").collect() == [("search", 3)]
    assert spark.read.format("esdb").load(names["page_folder"]).count() == 1
    assert names["bea"].count() == 3
    with aggregator.open(root) as catalog:
        assert catalog.topic("sales").scan().count() == 1


def records(count):
    """Records as Spark's Kafka source returns them."""
    return pa.table(
        {
            "key": [None if n % 10 == 9 else f"user-{n % 7}".encode() for n in range(count)],
            "value": [json.dumps({"type": "page" if n % 2 else "cart", "n": n}).encode() for n in range(count)],
            "topic": ["clicks"] * count,
            "partition": pa.array([n % 3 for n in range(count)], pa.int32()),
            "offset": pa.array([n // 3 for n in range(count)], pa.int64()),
            "timestamp": pa.array([1_790_000_000_000_000 + n for n in range(count)], pa.timestamp("us", "UTC")),
            "timestampType": pa.array([0] * count, pa.int32()),
        }
    )


def recipes(language, names):
    """Run the blocks of docs/spark-recipes.md in a language."""
    page = (ROOT / "docs" / "spark-recipes.md").read_text("utf-8")
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", page, re.M | re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, "docs/spark-recipes.md", "exec"), names)
    return names


@long
def test_kafka_recipes(spark, tmp_path):
    """Records like Kafka's become events of files and of a catalog, each once."""
    (tmp_path / "in").mkdir()
    for number in range(2):
        pq.write_table(records(100).slice(50 * number, 50), tmp_path / "in" / f"{number}.parquet")
    source = spark.readStream.schema(spark.read.parquet(str(tmp_path / "in")).schema).option("maxFilesPerTrigger", 1)
    names = {"spark": spark, "records": source.parquet(str(tmp_path / "in")), "checkpoints": str(tmp_path / "state")}
    recipes("pyspark", names | {"folder": str(tmp_path / "files"), "root": str(tmp_path / "data")})
    expected = sorted(row["value"] for row in records(100).to_pylist() if row["key"] is not None)
    with esformat.open_many(tmp_path / "files") as found:
        assert sorted(event.data for event in found.scan()) == expected
        assert found.scan_index("type", "cart").count() == sum(b"cart" in data for data in expected)
    with aggregator.open(tmp_path / "data", read_only=True) as catalog:
        topic = catalog.topic("clicks")
        assert sorted(topic.scan(columns=["data"]).to_table()["data"].to_pylist()) == expected
        assert topic.scan(columns=["kafka_offset"]).count() == len(expected)


def test_delta_recipe(tmp_path):
    """A Delta table becomes a segment, and the segment a Delta table with the same rows."""
    deltalake = pytest.importorskip("deltalake")
    table = pa.table(
        {
            "space": ["b", "a"], "timestamp": pa.array([2, 1], pa.timestamp("us", "UTC")),
            "data": [b"x", b"y"], "type": ["page", "cart"],
        }
    )  # fmt: skip
    deltalake.write_deltalake(str(tmp_path / "in"), table)
    names = {"source": str(tmp_path / "in"), "segment": tmp_path / "a.esdb", "target": str(tmp_path / "out")}
    recipes("pydelta", names)
    back = pa.table(
        deltalake.QueryBuilder().register("t", deltalake.DeltaTable(names["target"])).execute("SELECT * FROM t")
    )
    assert back.select(table.column_names).to_pylist() == table.sort_by("space").to_pylist()
