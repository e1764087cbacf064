"""Decisions about foreign files, without a session: the common columns, and which task reads which rows."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from esformat.convert import BadRowError, InputError, Roles
from esformat.errors import UsageError
from esformat.spark import input_rows
from esformat.spark.foreign import FILE_BYTES, pack
from esformat.spark.input_rows import InputRules, Piece, Surveyed, events, survey
from esformat.spark.jobs.inputs import InputFile, format_of
from esformat.spark.jobs.reading import rules_of
from esformat.spark.jobs.survey import Inspection, unite

RULES = InputRules("parquet", Roles(space="user", timestamp="at", null_data=True))
KEYS = {"user": pa.string(), "at": pa.timestamp("us", "UTC")}


def surveyed(typed=(), guessed=()):
    return Surveyed(KEYS | dict(typed), dict(guessed), 1, 0, False, frozenset())


def united(*columns):
    found = {f"{place}.parquet": surveyed({"v": kind}) for place, kind in enumerate(columns)}
    return unite(RULES, found)[1].types["v"]


def test_types_of_all_files():
    """The result is the wider of two number types, or a decimal that fits both; types that would round are refused."""
    assert united(pa.int32(), pa.int64(), pa.int8()) == pa.int64()
    assert united(pa.float32(), pa.float64()) == pa.float64()
    assert united(pa.decimal128(5, 2), pa.decimal128(9, 0)) == pa.decimal128(11, 2)
    for one, other in ((pa.int64(), pa.float64()), (pa.decimal128(38, 0), pa.decimal128(38, 9))):
        with pytest.raises(UsageError, match=r"column 'v' is .* in 0\.parquet and .* in 1\.parquet"):
            united(one, other)


def test_types_go_with_what_is_there():
    """A resumed job keeps the types of earlier groups, though the remaining files have narrower ones."""
    there = pa.schema([("space", pa.string()), ("v", pa.float64())])
    _, plan = unite(RULES, {"1.csv": surveyed(guessed={"v": pa.int64()})}, there)
    assert plan.types["v"] == pa.float64()


def test_column_that_no_file_has():
    """An index column that no file has is refused; in files that lack it, it is null."""
    rules = rules_of("csv", {}, {"space": "user", "timestamp": "at", "indexes": ["type"]}, zone="UTC")
    with pytest.raises(UsageError, match="no file has a column 'type'"):
        unite(rules, {"1.csv": surveyed()})
    assert unite(rules, {"1.csv": surveyed(), "2.csv": surveyed(guessed={"type": pa.string()})})[1].indexes


NAN, INF = float("nan"), float("inf")
LOST = [
    ("parquet", {"data_json": True}, {"x": [NAN, 1.5, INF], "y": [[NAN], None, []], "z": [1, 2, 3]}, {"x": 2, "y": 1}),
    ("parquet", {}, {"data": [{"a": NAN}, {"a": 1.5}, None], "x": [NAN, NAN, NAN]}, {"data": 1}),
    ("parquet", {"indexes": ("y",)}, {"y": [[INF], [NAN], None]}, {"y": 2}),
    ("parquet", {"data_json": True}, {"x": [1.5, None, 2.5], "data": [b"", b"", None]}, {}),
    ("csv", {"data_json": True}, {"x": ["NaN", "1.5", "-inf"]}, {"x": 2}),
]


@pytest.mark.parametrize(("kind", "roles", "columns", "lost"), LOST)
def test_not_finite_becomes_json(tmp_path, kind, roles, columns, lost):
    """A job reports how many NaN and infinities became null in JSON, by column; typed columns keep them."""
    table = pa.table({"user": ["a", "b", "c"], "at": pa.array([1, 2, 3], pa.timestamp("us", "UTC")), **columns})
    if kind == "csv":
        lines = [",".join(table.column_names), *(",".join(map(str, row.values())) for row in table.to_pylist())]
        (tmp_path / "1").write_text("\n".join(lines))
    else:
        pq.write_table(table, tmp_path / "1")
    rules = InputRules(kind, Roles(space="user", timestamp="at", null_data=True, **roles))
    found = {str(each): survey(rules, str(tmp_path / "1")) for each in range(2)}
    assert list(Inspection(*unite(rules, found), found, []).notes()) == [
        f"column {name!r}: JSON has no NaN and no infinity; null was written for {2 * count} of them"
        for name, count in lost.items()
    ]


def test_directory_that_contradicts_its_file(tmp_path):
    """A column whose value differs between directory and file is refused, unless directories are ignored."""
    path = tmp_path / "country=DE" / "1.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"user": ["a"], "at": pa.array([1], KEYS["at"]), "country": ["FR"]}), path)
    plan = unite(RULES, {str(path): survey(RULES, str(path))})[1]
    with pytest.raises(InputError, match="column 'country' of the file contradicts its directory country=DE"):
        list(events(RULES, plan, [Piece(str(path), 1)]))
    [batch] = events(InputRules("parquet", RULES.roles, hive=False), plan, [Piece(str(path), 1)])
    assert batch["country"].to_pylist() == ["FR"]


def test_null_directory(tmp_path):
    """Hive's name for null is null, numbers become integers, and digits with leading zeros stay text."""
    where = tmp_path / "year=2026" / "code=007" / "country=__HIVE_DEFAULT_PARTITION__" / "1.parquet"
    where.parent.mkdir(parents=True)
    pq.write_table(pa.table({"user": ["a"], "at": pa.array([1], KEYS["at"])}), where)
    plan = unite(RULES, {str(where): survey(RULES, str(where))})[1]
    [batch] = events(RULES, plan, [Piece(str(where), 1)])
    assert batch.select(["year", "code", "country"]).to_pylist() == [{"year": 2026, "code": "007", "country": None}]


def test_row_groups_are_shared(tmp_path, monkeypatch):
    """The row groups of a file too large for one task are shared out in pieces that cover every row once."""
    monkeypatch.setattr(input_rows, "TASK_BYTES", 100)
    table = pa.table({"user": ["a"] * 90, "at": pa.array(range(90), KEYS["at"])})
    pq.write_table(table, tmp_path / "1.parquet", row_group_size=10)
    found = survey(RULES, str(tmp_path / "1.parquet"))
    assert (found.rows, len(found.group_bytes)) == (90, 9)
    plan = unite(RULES, {"1": found})[1]
    pieces = [Piece(str(tmp_path / "1.parquet"), 1, groups) for groups in ((0, 4), (4, 9))]
    batches = [batch for piece in pieces for batch in events(RULES, plan, [piece])]
    assert pa.Table.from_batches(batches)["timestamp"].cast(pa.int64()).to_pylist() == list(range(90))


def small_files(folder, count):
    """Files of one row each; some have an extra column, no row, or an unusual key type."""
    paths = []
    for n in range(count):
        rows = 0 if n % 50 == 7 else 1
        columns = {"user": pa.array([f"u{n}"] * rows), "at": pa.array([n] * rows, KEYS["at"])}
        if 100 <= n < 150:
            columns["v"] = pa.array([n] * rows, pa.int32())
        if n % 60 == 11:
            columns["user"] = columns["user"].cast(pa.large_string())
        paths.append(folder / f"{n:04}.parquet")
        pq.write_table(pa.table(columns), paths[-1])
    return paths


def test_small_files_become_events_together(tmp_path):
    """The events of many files equal those of reading one after the other, in order, in few batches."""
    pieces = [Piece(str(path), path.stat().st_size) for path in small_files(tmp_path, 300)]
    plan = unite(RULES, {each.path: survey(RULES, each.path) for each in pieces})[1]
    each = [batch for piece in pieces for batch in events(RULES, plan, [piece])]
    together = list(events(RULES, plan, pieces))
    assert pa.Table.from_batches(together) == pa.Table.from_batches(each)
    assert len(each) == 294
    assert len(together) < 20


def test_what_is_wrong_with_one_small_file(tmp_path):
    """A row that is not an event, or does not fit, is refused with the name of its file; the others can be read."""
    paths = small_files(tmp_path, 20)
    pieces = [Piece(str(path), 1) for path in paths]
    plan = unite(RULES, {each.path: survey(RULES, each.path) for each in pieces})[1]
    pq.write_table(pa.table({"user": pa.array([None], pa.string()), "at": pa.array([5], KEYS["at"])}), paths[5])
    with pytest.raises(BadRowError, match="no space") as caught:
        list(events(RULES, plan, pieces))
    assert caught.value.path == str(paths[5])
    found = pa.Table.from_batches(events(replace(RULES, on_error="skip"), plan, pieces))
    assert found["space"].to_pylist() == [f"u{n}" for n in range(20) if n not in (5, 7)]

    def fit(batch):
        if "u9" in batch["space"].to_pylist():
            raise UsageError("does not fit")
        return batch

    with pytest.raises(UsageError, match="does not fit") as unfit:
        list(events(replace(RULES, on_error="skip"), plan, pieces, fit))
    assert unfit.value.path == str(paths[9])


def test_a_survey_reads_no_rows_where_nothing_hangs_on_them(tmp_path):
    """A Parquet survey reads the row count from the footer; it reads values only of times finer than microseconds."""
    for kind, expected in ((KEYS["at"], False), (pa.timestamp("ns", "UTC"), True)):
        path = tmp_path / "1.parquet"
        table = pa.table({"user": ["ada"] * 90, "at": pa.array(range(90), kind)})
        pq.write_table(table, path, use_dictionary=False, compression="none")
        assert (survey(RULES, str(path)).rows, survey(RULES, str(path)).has_nanos) == (90, expected)
        path.write_bytes(path.read_bytes().replace(b"ada", b"\xff\xff\xff"))  # reading the values fails
        if expected:
            with pytest.raises(InputError, match="damaged"):
                survey(RULES, str(path))
        else:
            assert survey(RULES, str(path)).rows == 90


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("digits", "fits"), [(1000, True), (1, False)])
def test_times_of_96_bits(tmp_path, nested, digits, fits):
    """Times of 96 bits are declared in microseconds, as Spark has them; finer ones are refused, except timestamps."""
    values = pa.array([digits], pa.timestamp("ns"))
    column = pa.ListArray.from_arrays([0, 1], values) if nested else values
    table = pa.table({"user": ["ada"], "at": pa.array([1001], pa.timestamp("ns")), "v": column})
    pq.write_table(table, tmp_path / "1.parquet", use_deprecated_int96_timestamps=True)
    known = survey(RULES, str(tmp_path / "1.parquet"))
    micros = pa.timestamp("us")
    assert known.typed["v"] == (pa.list_(pa.field("element", micros)) if nested else micros)
    rules, plan = unite(RULES, {"1.parquet": known, "2.parquet": surveyed({"v": known.typed["v"]})})
    made = events(rules, plan, [Piece(str(tmp_path / "1.parquet"), 1)])
    if fits:
        (batch,) = made
        assert batch["v"].type == known.typed["v"]
        assert batch["at_ns"].to_pylist() == [1001]
    else:
        with pytest.raises(BadRowError, match="column 'v': cannot read"):
            list(made)


def test_many_small_files_in_a_task():
    """Small files are shared out evenly, a large one gets a separate task, and each is read once, in order."""
    small = [Piece(str(place), 100) for place in range(1000)]
    tasks = pack(small, 4)
    assert [len(task) for task in tasks] == [250] * 4
    assert [piece for task in tasks for piece in task] == small
    large = Piece("large", input_rows.TASK_BYTES)
    assert pack([small[0], large, small[1]], 1) == [(small[0],), (large,), (small[1],)]
    assert pack([Piece("one", FILE_BYTES)], 8) == [(Piece("one", FILE_BYTES),)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mode": "FAILFAST"}, "unknown read option 'mode'"),
        ({"delimiter": '"'}, "option 'delimiter' must be one ASCII character"),
        ({"header": "false"}, "option 'header' must be column names separated by commas"),
        ({"timezone": "Nowhere/At_all"}, "unknown time zone 'Nowhere/At_all'"),
        ({"types": "n=number"}, "option 'types' must be a list of COLUMN=TYPE"),
    ],
)
def test_options_of_reading(given, message):
    """Unknown options and invalid values are refused; the message says what is allowed."""
    with pytest.raises(UsageError, match=message):
        rules_of("csv", given, {}, zone="UTC")


def test_units_of_rejected_rows(tmp_path):
    """The units guessed for rows that do not become events are not reported."""
    (tmp_path / "in.csv").write_text("user,at\n,1700000000\na,1700000000000\n")
    rules = rules_of("csv", {"on_error": "skip"}, {"space": "user", "timestamp": "at"}, zone="UTC")
    found = survey(rules, str(tmp_path / "in.csv"))
    assert (found.rows, found.bad, found.assumed) == (1, 1, {"ms"})


@pytest.mark.parametrize("end", ["", ".gz", ".bz2", ".zst", ".zstd", ".xz", ".GZ"])
def test_names_of_compressed_files(end):
    """The format of a compressed file is that of the name before the extension of its compression."""
    assert format_of([InputFile(f"a.csv{end}", 1, 0)]) == "csv"
