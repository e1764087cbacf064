"""`Opened`: what an open segment, a collection of them and a foreign file have in common."""

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
        """How many they are."""


SpaceT = TypeVar("SpaceT", bound=OneSpace, covariant=True)


class Opened(Scannable[AnswerT], Generic[AnswerT, SpaceT]):
    """Something open that has spaces. Close it, or use it as a context manager."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is open. Closing twice is fine; scans afterwards raise ClosedError."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def find(self, space: str | bytes) -> SpaceT | None:
        """The space of that key, or None where there is no event of it. Raises UsageError for other types."""

    def __getitem__(self, space: str | bytes) -> SpaceT:
        """The space of that key. Raises SpaceNotFoundError, which is a KeyError."""
        found = self.find(space)
        if found is None:
            raise self._absent(space)
        return found

    def __contains__(self, space: object) -> bool:
        return isinstance(space, str | bytes) and self.find(space) is not None

    def __iter__(self) -> Iterator[str | bytes]:
        """The keys of all spaces, ascending."""
        return iter(self.spaces())

    def spaces(self, prefix: str | bytes | None = None) -> Counts:
        """Every space, in key order, and how many events it has; of those that begin with `prefix`."""
        wanted = b"" if prefix is None else to_key(prefix)

        def count(key: Any) -> int:
            found = self.find(key) if isinstance(key, str | bytes) and to_key(key).startswith(wanted) else None
            if found is None:
                raise self._absent(key)
            return found.num_events

        return Counts(lambda: self._space_counts(wanted), count)

    @abstractmethod
    def index_values(self, name: str) -> Counts:
        """Every value of an index, ascending, and how many events have it. Raises UnknownIndexError."""

    def _absent(self, space: object) -> SpaceNotFoundError:
        """The error for a space that is not there."""
        return SpaceNotFoundError(f"no space {space!r}", path=self._checks.name)

    @abstractmethod
    def _space_counts(self, prefix: bytes) -> Iterator[tuple[Any, int]]:
        """Spaces that begin with a prefix, in key order, and how many events each has."""
