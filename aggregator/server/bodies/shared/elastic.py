"""What Elasticsearch's clients check besides the data: its header, its version, its format of errors. Pure.

It claims no other features: there is no search, and templates and policies are not stored.
"""

from __future__ import annotations

from typing import Any

VERSION = "8.17.0"
"""The Elasticsearch version that the responses imitate. Shippers refuse unknown versions."""
PRODUCT = {"X-Elastic-Product": "Elasticsearch"}
"""Official clients disconnect without this header."""
CHALLENGE = 'Basic realm="aggregator", charset="UTF-8"'
"""Clients without support for bearer tokens need this before they send their password."""
_KINDS = {
    401: "security_exception",
    403: "security_exception",
    404: "resource_not_found_exception",
    409: "version_conflict_engine_exception",
    413: "content_too_long_exception",
    415: "media_type_header_exception",
    429: "es_rejected_execution_exception",
}
_NO_SHARDS = ("active_primary_shards", "active_shards", "relocating_shards", "initializing_shards", "unassigned_shards",
              "delayed_unassigned_shards", "number_of_pending_tasks", "number_of_in_flight_fetch",
              "task_max_waiting_in_queue_millis")  # fmt: skip
_LICENSE = {"uid": "aggregator", "type": "basic", "mode": "basic", "status": "active"}


def is_elastic(path: str) -> bool:
    """Whether a path belongs to Elasticsearch's API, whose errors have its format: `/_bulk`, `/nginx/_doc/1`."""
    return path == "/" or any(part.startswith("_") for part in path.split("/", 3)[1:3])


def error_body(status: int, reason: str, kind: str | None = None) -> dict[str, Any]:
    """Return the body of an error response. kind: Elasticsearch's error type; by default chosen by status."""
    cause = {
        "type": kind or _KINDS.get(status, "illegal_argument_exception" if status < 500 else "exception"),
        "reason": reason,
    }
    return {"error": cause | {"root_cause": [cause]}, "status": status}


def about_server() -> dict[str, Any]:
    """Return the response to `GET /`: enough for a shipper to continue."""
    return {
        "name": "aggregator", "cluster_name": "aggregator", "cluster_uuid": "aggregator-----------w",
        "version": {
            "number": VERSION, "build_flavor": "default", "build_type": "pip", "build_hash": "0" * 40,
            "build_date": "2024-12-11T12:08:05.663969764Z", "build_snapshot": False, "lucene_version": "9.12.0",
            "minimum_wire_compatibility_version": "7.17.0", "minimum_index_compatibility_version": "7.0.0",
        },
        "tagline": "You Know, for Search",
    }  # fmt: skip


def health() -> dict[str, Any]:
    """Return the response to `GET /_cluster/health`. Typed clients require every member."""
    return {
        "cluster_name": "aggregator",
        "status": "green",
        "timed_out": False,
        "number_of_nodes": 1,
        "number_of_data_nodes": 1,
        **dict.fromkeys(_NO_SHARDS, 0),
        "active_shards_percent_as_number": 100.0,
    }


def licence() -> dict[str, Any]:
    """Return the response to `GET /_license`. Beats and Logstash accept a basic licence."""
    return {"license": _LICENSE}


def features() -> dict[str, Any]:
    """Return the response to `GET /_xpack`: none of the features that clients would use."""
    absent = {"available": False, "enabled": False}
    return {"license": _LICENSE, "features": {"ilm": absent, "security": absent}, "tagline": "You know, for X"}


def template(kind: str, name: str) -> dict[str, Any]:
    """Return an empty template or policy to clients that check for one.

    Shippers that find none try to create it, and stop if they cannot.
    """
    if kind == "_index_template":
        return {"index_templates": [{"name": name, "index_template": {"index_patterns": [], "composed_of": []}}]}
    if kind == "_component_template":
        return {"component_templates": [{"name": name, "component_template": {"template": {}}}]}
    if kind == "_data_stream":
        return {"data_streams": [{"name": name, "timestamp_field": {"name": "@timestamp"}, "indices": []}]}
    if kind == "_template":
        return {name: {"order": 0, "index_patterns": [], "settings": {}, "mappings": {}, "aliases": {}}}
    return {name: {"version": 1, "policy": {"phases": {}}}}
