"""The tables of the specification agree with the constants of the code and of the independent reader."""

from __future__ import annotations

import re
import struct

import make_damaged
import pyarrow as pa
import pytest
import read_esdb
from spec_document import TEXT, fixed_fields, numbers, struct_format, tables

from esformat.core import keys
from esformat.core import templates as core_templates
from esformat.format import bloom_filter as space_filter
from esformat.format import (
    codec,
    data_block,
    dictionary,
    footer,
    layout,
    node,
    packing,
    postings,
    template_node,
    templates,
)
from esformat.format import directory as directory_module
from esformat.format import frame as block
from esformat.format.node import shape_of
from esformat.format.schema import type_from_json, type_to_json
from esformat.tools.verification import data as verify_data
from esformat.tools.verification import dictionaries as verify_dictionaries
from esformat.tools.verification import opening as verify_opening
from esformat.tools.verification import parts as verify_parts

STRUCTURES = [
    ("header", layout._HEADER),
    ("handle", layout._HANDLE),
    ("trailer", layout._TRAILER),
    ("frame", block._FRAME),
    ("pack", packing._PACK),
    ("node", node.NODE),
    ("data", data_block._HEAD),
    ("data", verify_data._HEAD),
    ("chunk", data_block._ENTRY),
    ("chunk", verify_data._ENTRY),
    ("dictionary", dictionary._ENTRY),
    ("dictionary", verify_dictionaries._ENTRY),
    ("templates", templates._HEAD),
    ("templates", verify_parts._TEMPLATES),
    ("footer", footer._ENTRY),
]


@pytest.mark.parametrize(("name", "code"), STRUCTURES)
def test_fields(name, code):
    """The code has the fields of the table: the same types in the same order, at the stated offsets."""
    assert code.format == struct_format(name)
    at = 0
    for row in fixed_fields(name):
        assert int(row["offset"]) == at, f"{name}: {row['field']}"
        at += int(row["size"])
    assert at == code.size


def test_every_table_is_compared():
    """Every table is tested here."""
    compared = {name for name, _ in STRUCTURES} | {"kinds", "codecs", "shapes", "forms", "limits", "rules", "values"}
    compared |= {"variables", "dates"}
    assert set(tables()) == compared


def test_footer_entries_of_verify():
    """`verify` reads footer entries with the fields of their handles inline."""
    taken_apart = struct_format("footer").replace("16s", struct_format("handle")[1:])
    assert verify_opening._ENTRY.format == taken_apart


def test_frame_ends_in_checksum():
    """The last field of the frame is the checksum, after what it covers."""
    last = tables()["frame"][-1]
    assert (last["offset"], last["type"]) == ("…", "u64")
    assert struct.calcsize(block._CHECK.format) == int(last["size"])
    assert block.FRAME_BYTES == block.FRAME_HEADER_BYTES + 8 == read_esdb.FRAME_SIZE


def test_sizes():
    """Header, trailer and handle have the sizes that their tables add up to."""
    assert layout.HEADER_BYTES == read_esdb.HEADER_SIZE == make_damaged.HEADER_BYTES == 16
    assert layout.TRAILER_BYTES == read_esdb.TRAILER_SIZE == make_damaged.TRAILER_BYTES == 48
    assert layout._HANDLE.size == 16


def test_magic():
    """The magic numbers are those in the tables of header, trailer and frame."""
    in_header = bytes.fromhex(fixed_fields("header")[0]["rule"])
    assert in_header == layout.HEADER_MAGIC == read_esdb.MAGIC
    in_trailer = re.search(r"`([0-9a-f ]+)`", next(line for line in TEXT.splitlines() if line.startswith("| 40 | 8 |")))
    assert in_trailer is not None
    assert bytes.fromhex(in_trailer[1]) == layout.TRAILER_MAGIC == layout.HEADER_MAGIC[::-1]
    assert tables()["frame"][0]["rule"].encode() == layout.BLOCK_MAGIC


def test_versions():
    """The code writes the version of the specification."""
    assert f"version {layout.MAJOR_VERSION}.{layout.MINOR_VERSION}" in TEXT.splitlines()[0]
    rules = {row["field"]: row["rule"] for name in ("header", "trailer") for row in tables()[name]}
    assert rules["major version"] == str(layout.MAJOR_VERSION)


def test_kinds():
    """Block kinds have the numbers of the table."""
    kinds = numbers("kinds", "kind", "name")
    assert kinds == {kind.name: kind.value for kind in layout.BlockKind}
    assert kinds == {name: getattr(read_esdb, name) for name in kinds} == {n: getattr(make_damaged, n) for n in kinds}


def test_kinds_in_the_footer():
    """`verify` accepts in the footer exactly the kinds that are found through it."""
    through_footer = {row["name"] for row in tables()["kinds"] if row["found through"] == "footer"}
    assert through_footer == {kind.name for kind in verify_opening.NAMED_KINDS}


def test_codecs():
    """Codecs have the numbers of the table."""
    assert numbers("codecs", "id", "name") == {c.name: c.value for c in codec.Codec}
    assert numbers("codecs", "id", "name") == {name: getattr(read_esdb, name) for name in ("NONE", "ZSTD", "LZ4")}


def test_shapes():
    """Node shapes have the numbers of the table."""
    shapes = numbers("shapes", "shape", "name")
    assert shapes == {shape.name: shape.value for shape in node.Shape}
    assert shapes == {name: getattr(read_esdb, name) for name in shapes}


def test_kinds_of_variables():
    """Kinds of variables have the numbers of the table, and the date forms are as many as in the table."""
    kinds = numbers("variables", "kind", "name")
    assert kinds == {kind.name: kind.value for kind in templates.Kind}
    assert kinds == {name: getattr(read_esdb, name) for name in kinds}
    assert kinds == {name: getattr(core_templates, name) for name in kinds}
    assert tables()["dates"][-1]["form"] == str(core_templates.DATE_FORMS - 1)
    assert len(read_esdb.DATE_FORMS) == core_templates.DATE_FORMS


def test_forms():
    """Forms of posting lists have the numbers of the table."""
    forms = numbers("forms", "form", "name")
    assert forms == {name: getattr(postings, name) for name in forms}


def test_limits():
    """Every limit is the same in the table and the code."""
    most = {row["what"]: row["most"].replace(",", "") for row in tables()["limits"]}
    code = {
        "stored bytes of a block": layout.MAX_BLOCK_BYTES,
        "uncompressed bytes of a frame, so of one event's value": layout.MAX_FRAME_BYTES,
        "rows of a data block": layout.MAX_BLOCK_ROWS,
        "bytes of a space or grouping": layout.MAX_KEY_BYTES,
        "columns": layout.MAX_COLUMNS,
        "runs of a leaf, values of an index page or of a dictionary, chunks of a posting list": layout.MAX_PAGE_ENTRIES,
        "numbers of a list": postings.CHUNK_ENTRIES,
        "elements of all lists of a node": layout.MAX_ELEMENTS,
        "templates of a column; variables of its templates": core_templates.MOST_TEMPLATES,
        "slots of a template": core_templates.MOST_SLOTS,
        "slots that the rows of a `TEMPLATES` node show": template_node.MAX_NODE_SLOTS,
        "uncompressed bytes of a `TEMPLATES` node": template_node.MAX_NODE_BYTES,
        "bytes of a fixed-size binary, elements of a fixed-size list": (1 << 24) - 1,
    }
    assert most.pop("timestamps").startswith("any int64")
    assert {what: int(number) for what, number in most.items()} == code
    assert layout.MAX_FRAME_BYTES == read_esdb.MOST_BYTES
    assert layout.MAX_PAGE_ENTRIES == read_esdb.MOST_ENTRIES
    assert layout.MAX_ELEMENTS == read_esdb.MOST_ELEMENTS
    assert core_templates.MOST_TEMPLATES == read_esdb.MOST_TEMPLATES == read_esdb.MOST_VARIABLES
    assert core_templates.MOST_SLOTS == read_esdb.MOST_SLOTS
    assert template_node.MAX_NODE_SLOTS == read_esdb.MOST_SLOTS_SHOWN
    assert template_node.MAX_NODE_BYTES == read_esdb.MOST_NODE_BYTES


def test_numbers_in_the_text():
    """Numbers in the text equal those of the code."""
    assert f"{space_filter.PAGE_BUCKETS:,} buckets" in TEXT
    assert f"⌈{space_filter.BITS_PER_SPACE} · spaces / {8 * space_filter.BUCKET_BYTES}⌉" in TEXT
    assert " ".join(f"{salt:08x}" for salt in keys.SALTS) in TEXT
    assert keys.SALTS == read_esdb.SALTS
    assert f"up to {directory_module.LEAF_BLOCKS} data blocks" in TEXT
    assert f"at most {codec.MAX_WINDOW_BYTES >> 20} MiB" in TEXT
    assert f"1…{node.MAX_FRAME_ROWS}" in TEXT
    assert read_esdb.MOST_WINDOW == codec.MAX_WINDOW_BYTES


def test_values():
    """Every type is in the table of values, with the shape that both readers expect."""
    text = {name: row["shape"] for row in tables()["values"] for name in re.findall(r"[a-z_]+[0-9]*", row["types"])}
    for name, (shape, _, _) in read_esdb.SIMPLE_TYPES.items():
        largest = name.rstrip("0123456789") + "64"  # the last type in a row such as `int8` … `int64`
        assert name == "null" or (text.get(name) or text[largest]) == read_esdb_shape(shape), name
    kinds = {
        "time": pa.time32("s"), "timestamp": pa.timestamp("us"), "duration": pa.duration("ns"),
        "decimal": pa.decimal256(40), "fixed_size_binary": pa.binary(3), "list": pa.list_(pa.int8()),
        "large_list": pa.large_list(pa.int8()), "map": pa.map_(pa.string(), pa.int8()),
        "fixed_size_list": pa.list_(pa.int8(), 2), "struct": pa.struct([("a", pa.int8())]),
    }  # fmt: skip
    for name, kind in kinds.items():
        assert text[name] == shape_of(kind).name == read_esdb_shape(read_esdb.storage(type_to_json(kind))[0])


@pytest.mark.parametrize("around", ["list", "struct", "map"])
def test_nesting(around):
    """Both readers accept types within as many others as the text says, and no more; a map counts as one."""
    (most,) = re.findall(r"lies within at most (\d+) others", TEXT)
    kind = "int8"
    for depth in range(int(most) + 1):
        type_from_json(kind)
        read_esdb.check_type(kind)
        child = {"name": f"at {depth}", "type": kind, "nullable": True}
        parts = {"list": child, "struct": [child], "map": ["int8", child]}
        kind = {around: parts[around], "sorted": False}
    with pytest.raises(ValueError, match="too deep"):
        type_from_json(kind)
    with pytest.raises(read_esdb.Corrupt, match="too deep"):
        read_esdb.check_type(kind)


def read_esdb_shape(number):
    """The name of a shape in the independent reader."""
    names = ("NULL", "INTS", "WIDE", "CODES", "BYTES", "LIST", "FIXED", "STRUCT")
    return next(name for name in names if getattr(read_esdb, name) == number)
