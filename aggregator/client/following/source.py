"""`Source`: the files of a server's catalog."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from aggregator.client.http import calls
from aggregator.client.http.connection import Connection
from aggregator.client.http.errors import TruncatedAnswerError
from aggregator.storage.files.checksum import hasher64
from aggregator.storage.manifest.copying import put_together

_NUMBERS = ("file", "position", "end", "oldest", "change", "lost")
_MOST_BYTES = 16 << 20
_WAIT_S = 1.0
"""Seconds that the server waits for more of the log: the longest time without a response, and without news of changes
of the manifest."""


@dataclass(frozen=True, slots=True)
class LogBytes:
    """Bytes of the log and the facts sent with them: see the headers of `/v1/copy/log`."""

    data: bytes
    file: int
    position: int
    end: int
    oldest: int
    change: int
    lost: bool
    identity: str
    incarnation: str


class Source:
    """Fetches from a server. Thread-safe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def log(self, position: int | None, last: tuple[int, int] | None, lacking: int) -> LogBytes:
        """Return the log after a position. last: position and checksum of the frame before. lacking: fetch at least so
        many bytes.
        """
        frame, check = (None, None) if last is None else (last[0], f"{last[1]:016x}")
        most = max(_MOST_BYTES, lacking + calls.LOG_SPARE_BYTES)
        where = calls.path("v1", "copy", "log", position=position, frame=frame, check=check, most=most, wait=_WAIT_S)
        with self._connection.download(calls.Call("GET", where, wait_s=_WAIT_S)) as answer:
            data, headers = b"".join(answer), answer.headers
        try:
            file, at, end, oldest, change, lost = (int(headers[f"aggregator-{name}"]) for name in _NUMBERS)
            names = headers["aggregator-catalog"], headers["aggregator-incarnation"]
            return LogBytes(data, file, at, end, oldest, change, bool(lost), *names)
        except (KeyError, ValueError):
            raise _foreign(where) from None

    def manifest(self, file: BinaryIO, base: Path | None, sums: bytes) -> bytes:
        """Write the server's current manifest to a file, and return the checksums of its blocks.

        base: an earlier copy with the block checksums `sums`; only other blocks are fetched. Raises
        CorruptManifestError.
        """
        call = calls.Call("POST", calls.path("v1", "copy", "manifest"), {"content-type": calls.BYTES}, sums)
        with self._connection.download(call) as answer:
            try:
                blocks, check = (int(answer.headers[f"aggregator-{name}"]) for name in ("blocks", "check"))
            except (KeyError, ValueError):
                raise _foreign(call.path) from None
            return put_together(file, base, answer, blocks, check)

    def file(self, kind: str, number: int, file: BinaryIO, checksum: int) -> None:
        """Write a segment, or a quarantined batch, to a file. Raises SegmentMissingError if it is gone."""
        hasher = hasher64()
        where = calls.path("v1", "copy", kind, str(number))
        with self._connection.download(calls.Call("GET", where)) as answer:
            for piece in answer:
                hasher.update(piece)
                file.write(piece)
        if hasher.intdigest() != checksum:
            raise TruncatedAnswerError("the received file differs from the one that the manifest lists", path=where)


def _foreign(where: str) -> TruncatedAnswerError:
    return TruncatedAnswerError(
        "the answer does not come from a catalog's server", path=where, hint="check the address"
    )
