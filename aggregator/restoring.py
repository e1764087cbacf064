"""Facts brought back into a manifest that has lost them, as far as segments and log do not contradict them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from aggregator.facts import Facts
from aggregator.manifest import IDENTITY, RUN, Edit, Manifest, PipeRows
from aggregator.model import PartitionInfo, SchemaInfo, Tombstone, TopicInfo
from aggregator.state import CatalogState

_SHOWN = 5


@dataclass(slots=True)
class Restored:
    """What was brought back. pipes: how many. hidden: spaces of topics that are being erased or truncated."""

    pipes: int = 0
    hidden: int = 0
    contradictions: list[str] = field(default_factory=list)

    @property
    def missing(self) -> tuple[str, ...]:
        """What could not be brought back, in a sentence."""
        if not self.contradictions:
            return ()
        shown = ", ".join(self.contradictions[:_SHOWN]) + (", …" if len(self.contradictions) > _SHOWN else "")
        return (
            f"segments and log contradict the facts ({shown}): those were left out, and so were pipes and the identity "
            "of the catalog; positions of before are refused",
        )


def restore(facts: Facts, change: int, state: CatalogState, manifest: Manifest, logged: Mapping[int, int]) -> Restored:
    """Bring back what is missing. The state has what segments and log tell; it and the manifest are both changed.

    change: of the manifest, when the facts were noted. logged: for each partition the record index after the last event
    that the log holds. Raises ManifestFailedError.
    """
    work = _Restoring(facts, state, manifest)
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

    def topic(self, topic: TopicInfo) -> bool:
        """What the facts say of policies is the newest: they are noted before a change is acknowledged."""
        known = self._state.topics.get(topic.name)
        if known is None:
            if any(each.info.number == topic.number for each in self._state.topics.values()):
                return False
            self._state.add_topic(self._manifest.add_topic(topic))
            return True
        mine = (topic.number, topic.keys, topic.indexes, topic.created_us)
        if mine != (known.info.number, known.info.keys, known.info.indexes, known.info.created_us):
            return False
        if topic != known.info:
            self._manifest.set_policy(topic.number, topic.roll, topic.retention)
            self._state.add_topic(topic)
        return True

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

    def indexes(self, partitions: list[PartitionInfo], logged: Mapping[int, int]) -> None:
        """Let no record index be given twice. What says how the last run ended is gone: it is taken for interrupted."""
        settings = self._facts.settings
        run = json.loads(self._manifest.get(RUN) or "{}")
        free = {int(number): int(end) for number, end in run.get("first_free", {}).items()}
        for number, end in settings.first_free.items():
            free[number] = max(end, free.get(number, 0))
        for noted in partitions:
            topic, known = self._state.partitions[noted.number]
            if noted.sealed_index <= known.sealed_index:
                continue
            if logged.get(noted.number, 0) <= known.sealed_index:
                sealed = {noted.number: noted.sealed_index}
                change = self._manifest.apply(Edit(sealed=sealed))
                self._state.change_segments(topic, change, (), (), sealed)
                known.next_index = max(known.next_index, noted.sealed_index)
            else:  # events that the log holds are no longer in a segment: they count
                free[noted.number] = max(noted.sealed_index, free.get(noted.number, 0))
        first_free = {str(number): end for number, end in free.items()}
        interrupted = {"durability": settings.durability, "closed": False, "first_free": first_free}
        self._manifest.put(RUN, json.dumps(interrupted))

    def tombstones(self, partitions: set[int]) -> None:
        """Hide again what was hidden in these partitions, and in no other that has the number of one."""
        stones = [each for each in self._facts.tombstones if each.partition in partitions and self._can_be(each)]
        if stones:
            self._manifest.apply(Edit(tombstones=stones))
            self._state.add_tombstones(stones)
        self.done.hidden = len({(self._state.partitions[each.partition][0].info.number, each.space) for each in stones})

    def _can_be(self, stone: Tombstone) -> bool:
        """Whether the topic has such keys."""
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
                rows.keep_progress(pipe.identity, pipe.sequence, pipe.progress)
        self.done.pipes = len(self._facts.pipes)
