"""Index of streams: spaces named by tag sets, selected by tag expressions.

The index is derived from the events. It contains the streams of all events below a mark, one record index for each
partition. Events above the mark are looked up in segments and unsealed events on each query. The manifest stores both
streams and marks, so that opening a catalog examines only newer events; without them it examines all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc

from aggregator import lql
from aggregator.model import RECORD_INDEX, SegmentInfo
from aggregator.storage.files.pins import Pin
from aggregator.storage.manifest import Manifest
from aggregator.storage.memtable.batch import MemtableBatch
from aggregator.storage.segments.pool import SegmentPool
from aggregator.storage.segments.table import Bounds
from aggregator.storage.state.state import CatalogState, Snapshot, Topic
from aggregator.storage.state.tombstones import Hidden, Tombstones, count_hidden, without_hidden

Snap = Callable[[Topic, str | None], tuple[Snapshot, Pin]]
KEPT_ANSWERS = 256
"""Tag expressions whose results are cached: for tails and pipes, which repeat the same queries."""
_BEGINNING, _BEHIND = b"{", b"|"  # every name of a stream begins with a brace


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream: its tags, its topic, and its name `str(tags)`, which is the space of its events."""

    topic: str
    tags: lql.TagSet
    name: str


class StreamIndex:
    """The streams of a catalog. Thread-safe."""

    def __init__(
        self,
        state: CatalogState,
        manifest: Manifest,
        pool: SegmentPool,
        catch_up: Callable[[], None],
        snap: Snap,
    ) -> None:
        """catch_up: brings the state up to date. snap: takes a snapshot of a topic."""
        self._state, self._manifest, self._pool = state, manifest, pool
        self._catch_up, self._snap = catch_up, snap
        self._lock = Lock()
        self._loaded = False
        self._table: lql.TagTable  # set when the streams are loaded
        self._topics: dict[int, str] = {}  # last known name of each topic, by number
        self._streams: list[Stream | None] = []  # by number in the table; None: removed
        self._numbers: dict[tuple[str, str], int] = {}
        self._answers: dict[tuple[lql.Source | None, str | None], dict[str, tuple[str, ...]]] = {}
        self._marks: dict[int, int] = {}
        self._kept_marks: dict[int, int] = {}
        self._added: dict[tuple[int, str], lql.TagSet] = {}  # not in the manifest yet
        self._removed: set[tuple[int, str]] = set()
        self._stones: dict[int, Tombstones] = {}  # the processed ones of each topic
        self._looked = (-1, -1)  # arrival count and change at the last check of all topics

    def select(self, source: lql.Source | None) -> list[Stream]:
        """The matching streams, in the order in which they were first seen; None: all.

        Raises LqlError, OSError, esformat.CorruptSegmentError.
        """
        with self._lock:
            self._refresh()
            known = len(self._streams)
        return self._matching(source, None, known)

    def names(self, source: lql.Source | None, *, without_tag: str | None = None) -> dict[str, tuple[str, ...]]:
        """The names of the matching streams without a given tag, by topic; same order and errors as `select`.

        Repeated queries are cheap while no stream is added or removed.
        """
        with self._lock:
            self._refresh()
            answers, known = self._answers, len(self._streams)
            answer = answers.get((source, without_tag))
        if answer is None:
            found: dict[str, list[str]] = {}
            for stream in self._matching(source, without_tag, known):
                found.setdefault(stream.topic, []).append(stream.name)
            answer = {topic: tuple(names) for topic, names in found.items()}
            with self._lock:  # if a stream was added or removed meanwhile, `answers` is no longer used
                if len(answers) >= KEPT_ANSWERS:
                    answers.clear()
                answers[source, without_tag] = answer
        return answer

    def _matching(self, source: lql.Source | None, without_tag: str | None, known: int) -> list[Stream]:
        """Matching streams among the first `known`. May take long, so it is called without the lock."""
        numbers = self._table.select(source, without_tag=without_tag).tolist()
        found = (self._streams[number] for number in numbers if number < known)
        return [stream for stream in found if stream is not None]

    def tag_names(self) -> list[str]:
        """All tag names, ascending."""
        with self._lock:
            self._refresh()
            return self._table.names()

    def keep(self, *, closing: bool = False) -> None:
        """Update the manifest if streams were added or removed, or segments were sealed. For writers."""
        with self._lock:
            if not self._loaded and self._all_are_kept():
                return
            self._refresh()
            sealed = self._state.sealed()
            behind = any(
                self._kept_marks.get(number, 0) < min(index, self._marks.get(number, 0))
                for number, index in sealed.items()
            )
            if self._added or self._removed or behind or (closing and self._marks != self._kept_marks):
                self._put()

    def forget_erased(self, topic: Topic) -> None:
        """Process a topic's erasures before its tombstones are deleted. For writers.

        Raises as `select`, and the errors of the manifest.
        """
        with self._lock:
            self._refresh([topic])
            if self._removed:
                self._put()

    def wait(self) -> None:
        """Wait until every snapshot taken here before the call is released."""
        with self._lock:
            pass

    def _put(self) -> None:
        """Store the changes in the manifest."""
        added = [(topic, name, tags.as_dict()) for (topic, name), tags in self._added.items()]
        self._manifest.keep_streams(added, self._removed, self._marks)
        if self._removed:
            self._manifest.scrub()  # the names of erased streams are overwritten
        self._added, self._removed, self._kept_marks = {}, set(), dict(self._marks)

    # ------------------------------------------------------------ refreshing

    def _all_are_kept(self) -> bool:
        """Whether the manifest has the streams of all events, so that they need not be loaded."""
        marks = self._manifest.stream_marks()
        with self._state.view_lock:
            return not any(_has_more(topic, marks) or topic.tombstones for topic in self._state.topics.values())

    def _has_news(self, topic: Topic) -> bool:
        """Whether a topic has events above the marks, or unprocessed tombstones. Called under the view lock."""
        seen, stones = self._stones.get(topic.info.number, {}), topic.tombstones
        return (stones is not seen and stones != seen) or _has_more(topic, self._marks)

    def _refresh(self, topics: Iterable[Topic] | None = None) -> None:
        """Process new events and tombstones, in some topics or in all."""
        if not self._loaded:
            self._load()
        self._catch_up()
        with self._state.view_lock:  # before names: a topic renamed now is checked next time
            now = (self._state.arrivals.count, self._state.change)
        self._follow_names()
        if topics is not None:
            self._look_at(topics)
        elif now != self._looked:
            with self._state.view_lock:
                news = [topic for topic in self._state.topics.values() if self._has_news(topic)]
            self._look_at(news)
            self._looked = now

    def _look_at(self, topics: Iterable[Topic]) -> None:
        """Process what is above the marks in some topics."""
        for topic in topics:
            if topic.binary_keys:
                continue
            snapshot, pin = self._snap(topic, None)
            try:
                self._find_streams(snapshot)
            finally:
                pin.release()

    def _load(self) -> None:
        streams, marks = self._manifest.streams()
        self._topics = {topic.info.number: topic.info.name for topic in list(self._state.topics.values())}
        # a reader may not know the writer's newest partitions yet; it examines them completely once it does
        self._marks = {number: mark for number, mark in marks.items() if number in self._state.partitions}
        self._kept_marks = dict(self._marks)
        found = (
            Stream(self._topics[number], lql.TagSet(tags), name)
            for number, name, tags in streams
            if number in self._topics
        )
        self._streams = list(found)
        self._table = lql.TagTable([stream.tags for stream in self._streams if stream is not None])
        self._numbers = self._numbered()
        self._loaded = True

    def _follow_names(self) -> None:
        """Rename streams of renamed topics, and forget those of deleted ones."""
        now = {topic.info.number: topic.info.name for topic in list(self._state.topics.values())}
        before, self._topics = self._topics, now
        moved = {name: now.get(number) for number, name in before.items() if now.get(number) != name}
        if not moved:
            return
        gone = before.keys() - now.keys()
        self._added = {key: tags for key, tags in self._added.items() if key[0] not in gone}
        self._removed = {key for key in self._removed if key[0] not in gone}
        for place, stream in enumerate(self._streams):
            if stream is not None and stream.topic in moved:
                name = moved[stream.topic]
                self._streams[place] = None if name is None else replace(stream, topic=name)
        self._numbers = self._numbered()
        self._answers = {}

    def _numbered(self) -> dict[tuple[str, str], int]:
        return {(each.topic, each.name): place for place, each in enumerate(self._streams) if each is not None}

    def _number(self, topic: str, tags: lql.TagSet, name: str) -> None:
        self._numbers[topic, name] = self._table.add(tags)
        self._streams.append(Stream(topic, tags, name))
        self._answers = {}

    def _find_streams(self, snapshot: Snapshot) -> None:
        """Process what is above the marks in a snapshot."""
        fresh: set[str] = set()
        marks: dict[int, int] = {}
        for partition, _ in snapshot.partitions:
            mark = self._marks.get(partition, 0)
            end = mark
            for info in snapshot.segments.select(Bounds(partition=partition, first_index=mark)):
                end = max(end, info.last_index + 1)
                if info.min_space < _BEHIND and info.max_space >= _BEGINNING:
                    fresh.update(str(name) for name in self._pool.get(info).spaces("{"))
            batches = list(_batches(snapshot, partition, mark))
            if batches:
                end = max(end, max(batch.end_index for batch in batches))
                fresh.update(_names([batch.events.column("space") for batch in batches]))
            if end > mark:
                marks[partition] = end
        known = self._numbers
        topic = snapshot.topic
        if self._topics.get(topic.number, topic.name) != topic.name:  # renamed or deleted in between
            return
        added = {
            name
            for name in sorted(fresh)
            if (topic.name, name) not in known and self._add(topic.number, topic.name, name)
        }
        self._marks.update(marks)
        self._forget_erased(snapshot, added)

    def _add(self, number: int, topic: str, name: str) -> bool:
        tags = tags_of(name)
        if tags is None:
            return False
        self._number(topic, tags, name)
        self._removed.discard((number, name))
        self._added[number, name] = tags
        return True

    def _forget_erased(self, snapshot: Snapshot, added: Iterable[str]) -> None:
        """Forget streams that were completely erased or truncated and have no newer events."""
        topic, fresh, stones = snapshot.topic, set(added), snapshot.tombstones
        seen = self._stones.get(topic.number, {})
        if stones is seen and not fresh:
            return
        self._stones.pop(topic.number, None)  # if this fails, all of them are checked again
        suspects = set()
        for key, cuts in stones.items():
            name = key[1].decode()
            if (topic.name, name) in self._numbers and (seen.get(key) != cuts or name in fresh):
                suspects.add(name)
        for name in suspects:
            if not self._is_there(snapshot, name):
                self._streams[self._numbers.pop((topic.name, name))] = None
                self._answers = {}
                self._added.pop((topic.number, name), None)
                self._removed.add((topic.number, name))
        self._stones[topic.number] = stones

    def _is_there(self, snapshot: Snapshot, name: str) -> bool:
        """Whether a snapshot has visible events of a space."""
        space = name.encode()
        for partition, _ in snapshot.partitions:
            cuts = snapshot.tombstones.get((partition, space), ())
            hidden = {space: cuts} if cuts else {}
            end = max((cut.end_index for cut in cuts if cut.erases), default=0)
            for batch in _batches(snapshot, partition, end):
                mine = pc.equal(batch.events.column("space"), name)
                if pc.any(mine).as_py():
                    columns = {key: batch.events.column(key) for key in ("space", "timestamp")}
                    table = pa.table(columns | {RECORD_INDEX: batch.record_indexes()}).filter(mine)
                    if len(without_hidden(table, hidden)):
                        return True
            bounds = Bounds(space=space, partition=partition, first_index=end)
            if any(self._holds(info, space, hidden) for info in snapshot.segments.select(bounds)):
                return True
        return False

    def _holds(self, info: SegmentInfo, space: bytes, hidden: Hidden) -> bool:
        segment = self._pool.get(info)
        found = segment.find(space)
        return found is not None and found.num_events > count_hidden(segment, info, hidden).get(space, 0)


def _has_more(topic: Topic, marks: Mapping[int, int]) -> bool:
    """Whether a topic that can have streams has a partition with events above its mark. Called under the view lock."""
    return not topic.binary_keys and any(
        part.visible_end > marks.get(part.number, 0) for part in topic.partitions.values()
    )


def _batches(snapshot: Snapshot, partition: int, first_index: int) -> Iterator[MemtableBatch]:
    """Unsealed batches of a partition that end after a record index, newest first."""
    for part in reversed(snapshot.memtables):
        if part.partition != partition:
            continue
        for batch in reversed(part.batches):
            if batch.end_index <= first_index:
                return
            yield batch


def _names(columns: list[pa.Array]) -> list[str]:
    """The distinct spaces that begin like a stream's name. If there are none, this costs 3 ns per event."""
    spaces = pa.chunked_array(columns)
    return [str(name) for name in pc.unique(spaces.filter(pc.starts_with(spaces, "{"))).to_pylist()]


def tags_of(name: str) -> lql.TagSet | None:
    """The tag set whose canonical text is `name`; None if it is not one."""
    try:
        tags = lql.TagSet.parse(name)
    except lql.LqlError:
        return None
    return tags if str(tags) == name else None
