"""Times and lines in bodies: fast paths agree with full ones; hostile text is refused."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import lzma

import pyarrow as pa
import pytest
import zstandard
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from aggregator.server.bodies.formats import read_events
from aggregator.server.bodies.shared.media import CSV, INPUTS, JSON, LINES, choose, is_utf8, media_of
from aggregator.server.bodies.shared.times import TimeReader
from esformat import InvalidEventError
from esformat.convert import Clock

TIMES = st.datetimes().map(str) | st.datetimes(timezones=st.timezones()).map(
    lambda moment: moment.isoformat("T", "auto")
)


@examples(200)
@given(TIMES | st.from_regex(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)?", fullmatch=True)
       | st.integers(-(10**20), 10**20).map(str) | st.decimals(-(9 * 10**9), 9 * 10**9, places=9).map(str))  # fmt: skip
def test_one_time_is_read_as_a_column_of_them_is(text):
    """A single time and a column of times are read alike."""
    times = Clock().read(pa.array([text]))
    try:
        assert TimeReader().read(text, "t") == times.micros[0]
    except InvalidEventError:
        assert not times.ok[0]


def test_types_that_the_topic_has():
    """Columns of a known type are read as that type, others by their looks; a long body has one type per column."""
    body = b'{"space": "a", "timestamp": 1, "n": "7", "m": "7"}\n'
    table = read_events(pa.py_buffer(body), LINES, types={"m": pa.string()}, binary_keys=False, max_bytes=1)
    assert (table["n"].to_pylist(), table["m"].to_pylist()) == (["7"], ["7"])
    known = {"n": pa.int64()}
    assert read_events(pa.py_buffer(body), LINES, types=known, binary_keys=False, max_bytes=1)["n"].to_pylist() == [7]
    text = body.replace(b"7", b"x")
    table = read_events(pa.py_buffer(text), LINES, types=known, binary_keys=False, max_bytes=1)
    assert (table["n"].type, table["n"].to_pylist()) == (pa.string(), ["x"])
    filler = (b"\n" + b" " * (1 << 20)) * 9 + b"\n"  # the second line is in another block of the reader
    long = b'{"space": "a", "timestamp": 1, "n": 1}' + filler + b'{"space": "a", "timestamp": "1970-01-01", "n": 2.5}'
    table = read_events(pa.py_buffer(long), LINES, types={}, binary_keys=True, max_bytes=1)
    assert (table["n"].to_pylist(), table["space"].to_pylist()) == ([1.0, 2.5], [b"a", b"a"])
    table = read_events(pa.py_buffer(long), LINES, types=known, binary_keys=True, max_bytes=1)
    assert table["n"].to_pylist() == [1.0, 2.5]  # the first block alone would fit int64


@pytest.mark.parametrize(("accept", "chosen"), [
    ("*/*", LINES), ("text/*", CSV), ("text/csv;q=0.5, application/jsonl;q=0.9", LINES),
    ("image/png", None), ("text/csv, */*;q=0.1", CSV), ("text/csv;q=0", None), ("text/csv;q=x", None), ("", LINES),
    ("application/x-ndjson;q=0, */*", CSV), ("*/*, application/x-ndjson;q=0.1", CSV), ("text/csv, application/*", CSV),
    ("text/csv, application/x-ndjson", CSV), ("application/json, text/plain, */*", LINES),
])  # fmt: skip
def test_accept(accept, chosen):
    """The accepted format with the highest preference is chosen."""
    assert choose(accept, (LINES, CSV)) == chosen
    assert media_of("Application/JSONL; charset=utf-8") == LINES


@pytest.mark.parametrize(("content_type", "taken"), [
    (None, True), ("text/csv", True), ("text/csv; charset=UTF-8", True), ('text/csv; charset="utf8"', True),
    ("text/csv;charset=us-ascii; header=present", True), ("text/csv; charset=", True),
    ("text/csv; charset=ISO-8859-1", False), ("text/csv; charset=what", False), ("text/csv; charset='", False),
    ("text/csv; charset*=utf-16''x", False),
])  # fmt: skip
def test_is_utf8(content_type, taken):
    """Text in another charset is not taken for UTF-8."""
    assert is_utf8(content_type) is taken


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
ROWS = st.lists(
    st.dictionaries(st.sampled_from(["space", "timestamp", "data", "grouping", "n", ""]), VALUES), max_size=4
)


@examples(150)
@given(ROWS.map(lambda rows: "\n".join(map(json.dumps, rows)).encode()) | st.binary(max_size=60)
       | st.text(alphabet='space,timestamp\n"\r 01', max_size=60).map(str.encode), st.sampled_from(INPUTS))  # fmt: skip
def test_hostile_bodies(body, media):
    """Any bytes are events or are refused."""
    with contextlib.suppress(InvalidEventError):
        table = read_events(pa.py_buffer(body), media, types={}, binary_keys=False, max_bytes=1 << 20)
        table.validate(full=True)


@pytest.mark.parametrize("media", [LINES, CSV, JSON])
@pytest.mark.parametrize("compress", [bz2.compress, gzip.compress, lzma.compress, zstandard.ZstdCompressor().compress])
def test_compressed_bodies(compress, media):
    """A compressed body is refused, however short: decompressing it could take any amount of memory."""
    body = compress(b'{"space":"a","timestamp":1}\n' * 1000) + b"more than a reader skips\n"
    with pytest.raises(InvalidEventError, match="the body is compressed; send the header Content-Encoding"):
        read_events(pa.py_buffer(body), media, types={}, binary_keys=False, max_bytes=1 << 20)


@pytest.mark.parametrize(
    ("body", "media", "hint"),
    [
        (b'{"space":"a","timestamp":2026}', LINES, "?time_unit= with one of s, ms, us, ns"),
        (b'{"space":"a","timestamp":"2026-W01"}', LINES, "send ISO 8601 text"),
        (b'[{"who":"a","at":1}]', JSON, "each event needs space and timestamp; ?ts= gives another name for timestamp"),
        (b"who,at\na,1\n", CSV, "each event needs space and timestamp; ?ts= gives another name for timestamp"),
        (b"space;timestamp\na;1\n", CSV, "its fields seem to be separated by ';'"),
        (b"space,timestamp,n\na,1,\xff\n", CSV, "nothing in the body was stored"),
    ],
)
def test_hints_name_parameters_not_options(body, media, hint):
    """Errors in a body advise parameters of the request, never options of the command line."""
    with pytest.raises(InvalidEventError) as refused:
        read_events(pa.py_buffer(body), media, types={}, binary_keys=False, max_bytes=1 << 20)
    assert hint in refused.value.hint
    assert "--" not in str(refused.value)
