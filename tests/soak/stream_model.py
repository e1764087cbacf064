"""What a catalog of streams must contain according to the notes of `stream_workload`: simple lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aggregator
from aggregator.lql import TagSet
from tests.soak.stream_workload import name_of, wait_level


@dataclass(frozen=True)
class Record:
    """A written record. Times are unique."""

    ts: int
    name: str
    msg: str
    n: str
    topic: str
    tags: dict[str, str]

    @property
    def stream(self) -> str:
        return str(TagSet.of(self.tags))


SOURCES: dict[str, Callable[[Record], bool]] = {
    "": lambda record: True,
    "app = web": lambda record: record.tags["app"] == "web",
    "{zone=eu}": lambda record: record.tags["zone"] == "eu",
    "app LIKE 'i*' OR zone = us": lambda record: record.tags["app"] == "it's" or record.tags["zone"] == "us",
}
WHERES: dict[str, Callable[[Record], bool]] = {
    "": lambda record: True,
    "msg CONTAINS .3": lambda record: ".3" in record.msg,
    "fields:n = 1": lambda record: record.n == "1",
    "NOT msg SUFFIX xx": lambda record: not record.msg.endswith("xx"),
}
READERS: dict[str, Callable[[Record], bool]] = {
    "all": lambda record: True,
    "web": lambda record: record.tags["app"] == "web",
    "tail": lambda record: record.tags["app"] == "db",
}


@dataclass
class Pipe:
    """A pipe: what it selects, and the copies that must exist."""

    source: str
    where: str
    live: bool = True
    copies: dict[str, Record] = field(default_factory=dict)

    def offer(self, record: Record) -> None:
        if SOURCES[self.source](record) and WHERES[self.where](record):
            self.copies[record.name] = record


class Model:
    """Replay notes. `wrong` lists deviations of a catalog or a note."""

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.pipes: dict[str, Pipe] = {}
        self.seen: dict[str, list[str]] = {name: [] for name in READERS}
        self.positions: dict[str, str] = {}
        self.wrong: list[str] = []
        self.counts = dict.fromkeys(
            ("lives", "records", "answers", "pages", "pipes", "copies", "truncations", "removed", "unsure"), 0
        )
        self._open: list[Any] | None = None  # a step that may or may not have been done

    def play(self, note: list[Any]) -> None:
        """Apply the next note."""
        what, *facts = note
        if what == "open":
            self.counts["lives"] += 1
        elif what in ("write", "create", "delete", "truncate"):
            self._open = note
        elif what in ("written", "created", "deleted"):
            self._do(self._open)
        elif what == "truncated":
            self._open = None
            self._truncated(facts[0])
        elif what == "read":
            reader, position, names = facts
            self.seen[reader] += names
            self.positions[reader] = position
            self.counts["pages"] += 1
        elif what == "asked":
            self._asked(*facts)

    def _do(self, step: list[Any] | None) -> None:
        assert step is not None
        self._open = None
        if step[0] == "write":
            for record in _records_of(step):
                self.records[record.name] = record
                for pipe in self.pipes.values():
                    if pipe.live:
                        pipe.offer(record)
                self.counts["records"] += 1
        elif step[0] == "create":
            _, name, source, where, backfill = step
            pipe = self.pipes[name] = Pipe(source, where)
            for record in self.records.values() if backfill else ():
                pipe.offer(record)
            self.counts["pipes"] += 1
        else:
            self.pipes[step[1]].live = False

    def _truncated(self, rows: list[tuple[str, str, int, int]]) -> None:
        self.counts["truncations"] += 1
        for topic, stream, removed, left in rows:
            mine = self._streams().get((topic, stream), {})
            if len(mine) != removed + left:
                self.wrong.append(f"TRUNCATE saw {removed + left} records of {topic} {stream}, there are {len(mine)}")
            for record in sorted(mine.values(), key=lambda record: record.ts)[:removed]:
                del self._owner(stream)[record.name]
                self.counts["removed"] += 1

    def _owner(self, stream: str) -> dict[str, Record]:
        tags = TagSet.parse(stream)
        pipe = tags.get("logrange.pipe")
        return self.pipes[pipe].copies if pipe else self.records

    def _streams(self) -> dict[tuple[str, str], dict[str, Record]]:
        """The records that each stream must have."""
        found: dict[tuple[str, str], dict[str, Record]] = {}
        for record in self.records.values():
            found.setdefault((record.topic, record.stream), {})[record.name] = record
        for name, pipe in self.pipes.items():
            if pipe.copies:
                found["logs", str(TagSet.of({"logrange.pipe": name}))] = pipe.copies
        return found

    def _asked(self, asked: dict[str, Any], answer: list[str]) -> None:
        self.counts["answers"] += 1
        mine = [r for r in self.records.values() if SOURCES[asked["source"]](r) and WHERES[asked["where"]](r)]
        mine.sort(key=lambda record: record.ts, reverse=asked["newest"])
        end = None if asked["limit"] < 0 else asked["offset"] + asked["limit"]
        expected = [record.name for record in mine[asked["offset"] : end]]
        if answer != expected:
            self.wrong.append(f"{asked}: {len(answer)} records, not {len(expected)}: {_differs(answer, expected)}")

    # ------------------------------------------------------------ comparison with a catalog

    def compare(self, catalog: aggregator.Catalog) -> None:
        """Resolve what a kill left open, let pipes catch up, and compare everything."""
        self._settle(catalog)
        wait_level(catalog)
        stored = {topic: _stored(catalog, topic) for topic in catalog.topics()}
        found = {(topic, stream): names for topic, mine in stored.items() for stream, names in mine.items()}
        for key, records in self._streams().items():
            expected = [record.name for record in sorted(records.values(), key=lambda record: record.ts)]
            if found.pop(key, []) != expected:
                got = stored.get(key[0], {}).get(key[1], [])
                self.wrong.append(f"{key}: {len(got)} records, not {len(expected)}: {_differs(got, expected)}")
        self.wrong += [f"{key} is there, with {len(names)} records" for key, names in found.items()]
        self.counts["copies"] = sum(pipe["copied"] for pipe in catalog.stats()["pipes"])
        for text in ("SELECT COUNT", "SELECT COUNT FROM app = web"):
            counted = catalog.query(text).to_pylist()[0]["count"]
            listed = sum(len(names) for mine in stored.values() for s, names in mine.items() if _counts(text, s))
            if counted != listed:
                self.wrong.append(f"{text}: {counted}, listed {listed}")
        shown = {row["tags"]: row["records"] for row in catalog.query("SHOW PARTITIONS").to_pylist()}
        if sum(shown.values()) != sum(len(names) for mine in stored.values() for names in mine.values()):
            self.wrong.append(f"SHOW PARTITIONS: {shown}")
        self.wrong += [f"a problem: {problem}" for problem in catalog.problems()]
        for reader, names in self.seen.items():
            if len(set(names)) != len(names):
                self.wrong.append(f"reader {reader} got a record twice")

    def finish(self, catalog: aggregator.Catalog) -> None:
        """Let readers read to the end: they must have seen everything."""
        for reader, keep in READERS.items():
            text = {"all": "NOT logrange.pipe PREFIX p", "web": "app = web", "tail": "app = db"}[reader]
            rest = catalog.query(f"SELECT FROM {text} POSITION {self.positions.get(reader, 'HEAD')}")
            names = self.seen[reader] + [name_of(event) for event in rest]
            missed = {record.name for record in self.records.values() if keep(record)} - set(names)
            if missed or len(set(names)) != len(names):
                self.wrong.append(f"reader {reader} missed {sorted(missed)[:5]}, or got some twice")

    def _settle(self, catalog: aggregator.Catalog) -> None:
        step, self._open = self._open, None
        if step is None:
            return
        self.counts["unsure"] += 1
        if step[0] == "write":
            records = _records_of(step)
            there = set(_stored(catalog, records[0].topic).get(records[0].stream, []))
            found = sum(record.name in there for record in records)
            if found:
                self._do(step)
            if found not in (0, len(records)):
                self.wrong.append(f"write {step[1]}: {found} of {len(records)} records are there")
        elif step[0] == "truncate":
            for (topic, stream), records in self._streams().items():
                there = _stored(catalog, topic).get(stream, [])
                ordered = [record.name for record in sorted(records.values(), key=lambda record: record.ts)]
                if there != ordered[len(ordered) - len(there) :]:
                    self.wrong.append(f"truncated in the middle: {topic} {stream}")
                owner = self._owner(stream)
                for name in ordered[: len(ordered) - len(there)]:
                    del owner[name]
        else:
            names = catalog.query("SHOW PIPES")["name"].to_pylist()
            if (step[1] in names) == (step[0] == "create"):
                self._do(step)


def _records_of(step: list[Any]) -> list[Record]:
    _, _, topic, tags, records = step
    return [Record(r["ts"], r["msg"].split(" ")[0], r["msg"], r["n"], topic, tags) for r in records]


def _stored(catalog: aggregator.Catalog, topic: str) -> dict[str, list[str]]:
    """The names of a topic's records by stream, in time order."""
    found: dict[str, list[str]] = {}
    for event in catalog.topic(topic).scan():
        found.setdefault(event.space, []).append(name_of(event))
    return found


def _counts(text: str, stream: str) -> bool:
    return "FROM" not in text or TagSet.parse(stream).get("app") == "web"


def _differs(got: list[str], expected: list[str]) -> str:
    more, less = sorted(set(got) - set(expected))[:3], sorted(set(expected) - set(got))[:3]
    return f"too many {more}, missing {less}, {len(got) - len(set(got))} twice, in order: {got == sorted(got)}"
