"""Values of an index with their counts, and conditions on any column."""

from __future__ import annotations

import json
import operator
from fractions import Fraction

import pyarrow as pa
import pytest

import esformat


def test_values(esdb, activity):
    """Values are listed in order or with the most frequent first, in every format."""
    rows = esdb("values", "activity.esdb", "country", "--format", "jsonl").rows
    assert rows == [{"country": "SE", "events": 19}]
    rows = esdb("values", "activity.esdb", "type", "--sort", "count", "--format", "jsonl").rows
    assert rows == [{"type": "view", "events": 21}, {"type": "purchase", "events": 7}]
    assert esdb("values", "activity.esdb", "type", "--format", "table").lines[-1].split() == ["view", "21"]
    assert esdb("values", "activity.esdb", "type", "--limit", "1", "--format", "csv", "-o", "x.csv").status == 0


def test_columns_called_as_paths(esdb, tmp_path):
    """A column whose name looks like a path is matched by that name, and paths can be used beside it."""
    (tmp_path / "a.jsonl").write_text('{"space": "s", "timestamp": 1, "$.url": "/", "n": 7, "data": {"a": 5}}\n')
    assert esdb("write", "a.esdb", "a.jsonl").status == 0
    for condition, count in (("n = 7", 1), ("$.url = /", 1), ("$.url = x", 0), ("$.a >= 5", 1), ("$.a > 5", 0)):
        assert (condition, esdb("scan", "a.esdb", "--where", condition, "--count").text) == (condition, f"{count}\n")
    assert esdb("scan", "a.esdb", "--columns", "$.url,$.a", "--where", "n = 7").rows == [{"$.url": "/", "$.a": "5"}]
    (tmp_path / "b.jsonl").write_text('{"space": "s", "timestamp": 1, "$.url": "/", "n": 7}\n')  # without payloads
    assert esdb("write", "b.esdb", "b.jsonl").status == 0
    assert esdb("scan", "b.esdb", "--columns", "$.url", "--where", "n = 7").rows == [{"$.url": "/"}]


ODD = {"a=b": 1, "x>y": 2, 'say "no"': 3, "p IN (q)": 4}


@pytest.mark.parametrize("name", ODD)
def test_names_in_quotes(esdb, tmp_path, name):
    """Quoted names select columns whose names contain the characters of conditions."""
    (tmp_path / "a.jsonl").write_text(json.dumps({"space": "s", "timestamp": 5_000_000_000, **ODD}) + "\n")
    assert esdb("write", "a.esdb", "a.jsonl").status == 0
    quoted = '"' + name.replace('"', '""') + '"'
    for condition, count in (("= {}", 1), ("> {}", 0), (" IN (7, {})", 1), ("!={}", 0)):
        where = f"{quoted}{condition.format(ODD[name])}"
        assert (where, esdb("scan", "a.esdb", "--where", where, "--count").text) == (where, f"{count}\n")
    assert "=> is not an operator, >= is" in esdb("scan", "a.esdb", "--where", f"{quoted} => 5", "--count").err


def test_values_of_no_index(esdb, activity):
    """For an unknown index the error names the indexes."""
    result = esdb("values", "activity.esdb", "data")
    assert (result.status, "no index 'data'; the indexes are: type, country" in result.err) == (2, True)


FOUND = [
    (["country = SE"], 19),
    (["country != SE"], 0),  # a missing value satisfies no condition
    (["type IN (purchase, view)"], 28),
    (["type in purchase"], 7),
    (["timestamp >= 2024-03-08", "timestamp<2024-03-10"], 2),
    (["space > customer-1", "space != other"], 9),
    (["grouping = web", "type = purchase"], 0),
    (["data = visit 7"], 1),
    (["type = 'purchase'"], 7),  # SQL syntax
    (['type == "purchase"'], 7),
    (["type <> 'view'"], 7),
    (["type IN ('purchase', \"view\")"], 28),
    (["type IN ['purchase','none']"], 7),
    (["type IN (purchase, 'vi''ew', \"a, b\", )"], 7),
    (["type IN ()"], 0),
    (["timestamp >= '2024-03-08'", "timestamp < '2024-03-10'"], 2),
    (["data = 'visit 7 and 8 = 15'"], 0),
]


@pytest.mark.parametrize(("conditions", "expected"), FOUND, ids=lambda each: str(each))
def test_where(esdb, activity, conditions, expected):
    """Events satisfy all conditions; columns that are only compared are not shown."""
    where = [word for condition in conditions for word in ("--where", condition)]
    assert int(esdb("scan", "activity.esdb", *where, "--count").text) == expected
    rows = esdb("scan", "activity.esdb", *where, "--columns", "timestamp,space", "--format", "jsonl").rows
    assert len(rows) == expected
    assert all(list(row) == ["timestamp", "space"] for row in rows)
    limited = esdb("scan", "activity.esdb", *where, "--limit", "2", "--format", "jsonl").rows
    assert len(limited) == min(2, expected)


WRONG = [
    ("nope = 1", "no column 'nope'; the columns are: space, grouping, timestamp"),
    ("timestamp > soon", "the values of 'timestamp' are timestamp[us, tz=UTC]"),
    ("country = SE AND type = view", "is more than one condition: give --where for each"),
    ("type = 'view' or country IN (SE)", "is more than one condition: give --where for each"),
    ("country", "invalid condition 'country': expected NAME = VALUE"),
    ("timestamp > soon", "invalid time 'soon': expected ISO 8601"),
    ("timestamp => 2024-03-08", "=> is not an operator, >= is; quote a value that begins with >"),
    ("timestamp =< 2024-03-08", "=< is not an operator, <= is"),
    ("country is null", "a condition cannot test for null: use the command `sql` with WHERE country IS NULL"),
    ("country IS NOT NULL", "with WHERE country IS NOT NULL"),
]


@pytest.mark.parametrize(("condition", "message"), WRONG)
def test_wrong_conditions(esdb, activity, condition, message):
    """A wrong condition is explained in one line."""
    result = esdb("scan", "activity.esdb", "--where", condition, "--format", "jsonl")
    assert (result.status, result.out) == (2, b"")
    assert message in result.err


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("price > abc", "the values of 'price' are double: 'abc' is not a number"),
        ("price => 5", "=> is not an operator, >= is"),
        ("price =<5", "=< is not an operator, <= is"),
        ("price = null", "a condition cannot test for null: use the command `sql` with WHERE price IS NULL"),
        ("price != NULL", "with WHERE price IS NOT NULL"),
        ("price < 1e400", "'1e400' is out of range for its type; write infinity as inf"),
        ("code IN (1, x)", "the values of 'code' are int64: 'x' is not a whole number"),
        ("code = 99999999999999999999", "'99999999999999999999' is out of range"),
        ("paid = yes", "'yes' is neither true nor false"),
        ("took > 1s", "'1s' is not a whole number of ms"),
    ],
)
def test_values_of_another_type(esdb, condition, message):
    """The error names the value that does not fit the column's type, and why."""
    columns = [("price", pa.float64()), ("code", pa.int64()), ("paid", pa.bool_()), ("took", pa.duration("ms"))]
    with esformat.create("prices.esdb", schema=pa.schema(columns)) as writer:
        writer.add("s", timestamp=0, columns={"price": 1.5, "code": 1, "paid": True})
    result = esdb("scan", "prices.esdb", "--where", condition)
    assert (result.status, result.out) == (2, b"")
    assert message in result.err


ODD_TYPES = {
    "half": (pa.float16(), [0.5, 2.0, float("nan"), None]),
    "real": (pa.float64(), [0.0, -0.0, float("inf"), None]),
    "at": (pa.time64("us"), [0, 43_200_000_000, 86_399_999_999, None]),
    "took": (pa.duration("ms"), [-1, 0, 1500, None]),
    "day": (pa.date32(), [-1, 0, 1, None]),
}


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("half >= 0.5", [0, 1]),
        ("half IN (2, 3)", [1]),
        ("real = 0", [0, 1]),
        ("real IN (0)", [0, 1]),
        ("real IN (-0.0, inf)", [0, 1, 2]),
        ("at >= 12:00", [1, 2]),
        ("at = 23:59:59.999999", [2]),
        ("took > 0", [2]),
        ("took IN (-1, 1500)", [0, 2]),
        ("day < 1970-01-02", [0, 1]),
    ],
)
def test_odd_types(esdb, condition, found):
    """Float16, times of day, and durations in the unit of their column compare like all other types."""
    columns = {name: pa.array(values, kind) for name, (kind, values) in ODD_TYPES.items()}
    with esformat.create("odd.esdb") as writer:
        writer.add_table(pa.table({"space": ["s"] * 4, "timestamp": range(4), "n": range(4), **columns}))
    rows = esdb("scan", "odd.esdb", "--where", condition, "--columns", "n", "--format", "jsonl").rows
    assert [row["n"] for row in rows] == found


@pytest.mark.parametrize("condition", ["data = => 5", "data=<html>", "data = '=> 5'", "data = null"])
def test_text_that_looks_like_an_operator(esdb, activity, condition):
    """A text value may begin with the characters of an operator, quoted or not."""
    assert esdb("scan", "activity.esdb", "--where", condition, "--count").text == "0\n"


@pytest.fixture
def orders(esdb, tmp_path):
    """A file whose payloads are JSON, except one."""
    payloads = [
        '{"user":{"id":7},"tags":["a","b"],"n":1.50}',
        '{"user":{"id":"x"},"n":"12"}',
        "no JSON",
        '{"n":null,"é":1,"\\ud800":1}',
    ]
    with esformat.create("orders.esdb") as writer:
        for place, payload in enumerate(payloads):
            writer.add("s", payload.encode(), timestamp=place)
    return "orders.esdb"


@pytest.mark.parametrize(
    ("conditions", "found"),
    [
        (["$.user.id = 7"], [0]),
        (["$.user.id = x"], [1]),
        (["$.n >= 1.5"], [0, 1]),
        (["$.n > 1.5", "$.user.id != 7"], []),  # the `id` of the second order is not a number
        (["$.n IN (1.50, 12)"], [0, 1]),
        (["$.tags[-1] = b"], [0]),
        (["$.é = 1", "timestamp >= 1970-01-01"], [3]),
        (["$.absent = ''"], []),
    ],
    ids=str,
)
def test_where_within_payloads(esdb, orders, conditions, found):
    """Paths compare numbers as numbers, everything else as text; a missing value satisfies no condition."""
    where = [word for condition in conditions for word in ("--where", condition)]
    rows = esdb("scan", orders, *where, "--columns", "timestamp", "--format", "csv").lines[1:]
    assert [int(row.strip('"Z')[-1]) for row in rows] == found
    assert int(esdb("scan", orders, *where, "--count").text) == len(found)


ODD_CARTS = [r'{"url":"\/cart","n":1}', r'{"url":"\u002fcart"}', '{"n":0, "url": "/cart"}', '{"url":["/cart"]}',
             '{"url":"/cart', '{"sub":{"url":"/cart"}}', '{"url":"/cart2","url":"/cart"}', '["/cart"]']  # fmt: skip


@pytest.mark.parametrize("files", [1, 6])
@pytest.mark.parametrize(
    "condition", ["$.url = /cart", "$.url IN ('/cart', /list)", "$.url = /nowhere", "$.n = 1", "$.url = '[\"/cart\"]'"]
)
def test_where_within_templates(esdb, tmp_path, files, condition):
    """A search in templates finds every JSON spelling of a text."""
    plain = [f'{{"url":"/{("cart", "list", "item")[n % 3]}","n":{n % 7}}}' for n in range(4000)]
    payloads = [*plain[:2000], *ODD_CARTS, *plain[2000:]]
    for number in range(files):
        with esformat.create(tmp_path / f"{number}.esdb", templates=True) as writer:
            for place in range(number, len(payloads), files):
                writer.add(f"s{place % 20}", payloads[place].encode(), timestamp=place)
    wanted = {"/cart", "/list"} if "IN" in condition else {condition.partition(" = ")[2].strip("'")}
    expected = sum(as_text(payload, condition[2:].split()[0]) in wanted for payload in payloads)
    assert int(esdb("scan", tmp_path, "--where", condition, "--count").text) == expected
    assert (expected == 0) == (condition == "$.url = /nowhere")


def test_where_reads_what_may_match(tmp_path):
    with esformat.create(tmp_path / "x.esdb", templates=True) as writer:
        for n in range(8000):
            writer.add("s", f'{{"url":"/{n // 4000}","n":{n}}}'.encode(), timestamp=n)
    for opened in (esformat.open(tmp_path / "x.esdb"), esformat.open_many([tmp_path / "x.esdb"])):
        with opened:
            batches = opened.scan().with_paths([], {"$.n": ("n",)}, {"data": [[b'"/1"', b"\\"]]})
            assert sum(map(len, batches)) == 4000


def as_text(payload, key):
    """Return the value of a key as conditions compare it."""
    try:
        value = json.loads(payload)[key]
    except (ValueError, KeyError, TypeError):
        return None
    return value if isinstance(value, str) else json.dumps(value)


LARGE = ["5", "-1", "1700000000000001", "9007199254740993", '"x"', "1e300", "1700000000000000.5", "null",
         "-12345678901234567890123456789012345678", '"9007199254740993"']  # fmt: skip


@pytest.mark.parametrize(
    "condition",
    ["> 1700000000000000", "< 1700000000000000", ">= 9007199254740993", "> 9007199254740992", "<= 9007199254740992",
     "< 1700000000000000.75", ">= 1700000000000000.25", "> 1e100", "< 1e400", "> -1e999",
     "> -12345678901234567890123456789012345679", "<= -12345678901234567890123456789012345678",
     "> 99999999999999999999999999999999999999999999"],
)  # fmt: skip
def test_where_with_many_digits(esdb, tmp_path, condition):
    """Integers are compared with all their digits, whatever the other values; numbers in strings count as numbers."""
    lines = [f'{{"space":"a","timestamp":{at},"n":{value}}}\n' for at, value in enumerate(LARGE)]
    (tmp_path / "n.jsonl").write_text("".join(lines))
    assert esdb("write", tmp_path / "n.esdb", tmp_path / "n.jsonl", "--data-json").status == 0
    sign, bound = condition.split()
    holds = {">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le}[sign]
    numbers = [Fraction(value.strip('"')) if value not in ("null", '"x"') else None for value in LARGE]
    expected = sum(number is not None and holds(number, Fraction(bound)) for number in numbers)
    assert int(esdb("scan", tmp_path / "n.esdb", "--where", f"$.n {condition}", "--count").text) == expected


def test_columns_within_payloads(esdb, orders):
    rows = esdb("scan", orders, "--columns", '$.user.id,$.tags,$["n"]', "--format", "jsonl", "--reverse").rows
    assert [list(row.values()) for row in rows] == [
        [None, None, None], [None, None, None], ["x", None, "12"], ["7", '["a","b"]', "1.50"],
    ]  # fmt: skip
    for path in ("$", "$.user.", "$user"):
        refused = esdb("scan", orders, "--columns", path)
        assert (refused.status, f"invalid path '{path}' into a payload" in refused.err) == (2, True)


def test_fields(esdb, orders):
    """`fields` lists kinds and counts by path, and reports payloads that are not JSON."""
    listed = esdb("fields", orders, "--format", "jsonl")
    assert {row["field"]: (row["kinds"], row["values"]) for row in listed.rows} == {
        "$": ("object", 3), "$.n": ("null, number, string", 3), "$.tags": ("array", 1), "$.tags[*]": ("string", 2),
        "$.user": ("object", 2), "$.user.id": ("integer, string", 2), "$.é": ("integer", 1),
        '$["\\ud800"]': ("integer", 1),
    }  # fmt: skip
    assert "1 of 4 payloads are not JSON" in listed.err
    assert esdb("fields", orders, "--sort", "count", "--limit", "1", "--format", "csv").lines[-1].split(",")[0] == '"$"'
