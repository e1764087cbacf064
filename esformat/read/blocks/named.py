"""Errors about what a file holds name the file."""

from __future__ import annotations

from types import TracebackType

from esformat.errors import CorruptSegmentError, EsdbError


class NamedErrors:
    """Around the decoding of a file's bytes: errors get the file's name, and what Arrow, NumPy or the compiled core
    say of the values is an error of the file. Threads may share it.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, EsdbError):
            error.path = error.path or self._name
        elif isinstance(error, ValueError | IndexError | OverflowError):  # Arrow's are among them
            raise CorruptSegmentError(f"stored values are broken: {error}", path=self._name) from error
