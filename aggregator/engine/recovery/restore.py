"""Restore a manifest from its backup, as far as segments and log do not contradict it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from aggregator.model import PartitionInfo, SchemaInfo, Tombstone, TopicInfo
from aggregator.storage.manifest import IDENTITY, STORE, UNSYNCED, Edit, Manifest, PipeRows, StoredRows
from aggregator.storage.manifest.facts import Facts
from aggregator.storage.state.state import CatalogState, Topic

_SHOWN = 5
_UNKNOWN = 1 << 22
"""Number of record indexes that a run without syncs may have reserved since the backup: those of about a second."""


@dataclass(slots=True)
class Restored:
    """What was restored. pipes: number of pipes. hidden: number of spaces that are being erased or truncated."""

    pipes: int = 0
    hidden: int = 0
    contradictions: list[str] = field(default_factory=list)

    @property
    def missing(self) -> tuple[str, ...]:
        """What could not be restored, in a sentence."""
        if not self.contradictions:
            return ()
        shown = ", ".join(self.contradictions[:_SHOWN]) + (", …" if len(self.contradictions) > _SHOWN else "")
        return (
            f"segments and log contradict the facts ({shown}): these, the pipes and the identity "
            "of the catalog were left out; positions from before are refused",
        )


def restore(
    facts: Facts, change: int, state: CatalogState, manifest: Manifest, logged: Mapping[int, tuple[int, int]]
) -> Restored:
    """Restore what is missing. The state has what segments and log record; both it and the manifest are changed.

    facts: from the manifest backup. change: the manifest's change when the backup was written. logged: for each
    partition the record index of its first event in the log, and the one after its last. Raises ManifestFailedError.
    """
    work = _Restoring(facts, state, manifest)
    work.names()
    topics = {topic.number for topic in facts.topics if work.takes(f"topic {topic.name!r}", work.topic(topic))}
    for schema in facts.schemas:
        work.takes(f"schema {schema.number}", schema.topic in topics and work.schema(schema))
    partitions = [
        partition
        for partition in facts.partitions
        if work.takes(f"partition {partition.name!r}", partition.topic in topics and work.partition(partition))
    ]
    work.indexes(partitions, logged)
    work.tombstones({partition.number for partition in partitions})
    if not work.done.contradictions:
        manifest.put(IDENTITY, facts.settings.identity)
        if facts.settings.store is not None and manifest.get(STORE) is None:
            StoredRows(manifest).set_settings(facts.settings.store)
        work.pipes()
    manifest.count_from(change + 1)
    return work.done


class _Restoring:
    def __init__(self, facts: Facts, state: CatalogState, manifest: Manifest) -> None:
        self._facts, self._state, self._manifest = facts, state, manifest
        self.done = Restored()

    def takes(self, what: str, agrees: bool) -> bool:
        if not agrees:
            self.done.contradictions.append(what)
        return agrees

    def names(self) -> None:
        """Give topics the names in the backup: segments and log have earlier ones."""
        known = {topic.info.number: topic.info for topic in self._state.topics.values()}
        noted = {topic.number: topic for topic in self._facts.topics if topic.number in known and not topic.deleted}
        agreed = {n: topic for n, topic in noted.items() if topic.created_us == known[n].created_us}
        taken = {info.name for number, info in known.items() if number not in agreed}
        names = {n: t.name for n, t in agreed.items() if t.name != known[n].name and t.name not in taken}
        if names:
            self._manifest.rename_topics(names)
        for number, name in names.items():
            self._state.add_topic(replace(known[number], name=name))

    def topic(self, topic: TopicInfo) -> bool:
        """Restore a topic; False if the state contradicts it. The backup has the newest policies, as it is written
        before a change is acknowledged.
        """
        if not self._state.has_topic(topic.number):
            if topic.name in self._state.topics:
                return False
            self._state.add_topic(self._manifest.add_topic(topic))
            return True
        known = self._state.topic_of(topic.number)
        if (topic.keys, topic.created_us) != (known.info.keys, known.info.created_us):
            return False
        if topic.deleted:
            self._delete(known)
            return True
        if (topic.name, topic.indexes) != (known.info.name, known.info.indexes):
            return False
        if topic != known.info:
            self._manifest.set_policy(topic.number, topic.roll, topic.retention)
            self._state.add_topic(topic)
        return True

    def _delete(self, topic: Topic) -> None:
        if not topic.info.deleted:
            sealed = {partition.number: partition.next_index for partition in topic.partitions.values()}
            self._state.delete_topic(topic, self._manifest.delete_topic(topic.info.number, sealed))

    def schema(self, schema: SchemaInfo) -> bool:
        topic = self._state.topic_of(schema.topic)
        known = topic.schemas.get(schema.number)
        if known is not None:
            return known == schema
        if any(schema.number in each.schemas for each in self._state.topics.values()):
            return False
        if schema.schema.binary_keys != topic.binary_keys:
            return False
        self._state.add_schema(self._manifest.add_schema(schema))
        return True

    def partition(self, partition: PartitionInfo) -> bool:
        topic = self._state.topic_of(partition.topic)
        known = topic.partitions.get(partition.name)
        if known is not None or partition.number in self._state.partitions:
            return known is not None and known.number == partition.number
        self._state.add_partition(self._manifest.add_partition(topic.info.number, partition.name, partition.number))
        return True

    def indexes(self, partitions: list[PartitionInfo], logged: Mapping[int, tuple[int, int]]) -> None:
        """Ensure that no record index is assigned twice: opening skips those that are reserved here and unused."""
        reserved: dict[int, int] = {}
        for noted in partitions:
            topic, known = self._state.partitions[noted.number]
            reserved[noted.number] = noted.reserved_index
            if noted.holes and noted.holes != known.holes:
                self._manifest.add_holes(noted.number, noted.holes)
                known.skip_indexes(noted.holes)
            if noted.sealed_index <= known.sealed_index:
                continue
            first, end = logged.get(noted.number, (0, 0))
            if end > known.sealed_index:  # the log has events that are no longer in a segment: they count
                reserved[noted.number] = max(noted.sealed_index, noted.reserved_index)
            sealed = {noted.number: noted.sealed_index if end <= known.sealed_index else min(first, noted.sealed_index)}
            if sealed[noted.number] > known.sealed_index:
                change = self._manifest.apply(Edit(sealed=sealed))
                self._state.change_segments(topic, change, (), (), sealed)
                known.next_index = max(known.next_index, sealed[noted.number])
        if self._facts.settings.unsynced:
            for number, (_, known) in self._state.partitions.items():
                given = max(known.next_index, logged.get(number, (0, 0))[1], reserved.get(number, 0))
                reserved[number] = given + _UNKNOWN if given else 0
        self._manifest.reserve(reserved)
        for number, end in reserved.items():
            known = self._state.partitions[number][1]
            known.reserved_index = max(known.reserved_index, end)
        self._manifest.put(UNSYNCED, str(int(self._facts.settings.unsynced)))

    def tombstones(self, partitions: set[int]) -> None:
        """Hide again what was hidden in these partitions, and not in others with the same numbers."""
        stones = [each for each in self._facts.tombstones if each.partition in partitions and self._can_be(each)]
        if stones:
            self._manifest.apply(Edit(tombstones=stones))
            self._state.add_tombstones(stones)
        self.done.hidden = len({(self._state.partitions[each.partition][0].info.number, each.space) for each in stones})

    def _can_be(self, stone: Tombstone) -> bool:
        """Whether the topic can have such a key."""
        if self._state.partitions[stone.partition][0].binary_keys:
            return True
        try:
            stone.space.decode()
        except UnicodeDecodeError:
            return False
        return True

    def pipes(self) -> None:
        rows = PipeRows(self._manifest)
        known = {pipe.name: pipe for pipe in rows.all()}
        noted = {pipe.identity for pipe in self._facts.pipes}
        for pipe in known.values():
            if pipe.identity not in noted:  # it was deleted
                rows.remove(pipe.identity)
        for pipe in self._facts.pipes:
            mine = known.get(pipe.name)
            if mine is None or mine.identity != pipe.identity:
                rows.add(pipe)
            elif pipe.sequence >= mine.sequence:
                rows.keep_progress([(pipe.identity, pipe.sequence, pipe.progress)])
        self.done.pipes = len(self._facts.pipes)
