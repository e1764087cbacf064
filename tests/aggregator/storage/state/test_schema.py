"""How a topic's schema changes when other columns arrive, decided by types alone."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from aggregator.model import SchemaInfo
from aggregator.storage.state.schema import choose_schema, fit, newest_of_families, topic_schema, union_schema
from esformat import InvalidEventError


def schema(*columns, indexes=()):
    return topic_schema(pa.schema([pa.field(*column) for column in columns]), indexes, binary_keys=False)


BASE = schema(("n", pa.int64()), ("s", pa.string()), ("data", pa.binary(), False))


@pytest.mark.parametrize(
    ("given", "same"),
    [
        ([("n", pa.int64()), ("s", pa.string())], True),
        ([("n", pa.int8())], True),
        ([("n", pa.null())], True),
        ([("s", pa.large_string())], False),
        ([("data", pa.string())], True),
        ([("n", pa.float64())], False),
        ([("n", pa.string())], False),
        ([("n", pa.timestamp("us"))], False),
        ([("s", pa.binary())], False),
        ([("s", pa.dictionary(pa.int32(), pa.string()))], True),
    ],
)
def test_fit(given, same):
    """A type fits if the schema can represent all its values without loss, otherwise not."""
    assert fit(BASE, schema(*given)) == (BASE if same else None)


def test_new_columns_are_added_at_the_end():
    """New columns come last and are nullable, since older events lack them; all-null columns are not added yet."""
    found = fit(
        BASE, schema(("new", pa.list_(pa.int8()), False), ("nothing", pa.null()), ("i", pa.string()), indexes=["i"])
    )
    assert found.arrow.names == [*BASE.arrow.names, "new", "i"]
    assert found.fields[-2].nullable
    assert found.indexes == ("i",)


def test_the_family_of_the_same_types_comes_first():
    """Integers stay in their family although a float family would accept them; others go to the newest that fits."""
    infos = [
        SchemaInfo(n, 1, n, schema(("n", kind))) for n, kind in enumerate((pa.int64(), pa.float64(), pa.bool_()), 1)
    ]
    for kind, number in ((pa.int64(), 1), (pa.int8(), 2), (pa.float64(), 2), (pa.null(), 3), (pa.string(), None)):
        arrow = pa.schema([("space", pa.string()), ("timestamp", pa.int64()), ("n", kind), ("new", pa.int8())])
        known, _ = choose_schema(infos, arrow, (), binary_keys=False)
        assert (None if known is None else known.number) == number, kind


def test_sparse_batches_share_families_of_few_columns():
    """Many sparse sets of columns share families of up to 64; each set finds its own again and widens none."""
    infos, given = [], []
    for number in range(1, 101):
        given.append(pa.schema([("data", pa.binary()), *((f"c{number}.{place}", pa.int64()) for place in range(3))]))
        _, wanted = choose_schema(infos, given[-1], (), binary_keys=False)
        infos.append(replace(wanted, number=number, family=wanted.family or number))
    families = newest_of_families(infos)
    assert len(families) == 5
    assert max(len(info.schema.arrow) for info in families) <= 64
    for columns in given:
        known, wanted = choose_schema(infos, columns, (), binary_keys=False)
        assert known == wanted
    wide = pa.schema([("data", pa.binary()), *((f"w{place}", pa.int64()) for place in range(40))])
    known, wanted = choose_schema(infos, wide, (), binary_keys=False)
    assert known is not None, "a batch with a quarter of the columns may widen"
    assert len(wanted.schema.arrow) > 64


def test_columns_that_must_be_there():
    """A batch without a required column does not fit, except for `data`."""
    strict = schema(("must", pa.int8(), False))
    assert fit(strict, schema(("other", pa.int8()))) is None


def test_reserved_and_indexed_columns():
    """The aggregator's own column names are refused; an index without a column has no type yet."""
    for name in ("record_index", "partition"):
        with pytest.raises(InvalidEventError, match=name):
            schema((name, pa.int64()))
    assert schema(("n", pa.int8()), indexes=["type"]).arrow.field("type").type == pa.null()


@pytest.mark.parametrize("name", ["type", "other"])
def test_columns_of_the_same_name(name):
    """They are refused, also if the name is that of an index."""
    with pytest.raises(InvalidEventError, match=f"must be unique, found twice: {name}"):
        schema((name, pa.string()), (name, pa.string()), indexes=["type"])


def test_union():
    """The union has all columns of all families with the widest type, or text if no type fits."""
    infos = [
        SchemaInfo(1, 1, 1, schema(("a", pa.int8(), False), ("b", pa.int64()), ("c", pa.int64()))),
        SchemaInfo(2, 1, 1, schema(("a", pa.int8(), False), ("b", pa.int64()), ("c", pa.int64()), ("d", pa.bool_()))),
        SchemaInfo(3, 1, 3, schema(("b", pa.float64()), ("c", pa.string()))),
    ]
    assert [info.number for info in newest_of_families(infos)] == [3, 2]
    union = union_schema(infos, binary_keys=False).arrow
    assert {name: union.field(name).type for name in "abcd"} == {
        "a": pa.int8(), "b": pa.float64(), "c": pa.string(), "d": pa.bool_(),
    }  # fmt: skip
    assert union.field("a").nullable
