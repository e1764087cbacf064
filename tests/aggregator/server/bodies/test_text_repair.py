"""Text that is not UTF-8 is escaped; valid text stays byte for byte; other errors are refused."""

from __future__ import annotations

import contextlib

import orjson
import pytest
from effort import examples
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from aggregator.server.bodies.shared.text_repair import escaped_message, json_text, read_json

REQUEST = ExportLogsServiceRequest()
LOGS = REQUEST.resource_logs.add().scope_logs.add()
LOGS.scope.name = "TEXT"
RECORD = LOGS.log_records.add(time_unix_nano=5, severity_number=9, trace_id=b"\xff" * 16, flags=7)
RECORD.body.string_value = "TEXT"
RECORD.attributes.add(key="TEXT").value.array_value.values.add(bytes_value=b"\xff")
STORED = REQUEST.SerializeToString()
KIND = ExportLogsServiceRequest.DESCRIPTOR


@pytest.mark.parametrize(("text", "found", "escaped"), [
    (b'{"a": "\xc3\xa4"}', {"a": "\xe4"}, False), (b'["caf\xe9"]', ["caf\\xe9"], True),
    (b'{"\\ud800": ["\\udfff\\u00e4", 1, null]}', {"\\ud800": ["\\udfff\xe4", 1, None]}, True),
    (b'"\\ud83d\\ude00"', "\U0001f600", False),
])  # fmt: skip
def test_json(text, found, escaped):
    """Bytes that are not UTF-8 and lone surrogates are escaped; valid characters are unchanged."""
    assert read_json(text) == (found, escaped)


@pytest.mark.parametrize("text", [b"", b"{", b"NaN", b'{"a": \xff}', b"[" * 100_000, b'"\\ud800" x', b"\xff"])
def test_no_json(text):
    """Other invalid JSON is refused."""
    with pytest.raises(orjson.JSONDecodeError):
        read_json(text)


def test_messages():
    """Text is escaped anywhere and at any length; bytes, numbers and the rest are unchanged."""
    assert escaped_message(memoryview(STORED), KIND) == STORED
    broken = STORED.replace(b"TEXT", b"T\xe9X\xff")
    mended = ExportLogsServiceRequest.FromString(escaped_message(memoryview(broken), KIND))
    (logs,) = mended.resource_logs[0].scope_logs
    (record,) = logs.log_records
    assert {logs.scope.name, record.body.string_value, record.attributes[0].key} == {"T\\xe9X\\xff"}
    assert (record.time_unix_nano, record.flags, record.trace_id) == (5, 7, b"\xff" * 16)
    long = AnyValue(string_value="x" * 5_000).SerializeToString().replace(b"x", b"\xff")
    mended = AnyValue.FromString(escaped_message(memoryview(long), AnyValue.DESCRIPTOR))
    assert mended.string_value == "\\xff" * 5_000


def test_messages_that_end_early():
    """A truncated message is refused wherever it was cut."""
    for end in range(len(STORED)):
        try:
            ExportLogsServiceRequest.FromString(STORED[:end])
        except DecodeError:
            with pytest.raises(ValueError, match=r"cut short|wire type"):
                escaped_message(memoryview(STORED)[:end], KIND)


@pytest.mark.parametrize("digits", ["18446744073709551616", "-9223372036854775809", "1" * 300])
def test_whole_numbers_of_any_length(digits):
    """Integers of any length are read and written unchanged."""
    found, escaped = read_json(f'{{"n": [{digits}]}}'.encode())
    assert (found, escaped) == ({"n": [int(digits)]}, False)
    assert json_text(found) == f'{{"n":[{digits}]}}'.encode()


def test_numbers_that_python_does_not_read():
    """An integer of more than 4,300 digits, which Python does not read, is refused as invalid JSON."""
    text = b"9" * 5_000
    with pytest.raises(orjson.JSONDecodeError):
        read_json(text)


@examples(200)
@given(st.integers(0, len(STORED) - 1), st.binary(min_size=1, max_size=6), st.booleans())
def test_damaged_messages(at, junk, cut):
    """Damaged messages raise only ValueError."""
    body = STORED[:at] if cut else STORED[:at] + junk + STORED[at + len(junk) :]
    with contextlib.suppress(ValueError):
        assert isinstance(escaped_message(memoryview(body), KIND), bytes)
