"""Spark's notes on column types: durations are recognised, and types that events cannot hold are refused."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from esformat.convert.errors import InputError
from esformat.convert.spark_types import SparkTypes

ROW = b"org.apache.spark.sql.parquet.row.metadata"
ORC = b"spark.sql.catalyst.type"


def noted(kind):
    """A schema in which Spark noted a type for the column c."""
    fields = [{"name": "c", "type": kind, "nullable": True, "metadata": {}}]
    return pa.schema([("c", pa.int64())], {ROW: json.dumps({"type": "struct", "fields": fields}).encode()})


@pytest.mark.parametrize("schema", [
    noted("interval day to second"), pa.schema([pa.field("c", pa.int64(), metadata={ORC: b"interval hour to second"})]),
], ids=["parquet", "orc"])  # fmt: skip
def test_durations(schema):
    """Whole numbers that Spark notes as intervals become durations in microseconds."""
    types = SparkTypes.of(schema, "a")
    assert types.type_of(schema.field("c")) == pa.duration("us")
    batch = types.applied(pa.record_batch({"c": pa.array([1, None]), "n": pa.array([1, 2])}))
    assert batch.schema.types == [pa.duration("us"), pa.int64()]
    assert batch["c"].cast(pa.int64()).to_pylist() == [1, None]
    plain = SparkTypes.of(noted("long"), "a")
    assert plain.type_of(schema.field("c")) == pa.int64()


PLACE = {"type": "struct", "fields": [{"name": "g", "type": "geometry(4326)"}]}


@pytest.mark.parametrize(("kind", "function"), [
    ("variant", "to_json"), ("interval year to month", "CAST"),
    ({"type": "array", "elementType": "variant", "containsNull": True}, "to_json"),
    ({"type": "map", "keyType": "string", "valueType": PLACE}, "st_asbinary"),
], ids=str)  # fmt: skip
def test_refused(kind, function):
    """An unsupported type is refused at any depth, with the function that converts it."""
    with pytest.raises(InputError, match=r"column 'c' is .*, which events cannot hold") as caught:
        SparkTypes.of(noted(kind), "a")
    assert function in str(caught.value.hint)


@pytest.mark.parametrize("name", ["geoarrow.point", "parquet.variant"])
def test_extensions(name):
    """An Arrow extension that events cannot hold is refused by its name."""
    schema = pa.schema([pa.field("c", pa.binary(), metadata={"ARROW:extension:name": name})])
    with pytest.raises(InputError, match="which events cannot hold"):
        SparkTypes.of(schema, "a")


@pytest.mark.parametrize("note", [b"{", b"[]", b'{"fields": 1}', b'{"fields": [1]}', b'{"other": []}'])
def test_a_note_of_somebody_else(note):
    """Notes that are not Spark's are ignored."""
    assert SparkTypes.of(pa.schema([("c", pa.int64())], {ROW: note}), "a") == SparkTypes()
