"""Every route reads what plateau's append accepted and what arrived otherwise: random schemas and layouts."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.types as pt
from arrow_layouts import laid_out
from arrow_strategies import make_array, types, values
from effort import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.aggregator.server.plateau.test_plateau import arrow_file

FILE = "application/vnd.apache.arrow.file"
STREAM = "application/vnd.apache.arrow.stream"
TOPICS = count()


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """A table as plateau's clients may send it: a time, and columns of any type, nullability, layout and metadata."""
    rows = draw(st.integers(1, 5))
    unit = draw(st.sampled_from([pa.int64(), pa.timestamp("ms"), pa.timestamp("ns", "UTC")]))
    fields, columns = [pa.field("time", unit, draw(st.booleans()))], [pa.array(range(rows), pa.int64()).cast(unit)]
    for name in draw(st.lists(st.sampled_from(["a", "space", "data", "time:2", "é\0"]), max_size=4, unique=True)):
        kind = draw(types())
        items = draw(st.lists(st.none() | values(kind), min_size=rows, max_size=rows))
        array = laid_out(draw, make_array(items, kind))
        metadata = draw(st.sampled_from([None, {"k": "v"}, {b"\xff": b"\xfe"}]))
        fields.append(pa.field(name, array.type, pt.is_null(array.type) or draw(st.booleans()), metadata))
        columns.append(array)
    return pa.table(columns, schema=pa.schema(fields, draw(st.sampled_from([None, {"m": "1"}]))))


def read_file(answer: Any) -> pa.Table:
    assert answer.status_code == 200, answer.text
    return pa.ipc.open_file(pa.py_buffer(answer.content)).read_all()


@examples(150, suppress_health_check=list(HealthCheck))
@given(table=tables())
def test_every_route_reads_what_an_append_took(shared_web, table):
    """Every route returns all records that an append accepted; a not-null column with nulls comes back as nullable."""
    name = f"t{next(TOPICS)}"
    sent = shared_web.post(f"/topic/{name}/partition/p", content=arrow_file(table), headers={"content-type": FILE})
    assert sent.status_code in (200, 400), sent.text
    if sent.status_code == 400:
        assert any(word in sent.text for word in ("null datatypes", "not an Arrow", "cannot")), sent.text
        return
    part = f"/topic/{name}/partition/p/records?start=0"
    for accept in (FILE, "application/json"):
        for ask in (
            lambda head: shared_web.get(part, headers=head),
            lambda head: shared_web.get(f"{part}&dataset.separator=.", headers=head),
            lambda head: shared_web.post(f"/topic/{name}/records", json={}, headers=head),
            lambda head: shared_web.post(f"/topic/{name}/records?order=desc", json={}, headers=head),
        ):
            answer = ask({"accept": accept})
            if answer.status_code == 400:
                assert "duplicate column" in answer.text or "has values that JSON cannot" in answer.text
                continue
            if accept == FILE:
                found = read_file(answer)
                found.validate(full=True)
            else:
                found = answer.json()
            assert len(found) == len(table)
    found = read_file(shared_web.get(part, headers={"accept": FILE}))
    assert found.schema.names == table.schema.names
    for wanted, field, column in zip(table.schema, found.schema, found.columns, strict=True):
        assert field.type.id == wanted.type.id
        assert field.nullable or not column.null_count
    for accept in (STREAM, "application/x-ndjson"):
        answer = shared_web.get(f"/v1/topics/{name}/events", headers={"accept": accept})
        assert answer.status_code == 200, answer.text
        rows = pa.ipc.open_stream(answer.content).read_all() if accept == STREAM else answer.text.split("\n")[:-1]
        assert len(rows) == len(table)
        if accept != STREAM:
            [json.loads(row) for row in rows]


@examples(80, suppress_health_check=list(HealthCheck))
@given(table=tables())
def test_plateaus_routes_read_what_came_in_otherwise(shared_web, table):
    """Events of other routes can be read on plateau's routes."""
    name = f"t{next(TOPICS)}"
    shared_web.put(f"/v1/topics/{name}", json={}).raise_for_status()
    keys = {"space": pa.array(["s"] * len(table)), "timestamp": pa.array(range(len(table)), pa.int64())}
    columns = {field: table[field] for field in table.column_names if field not in ("space", "time", "data")}
    sink = pa.BufferOutputStream()
    sendable = pa.table(keys | columns)
    with pa.ipc.new_stream(sink, sendable.schema) as writer:
        writer.write_table(sendable)
    sent = shared_web.post(
        f"/v1/topics/{name}/events", content=sink.getvalue().to_pybytes(), headers={"content-type": STREAM}
    )
    assert sent.status_code in (200, 400), sent.text
    if sent.status_code == 200:
        for accept in (FILE, "application/json"):
            answer = shared_web.get(f"/topic/{name}/partition/0/records?start=0", headers={"accept": accept})
            if answer.status_code == 400:
                assert "has values that JSON cannot" in answer.text
                continue
            found = read_file(answer) if accept == FILE else answer.json()
            assert len(found) == len(table)
