"""Numbers in objects of records lost digits or were refused: 12345678901234567890.5 became 1.2345678901234567e+19."""

from __future__ import annotations

import json
import tracemalloc

import pyarrow as pa
import pytest

from aggregator.base.written_float import json_of
from aggregator.collect.parsing import parser_of
from aggregator.collect.settings import Files
from aggregator.lql import TagSet
from aggregator.server.bodies.bulk import read_actions, record_of
from aggregator.server.bodies.formats import read_events, read_records
from aggregator.server.bodies.otlp.message import read_records as read_otlp
from aggregator.server.bodies.shared.media import CSV, JSON, LINES
from aggregator.server.bodies.shared.text_repair import json_text, parse_json
from aggregator.storage.segments.records import NO_COLUMNS, events_of
from esformat.format.json_values import is_number_of

NUMBERS = [
    "12345678901234567890.5", "1e2", "1.50", "-0", "-0.0", "-0.10", "1e400", "0.00001", "1E-3", "0.1000000000000000055",
    "1e-9999999999999999999999", "100.0", "12.5", "7", "-123456789012345678901234567890",
]  # fmt: skip
NESTED = '{"b":12345678901234567890.5,"c":[1e2,{"x":1.50,"é":"\\"é"}],"d":[],"n":null}'


def fields(record, columns=NO_COLUMNS):
    table = events_of(TagSet.of({"app": "a"}), [record], columns, 5)
    made = {name: table[name][0].as_py() for name in table.column_names if name not in ("space", "timestamp", "data")}
    return made | dict(made.pop("fields", None) or [])


def records(text, media=LINES):
    (record,) = read_records(pa.py_buffer(text.encode()), media, max_bytes=1 << 20)
    return record


@pytest.mark.parametrize("number", NUMBERS)
def test_words_of_numbers(number):
    """Both conversions back to JSON preserve the digits."""
    for text in (f'{{"a":{number}}}', f'{{"a":[true,{number}]}}', f'[{{"é":{number}}},9223372036854775808]'):
        found = parse_json(text.encode())
        assert json_of(found) == text
        assert json_text(found) == text.encode()


@pytest.mark.parametrize("media", [LINES, JSON])
def test_streams(media):
    """Objects and lists stay as sent; a number is a float if that has all of its digits."""
    numbers = '"e":1e2,"f":1.50,"g":12345678901234567890.5,"h":1e400'
    found = fields(records(f'{{"o":{NESTED},"l":[1e400],{numbers}}}', media))
    expected = {"o": NESTED, "l": "[1e400]", "e": "100.0", "f": "1.5", "g": "12345678901234567890.5", "h": "1e400"}
    assert found == expected


def test_columns():
    """Typed columns take the same numbers as before, but never an infinity that nobody sent."""
    kinds = pa.schema([
        ("f", pa.float64()), ("i", pa.int64()), ("s", pa.string()), ("l", pa.list_(pa.float64())), ("h", pa.float64()),
        ("k", pa.float32()),
    ])  # fmt: skip
    found = fields(records('{"f":1.50,"i":1e2,"s":1.50,"l":[1.50,2e0],"h":1e400,"k":1e400}'), kinds)
    assert found == {"f": 1.5, "i": 100, "s": "1.5", "l": [1.5, 2.0], "h": "1e400", "k": "1e400"}


@pytest.mark.parametrize("media", [LINES, JSON])
def test_negative_zero(media):
    """-0 keeps its sign in floats, also within lists; the integer 0 has none."""
    kinds = {"f": pa.float64(), "i": pa.int64(), "l": pa.list_(pa.float64())}
    text = '"f":-0,"i":-0,"l":[-0,1.5],"s":-0'
    found = fields(records(f"{{{text}}}", media), pa.schema(kinds))
    assert repr(found) == repr({"f": -0.0, "i": 0, "l": [-0.0, 1.5], "s": "-0.0"})
    body = pa.py_buffer(f'{{"space":"a","timestamp":1,{text},"data":{{{text}}}}}'.encode())
    table = read_events(body, media, types=kinds, binary_keys=False, max_bytes=1 << 20)
    assert repr(table.select(list(kinds)).to_pylist()) == repr([{"f": -0.0, "i": 0, "l": [-0.0, 1.5]}])
    assert table["data"].to_pylist() == [f"{{{text}}}".encode()]


@pytest.mark.parametrize("other", ["1", '"a"', "[null]"])
def test_negative_zero_alone(other):
    """A column of floats keeps -0 among integers, whatever the other columns."""
    rows = "".join(f'{{"space":"a","timestamp":1,"f":-0,"l":[-0],"o":{each}}}\n' for each in ("1", other))
    types = {"f": pa.float64(), "l": pa.list_(pa.float64())}
    table = read_events(pa.py_buffer(rows.encode()), LINES, types=types, binary_keys=False, max_bytes=1 << 20)
    assert repr(table.select(["f", "l"]).to_pylist()) == repr([{"f": -0.0, "l": [-0.0]}] * 2)


HELD = [
    "0.1",
    "1e22",
    "9.9999999999999992e+22",
    "590295810358705700000",
    "18446744073709551616",
    "0.30000000000000004441",
]
"""Numbers that a float represents, as programs write them; a fraction is the nearest float."""
NOT_HELD = ["9007199254740993", "12345678901234567890123", "12345678901234567890.5", "1e400", "-1e400"]


@pytest.mark.parametrize("media", [LINES, JSON, CSV])
@pytest.mark.parametrize("number", HELD + NOT_HELD)
def test_a_column_of_floats(number, media):
    """A column of floats in text events takes numbers that are exact floats; others stay text with all digits."""
    rows = {
        LINES: f'{{"space":"a","timestamp":1,"x":{number}}}\n{{"space":"a","timestamp":2,"x":0.5}}\n',
        JSON: f'[{{"space":"a","timestamp":1,"x":{number}}},{{"space":"a","timestamp":2,"x":0.5}}]',
        CSV: f"space,timestamp,x\na,1,{number}\na,2,0.5\n",
    }
    body = pa.py_buffer(rows[media].encode())
    found = read_events(body, media, types={"x": pa.float64()}, binary_keys=False, max_bytes=1 << 20)["x"]
    assert found.to_pylist() == ([number, "0.5"] if number in NOT_HELD else [float(number), 0.5])


@pytest.mark.parametrize(("kind", "text"), [(pa.float32(), "16777217"), (pa.float16(), "2049"), (pa.float32(), "1e39")])
def test_narrow_floats(kind, text):
    """An integer in CSV that a narrow float cannot represent is not rounded."""
    body = pa.py_buffer(f"space,timestamp,x\na,1,{text}\na,2,0.5\n".encode())
    found = read_events(body, CSV, types={"x": kind}, binary_keys=False, max_bytes=1 << 20)["x"]
    assert [float(value) for value in found.to_pylist()] == [float(text), 0.5]


@pytest.mark.parametrize("number", ["12345678901234567890.5", "-12345678901234567890.5"])
def test_a_column_of_floats_in_a_stream(number):
    """In a stream, a number that is not an exact float stays text among the other fields."""
    columns = pa.schema([("x", pa.float64())])
    assert fields(records(f'{{"x":{number}}}'), columns) == {"x": number}
    assert fields(records('{"x":12345678901234567168.0}'), columns) == {"x": 12345678901234567168.0}


def test_bulk():
    """Documents of a bulk request keep their digits; members of their objects become named fields."""
    document = f'{{"o":{NESTED},"e":1e400,"message":"m"}}'
    (action,) = read_actions(f'{{"create":{{}}}}\n{document}\n'.encode(), "i")
    _, record = record_of(action)
    assert fields(record) == {
        "o.b": "12345678901234567890.5", "o.c": '[1e2,{"x":1.50,"é":"\\"é"}]', "o.d": "[]", "e": "1e400",
    }  # fmt: skip


def test_events_in_an_array():
    """The payload of an event in a JSON array is the same as on a line."""
    data = '{"b":12345678901234567890.5,"c":[1e2,1.50,1e400,-0]}'
    body = f'[{{"space":"a","timestamp":1,"data":{data},"x":1e400}}]'.encode()
    table = read_events(pa.py_buffer(body), JSON, types={}, binary_keys=False, max_bytes=1 << 20)
    assert (table["data"].to_pylist(), table["x"].to_pylist()) == ([data.encode()], ["1e400"])


def test_otlp():
    """In OTLP a double may be written in any form, and so may an integer."""
    record = {"severityNumber": "N", "body": {"doubleValue": "F"},
              "attributes": [{"key": "a", "value": {"doubleValue": "F"}}]}  # fmt: skip
    body = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]})
    ((_, made),) = read_otlp(body.replace('"N"', "1e1").replace('"F"', "1.50").encode(), JSON)
    assert (made["severity_number"], made["msg"], made["a"]) == (10, "1.5", 1.5)


def test_log_files():
    """Fields of JSON log lines keep their digits."""
    lines = pa.array([f'{{"o":{NESTED},"f":1.50,"g":12345678901234567890.5,"h":1e400}}'.encode()], pa.binary())
    parsed = parser_of(Files(path=("x",), format="json", fields=("o", "f", "g", "h")))(lines)
    found = {name: texts[0].as_py() for name, texts in parsed.parts.items()}
    assert found == {"o": NESTED, "f": "1.5", "g": "12345678901234567890.5", "h": "1e400"}


@pytest.mark.parametrize("text", [b'{"a":NaN}', b'{"a":1e400,"b":NaN}', b'{"a":1e400,"b":"\\ud800"}', b'{"a":01.5}',
                                  b'{"a":1e400,"b":"\xff"}', b'{"a":1e400'])  # fmt: skip
def test_no_json(text):
    """Text that is not JSON is refused as before."""
    with pytest.raises(ValueError):  # noqa: PT011  # from orjson, with its own message
        parse_json(text)


def test_a_number_of_very_many_digits():
    """A number with a million digits is compared in little memory, and equals the float only if exact."""
    tracemalloc.start()
    same = is_number_of(float(2**70), f"{2**70}.{'0' * 1_000_000}")
    other = is_number_of(float(2**70), f"{2**70}.{'0' * 1_000_000}1")
    endless = is_number_of(float("inf"), "9" * 1_000_000)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (same, other, endless) == (True, False, False)
    assert most < 8_000_000
