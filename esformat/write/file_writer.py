"""`FileWriter`: what all writers of event files have in common, from opening to finishing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from esformat.errors import ClosedError
from esformat.io.publish import Publication, naming
from esformat.io.upload import Upload


class FileWriter(ABC):
    """A file that is being written. It appears complete when it is finished, or not at all."""

    _shown: ClassVar[str]
    """The class name under which users import it."""

    def __init__(self, publication: Publication | Upload) -> None:
        self._publication = publication
        self._name = publication.name
        self._events = 0
        self._state = "open"

    def __repr__(self) -> str:
        return f"<{self._shown} {Path(self._name).name!r}, {self.num_events} events, {self._state}>"

    @property
    def num_events(self) -> int:
        """The number of events added so far."""
        return self._events

    def finish(self) -> None:
        """Write and publish the file: durable and visible when this returns. A second call does nothing."""
        if self._state == "finished":
            return
        self._check_open()
        try:
            with naming(self._name):
                self._write()
                self._publication.commit()
        except BaseException:
            self.abort()
            raise
        self._state = "finished"

    def abort(self) -> None:
        """Discard everything; nothing appears at the path. Does nothing after `finish`."""
        if self._state == "open":
            self._state = "aborted"
            self._drop()
            self._publication.abort()

    @abstractmethod
    def _write(self) -> None:
        """Write everything that is not in the file yet."""

    @abstractmethod
    def _drop(self) -> None:
        """Release all resources."""

    def _check_open(self) -> None:
        if self._state != "open":
            raise ClosedError(f"the writer is {self._state}", path=self._name, hint="create another file")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()
        elif self._state == "open":
            self.finish()

    def __del__(self) -> None:
        if getattr(self, "_state", None) == "open":
            self.abort()
