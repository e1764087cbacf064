"""A pipe's progress, stored with each batch that it copies, so that a crash keeps or loses both."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from aggregator.engine.backend import Backend
from aggregator.engine.follower import ReaderEngine
from aggregator.errors import CorruptManifestError
from aggregator.model import PipeInfo, ProducerEntry
from aggregator.storage.manifest.lineage import Lineage
from aggregator.streams.pipes.round import visible_ends
from aggregator.streams.reading import position as positions
from aggregator.streams.reading.position import Position


@dataclass(frozen=True, slots=True)
class Progress:
    """standing: the position after the last record examined. sequence: of the last batch.

    copied: records since the pipe was created. gone: records that were removed before it examined them. gaps: those of
    the current round that `gone` already includes.
    """

    standing: Position
    sequence: int = 0
    copied: int = 0
    gone: int = 0
    gaps: int = 0

    def encode(self, lineage: Lineage) -> str:
        """The progress as text, without the sequence, which is the batch's own. lineage: of the catalog."""
        at = positions.encode(self.standing, lineage)
        return json.dumps({"at": at, "copied": self.copied, "gone": self.gone, "gaps": self.gaps})

    @classmethod
    def decode(cls, text: str, sequence: int, backend: Backend) -> Progress:
        """Decode. Raises CorruptManifestError, also for progress made after the copy that the catalog was restored
        from.
        """
        try:
            facts = json.loads(text)
            standing = positions.decode(facts["at"], backend.state.lineage, visible_ends(backend))
            return cls(standing, sequence, int(facts["copied"]), int(facts["gone"]), int(facts["gaps"]))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise CorruptManifestError(f"the progress of a pipe cannot be read: {error}") from None

    def between_rounds(self) -> Progress:
        """The progress at the end of its round."""
        return replace(self, standing=Position(dict(self.standing.end)), gaps=0)


def stored_progress(backend: Backend, pipe: PipeInfo) -> Progress:
    """The progress of a pipe from its last batch, or from the manifest if newer. Raises CorruptManifestError."""
    newest = newest_batch(backend, pipe)
    if newest is not None and newest.sequence > pipe.sequence:
        return Progress.decode(newest.note, newest.sequence, backend)
    return Progress.decode(pipe.progress, pipe.sequence, backend)


def newest_batch(backend: Backend, pipe: PipeInfo) -> ProducerEntry | None:
    """The last stored batch of a pipe."""
    with backend.state.view_lock:
        partitions = [partition for _, partition in backend.state.partitions.values()]
        found = [entry for partition in partitions for entry in partition.producers.get(pipe.identity, {}).values()]
    if isinstance(backend, ReaderEngine):  # its state has only the batches in the log
        found += [entry for entry in backend.manifest.producers() if entry.producer == pipe.identity]
    return max(found, key=lambda entry: entry.sequence, default=None)
