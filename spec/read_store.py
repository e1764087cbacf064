"""An independent reader of a catalog in a store, written from `store.md`, `log.md` and `format.md` alone.

    python read_store.py DIRECTORY          every event, one JSON object per line: by partition and record index
    python read_store.py DIRECTORY --facts  a summary: the lease, the copy of the manifest, the objects that both need

DIRECTORY has the objects of the store under their names, as copied by the store's own tool (`aws s3 sync`). The reader
needs Python, `zstandard`, `xxhash`, `pyarrow` for the batches of the log, and `read_esdb.py` in the same folder. It
shares no code with `aggregator`. It raises `Corrupt` if a rule is broken, and `TooNew` if something is newer.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import struct
import sys
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import xxhash
import zstandard
from read_esdb import Corrupt, File, TooNew, line, require

Json = Any
Place = tuple[int, int]


class LogObject(NamedTuple):
    """An object of the log (§ 3): its head, and its pieces with their positions."""

    head: Json
    pieces: list[tuple[int, bytes]]


def read_object(stored: bytes, sequence: int) -> LogObject:
    """Read and verify an object of the log."""
    require(len(stored) >= 24, "an object of the log is cut short")
    magic, version, _, length = struct.unpack_from("<8sHHI", stored)
    require(magic == b"\x89ESS\r\n\x1a\n", "not an object of a log")
    if version != 1:
        raise TooNew(f"the log has version {version}")
    body, check = stored[:-8], struct.unpack("<Q", stored[-8:])[0]
    require(xxhash.xxh3_64_intdigest(body) == check, "the checksum of an object of the log does not match")
    head = json.loads(body[16 : 16 + length])
    require(head["sequence"] == sequence, f"object {sequence} says that it is {head['sequence']}")
    pieces, at = [], 16 + length
    require(sum(length for _, length, _ in head["pieces"]) <= 1 << 26, "the pieces of an object are too large")
    for position, length, size in head["pieces"]:
        frame = body[at : at + size]
        require(zstandard.frame_content_size(frame) == length, "a piece of an object has another length")
        pieces.append((position, zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)))
        at += size
    require(at == len(body), "the pieces of an object do not fill it")
    return LogObject(head, pieces)


class Store:
    """A catalog, read from objects in a directory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.identity = json.loads(self.read("catalog.json"))["identity"]
        self.lease = json.loads(self.read("lease.json"))
        self.announced = self.newest_copy()
        self.objects = list(self.log_from(self.announced["sequence"]))
        stored = self.read(self.announced["name"])
        self.manifest = sqlite3.connect(":memory:")
        self.manifest.deserialize(zstandard.ZstdDecompressor().decompress(stored))

    def read(self, name: str) -> bytes:
        """The bytes of an object."""
        return (self.folder / name).read_bytes()

    def log_from(self, sequence: int) -> Iterator[LogObject]:
        """Yield objects of the log until one is missing. Damaged ones are reported and skipped (§ 5)."""
        for number in count(sequence):
            path = self.folder / f"log/{number:020d}"
            if not path.exists():
                return
            try:
                yield read_object(path.read_bytes(), number)
            except Corrupt as error:
                print(f"{path.name}: {error}", file=sys.stderr)

    def newest_copy(self) -> Json:
        """The announcement of the newest intact copy of the manifest (§ 5)."""
        for name in sorted((path.name for path in (self.folder / "manifest").iterdir()), reverse=True):
            announced = [one.head["manifest"] for one in self.log_from(int(name[:20])) if one.head["manifest"]]
            for each in reversed(announced):
                path = self.folder / each["name"]
                if path.exists() and f"{xxhash.xxh3_64_intdigest(path.read_bytes()):016x}" == each["checksum"]:
                    return each
        raise Corrupt("no copy of the manifest is announced and whole")

    def rows(self, columns: str, table: str) -> list[Any]:
        """The rows of a table of the manifest (§ 4)."""
        with closing(self.manifest.execute(f"SELECT {columns} FROM {table}")) as found:  # noqa: S608  our own words
            return found.fetchall()

    # ── Events ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def segment_names(self) -> dict[str, int]:
        """The objects of the segments in the manifest copy, with their partitions."""
        found = {}
        for number, partition, checksum in self.rows("number, partition, checksum", "segments"):
            shown = f"{int.from_bytes(checksum, 'little'):016x}"
            found[f"segments/{number // 1000:06d}/{number:012d}-{shown}.esdb"] = partition
        return found

    def events(self) -> Iterator[Json]:
        """Yield every event, by the numbers of topics and partitions and by record index."""
        topics = {number: name for number, name, deleted in self.rows("number, name, deleted", "topics") if not deleted}
        partitions = {n: (topic, name, end) for n, topic, name, end in self.rows(
            "number, topic, name, sealed_index", "partitions")}  # fmt: skip
        hidden: dict[tuple[int, bytes], list[tuple[int, Place]]] = {}
        for partition, space, end, time, tie in self.rows(
            "partition, space, end_index, time_us, tie_index", "tombstones"
        ):
            hidden.setdefault((partition, space), []).append((end, (time, tie)))
        found: dict[int, list[Json]] = {}
        for name, partition in self.segment_names().items():
            stored = self.read(name)
            require(name.endswith(f"-{xxhash.xxh3_64_intdigest(stored):016x}.esdb"), f"{name} is another file")
            for event in File(stored).events():
                index = event["columns"].pop("record_index")
                found.setdefault(partition, []).append({"record_index": index, **event})
        for partition, topic, index, event in self.logged():
            if partition not in partitions:  # created after the copy of the manifest
                number = next((n for n, name in topics.items() if name == topic[0]), len(topics) + 1_000_000)
                topics.setdefault(number, topic[0])
                partitions[partition] = (number, topic[1], 0)
            if index >= partitions[partition][2]:
                found.setdefault(partition, []).append({"record_index": index, **event})
        for partition, (number, name, _) in sorted(partitions.items(), key=lambda each: (each[1][0], each[0])):
            for event in sorted(found.get(partition, ()), key=lambda each: each["record_index"]):
                space = event["space"]
                key = space.encode() if isinstance(space, str) else space
                place = (event["timestamp"], event["record_index"])
                cuts = hidden.get((partition, key), ())
                if number in topics and not any(place[1] < end and place < before for end, before in cuts):
                    yield {"topic": topics[number], "partition": name, **event}

    def log_bytes(self) -> list[tuple[int, bytes]]:
        """The contiguous ranges of the log after the copy's position, each with its position."""
        found: list[tuple[int, bytearray]] = []
        reached = self.announced["position"]
        for one in self.objects:
            for position, data in one.pieces:
                new = data[max(0, reached - position) :]
                start = max(position, reached)
                if not new:
                    continue
                if found and found[-1][0] + len(found[-1][1]) == start:
                    found[-1][1].extend(new)
                else:
                    found.append((start, bytearray(new)))
                reached = start + len(new)
        return [(position, bytes(data)) for position, data in found]

    def logged(self) -> Iterator[tuple[int, tuple[str, str], int, Json]]:
        """Yield the events of the log (`log.md`, § 2): partition, its topic and name, record index, event."""
        schemas = {number: json.loads(columns) for number, columns in self.rows("number, columns", "schemas")}
        topics = dict(self.rows("number, name", "topics"))
        names = {n: (topics[topic], name) for n, topic, name in self.rows("number, topic, name", "partitions")}
        for position, data in self.log_bytes():
            at = 0
            while at < len(data):
                head = data[at : at + 56]
                require(len(head) == 56 and head[:4] == b"LFRM", f"no frame at {position + at}")
                kind, length, _, _, partition, first, body_check, check = struct.unpack("<4xB3xIIQQQQQ", head)
                require(xxhash.xxh3_64_intdigest(head[:48], seed=position + at) == check, "a frame's head is damaged")
                body = data[at + 56 : at + 56 + length]
                require(xxhash.xxh3_64_intdigest(body) == body_check, f"the frame at {position + at} is damaged")
                at += 56 + -(-length // 8) * 8
                if kind == 2:
                    told = json.loads(body)
                    schemas[told["schema"]] = told["columns"]
                    names[partition] = (told["topic"], told["name"])
                else:
                    for row, event in enumerate(read_batch(body, schemas)):
                        yield partition, names[partition], first + row, event

    def facts(self) -> Json:
        """A summary of the store, with the objects that a restore needs."""
        return {
            "identity": self.identity, "epoch": self.lease["epoch"], "in_store": self.lease["in_store"],
            "released": self.lease["released"], "manifest": self.announced["name"], "change": self.announced["change"],
            "sequence": self.announced["sequence"], "objects": len(self.objects),
            "end": max((one.head["end"] for one in self.objects), default=0),
            "segments": sorted(self.segment_names()),
        }  # fmt: skip


# ── Batches of the log ──────────────────────────────────────────────────────────────────────────────────────────────


def read_batch(body: bytes, schemas: dict[int, Json]) -> Iterator[Json]:
    """Yield the events of a frame."""
    schema, producer = struct.unpack_from("<II", body)
    at = 24 + -(-(producer & ~(1 << 31)) // 8) * 8
    if producer >> 31:
        (note,) = struct.unpack_from("<I", body, at)
        at += -(-(4 + note) // 8) * 8
    told = schemas[schema]
    key = pa.string() if told["keys"] == "text" else pa.binary()
    fields = [pa.field("space", key), pa.field("grouping", key), pa.field("timestamp", pa.int64())]
    fields += [pa.field(each["name"], arrow_type(each["type"])) for each in told["columns"]]
    batch = pa.ipc.read_record_batch(pa.py_buffer(body[at:]), pa.schema(fields))
    columns = {name: column.to_pylist() for name, column in zip(batch.schema.names, batch.columns, strict=True)}
    keys = [columns.pop(name) for name in ("space", "grouping", "timestamp")]
    for row, (space, grouping, timestamp) in enumerate(zip(*keys, strict=True)):
        event = {"space": space, "grouping": grouping, "timestamp": timestamp}
        yield event | {"columns": {name: plain(values[row]) for name, values in columns.items()}}


_UNITS_32 = ("s", "ms")


def arrow_type(kind: Json) -> pa.DataType:
    """Convert a type (`format.md`, § 15) to Arrow's; times, dates and durations become whole numbers."""
    if isinstance(kind, str):
        whole = {"date32": "int32", "date64": "int64", "bool": "bool_"}
        return getattr(pa, whole.get(kind, kind))()
    match kind:
        case {"timestamp": _} | {"duration": _}:
            return pa.int64()
        case {"time": unit}:
            return pa.int32() if unit in _UNITS_32 else pa.int64()
        case {"decimal": [precision, scale], "bits": bits}:
            return (pa.decimal128 if bits == 128 else pa.decimal256)(precision, scale)
        case {"fixed_size_binary": size}:
            return pa.binary(size)
        case {"list": child}:
            return pa.list_(_child(child))
        case {"large_list": child}:
            return pa.large_list(_child(child))
        case {"fixed_size_list": child, "size": size}:
            return pa.list_(_child(child), size)
        case {"struct": children}:
            return pa.struct([_child(each) for each in children])
        case {"map": [key, item], "sorted": _}:
            return pa.map_(arrow_type(key), _child(item))
    raise TooNew(f"the type {kind!r}")


def _child(told: Json) -> pa.Field:
    return pa.field(told["name"], arrow_type(told["type"]), told["nullable"])


def plain(value: Any) -> Json:
    """Convert a value to the form of `read_esdb`."""
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value if value is None or isinstance(value, bool | int | float | str | bytes) else str(value)


def main() -> int:
    parser = argparse.ArgumentParser(description="Read a catalog in a store as the specification says.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--facts", action="store_true", help="a summary instead of events")
    arguments = parser.parse_args()
    try:
        store = Store(arguments.directory)
        if arguments.facts:
            print(line(store.facts()))
        else:
            for event in store.events():
                print(line(event))
    except (Corrupt, TooNew) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
