"""Render records as text: lines by a format string, JSON lines, syslog messages. Works on whole batches."""

from __future__ import annotations

import base64
import json
import math
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggregator.lql import Columns, TagSet, Template
from aggregator.lql.parse.columns import as_text, decoded, is_text
from aggregator.lql.text.layout import MOST_US
from aggregator.lql.text.predicate import as_binary
from esformat.parts import fragments

ENTERPRISE = "32473"
"""The enterprise number that names of structured data need; RFC 5612 reserves this one for examples."""
_TS = "{ts.format(2006-01-02T15:04:05.999999Z07:00)}"
_JSON = Template.compile(f'{{{{"ts":"{_TS}","msg":')
_TIME = Template.compile(_TS)
_SD_NAME = re.compile(r"[!#-<>-\\^-~]{1,32}")
_HEADER = re.compile(r"[^!-~]")


def lines(batch: pa.RecordBatch, columns: Columns, template: Template) -> pa.Array:
    """Render each record by a format string, adding a line end if the result has none. Binary, one per record."""
    texts = template.render_bytes(batch, columns)
    end, nothing = pa.scalar(b"\n", pa.large_binary()), pa.scalar(b"", pa.large_binary())
    return pc.if_else(pc.ends_with(texts, b"\n"), texts, pc.binary_join_element_wise(texts, end, nothing))


def json_lines(batch: pa.RecordBatch, columns: Columns) -> pa.Array:
    """Render each record as a line of JSON: ts, msg, tags, and fields if it has any. Binary, one per record.

    Bytes that are not UTF-8 become {"base64": "…"}, NaN and infinities null, as in other output of events.
    """
    heads = _heads(batch, columns)
    messages = fragments(_messages(batch, columns)).cast(pa.large_string())
    tags = by_stream(batch, columns, lambda tags: json.dumps(tags.as_dict(), ensure_ascii=False))
    rest = ["}\n" if held is None else f',"fields":{held}}}\n' for held in fields_as_json(batch, columns)]
    return _binary(_joined(heads, messages, ',"tags":', tags, pa.array(rest, pa.large_string())))


def _heads(batch: pa.RecordBatch, columns: Columns) -> pa.Array:
    """The beginnings of lines up to the message.

    Times beyond the calendar, which the template writes as numbers without a unit, have their date here, with years of
    more digits than ISO 8601 allows.
    """
    heads = _JSON.render(batch, columns)
    micros = np.asarray(batch.column(columns.timestamp).cast(pa.int64()))
    far = (micros > MOST_US) | (micros < -MOST_US) & (micros > -(2**63))  # -2**63 has no date in NumPy
    if not far.any():
        return heads
    times = pa.array(np.datetime_as_string(micros[far].astype("M8[us]")).tolist(), pa.large_string())
    return pc.replace_with_mask(heads.cast(pa.large_string()), pa.array(far), _joined('{"ts":"', times, 'Z","msg":'))


def fields_of(batch: pa.RecordBatch, columns: Columns) -> list[dict[str, object]]:
    """The fields of each record that are not null: from typed columns and from the map."""
    found: list[dict[str, object]] = [{} for _ in range(len(batch))]
    for name in columns.fields:
        column = decoded(batch.column(name))
        if column.null_count == len(column):
            continue
        kind = column.type
        plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind) or is_text(kind)
        values = column.to_pylist() if plain else as_text(column).to_pylist()
        for row, value in enumerate(values):
            if value is not None:
                found[row][name] = _text_or_base64(value) if isinstance(value, bytes) else value
    if columns.extra is not None and batch.column(columns.extra).null_count < len(batch):
        for row, held in enumerate(batch.column(columns.extra).to_pylist()):
            found[row].update(held or ())
    return found


def fields_as_json(batch: pa.RecordBatch, columns: Columns) -> list[str | None]:
    """The fields of each record as a JSON object, with null for NaN and infinities; None if it has none."""
    return [
        json.dumps({name: _for_json(value) for name, value in held.items()}, ensure_ascii=False, default=str)
        if held
        else None
        for held in fields_of(batch, columns)
    ]


def _for_json(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _messages(batch: pa.RecordBatch, columns: Columns) -> pa.Array:
    """The messages as binary; empty if a record has none."""
    texts = decoded(batch.column(columns.message))
    return as_binary(texts if is_text(texts.type) else as_text(texts)).fill_null(b"")


def _text_or_base64(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def by_stream(batch: pa.RecordBatch, columns: Columns, text_of: Callable[[TagSet], str]) -> pa.Array:
    """A text for each record that depends only on its stream, computed once for each stream."""
    if columns.tags is None:
        return pa.repeat(pa.scalar(text_of(TagSet(())), pa.large_string()), len(batch))
    streams = decoded(batch.column(columns.tags)).dictionary_encode()
    texts = [text_of(TagSet.parse(name)) for name in as_text(streams.dictionary).to_pylist()]
    return pa.array(texts, pa.large_string()).take(streams.indices)


# ------------------------------------------------------------ syslog


@dataclass(frozen=True, slots=True)
class Sender:
    """The origin that messages name. host, app: for streams without the tags host_tag, app_tag."""

    priority: int = 134  # local use 0, informational
    host: str = ""
    app: str = "aggregator"
    host_tag: str = "host"
    app_tag: str = "app"


def syslog_messages(batch: pa.RecordBatch, columns: Columns, sender: Sender) -> pa.Array:
    """Render each record as an RFC 5424 message, with tags and fields as structured data. Binary, one per record."""
    host = sender.host or socket.gethostname()

    def header(tags: TagSet) -> str:
        names = tags.get(sender.host_tag) or host, tags.get(sender.app_tag) or sender.app
        return f" {_header(names[0], 255)} {_header(names[1], 48)} - - "

    tags = by_stream(batch, columns, lambda tags: structured("tags", tags.as_dict()))
    fields = pa.array([structured("fields", held) for held in fields_of(batch, columns)], pa.large_string())
    data = _joined(tags, fields)
    data = pc.if_else(pc.equal(data, ""), "-", data)
    heads = _joined(
        f"<{sender.priority}>1 ", _TIME.render(batch, columns), by_stream(batch, columns, header), data, " "
    )
    messages = _messages(batch, columns).cast(pa.large_binary())
    return pc.binary_join_element_wise(_binary(heads), messages, pa.scalar(b"", pa.large_binary()))


def structured(kind: str, held: Mapping[str, object]) -> str:
    """An element of structured data; empty if none of the names is allowed in one."""
    written = [f' {name}="{_escaped(value)}"' for name, value in held.items() if _SD_NAME.fullmatch(name)]
    return f"[{kind}@{ENTERPRISE}{''.join(written)}]" if written else ""


def _escaped(value: object) -> str:
    text = json.dumps(value) if isinstance(value, bool | dict) else str(value)
    return re.sub(r'(["\\\]])', r"\\\1", text)


def _header(text: str, most: int) -> str:
    return _HEADER.sub("_", text)[:most] or "-"


def framed(messages: pa.Array) -> memoryview:
    """Messages as a stream, each preceded by its length (RFC 6587, octet counting)."""
    lengths = pc.binary_length(messages).cast(pa.string()).cast(pa.large_string())
    counts = _binary(_joined(lengths, " "))
    return contents(pc.binary_join_element_wise(counts, messages, pa.scalar(b"", pa.large_binary())))


def contents(texts: pa.Array) -> memoryview:
    """The concatenated bytes of a large_binary array without nulls."""
    _, offsets, stored = texts.buffers()
    if stored is None or not len(texts):
        return memoryview(b"")
    bounds = np.frombuffer(offsets, np.int64)
    return memoryview(stored)[bounds[texts.offset] : bounds[texts.offset + len(texts)]]


def _joined(*parts: pa.Array | str) -> pa.Array:
    texts = [pa.scalar(part, pa.large_string()) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*texts, pa.scalar("", pa.large_string()))


def _binary(texts: pa.Array) -> pa.Array:
    return texts.view(pa.large_binary())
