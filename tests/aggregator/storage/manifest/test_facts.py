"""The bytes of `catalog.facts`: table and example of `spec/facts.md`, damage and forgeries."""

from __future__ import annotations

import json

import effort
import pyarrow as pa
import pytest
from damage import cuts, flips
from hypothesis import given
from hypothesis import strategies as st
from spec_document import ROOT, examples, struct_format, tables

from aggregator.errors import CorruptManifestError, UnknownVersionError
from aggregator.model import LAST, PartitionInfo, PipeInfo, SchemaInfo, Tombstone, TopicInfo
from aggregator.policy import Retention, Roll
from aggregator.storage.manifest import facts as facts_module
from aggregator.storage.manifest.backup import read_facts
from aggregator.storage.manifest.facts import (
    KINDS,
    MAX_BYTES,
    MAX_LINE_BYTES,
    Facts,
    Settings,
    decode_facts,
    decode_lines,
    encode_facts,
    line_of,
)
from esformat.parts import make_schema

TEXT = (ROOT / "spec" / "facts.md").read_text("utf-8")
COLUMNS = pa.schema([("kind", pa.string()), ("at", pa.timestamp("ns", "Europe/Paris")), ("tags", pa.list_(pa.int8()))])
FACTS = Facts(
    Settings("0123456789abcdef", unsynced=True),
    (
        TopicInfo(1, "t", "text", (), Roll(), Retention(), 1_700_000_000_000_000),
        TopicInfo(2, 'a "name"\n😀', "binary", ("kind",), Roll(rows=7, frame_bytes=8192), Retention(bytes=10), -1),
    ),
    (SchemaInfo(4, 2, 4, make_schema(COLUMNS, ["kind"], binary_keys=True)),),
    (PartitionInfo(3, 2, "0", 1 << 33, 1 << 34, ((0, 7), (9, 1 << 32))),),
    (Tombstone(3, b"\x00secret\xff", 12, 5), Tombstone(3, b"", 12, 5, -3, 0)),
    (PipeInfo("p", "pipe 1", "{a=1}", "msg PREFIX x", True, 9, 17, "{}"),),
)


def lines(facts):
    values = ([facts.settings], facts.topics, facts.schemas, facts.partitions, facts.tombstones, facts.pipes)
    return b"".join(line_of(kind, each) for kind, mine in zip(KINDS, values, strict=True) for each in mine)


def test_fields():
    """The code's fields have the order, types, offsets and limits of the specification's table."""
    assert facts_module._HEADER.format == struct_format("facts file", TEXT)
    at = 0
    for row in tables(TEXT)["facts file"]:
        assert int(row["offset"]) == at
        at += int(row["size"])
    assert set(tables(TEXT)) == {"facts file"}
    assert MAX_BYTES == 2**26
    assert MAX_LINE_BYTES == 2**23


def test_kinds():
    """Each kind of line has the members that the specification names."""
    rows = [line.split("|")[1:4] for line in TEXT.splitlines() if line.startswith("| `")]
    told = {kind.strip(" `"): members for kind, members, _ in rows}
    assert set(told) == set(KINDS)
    for line in lines(FACTS).splitlines():
        ((kind, value),) = json.loads(line).items()
        assert {name for name in value if f"`{name}`" not in told[kind]} == set()


def test_file_bytes():
    """The example encodes to the specification's bytes and decodes from them."""
    ((name, said, stored),) = examples(TEXT)
    assert name == "facts file"
    settings_of = Settings(said["identity"])
    assert encode_facts(lines(Facts(settings_of)), int(said["change"])) == stored
    found, change = decode_lines(stored)
    assert (decode_facts(found), change) == (Facts(settings_of), int(said["change"]))


def test_there_and_back():
    """All facts decode to themselves."""
    found, change = decode_lines(encode_facts(lines(FACTS), 1 << 40))
    assert change == 1 << 40
    assert decode_facts(found) == FACTS


def test_later_versions():
    """Unknown kinds of lines are skipped; another major version is refused."""
    later = lines(FACTS) + b'{"replica": {"where": "s3://x"}}\n'
    assert decode_facts(later).passed_over == 1
    stored = bytearray(encode_facts(lines(FACTS), 1))
    stored[8] = 2
    with pytest.raises(UnknownVersionError, match="version 2"):
        decode_lines(bytes(stored))


def test_damage_is_refused():
    """Every cut and every flipped bit is refused."""
    stored = encode_facts(line_of("catalog", FACTS.settings), 1)
    for damaged in (*cuts(stored), *flips(stored)):
        with pytest.raises((CorruptManifestError, UnknownVersionError)):
            decode_lines(damaged)


WRONG = [None, True, 0, -1, 1.5, 2**31, 2**63, 10**40, "", "x", "\ud800", [], [1], {}, {"a": 1}, "1" * 2000]


@pytest.mark.parametrize("kind", KINDS)
def test_forged_members(kind):
    """A missing member, or one of another type or out of bounds, raises only CorruptManifestError or is a possible
    value. Accepted facts can be encoded again.
    """
    whole = [json.loads(line) for line in lines(FACTS).splitlines()]
    place = next(number for number, line in enumerate(whole) if kind in line)
    refused = 0
    for member in whole[place][kind]:
        missing = {name: value for name, value in whole[place][kind].items() if name != member}
        for forged in [missing, *(whole[place][kind] | {member: wrong} for wrong in WRONG)]:
            changed = [*whole[:place], {kind: forged}, *whole[place + 1 :]]
            try:
                found = decode_facts(b"".join(json.dumps(line).encode() + b"\n" for line in changed))
            except CorruptManifestError:
                refused += 1
            else:
                assert decode_facts(lines(found)) == found
    assert refused > 8 * len(whole[place][kind]) - 20


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "type", "list", "a"]), inner),
    max_leaves=8,
)


@effort.examples(100)
@given(kind=st.sampled_from(KINDS), member=st.integers(0, 9), value=JSON)
def test_forgeries(kind, member, value):
    """Any JSON as the value of any member is accepted or raises CorruptManifestError."""
    whole = [json.loads(line) for line in lines(FACTS).splitlines()]
    line = next(line for line in whole if kind in line)
    line[kind][list(line[kind])[member % len(line[kind])]] = value
    try:
        found = decode_facts(b"".join(json.dumps(each).encode() + b"\n" for each in whole))
    except CorruptManifestError:
        return
    assert decode_facts(lines(found)) == found


@pytest.mark.parametrize(
    "extra",
    [
        b'{"topic": {"number": 9}}',
        b"[" * 100_000 + b"]" * 100_000 + b"\n",
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"\n",
        b"1" * 10_000 + b"\n",
        b"\xff\n",
        b"\n",
        b"[]\n",
        b"{}\n",
        b'{"topic": {}, "pipe": {}}\n',
        b'{"topic": 1}\n',
        b"x" * (MAX_LINE_BYTES + 1) + b"\n",
        line_of("catalog", FACTS.settings),
        line_of("pipe", FACTS.pipes[0]),
        line_of("tombstone", FACTS.tombstones[0]),
    ],
    ids=range(14),
)
def test_lines_that_are_none(extra):
    """Lines that are unterminated, too long, too deep, not objects, or repeated are refused."""
    with pytest.raises(CorruptManifestError):
        decode_facts(lines(FACTS) + extra)


def test_a_file_that_is_too_large(tmp_path):
    """A file that is too large is not read whole."""
    path = tmp_path / "catalog.facts"
    with path.open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(CorruptManifestError, match="more than"):
        read_facts(path)


def test_changes_beyond_count():
    """A number of changes from which no manifest could count on is refused."""
    assert decode_lines(encode_facts(b"", 2**62))[1] == 2**62
    with pytest.raises(CorruptManifestError, match="changes"):
        decode_lines(encode_facts(b"", 2**62 + 1))


def test_what_is_hidden_by_an_erasure():
    """The last time that an erasure hides is the one in the specification."""
    line = line_of("tombstone", Tombstone(1, b"a", 5, 0))
    assert json.loads(line)["tombstone"]["time_us"] == LAST == 2**63 - 1
