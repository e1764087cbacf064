"""Parts of OTLP records were silently lost: the observed time, schema URLs, and the numbers of attributes of scope
and resource that the sender had dropped.
"""

from __future__ import annotations

import json

import httpx
import pytest
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from served import served

from aggregator.client import Client
from aggregator.server.bodies.otlp.message import read_records
from aggregator.server.bodies.shared.media import JSON, PROTOBUF

NANOS = 1_772_352_000_000_000_123
ALL = {"resourceLogs": [{
    "resource": {
        "attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}], "droppedAttributesCount": 1,
    },
    "schemaUrl": "https://example.org/resource/1",
    "scopeLogs": [{
        "scope": {"name": "lib", "droppedAttributesCount": 2},
        "schemaUrl": "https://example.org/scope/1",
        "logRecords": [
            {"timeUnixNano": str(NANOS), "observedTimeUnixNano": str(NANOS + 7), "droppedAttributesCount": 3},
            {"timeUnixNano": str(NANOS), "observedTimeUnixNano": str(NANOS)},
            {"observedTimeUnixNano": str(NANOS)},
        ],
    }],
}]}  # fmt: skip
SHARED = {
    "scope": "lib", "scope_schema_url": "https://example.org/scope/1", "scope_dropped_attributes_count": 2,
    "resource_schema_url": "https://example.org/resource/1", "resource_dropped_attributes_count": 1,
    "msg": "", "ts": NANOS // 1000, "ts_ns": NANOS,
}  # fmt: skip
EXPECTED = [SHARED | {"observed_time_unix_nano": NANOS + 7, "dropped_attributes_count": 3}, SHARED, SHARED]


def body_of(found, media):
    text = json.dumps(found)
    return text.encode() if media == JSON else Parse(text, ExportLogsServiceRequest()).SerializeToString()


@pytest.mark.parametrize("media", [JSON, PROTOBUF])
def test_every_part_is_a_field(media):
    """Every part is a field, the observed time only if it differs from the record's time."""
    assert [record for _, record in read_records(body_of(ALL, media), media)] == EXPECTED


@pytest.mark.parametrize("media", [JSON, PROTOBUF])
def test_attributes_of_these_names_stay(media):
    """An attribute named like such a field is kept beside it."""
    names = ("observed_time_unix_nano", "scope_schema_url")
    attributes = [{"key": name, "value": {"stringValue": "mine"}} for name in names]
    found = json.loads(json.dumps(ALL))
    found["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]["attributes"] = attributes
    record = read_records(body_of(found, media), media)[0][1]
    assert record == EXPECTED[0] | {f"attributes.{name}": "mine" for name in names}


def test_they_can_be_asked_for(tmp_path):
    """Such fields can be queried like any other."""
    with served(tmp_path) as server, Client(server.url) as client:
        answer = httpx.post(f"{server.url}/v1/logs", content=json.dumps(ALL), headers={"content-type": JSON})
        assert answer.status_code == 200
        [event] = client.query(f"SELECT FROM service.name = shop WHERE fields:observed_time_unix_nano = {NANOS + 7}")
        assert dict(event.columns["fields"])["resource_dropped_attributes_count"] == "1"
