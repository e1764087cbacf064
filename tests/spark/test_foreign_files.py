"""Foreign files converted with a real Spark: nothing is lost, duplicated or changed."""

from __future__ import annotations

import datetime as dt
import json

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from effort import long, share_of
from pyspark.errors import PySparkException

import esformat
import esformat.spark
from esformat.errors import InvalidEventError, UsageError
from esformat.spark import jobs
from esformat.spark.orc_file import write_orc
from tests.spark.test_write import load

ROLES = {"space": "user", "timestamp": "at"}
AT = "2026-01-02T03:04:05Z"


def converted(spark, source, out, **options):
    """The events of the converted files, as dictionaries ordered by space and time."""
    done = jobs.convert(spark, [str(source)], str(out), **{**ROLES, "partitions": 1, **options})
    assert done.failed == []
    return load(spark, out).toArrow().sort_by([("space", "ascending"), ("timestamp", "ascending")]).to_pylist()


def parquet(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"at": pa.array([dt.datetime(2026, 1, 2, tzinfo=dt.UTC)]), **columns}), path)


@long
def test_columns_of_all_files_and_directories(spark, tmp_path):
    """Columns are united by name in the wider type; directories of a partitioned table become columns."""
    lake = tmp_path / "lake"
    parquet(lake / "country=DE" / "1.parquet", user=["a"], n=pa.array([1], pa.int32()), x=pa.array([1.5], pa.float32()))
    parquet(
        lake / "country=S%C3%A3o" / "2.parquet", user=["b"], n=pa.array([1 << 40]), x=pa.array([0.1]), extra=["more"]
    )
    found = converted(spark, lake, tmp_path / "out", indexes=["country"])
    assert [(row["space"], row["country"], row["n"], row["x"], row["extra"]) for row in found] == [
        ("a", "DE", 1, 1.5, None),
        ("b", "São", 1 << 40, 0.1, "more"),
    ]


def test_columns_that_do_not_go_together(spark, tmp_path):
    """A column of two incompatible types is refused with the names of column and files before anything is written."""
    parquet(tmp_path / "in" / "1.parquet", user=["a"], n=[1])
    parquet(tmp_path / "in" / "2.parquet", user=["b"], n=["one"])
    with pytest.raises(UsageError, match=r"column 'n' is int64 in .*1\.parquet and string in .*2\.parquet"):
        jobs.convert(spark, [str(tmp_path / "in")], str(tmp_path / "out"), **ROLES)
    assert list((tmp_path / "out").rglob("*.esdb")) == []


@long
def test_csv(spark, tmp_path):
    """Columns follow the header's names, quoting follows RFC 4180, keys and indexes stay text, and numbers keep all
    digits.
    """
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text(
        'user,at,code,say,n,x\n00123,2026-01-02T03:04:05.123456Z,007,"say ""hi""",1,1\n'
    )
    (tmp_path / "in" / "2.csv").write_text('say,code,at,user,x\n"C:\\dir\\, and more",010,1767323045,7,0.5\n')
    done = jobs.convert(spark, [str(tmp_path / "in")], str(tmp_path / "out"), indexes=["code"], **ROLES)
    assert done.failed == []
    assert any("read as s" in note for note in done.notes)
    first, second = load(spark, tmp_path / "out").orderBy("space").collect()
    assert (first.space, first.code, first.say, first.n, first.x) == ("00123", "007", 'say "hi"', 1, 1.0)
    assert first.timestamp.isoformat().startswith("2026-01-02T03:04:05.123456")
    assert (second.space, second.code, second.say, second.n, second.x) == ("7", "010", "C:\\dir\\, and more", None, 0.5)
    assert second.timestamp.isoformat().startswith("2026-01-02T03:04:05")


@long
def test_times_of_parquet(spark, tmp_path):
    """The unit of integer times follows from their size; naive times, nanoseconds included, are in the named zone."""
    (tmp_path / "in").mkdir()
    local = pa.array([1767323045_123456789], pa.int64()).cast(pa.timestamp("ns"))
    other = pa.array([1_000], pa.int64()).cast(pa.timestamp("ns"))
    times = pa.StructArray.from_arrays([pa.ListArray.from_arrays([0, 1], other), other], ["all", "last"])
    pq.write_table(pa.table({"user": ["a"], "at": local, "seen": other, "times": times}), tmp_path / "in" / "1.parquet")
    found = converted(spark, tmp_path / "in", tmp_path / "1", read_options={"timezone": "Europe/Stockholm"})
    utc = dt.datetime(2026, 1, 2, 2, 4, 5, 123456, tzinfo=dt.UTC)
    assert (found[0]["timestamp"], found[0]["at_ns"]) == (utc, 1767319445_123456789)
    micro = dt.datetime(1970, 1, 1, 0, 0, 0, 1)
    assert (found[0]["seen"], found[0]["times"]) == (micro, {"all": [micro], "last": micro})
    finer = pa.array([[1_001]], pa.list_(pa.timestamp("ns")))
    pq.write_table(pa.table({"user": ["a"], "at": [1767323045123], "times": finer}), tmp_path / "3.parquet")
    done = jobs.convert(spark, [str(tmp_path / "3.parquet")], str(tmp_path / "3"), **ROLES)
    assert "column 'times' does not fit Spark's type" in done.failed[0][1]
    pq.write_table(pa.table({"user": ["a"], "at": [1767323045123]}), tmp_path / "2.parquet")
    found = converted(spark, tmp_path / "2.parquet", tmp_path / "2")
    assert found[0]["timestamp"] == dt.datetime(2026, 1, 2, 3, 4, 5, 123000, tzinfo=dt.UTC)


def test_one_bad_file(spark, tmp_path):
    """A row that is not an event fails its file, which the summary reports with line and reason; or it is skipped."""
    (tmp_path / "good.json").write_text(json.dumps({"user": "u", "at": AT, "n": 1}) + "\n")
    (tmp_path / "bad.json").write_text(json.dumps({"user": "u", "at": AT}) + '\n{"user": "u", "at": "yesterday"}\n')
    done = jobs.convert(spark, [str(tmp_path / "*.json")], str(tmp_path / "out"), **ROLES)
    [(path, reason)] = done.failed
    assert path.endswith("bad.json")
    assert reason.startswith("line 2: timestamp 'yesterday' is neither")
    assert (done.events, done.files) == (1, 2)
    again = jobs.convert(
        spark, [str(tmp_path / "*.json")], str(tmp_path / "out"), read_options={"on_error": "skip"}, **ROLES
    )
    assert (again.failed, again.events, again.skipped) == ([], 1, 1)
    assert "1 bad rows were left out" in again.notes


@pytest.fixture(scope="module")
def segment(tmp_path_factory):
    """A segment with values that careless text formats would change."""
    path = tmp_path_factory.mktemp("segment") / "s.esdb"
    table = pa.table(
        {
            "space": ["00123", "a,b", 'say "hi"'],
            "timestamp": pa.array([1, 1_767_323_045_123_456, 2], pa.timestamp("us", "UTC")),
            "data": [b"\xff\x00", b"C:\\dir\\", b'"quoted"'],
            "type": ["007", "", None],
            "n": pa.array([None, 2**63 - 1, -1]),
            "x": [0.1, 1e300, None],
            "price": pa.array([None, "1.50", "99999999999999999.99"]).cast(pa.decimal128(19, 2)),
            "seen": pa.array([1, None, 3], pa.timestamp("us", "UTC")),
            "tags": pa.array([["a\nb", None], [], None]),
        }
    )
    with esformat.create(path, schema=table.schema, indexes=["type"]) as writer:
        writer.add_table(table)
    with esformat.open(path) as opened:
        return path, opened.scan().to_table().to_pylist()


@pytest.mark.parametrize("form", share_of(jobs.OUTPUT_FORMATS, 2))
def test_export_and_back(spark, segment, tmp_path, form):
    """Exported events come back unchanged, in every format."""
    path, expected = segment
    done = jobs.export(spark, [str(path)], str(tmp_path / "out"), format=form)
    assert (done.failed, done.events, done.made) == ([], 3, 1)
    schema = {"read_options": {"schema": str(path)}} if form in ("json", "csv") else {}
    back = jobs.convert(
        spark, [str(tmp_path / "out")], str(tmp_path / "back"), indexes=["type"], partitions=1, **schema
    )
    assert back.failed == []
    [made] = (tmp_path / "back").glob("*.esdb")
    with esformat.open(made) as opened:
        assert opened.scan().to_table().select(list(expected[0])).to_pylist() == expected


def test_export_refused(spark, tmp_path):
    """Values that a format would not return are refused with file and column; the failed export leaves no file."""
    table = pa.table({"space": ["a"], "timestamp": pa.array([1]), "x": [float("nan")]})
    with esformat.create(tmp_path / "nan.esdb", schema=table.schema) as writer:
        writer.add_table(table)
    done = jobs.export(spark, [str(tmp_path / "nan.esdb")], str(tmp_path / "out"), format="json")
    [(path, reason)] = done.failed
    assert path.endswith("nan.esdb")
    assert "json" in reason
    assert "column 'x'" in reason
    assert list((tmp_path / "out").glob("part-*")) == []
    done = jobs.export(spark, [str(tmp_path / "nan.esdb")], str(tmp_path / "out"), format="json", allow_loss=True)
    assert (done.failed, done.events) == ([], 1)


REFUSED = {"variant": "parse_json('{}')", "interval year": "INTERVAL '1' YEAR"}


@pytest.mark.parametrize(("kind", "made"), share_of(REFUSED.items(), 2))
def test_types_that_events_do_not_have(spark, tmp_path, kind, made):
    """Variants and month intervals are refused with the name of the column, both as rows and in Spark's files."""
    rows = spark.sql(f"SELECT 'u' AS user, timestamp '2026-01-02 03:04:05' AS at, {made} AS v")
    with pytest.raises(PySparkException, match=f"column 'v' is {kind}"):
        rows.write.format("esdb").options(**ROLES).mode("append").save(str(tmp_path / "out"))
    rows.write.parquet(str(tmp_path / "in"))
    done = jobs.convert(spark, [str(tmp_path / "in")], str(tmp_path / "out"), **ROLES)
    assert f"column 'v' is {kind}" in done.failed[0][1]


@long
def test_where_in_the_zone_of_the_session(spark, tmp_path):
    """In `where`, a time without a zone is in the session's zone, as in Spark's own filters."""
    table = pa.table({"space": ["a"] * 48, "timestamp": pa.array([h * 3_600_000_000 for h in range(48)])})
    with esformat.create(tmp_path / "a.esdb", schema=table.schema) as writer:
        writer.add_table(table)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        where = "timestamp >= '1970-01-02 00:00:00'"
        expected = load(spark, tmp_path / "a.esdb").where(where).count()
        assert esformat.spark.read(spark, str(tmp_path / "a.esdb"), where=where).count() == expected == 19
        by_option = spark.read.format("esdb").option("where", where).load(str(tmp_path / "a.esdb"))
        assert by_option.count() == expected
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
        esformat.spark.register(spark)


NS = pa.timestamp("ns", "Asia/Tokyo")
ORC = [
    *((kind, True) for kind in (pa.int8(), pa.float32(), pa.bool_(), pa.large_string(), pa.binary(4), pa.date64(), NS)),
    *(
        (kind, True)
        for kind in (pa.timestamp("s"), pa.decimal128(20, 3), pa.list_(pa.int32()), pa.map_(pa.string(), NS))
    ),
    *((kind, False) for kind in (pa.uint64(), pa.float16(), pa.time64("us"), pa.duration("us"), pa.null())),
]


@pytest.mark.parametrize(("kind", "is_held"), ORC, ids=[str(kind) for kind, _ in ORC])
def test_orc_of_every_type(tmp_path, kind, is_held):
    """ORC returns the values of a type unchanged, or the column is refused by name."""
    table = pa.table({"space": ["a"] * 3, "timestamp": pa.array([1, -2, 3]), "v": _some(kind)})
    with esformat.create(tmp_path / "a.esdb", schema=table.schema) as writer:
        writer.add_table(table)
    target = str(tmp_path / "a.orc")
    if not is_held:
        with pytest.raises(InvalidEventError, match="orc cannot hold a column"):
            write_orc(str(tmp_path / "a.esdb"), target, allow_loss=False)
        return
    assert write_orc(str(tmp_path / "a.esdb"), target, allow_loss=False) == 3
    with esformat.open(tmp_path / "a.esdb") as opened:
        assert pyarrow.orc.read_table(target)["v"].cast(kind).to_pylist() == opened.scan().to_table()["v"].to_pylist()


def test_orc_that_does_not_come_back(tmp_path):
    """A time outside ORC's range is detected when the file is read again."""
    late = pa.array([1 << 61], pa.int64()).cast(pa.timestamp("us", "UTC"))
    table = pa.table({"space": ["a"], "timestamp": pa.array([1]), "v": late})
    with esformat.create(tmp_path / "a.esdb", schema=table.schema) as writer:
        writer.add_table(table)
    with pytest.raises(InvalidEventError, match=r"would lose values: ORC timestamp .* is out of range"):
        write_orc(str(tmp_path / "a.esdb"), str(tmp_path / "a.orc"), allow_loss=False)


def _some(kind):
    """A value, null, and another value of a type."""
    if pa.types.is_null(kind):
        return pa.nulls(3)
    if pa.types.is_list(kind):
        return pa.array([[1, None], None, []], kind)
    if pa.types.is_map(kind):
        return pa.array([[("k", 1)], None, []], kind)
    if pa.types.is_large_string(kind):
        return pa.array(["x", None, ""], kind)
    if pa.types.is_decimal(kind):
        return pa.array(["1.5", None, "-99999999999999999.999"]).cast(kind)
    if kind == pa.binary(4):
        return pa.array([b"abcd", None, b"\x00\xff\x00\x00"], kind)
    whole = pa.array([86_400_000, None, -86_400_000] if kind.bit_width == 64 else [1, None, 0])
    if pa.types.is_uint64(kind) or pa.types.is_time(kind):
        whole = pa.array([1, None, 2])
    return whole.cast(pa.float32()).cast(kind) if pa.types.is_float16(kind) else whole.cast(kind)
