"""Conversion of a job's reading options, checked, to the rules by which tasks read files."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from esformat.convert import Clock, InputOptions, Roles
from esformat.errors import UsageError
from esformat.read.segment import open_segment
from esformat.spark.input_rows import TEXT_KINDS, InputRules
from esformat.spark.options import one_of, parse_indexes, parse_names

_TYPES = {
    "string": pa.string(),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us", "UTC"),
    "date": pa.date32(),
}


def rules_of(kind: str, given: Mapping[str, Any], roles: Mapping[str, Any], *, zone: str) -> InputRules:
    """Build the rules from the options and roles of a job. zone: of times without one, unless an option gives it.

    given: `data`, `data_json`, `columns`, `types`, `timestamp_format`, `timezone`, `delimiter`, `header`, `nulls`,
    `on_error`, `hive` and `schema`, as values or as text. Raises UsageError, and OSError for a missing schema.
    """
    unknown = next((name for name in given if name not in _PARSERS), None)
    if unknown is not None:
        raise UsageError(f"unknown read option {unknown!r}", hint=f"the options are {', '.join(_PARSERS)}")
    options = {name: _parsed(name, value) for name, value in given.items() if value is not None}
    try:
        clock = Clock(options.get("timestamp_format"), options.get("timezone") or zone)
    except ValueError as error:
        raise UsageError(str(error)) from None
    indexes = roles.get("indexes", ())
    made = Roles(
        space=roles.get("space", "space"),
        timestamp=roles.get("timestamp", "timestamp"),
        grouping=roles.get("grouping"),
        indexes=parse_indexes(indexes) if isinstance(indexes, str) else tuple(indexes),
        keys=roles.get("keys") or "text",
        null_data=True,
        clock=clock,
        **{name: options[name] for name in ("data", "data_json", "columns", "types") if name in options},
    )
    written = {name: options[name] for name in ("delimiter", "header", "nulls") if name in options}
    schema = None
    if "schema" in options:
        if kind not in TEXT_KINDS:
            raise UsageError(f"option 'schema' is for {' and '.join(TEXT_KINDS)}: {kind} defines its own columns")
        with open_segment(options["schema"], cache_bytes=0) as segment:
            schema = segment.schema
    stop_or_skip, hive = options.get("on_error", "stop"), options.get("hive", True)
    return InputRules(kind, made, InputOptions(**written), stop_or_skip, hive, schema)


def _parsed(name: str, value: Any) -> Any:
    if not isinstance(value, str):
        return tuple(value) if isinstance(value, list) else value
    try:
        return _PARSERS[name](value)
    except ValueError as error:
        raise UsageError(f"option {name!r} must be {error}, not {value!r}") from None


def _flag(text: str) -> bool:
    return one_of("true", "false")(text) == "true"


def _types(text: str) -> dict[str, pa.DataType]:
    found = {}
    for pair in parse_names(text):
        name, _, kind = pair.partition("=")
        if not name or kind not in _TYPES:
            raise ValueError(f"a list of COLUMN=TYPE with a type of {', '.join(_TYPES)}")
        found[name] = _TYPES[kind]
    return found


def _delimiter(text: str) -> str:
    character = "\t" if text == "\\t" else text
    if len(character) != 1 or not character.isascii() or character in '"\r\n':
        raise ValueError("one ASCII character other than a quote or line break")
    return character


def _header(text: str) -> tuple[str, ...] | None:
    if text.lower() == "true":  # Spark's option for a file whose first line names the columns
        return None
    if text.lower() == "false":
        raise ValueError("column names separated by commas")
    return parse_names(text)


def _texts(text: str) -> tuple[str, ...]:
    return tuple(next(csv.reader([text]), []))


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "data": str, "data_json": _flag, "columns": parse_names, "types": _types, "timestamp_format": str,
    "timezone": str, "delimiter": _delimiter, "header": _header, "nulls": _texts,
    "on_error": one_of("stop", "skip"), "hive": _flag, "schema": str,
}  # fmt: skip
