"""JSON schemas of requests and responses, for the API document; tests check responses against them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aggregator.server.bodies.shared.media import JSON

Schema = dict[str, Any]
PROBLEM_JSON = "application/problem+json"
BINARY: Schema = {"schema": {"type": "string", "format": "binary"}}
"""Content in a binary format."""
WHOLE: Schema = {"type": "integer", "minimum": 0}
_NUMBER_OR_NONE: Schema = {"type": ["integer", "null"]}
_FLAG: Schema = {"type": "boolean"}
_TEXT: Schema = {"type": "string"}
_TEXTS: Schema = {"type": "array", "items": _TEXT}


def shape(needed: Mapping[str, Schema], perhaps: Mapping[str, Schema] | None = None, *, more: Any = False) -> Schema:
    """Return the schema of an object with required and optional members. more: schema of any other members."""
    made: Schema = {"type": "object", "properties": {**needed, **(perhaps or {})}, "additionalProperties": more}
    return made | ({"required": list(needed)} if needed else {})


def each(names: str, schema: Schema) -> dict[str, Schema]:
    """Return the same schema for several members."""
    return dict.fromkeys(names.split(), schema)


def ref(name: str) -> Schema:
    """Return a reference to one of SCHEMAS."""
    return {"$ref": f"#/components/schemas/{name}"}


def many(of: Schema) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": of}


def by_name(of: Schema) -> Schema:
    """Return the schema of an object with any names."""
    return {"type": "object", "additionalProperties": of}


def json_response(description: str, schema: Schema, example: Any = None) -> Schema:
    """Return a response in JSON."""
    content = {"schema": schema} | ({} if example is None else {"example": example})
    return {"description": description, "content": {JSON: content}}


def text(format_: str, example: str) -> Schema:
    """Return content in a text format that a schema can only name."""
    return {"schema": {"type": "string", "format": format_}, "example": example}


_SUMS = "rows bytes segments sealed_rows sealed_bytes unsealed_rows unsealed_bytes quarantined_rows quarantined_bytes"
_TIMES = "min_timestamp max_timestamp oldest_unsealed_us"
_PARTITION = shape(each(f"{_SUMS} first_index end_index", WHOLE) | each(_TIMES, _NUMBER_OR_NONE))
_LIMITS = "bytes age_us segments partition_bytes partition_segments"
_POLICIES = {
    "roll": shape(each("rows bytes age_us", WHOLE) | each("frame_bytes", _NUMBER_OR_NONE)),
    "retention": shape(each(_LIMITS, _NUMBER_OR_NONE)),
}
_FIGURES = {
    **each(f"{_SUMS} schemas erasing truncating", WHOLE),
    **each(_TIMES, _NUMBER_OR_NONE),
    **_POLICIES,
    "catalog": _TEXT,
    "partitions": by_name(_PARTITION),
}
_DEFINED = {"topic": _TEXT, "schema": by_name(_TEXT), "indexes": _TEXTS, "keys": {"enum": ["text", "binary"]}}
_SPAN = shape(each("start end", WHOLE))
_TEXT_OR_NONE: Schema = {"type": ["string", "null"]}
_INDEXED: Schema = {"type": ["string", "integer", "boolean"]}
_PROBLEM = shape({**each("subject message action", _TEXT), "found_us": WHOLE})
_SEGMENT = shape(
    {
        **each("segment level rows bytes first_index last_index created_us", WHOLE),
        **each("min_timestamp max_timestamp", {"type": "integer"}),
        "partition": _TEXT,
        "state": {"enum": ["sealed", "merging", "erasing"]},
    }
)

_PART = shape({"kind": _TEXT, "name": _TEXT, "bytes": WHOLE, "blocks": WHOLE, "facts": {"type": "object"}})
_COLUMN_BYTES = shape({"name": _TEXT, "type": _TEXT, "bytes": WHOLE, "sampled": _FLAG})

SCHEMAS: Mapping[str, Schema] = {
    "Problem": {
        "description": "RFC 9457 problem details.",
        **shape(
            {"type": _TEXT, "title": _TEXT, "status": {"type": "integer"}, "detail": _TEXT},
            {"hint": _TEXT, "retry_after_ms": {"type": "integer"}, "place": many(WHOLE)},
        ),
    },
    "PlateauError": shape({"message": _TEXT, "code": {"type": "integer"}}, {"hint": _TEXT}),
    "ElasticError": shape({"error": {"type": "object"}, "status": {"type": "integer"}}),
    "Status": {"description": "A google.rpc.Status.", **shape({"message": _TEXT}, more=True)},
    "Receipt": shape(
        {"topic": _TEXT, "partition": _TEXT, "first": WHOLE, "last": {"type": "integer"}},
        {"repeated": _FLAG, "assumed_time_units": _TEXTS},
    ),
    "Access": shape(
        {"scopes": _TEXTS, "topics": {"type": ["array", "null"], "items": _TEXT}, **each("read_only fixed", _FLAG)}
    ),
    "Names": shape({"topics": many(shape({"name": _TEXT}))}),
    "Topic": shape({**_DEFINED, **_POLICIES}),
    "TopicFigures": shape({**_DEFINED, **_FIGURES}),
    "Stats": shape(
        {
            **each("rows segments problems quarantined", WHOLE),
            **each("disk clock memory log scans since_open", by_name({"type": ["number", "boolean", "null"]})),
            "topics": by_name(shape({"topic": _TEXT, **_FIGURES, "segments_to_merge": WHOLE})),
            "pipes": many({"type": "object"}), "background": {"type": ["string", "null"]}, "swept": _TEXTS,
            "follows": {"type": ["object", "null"]},
        }
    ),
    "Histogram": shape(
        {"start_us": {"type": "integer"}, **each("width_us events", WHOLE), "counts": many(WHOLE)},
        {"series": many(shape({"value": {"type": ["string", "integer", "boolean", "null"]}, "events": WHOLE,
                               "counts": many(WHOLE)}))},
    ),
    "Statement": shape(
        {"kind": {"enum": ["records", "groups", "table", "change"]}, "query": _TEXT, "pages": _FLAG, "warnings": _TEXTS}
    ),
    "Completions": shape({"completions": many(shape({"text": _TEXT, "replaces": WHOLE}))}),
    "Segments": shape({"segments": many(_SEGMENT)}),
    "Anatomy": shape(
        {
            "segment": WHOLE, "file": _TEXT, **each("events spaces size_bytes", WHOLE), "codec": _TEXT,
            "parts": many(_PART), "columns": many(_COLUMN_BYTES),
        }
    ),
    "ColumnFacts": shape(
        {"segment": WHOLE, "columns": many(shape({
            **each("name type", _TEXT), "nulls": WHOLE, **each("least greatest", _TEXT_OR_NONE),
            "mean_bytes": {"type": ["number", "null"]}, "different": _NUMBER_OR_NONE,
        }))}
    ),
    "Verification": shape(
        {"ok": _FLAG, **each("events blocks size_bytes", WHOLE),
         "problems": many(shape({"offset": WHOLE, "what": _TEXT, "hint": _TEXT}))}
    ),
    "Values": shape(
        {"values": many(shape({"value": _INDEXED, "events": WHOLE})), "different": WHOLE}
    ),
    "Problems": shape(
        {"trouble": _TEXT_OR_NONE, "problems": many(_PROBLEM)}
    ),
    "RetentionReport": shape(
        {"removed": many({"type": "object"}), **each("disk_bytes waiting_bytes", WHOLE), "dry_run": _FLAG}
    ),
    "CompactionReport": shape(
        {**each("merged made written_bytes rewritten", WHOLE), "erased": _TEXTS, "still_erasing": _TEXTS}
    ),
    "Erased": shape({"erased": many(shape({"space": _TEXT, "events": WHOLE}))}),
    "Partitions": shape({"partitions": by_name(_SPAN), "bytes": WHOLE}),
    "Span": shape({"span": _SPAN}),
    "BulkAnswer": shape(
        {"took": WHOLE, "errors": _FLAG, "items": many({"type": "object", "minProperties": 1, "maxProperties": 1})}
    ),
}  # fmt: skip
"""Components of the API document, by name."""

PROBLEM: Schema = {PROBLEM_JSON: {"schema": ref("Problem")}}
"""Content of errors, both of our own routes and of requests refused before they reach a route."""
PLATEAU_ERROR: Schema = {JSON: {"schema": ref("PlateauError")}}
ELASTIC_ERROR: Schema = {JSON: {"schema": ref("ElasticError")}, **PROBLEM}
