"""Pages of plateau's routes as JSON: values as plateau 0.5.5 writes them."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from aggregator.server.plateau.json_text import json_records

MOMENT = pa.timestamp("ms")
AS_PLATEAU = {
    "floats": (pa.array([0.1, 1e30, 16777217.0, None], pa.float32()), [0.1, 1e30, 16777216.0, None]),
    "doubles": (pa.array([0.1, float("nan"), float("-inf")]), [0.1, None, None]),
    "dates": (
        pa.array([1, -719163, 2932897, None], pa.date32()), ["1970-01-02", "0000-12-31", "+10000-01-01", None],
    ),
    "dates with milliseconds": (pa.array([86_400_000, 0], pa.date64()), ["1970-01-02", "1970-01-01"]),
    "far times": (pa.array([253_402_300_800_000, 0], MOMENT), ["+10000-01-01 00:00:00", "1970-01-01 00:00:00"]),
    "times in lists": (
        pa.array([[1, 1000, 10], [], None], pa.list_(pa.timestamp("us"))),
        [["1970-01-01 00:00:00.000001", "1970-01-01 00:00:00.001", "1970-01-01 00:00:00.000010"], [], None],
    ),
    "nanoseconds in lists": (pa.array([[1, 1_000]], pa.list_(pa.timestamp("ns"))),
                             [["1970-01-01 00:00:00.000000001", "1970-01-01 00:00:00.000001"]]),
    "times in structs": (
        pa.array([{"t": 1500, "f": 0.1}, None, {"t": None, "f": None}],
                 pa.struct([("t", MOMENT), ("f", pa.float32())])),
        [{"t": "1970-01-01 00:00:01.500", "f": 0.1}, None, {"t": None, "f": None}],
    ),
    "lists of one length": (pa.array([[1, 2], None], pa.list_(pa.int32(), 2)), [[1, 2], None]),
    "labels": (pa.array(["a", "b", "a", None], pa.large_string()).dictionary_encode(), ["a", "b", "a", None]),
}  # fmt: skip
BEYOND_PLATEAU = {
    "times beyond any calendar": (pa.array([1 << 60, 0, None]).view(pa.timestamp("us")),
                                  [str(1 << 60), "1970-01-01 00:00:00", None]),
    "times with a zone beyond any calendar": (pa.array([1 << 60, 0]).view(pa.timestamp("us", "UTC")),
                                              [str(1 << 60), "1970-01-01 00:00:00Z"]),
    "dates beyond any calendar": (pa.array([2**31 - 1, 0], pa.int32()).view(pa.date32()),
                                  [str(2**31 - 1), "1970-01-01"]),
    "labels of times": (pa.array([1500, 0, 1500], MOMENT).dictionary_encode(),
                        ["1970-01-01 00:00:01.500", "1970-01-01 00:00:00", "1970-01-01 00:00:01.500"]),
    "maps": (pa.array([[("a", 1500)], None, []], pa.map_(pa.string(), MOMENT)),
             [[["a", "1970-01-01 00:00:01.500"]], None, []]),
    "halves": (pa.array([0.5, None], pa.float16()), [0.5, None]),
    "bytes": (pa.array([b"a", b"\xff"]), ["a", "/w=="]),
    "runs": (pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array([0.1, None], pa.float32())),
             [0.1, None, None]),
    "views of lists": (pa.array([[0.1], None], pa.list_view(pa.float32())), [[0.1], None]),
    "empty structs": (pa.array([{}, None], pa.struct([])), [{}, None]),
    "zones": (pa.array([1500], pa.timestamp("ms", "UTC")), ["1970-01-01 00:00:01.500Z"]),
}  # fmt: skip
KINDS = AS_PLATEAU | BEYOND_PLATEAU


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("cut", [False, True])
def test_values(name, cut):
    """Values of each kind are written correctly, also from a slice of a column."""
    column, values = KINDS[name]
    table = pa.table({"x": pa.concat_arrays([column, column]) if cut else column})
    if cut:
        table, values = table.slice(1, len(values)), [*values[1:], values[0]]
    assert json.loads(json_records(table)) == [{"x": value} for value in values]


def test_text_is_not_escaped():
    """Text is UTF-8, as in plateau, which halves the bytes for other scripts than Latin."""
    assert json_records(pa.table({"x": ["ä\n\x01"]})) == '[{"x":"ä\\n\\u0001"}]'.encode()
