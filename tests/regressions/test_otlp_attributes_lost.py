"""A log record's attribute `ts` replaced another named `attributes.ts`; of three equal names one was lost."""

from __future__ import annotations

import json

import pytest
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from aggregator.server.bodies.otlp.message import read_records
from aggregator.server.bodies.shared.media import JSON, PROTOBUF


@pytest.mark.parametrize("media", [JSON, PROTOBUF])
@pytest.mark.parametrize(("names", "stored"), [
    (["attributes.ts", "ts"], ["attributes.ts", "attributes.attributes.ts"]),
    (["ts", "attributes.ts"], ["attributes.ts", "attributes.attributes.ts"]),
    (["attributes.scope", "scope"], ["attributes.scope", "attributes.attributes.scope"]),
    (["a", "a", "a"], ["a", "attributes.a", "attributes.attributes.a"]),
])  # fmt: skip
def test_attributes_are_all_kept(media, names, stored):
    """Each attribute is a field, whatever the names of the others."""
    attributes = [{"key": name, "value": {"intValue": str(place)}} for place, name in enumerate(names)]
    scope = {"scope": {"name": "s"}, "logRecords": [{"body": {"stringValue": "m"}, "attributes": attributes}]}
    text = json.dumps({"resourceLogs": [{"scopeLogs": [scope]}]})
    body = text.encode() if media == JSON else Parse(text, ExportLogsServiceRequest()).SerializeToString()
    [(_, record)] = read_records(body, media)
    assert record == {"scope": "s", "msg": "m", **{name: place for place, name in enumerate(stored)}}
