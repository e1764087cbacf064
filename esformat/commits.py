"""Several files that appear in a directory, or take the place of others, at once: for writers in many processes.

Every task of a write puts its files, under names of their own, into a staging directory that no reader looks at. One
process then commits:

    _staging-JOB/        what tasks wrote, and who runs the write
    _pending-JOB.json    from before the first file gets its name: the files it adds are not to be seen yet
    _replacing-JOB.json  the same record under its next name, which is the moment of the commit: the files it adds are
                         there, those it removes are not to be seen any more
    _committed-JOB.json  the record once those are gone; it stays, and says what the write did

Readers list the records before and after the files, and again if they differ. Records that were left behind by a
process that is gone are brought to their end by the next write: undone before the moment of the commit, done after it.
A directory without such records is a plain directory: files can be copied into and out of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from esformat.errors import UsageError
from esformat.publish import sync_directory

STALE_SECONDS = 24 * 3600
"""A write on another machine that changed nothing for so long is taken for dead."""
ATTEMPTS = 50
WAIT_SECONDS = 0.05

_JOB = re.compile(r"[0-9a-z]{8,64}")
_RECORD = re.compile(r"_(pending|replacing|committed)-([0-9a-z]{8,64})\.json")
_STAGING = re.compile(r"_staging-([0-9a-z]{8,64})")
_OWNER = "owner.json"
_NEXT_RECORD = "record.json"


@dataclass(frozen=True, slots=True)
class Write:
    """One write into a directory; a value that can be pickled to the tasks of the write.

    job: what tells it from all other writes, 8 to 64 characters of 0-9 and a-z. suffix: of the files that it makes.
    """

    folder: str
    job: str
    suffix: str = ".esdb"

    def __post_init__(self) -> None:
        if not _JOB.fullmatch(self.job):
            raise UsageError(f"{self.job!r} cannot name a write", hint="8 to 64 characters of 0-9 and a-z")

    @property
    def staging(self) -> Path:
        """Where tasks put their files."""
        return Path(self.folder) / f"_staging-{self.job}"

    def _record(self, state: str) -> Path:
        return Path(self.folder) / f"_{state}-{self.job}.json"

    def begin(self) -> None:
        """Make the staging directory, after clearing away what dead writes left.

        Raises UsageError for a job that was begun before.
        """
        folder = Path(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        sweep(folder)
        if self._record("committed").exists() or self.staging.exists():
            raise UsageError(f"write {self.job} is under way or was committed before", path=self.folder)
        self.staging.mkdir()
        (self.staging / _OWNER).write_text(json.dumps(_this_owner()), "utf-8")

    def staged(self, name: str) -> str:
        """The path for a task's file; hidden, so that nobody takes it for a finished one."""
        return str(self.staging / f".{name}{self.suffix}")

    def commit(
        self, staged: Sequence[str], *, removed: Iterable[str] = (), facts: Mapping[str, Any] | None = None,
        forget: bool = False,
    ) -> list[str]:  # fmt: skip
        """Make staged files visible and hide `removed` ones, all at once; then delete those. Returns the new names.

        removed: paths relative to the directory. facts: kept in the record. forget: older records go, too: what they
        wrote is gone. Raises OSError; then nothing has changed, unless the record says `replacing`.
        """
        folder = Path(self.folder)
        names = [f"part-{number:05}-{self.job}{self.suffix}" for number in range(len(staged))]
        record = {
            "added": names,
            "removed": list(removed),
            "forgotten": sorted(job for job, state in _records(folder) if state == "committed") if forget else [],
            "facts": dict(facts or {}),
            "owner": _this_owner(),
        }
        _write_record(self.staging / _NEXT_RECORD, record)
        (self.staging / _NEXT_RECORD).rename(self._record("pending"))
        for path, name in zip(staged, names, strict=True):
            Path(path).rename(folder / name)
        sync_directory(folder)
        self._record("pending").rename(self._record("replacing"))
        sync_directory(folder)
        _complete(folder, self.job)
        return names

    def abort(self) -> None:
        """Leave nothing behind of a write that was not committed."""
        _undo(Path(self.folder), self.job)


def committed(find: Callable[[], Sequence[str]], roots: Iterable[str | Path]) -> list[str]:
    """The files that `find` finds, as they are between two commits: none that is pending, none that was replaced.

    find: lists paths of local files. roots: directories that they lie below; records in and below those count.
    Raises UsageError where the directories never stand still.
    """
    tops = {Path(root) for root in roots}
    folders: set[Path] = set()
    for attempt in range(ATTEMPTS):
        before = {folder: _records(folder) for folder in folders}
        paths = find()
        folders = {folder for path in paths for folder in _between(Path(path), tops)}
        after = {folder: _records(folder) for folder in folders}
        if before == after:
            with contextlib.suppress(FileNotFoundError):  # a record that has its next name by now
                hidden = {path for folder, records in after.items() for path in _hidden(folder, records)}
                return [path for path in paths if Path(path) not in hidden]
        if attempt > 1:
            time.sleep(WAIT_SECONDS)
    raise UsageError(
        "the directory changes faster than it can be listed", path=str(min(folders)), hint="read it a moment later"
    )


def _between(path: Path, tops: set[Path]) -> list[Path]:
    """The directories from the one that a file lies in up to the root above it; that one alone where there is none."""
    folders = list(path.parents)
    for number, folder in enumerate(folders):
        if folder in tops:
            return folders[: number + 1]
    return folders[:1]


def commits(folder: str | Path) -> dict[str, dict[str, Any]]:
    """The record of each committed write that still stands, by job."""
    found = {}
    for job, state in _records(Path(folder)):
        if state != "pending":
            with contextlib.suppress(FileNotFoundError):
                found[job] = _read_record(Path(folder) / f"_{state}-{job}.json")
    return found


def sweep(folder: str | Path) -> None:
    """Bring to their end the writes of processes that are gone."""
    folder = Path(folder)
    for job, state in _records(folder):
        with contextlib.suppress(FileNotFoundError):  # its owner was quicker
            if state == "replacing":
                _complete(folder, job)
            elif state == "pending":
                record = folder / f"_pending-{job}.json"
                if not _lives(_read_record(record).get("owner"), record):
                    _undo(folder, job)
    for staging in folder.glob("_staging-*"):
        found = _STAGING.fullmatch(staging.name)
        if found is not None and not _lives(_owner_of(staging), staging):
            _undo(folder, found[1])


# ------------------------------------------------------------ records


def _records(folder: Path) -> frozenset[tuple[str, str]]:
    """Job and state of each write that left a record."""
    with os.scandir(folder) as entries:
        found = [_RECORD.fullmatch(entry.name) for entry in entries if entry.name.startswith("_")]
    return frozenset((each[2], each[1]) for each in found if each)


def _write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write a record, whole and synced."""
    with path.open("xb") as file:
        file.write(json.dumps(record, indent=1).encode())
        file.flush()
        os.fsync(file.fileno())


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_bytes())
        names = [*record["added"], *record["removed"], *record["forgotten"]]
        sound = all(isinstance(name, str) and _is_below(name) for name in names)
        if not isinstance(record["facts"], dict) or not sound:
            raise ValueError("a name leads elsewhere")
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"the record of a write is broken: {error}", path=str(path), hint="restore it, or write the files again"
        ) from None
    return dict(record)


def _is_below(name: str) -> bool:
    """Whether a relative path stays in its directory."""
    return bool(name) and not Path(name).is_absolute() and ".." not in Path(name).parts


def _hidden(folder: Path, records: Iterable[tuple[str, str]]) -> list[Path]:
    """Files that are there and not to be seen."""
    hidden = []
    for job, state in records:
        if state != "committed":
            record = _read_record(folder / f"_{state}-{job}.json")
            hidden += [folder / name for name in record["added" if state == "pending" else "removed"]]
    return hidden


def _complete(folder: Path, job: str) -> None:
    """What follows the moment of a commit; can be done again from anywhere in it."""
    replacing = folder / f"_replacing-{job}.json"
    record = _read_record(replacing)
    for name in record["removed"]:
        (folder / name).unlink(missing_ok=True)
    for other in record["forgotten"]:
        (folder / f"_committed-{other}.json").unlink(missing_ok=True)
    replacing.rename(folder / f"_committed-{job}.json")
    sync_directory(folder)
    shutil.rmtree(folder / f"_staging-{job}", ignore_errors=True)


def _undo(folder: Path, job: str) -> None:
    """Take back a write that was not committed."""
    pending = folder / f"_pending-{job}.json"
    with contextlib.suppress(FileNotFoundError):
        for name in _read_record(pending)["added"]:
            (folder / name).unlink(missing_ok=True)
        pending.unlink()
    shutil.rmtree(folder / f"_staging-{job}", ignore_errors=True)


# ------------------------------------------------------------ who writes


def _this_owner() -> dict[str, Any]:
    """The process that runs the write: Spark's driver, where this is one of the helpers that it starts."""
    pid = os.getpid()
    with contextlib.suppress(OSError, ValueError, IndexError):
        parent = pid
        while parent > 1:
            name, above, _ = _process(parent)
            if name == "java":
                pid = parent
                break
            parent = above
    return {"host": socket.gethostname(), "pid": pid, "started": _started(pid)}


def _process(pid: int) -> tuple[str, int, str]:
    """Name, parent and time of start of a process, as Linux tells them."""
    text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    name = text[text.index("(") + 1 : text.rindex(")")]
    fields = text[text.rindex(")") + 2 :].split()
    return name, int(fields[1]), fields[19]


def _started(pid: int) -> str:
    try:
        return _process(pid)[2]
    except (OSError, ValueError, IndexError):
        return ""


def _owner_of(staging: Path) -> Any:
    try:
        return json.loads((staging / _OWNER).read_bytes())
    except (OSError, ValueError):
        return None


def _lives(owner: Any, witness: Path) -> bool:
    """Whether the process that runs a write is still there, as far as can be told."""
    try:
        if isinstance(owner, dict) and owner["host"] == socket.gethostname():
            os.kill(int(owner["pid"]), 0)
            return bool(owner["started"] == _started(int(owner["pid"])))
    except ProcessLookupError:
        return False
    except (PermissionError, KeyError, TypeError, ValueError):
        pass
    try:
        return time.time() - witness.stat().st_mtime < STALE_SECONDS
    except FileNotFoundError:
        return True  # somebody else is at it
