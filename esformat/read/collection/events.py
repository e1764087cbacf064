"""The events of a collection as a dataset reads them: file by file, skipping what cannot match."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy

import numpy as np
import pyarrow as pa

from esformat.format.arrays import TextForm
from esformat.format.data_block import I64
from esformat.format.schema import KEY_COLUMNS, ROW_COUNT_COLUMNS, EventSchema
from esformat.read.ask.bounds import Bounds, Domain, admits_nothing
from esformat.read.collection.members import Member, Members
from esformat.read.collection.schema import fit
from esformat.read.decode.matched_rows import RequiredTexts
from esformat.read.dictionaries import coded_columns, in_dictionaries
from esformat.read.newest import extreme_times
from esformat.read.selection import gives_exactly, select
from esformat.read.tally import tally


class CollectionEvents:
    """The events of several files, for `EventDataset`."""

    def __init__(self, members: Members, schema: EventSchema, *, dictionaries: bool) -> None:
        """dictionaries: return text as dictionaries if the first file with events has codes for it.

        Raises what opening that file raises.
        """
        self._members = members
        self._required_texts: RequiredTexts = {}
        self.schema = schema
        self._texts = TextForm.DICTIONARIES if dictionaries else TextForm.PLAIN
        first = next((member for member in members.all if member.statistics.events), None) if dictionaries else None
        coded = [] if first is None else coded_columns(members.segment(first.number)._reader)
        self.arrow = in_dictionaries(schema.arrow, coded)

    @property
    def num_events(self) -> int:
        """Number of events in all files."""
        return sum(member.statistics.events for member in self._members.all)

    most_events = num_events

    def batches(self, bounds: Bounds, columns: Sequence[str], *, lazily: bool) -> Iterator[pa.RecordBatch]:
        """At least the events within bounds, file by file, in the order of each file."""
        fields = [self.arrow.field(name) for name in columns]
        for member in self._members.all:
            narrower = self._member_bounds(bounds, member)
            if admits_nothing(narrower):
                continue
            present = [name for name in columns if name in KEY_COLUMNS or name in member.schema.positions]
            segment = self._members.segment(member.number)
            scan = select(segment._reader, narrower, present or ROW_COUNT_COLUMNS, lazily=lazily)
            for batch in scan.with_texts(self._texts).candidates(self._required_texts):
                yield fit(batch, fields)

    def requiring(self, required_texts: RequiredTexts) -> CollectionEvents:
        """The same events, perhaps without some that do not contain the texts."""
        events = copy(self)
        events._required_texts = required_texts
        return events

    def gives_exactly(self, bounds: Bounds) -> bool:
        """Whether `batches` yields only events within bounds."""
        return gives_exactly(bounds)

    def blocks(self, bounds: Bounds) -> tuple[int, int]:
        """The number of data blocks read for the events within bounds, and the number in all files."""
        read = blocks = 0
        for member in self._members.all:
            reader = self._members.segment(member.number)._reader
            blocks += reader.root.data_blocks
            narrower = self._member_bounds(bounds, member)
            if not admits_nothing(narrower):
                read += len(select(reader, narrower, ["timestamp"]).blocks()[0])
        return read, blocks

    def extreme_times(self, count: int, *, newest: bool) -> I64:
        """The `count` latest timestamps of all files, or the earliest, µs; in ascending order."""
        found = [
            extreme_times(self._members.segment(member.number)._reader, count, newest=newest)
            for member in self._members.all
        ]
        times = np.sort(np.concatenate(found))
        return times[-count:] if newest else times[:count]

    def tally(self, names: Sequence[str], count_name: str, *, timed: bool) -> pa.Table | None:
        """Combinations of values with their numbers of events, file by file; None if codes do not suffice."""
        tables = []
        for member in self._members.all:
            found = tally(self._members.segment(member.number)._reader, names, count_name, timed=timed)
            if found is None:
                return None
            tables.append(found)
        return pa.concat_tables(tables) if tables else None

    def _member_bounds(self, bounds: Bounds, member: Member) -> Bounds:
        """The bounds without the times and spaces that a file cannot contain. Reads little or nothing of the file."""
        if not member.statistics.events or not all(
            name in KEY_COLUMNS or name in member.schema.positions for name in bounds
        ):
            return {**bounds, "": Domain(frozenset())}  # a missing column is null, which no bound admits
        narrower = dict(bounds)
        low, high = member.statistics.min_timestamp, member.statistics.max_timestamp
        if "timestamp" in bounds and high is not None:
            narrower["timestamp"] = bounds["timestamp"].meet(Domain(None, low, high + 1))
        spaces = bounds.get("space", Domain()).listed
        if spaces is not None and not admits_nothing(narrower):
            narrower["space"] = Domain(frozenset(key for key in spaces if self._members.may_contain(member, key)))
        return narrower
