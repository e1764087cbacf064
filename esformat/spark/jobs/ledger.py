"""The record of files that jobs processed, and the detection of new files, by content rather than name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from esformat.spark.jobs.inputs import InputFile
from esformat.spark.jobs.summary import FAILURES, Summary, reason_of

Entry = Sequence[Any]
"""A file in a ledger (JSON): path, size, modification time, and the identities of the files it came from."""

_THREADS = 16


def ledger(group: Sequence[InputFile]) -> list[Entry]:
    """Return the ledger entries of a group."""
    return [[file.path, file.size_bytes, file.modified_ns, list(file.identities)] for file in group]


def not_done(
    files: Sequence[InputFile], kind: str, ledgers: Iterable[Sequence[Entry]], target: str, summary: Summary
) -> list[InputFile]:
    """Return the files whose content no ledger lists, with their identities; others are skipped or fail.

    A segment is recognised by its events, wherever it is and whatever they were merged into. A file of another format
    is recognised by its content if the ledger's path for it is not among `files`, because it was moved. A file that
    changed under its path fails, and so does a segment of which only some events were processed.
    kind: the format of the files. target: the name of the destination in messages.
    """
    entries = {path: (size, modified, identities) for done in ledgers for path, size, modified, identities in done}
    segments, here = kind == "esdb", {file.path for file in files}
    known = Counter(name for path, entry in entries.items() if segments or path not in here for name in entry[2])
    todo: list[InputFile] = []
    changed = [file for file in files if entries.get(file.path, ())[:2] != (file.size_bytes, file.modified_ns)]
    for file in _identified(changed, kind, summary):
        count = sum(known[name] > 0 for name in file.identities)
        if file.path in entries and not (segments and count):
            summary.failed.append((file.path, f"it was added to {target} before, and has changed since"))
        elif count == 0:
            todo.append(file)
            known.update(file.identities if segments else ())
        elif count < len(file.identities):
            summary.failed.append((file.path, _in_part(count, len(file.identities), target)))
        else:
            summary.notes.append(f"{file.path}: skipped: its events came from a file with another name")
            known.subtract(() if segments else file.identities)
    summary.skipped += len(files) - len(todo) - len(summary.failed)
    return todo


def _identified(files: Sequence[InputFile], kind: str, summary: Summary) -> Iterator[InputFile]:
    """Yield the files with their identities, read in parallel; unreadable files fail."""

    def identify(file: InputFile) -> InputFile | str:
        try:
            return file.identified(kind)
        except FAILURES as error:
            return reason_of(error)

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="esformat-identity") as pool:
        for file, found in zip(files, pool.map(identify, files), strict=True):
            if isinstance(found, str):
                summary.failed.append((file.path, found))
            else:
                yield found


def _in_part(count: int, all: int, target: str) -> str:
    return (
        f"{count} of the {all} files that it was merged from were added to {target} before, and its events cannot be "
        "separated: add the files that it was merged from, or add it to an empty directory"
    )
