"""The state that the works of one run share: events, contenders, built files and open readers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pyarrow as pa
from rich.console import Console

from benchmarks import scratch
from benchmarks.contenders.protocol import MAIN, Contender, Reader
from benchmarks.dataset import Dataset, fingerprint, load
from benchmarks.measure import Figure, excused

GROWTH = 5  # ratio of the large to the small file in the works about growth
LARGE_EVENTS = 5_000_000


@dataclass
class Session:
    """One run. Everything is created when first needed, so that a run of one work builds only its files."""

    contenders: Mapping[str, Contender]
    events: int
    repeats: int
    questions: int
    scratch: Path
    console: Console
    _readers: dict[tuple[str, str], Reader] = field(default_factory=dict)

    @cached_property
    def dataset(self) -> Dataset:
        """The events of this run."""
        return self.dataset_of(self.events)

    def dataset_of(self, events: int) -> Dataset:
        """The same kind of events, in another number."""
        return Dataset(load(events, self.scratch / "data"))

    @property
    def growth_events(self) -> tuple[int, int]:
        """The sizes of the small and the large file for the works about growth; one of them is this run's."""
        if self.events < LARGE_EVENTS:
            return self.events, self.events * GROWTH
        return self.events // GROWTH, self.events

    def built(self, contender: Contender, layout: str = MAIN, events: int | None = None) -> Path:
        """The directory with a contender's files, written now unless an earlier run left them."""

        def table() -> pa.Table:  # called only if the files have to be written
            self.console.print(f"  building {contender.name} ({contender.layouts[layout]})", style="dim")
            return (self.dataset if events in (None, self.events) else self.dataset_of(events)).table

        return scratch.built(contender, layout, events or self.events, fingerprint(), table, self.scratch / "built")

    def layout(self, contender: Contender, work: str) -> str:
        """The layout that answers a work best."""
        return contender.best.get(work, MAIN)

    def reader(self, contender: Contender, work: str) -> Reader:
        """A warm reader of the layout that suits the work, shared between works."""
        layout = self.layout(contender, work)
        if (reader := self._readers.get((contender.name, layout))) is None:
            reader = contender.open(self.built(contender, layout), layout)
            self._readers[contender.name, layout] = reader
            reader.warm()
        return reader

    def close_readers(self) -> None:
        """Close every open reader."""
        while self._readers:
            self._readers.popitem()[1].close()

    def willing(self, work: str, only: Sequence[str] | None = None) -> tuple[dict[str, Contender], dict[str, Figure]]:
        """The contenders that take part in a work, and figures with the reason for the others. only: names allowed."""
        able: dict[str, Contender] = {}
        lacking: dict[str, Figure] = {}
        for name, contender in self.contenders.items():
            if only is not None and name not in only:
                lacking[name] = Figure(missing=f"measured for {' and '.join(only)} only")
            elif work in contender.lacks:
                lacking[name] = Figure(missing=contender.lacks[work])
            else:
                able[name] = contender
        return able, lacking

    def ready(self, work: str, only: Sequence[str] | None = None) -> tuple[dict[str, Reader], dict[str, Figure]]:
        """The readers that take part in a work, and figures with the reason for other contenders."""
        able, figures = self.willing(work, only)
        readers: dict[str, Reader] = {}
        for name, contender in able.items():
            with excused(figure := Figure()):
                readers[name] = self.reader(contender, work)
            if figure.missing:
                figures[name] = figure
        return readers, figures

    def note_layouts(self, work: str, figures: Mapping[str, Figure]) -> None:
        """Record with each figure the layout it was measured on."""
        for name, figure in figures.items():
            contender = self.contenders[name]
            figure.layout = contender.layouts[self.layout(contender, work)]


Runner = Callable[[Session], dict[str, Figure]]
