"""Add several files to a directory, or replace others with them, atomically: for writers in many processes.

Every task of a write puts its files, under unique names, into a staging directory that readers ignore. One process then
commits:

    _staging-JOB/        the files that tasks wrote, and the owner of the write
    _pending-JOB         written before the first file gets its final name: the files it adds are not visible yet
    _replacing-JOB       the same record under its next name, which is the moment of the commit: the files it adds are
                         visible, those it removes are not any more
    _committed-JOB       the record once the removed files are deleted; it stays, and documents what the write did

On the local disk a record is renamed. In a store, which cannot rename, the next record is written beside it: if a write
has several records, the last of these names counts.

Readers list the records before and after the files, and again if they differ. The next write ends the writes of dead
processes: it undoes those before the moment of the commit, and completes those after it. A directory without such
records is a plain directory: files can be copied into and out of it.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from esformat.errors import ClosedError, UsageError
from esformat.io.commit_folder import OWNER, REQUESTS, CommitFolder, LocalFolder, StoredFolder, staging_of
from esformat.io.lease import Lease
from esformat.io.store import Store, StoredAt
from esformat.io.write_owner import lives, this_owner

ATTEMPTS = 50
WAIT_SECONDS = 0.05

_JOB = re.compile(r"[0-9a-z]{8,64}")
_STATES = ("pending", "replacing", "committed")  # in the order in which a write passes through them
_RECORD = re.compile(r"_(pending|replacing|committed)-([0-9a-z]{8,64})")  # no .json: exports are beside it
_STAGING = re.compile(r"_staging-([0-9a-z]{8,64})")

Records = Mapping[str, str]
"""The state of each write that left a record, by job."""


@dataclass(frozen=True, slots=True)
class Write:
    """One write into a directory; a value that can be pickled for the tasks of the write.

    job: unique name of the write, 8 to 64 characters of 0-9 and a-z. suffix: of the files that it creates.
    lease: the name of the lease that it works under; "": none, others may write as well.
    """

    folder: CommitFolder
    job: str
    suffix: str = ".esdb"
    lease: str = ""

    def __post_init__(self) -> None:
        if not _JOB.fullmatch(self.job):
            raise UsageError(
                f"{self.job!r} is not a valid name for a write", hint="use 8 to 64 characters of 0-9 and a-z"
            )

    def begin(self) -> None:
        """Create the staging directory, after ending the writes of dead processes.

        Raises UsageError for a job that was already begun.
        """
        self.folder.make()
        names = sweep(self.folder)
        if _name("committed", self.job) in names or staging_of(self.job) in names:
            raise UsageError(f"write {self.job} is under way or was committed before", path=self.folder.name)
        self.folder.begin_staging(self.job, json.dumps(this_owner()).encode())

    def staged(self, name: str) -> str:
        """The name for a task's file, relative to the directory; hidden, so that it is not taken for a finished one."""
        return f"{staging_of(self.job)}/.{name}{self.suffix}"

    def keep(self, staged: str) -> None:
        """Check, once a task has written its file, that the write has not ended: its cleanup may have missed the file.

        If it has ended, deletes the file and raises ClosedError.
        """
        try:
            self.folder.read(f"{staging_of(self.job)}/{OWNER}")
        except FileNotFoundError:
            self.folder.remove([staged])
            raise ClosedError(f"write {self.job} has ended", path=self.folder.name) from None

    def place(self, staged: str) -> str | StoredAt:
        """The location of a staged file."""
        return self.folder.place(staged)

    def commit(
        self,
        staged: Sequence[str] | Mapping[str, str],
        *,
        removed: Iterable[str] = (),
        facts: Mapping[str, Any] | None = None,
        forget: bool = False,
    ) -> list[str]:
        """Make staged files visible and hide `removed` ones, atomically; then delete the latter. Returns the new names.

        staged, removed: names relative to the directory; a mapping names the subdirectory for each staged file.
        facts: stored in the record. forget: delete older records too, because the files they list are gone. Raises
        OSError, and ClosedError if another process took this one for dead and ended the write; then nothing has
        changed, unless the record says `replacing`.
        """
        if self.lease:
            Lease(self.folder, self.lease).check()
        parts = [f"part-{number:05}-{self.job}{self.suffix}" for number in range(len(staged))]
        folders = staged.values() if isinstance(staged, Mapping) else [""] * len(staged)
        names = [f"{folder}/{part}" if folder else part for folder, part in zip(folders, parts, strict=True)]
        older = _records(self.folder.names()) if forget else {}
        record = {
            "added": names,
            "removed": list(removed),
            "forgotten": sorted(job for job, state in older.items() if state == "committed"),
            "facts": dict(facts or {}),
            "owner": this_owner(),
        }
        pending = _name("pending", self.job)
        self.folder.put_record(self.job, pending, json.dumps(record, indent=1).encode())
        try:
            self.folder.publish(list(zip(staged, names, strict=True)))
            self.folder.turn_record(pending, _name("replacing", self.job))
        except FileNotFoundError:
            if pending in self.folder.names():
                raise
            self.folder.remove(names)  # files that got their names after the other process had listed them
            raise ClosedError(f"write {self.job} has ended", path=self.folder.name) from None
        _complete(self.folder, self.job)
        return names

    def abort(self) -> None:
        """Undo a write that was not committed, leaving nothing behind; complete one that was."""
        with contextlib.suppress(FileNotFoundError):
            _end(self.folder, self.job, _records(self.folder.names()))


def commit_of(folder: CommitFolder, job: str) -> dict[str, Any]:
    """The record of a committed write. Raises FileNotFoundError."""
    return _read_record(folder, _name("committed", job))


def is_committed(folder: CommitFolder, job: str) -> bool:
    """Whether a write was committed and its record still exists."""
    return _records(folder.names()).get(job) == "committed"


def staged_jobs(folder: CommitFolder) -> list[str]:
    """The writes that have a staging directory."""
    return [found[1] for found in map(_STAGING.fullmatch, folder.names()) if found is not None]


def commits(folder: CommitFolder) -> dict[str, dict[str, Any]]:
    """The existing records of committed writes, by job."""

    def read(item: tuple[str, str]) -> dict[str, Any] | None:
        with contextlib.suppress(FileNotFoundError):
            return _read_record(folder, _name(item[1], item[0]))
        return None

    try:
        records = _records(folder.names())
    except FileNotFoundError:
        return {}
    standing = [item for item in records.items() if item[1] != "pending"]
    with ThreadPoolExecutor(REQUESTS, thread_name_prefix="esformat-commit") as pool:
        found = zip(standing, pool.map(read, standing), strict=True)
        return {job: record for (job, _), record in found if record is not None}


def sweep(folder: CommitFolder) -> list[str]:
    """End the writes of dead processes. Returns the names of the records and staging directories before that."""
    names = folder.names()
    records = _records(names)
    for job, state in records.items():
        with contextlib.suppress(FileNotFoundError):  # its owner was faster
            if state == "pending" and _lives(folder, _name(state, job)):
                continue
            if state != "committed" or {_name("pending", job), _name("replacing", job)} & set(names):
                _end(folder, job, records)
    for name in names:
        found = _STAGING.fullmatch(name)
        if found is not None and records.get(found[1], "committed") == "committed" and not _stages(folder, name):
            _end(folder, found[1], {})
    return names


# ------------------------------------------------------------ visible files


def committed(find: Callable[[], Sequence[str]], roots: Iterable[str | Path]) -> list[str]:
    """The files that `find` lists, as they are between two commits: without pending and without replaced ones.

    find: lists paths of local files. roots: directories above them; records in and below those count.
    Raises UsageError if the directories keep changing.
    """
    tops = {Path(root) for root in roots}
    folders: set[Path] = set()
    for attempt in range(ATTEMPTS):
        before = {folder: _local_records(folder) for folder in folders}
        paths = find()
        folders = {folder for parent in {Path(path).parent for path in paths} for folder in _between(parent, tops)}
        after = {folder: _local_records(folder) for folder in folders}
        if before == after:
            with contextlib.suppress(FileNotFoundError):  # a record that was renamed meanwhile
                hidden = {
                    str(folder / name)
                    for folder, records in after.items()
                    for name in _hidden(LocalFolder(str(folder)), records)
                }
                return [path for path in paths if str(Path(path)) not in hidden] if hidden else list(paths)
        if attempt > 1:
            time.sleep(WAIT_SECONDS)
    raise _restless(str(min(folders)))


def committed_objects(store: Store, directory: str, wanted: Callable[[str], bool]) -> list[str]:
    """The paths of the wanted objects below a directory of a store, as they are between two commits; in order.

    Two equal listings show the state at every moment between them, because no object reappears under its old name.
    Raises UsageError if the directory keeps changing; OSError.
    """
    before: frozenset[str] | None = None
    for attempt in range(ATTEMPTS):
        paths = (path for path in store.list(directory) if not _is_staged(path))
        found = frozenset(path for path in paths if wanted(path) or _RECORD.fullmatch(path.rpartition("/")[2]))
        if found == before or not found:
            with contextlib.suppress(FileNotFoundError):  # a record that was renamed meanwhile
                return sorted(filter(wanted, found - _hidden_objects(store, found)))
        before = found
        if attempt > 1:
            time.sleep(WAIT_SECONDS)
    raise _restless(store.name_of(directory))


def _hidden_objects(store: Store, paths: Iterable[str]) -> set[str]:
    below: dict[str, list[str]] = {}
    for path in paths:
        folder, _, name = path.rpartition("/")
        if name.startswith("_"):
            below.setdefault(folder, []).append(name)
    folders = {prefix: StoredFolder(store, prefix) for prefix in below}
    return {
        f"{prefix}/{name}" if prefix else name
        for prefix, folder in folders.items()
        for name in _hidden(folder, _records(below[prefix]))
    }


def _is_staged(path: str) -> bool:
    return "/_staging-" in path and any(_STAGING.fullmatch(part) for part in path.split("/")[:-1])


def _restless(name: str) -> UsageError:
    return UsageError("the directory changes faster than it can be listed", path=name, hint="try again in a moment")


def _between(parent: Path, tops: set[Path]) -> list[Path]:
    """The directories from `parent` up to the root above it; only `parent` if it is below no root."""
    folders = [parent, *parent.parents]
    for number, folder in enumerate(folders):
        if folder in tops:
            return folders[: number + 1]
    return folders[:1]


def _hidden(folder: CommitFolder, records: Records) -> list[str]:
    """Names of files that readers must not see. Raises FileNotFoundError for a record that was renamed meanwhile."""
    hidden: list[str] = []
    for job, state in records.items():
        if state != "committed":
            hidden += _read_record(folder, _name(state, job))["added" if state == "pending" else "removed"]
    return hidden


# ------------------------------------------------------------ records


def _name(state: str, job: str) -> str:
    return f"_{state}-{job}"


def _records(names: Iterable[str]) -> dict[str, str]:
    """The state of each write that has a record among names; the last state if it has several."""
    found: dict[str, str] = {}
    for name in names:
        record = _RECORD.fullmatch(name)
        if record is not None:
            state, job = record.groups()
            found[job] = max(state, found.get(job, state), key=_STATES.index)
    return found


def _local_records(folder: Path) -> dict[str, str]:
    return _records(LocalFolder(str(folder)).names())


def _read_record(folder: CommitFolder, name: str) -> dict[str, Any]:
    try:
        record = json.loads(folder.read(name))
        names = [*record["added"], *record["removed"], *record["forgotten"]]
        sound = all(isinstance(each, str) and _is_below(each) for each in names)
        if not isinstance(record["facts"], dict) or not sound:
            raise ValueError("a name points outside the directory")
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"the record of a write is broken: {error}",
            path=f"{folder.name}/{name}",
            hint="restore it, or write the files again",
        ) from None
    return dict(record)


def _is_below(name: str) -> bool:
    """Whether a relative path stays in its directory."""
    path = PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts


def _end(folder: CommitFolder, job: str, records: Records) -> None:
    """End a write, whatever became of its owner: complete it after the moment of the commit, undo it before."""
    state = records.get(job)
    if state == "replacing":
        _complete(folder, job)
        return
    if state == "pending":
        folder.remove(_read_record(folder, _name(state, job))["added"])
        folder.remove([_name(state, job)])
    elif state == "committed":
        folder.remove([_name("pending", job), _name("replacing", job)])
    folder.clear_staging(job)


def _complete(folder: CommitFolder, job: str) -> None:
    """Do the steps after the moment of a commit. Can be repeated after any of them."""
    replacing = _name("replacing", job)
    record = _read_record(folder, replacing)
    folder.remove([_name("pending", job)])
    folder.remove(record["removed"])
    folder.remove([_name("committed", other) for other in record["forgotten"]])
    folder.turn_record(replacing, _name("committed", job))
    folder.clear_staging(job)


def _lives(folder: CommitFolder, record: str) -> bool:
    return lives(_read_record(folder, record).get("owner"), folder.changed(record))


def _stages(folder: CommitFolder, staging: str) -> bool:
    """Whether the owner of a staging directory is still alive."""
    try:
        owner = json.loads(folder.read(f"{staging}/{OWNER}"))
    except (OSError, ValueError):
        owner = None
    return lives(owner, folder.changed(staging))
