"""`SegmentLike`: the common base of an open segment, a collection of segments and an open foreign file."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from esformat.errors import SpaceNotFoundError
from esformat.event import to_key
from esformat.read.answer import AnswerT, Scannable
from esformat.read.counts import Counts


class OneSpace(Protocol):
    """The events of one space."""

    @property
    def num_events(self) -> int:
        """The number of events."""


SpaceT = TypeVar("SpaceT", bound=OneSpace, covariant=True)


class SegmentLike(Scannable[AnswerT], Generic[AnswerT, SpaceT]):
    """An open file, or several, with spaces. Close it, or use it as a context manager."""

    @abstractmethod
    def close(self) -> None:
        """Close all open files. Closing twice is allowed; later scans raise ClosedError."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def find(self, space: str | bytes) -> SpaceT | None:
        """The space with a key; None if it has no events. Raises UsageError for other types."""

    def __getitem__(self, space: str | bytes) -> SpaceT:
        """The space with a key. Raises SpaceNotFoundError, which is a KeyError."""
        found = self.find(space)
        if found is None:
            raise self._absent(space)
        return found

    def __contains__(self, space: object) -> bool:
        return isinstance(space, str | bytes) and self.find(space) is not None

    def __iter__(self) -> Iterator[str | bytes]:
        """The keys of all spaces in ascending order."""
        return iter(self.spaces())

    def spaces(self, prefix: str | bytes | None = None) -> Counts:
        """The spaces in key order, each with its number of events; only those that begin with `prefix`."""
        wanted = b"" if prefix is None else to_key(prefix)

        def count(key: Any) -> int:
            found = self.find(key) if isinstance(key, str | bytes) and to_key(key).startswith(wanted) else None
            if found is None:
                raise self._absent(key)
            return found.num_events

        return Counts(lambda: self._space_counts(wanted), count)

    @abstractmethod
    def index_values(self, name: str) -> Counts:
        """The values of an index in ascending order, each with its number of events. Raises UnknownIndexError."""

    def _absent(self, space: object) -> SpaceNotFoundError:
        """The error for a space that does not exist."""
        return SpaceNotFoundError(f"no space {space!r}", path=self._checks.name)

    @abstractmethod
    def _space_counts(self, prefix: bytes) -> Iterator[tuple[Any, int]]:
        """The spaces that begin with a prefix in key order, each with its number of events."""
