"""`erase`: rewrite a segment without the events of some spaces, and report that nothing of them is left."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from esformat.errors import SpaceNotFoundError, UsageError
from esformat.format.dictionary import ColumnDictionary
from esformat.format.metadata import Statistics, check_properties
from esformat.io.location import Options, Target, apply_options
from esformat.io.publish import Publication
from esformat.io.source import FileSource
from esformat.io.upload import Upload
from esformat.read.segment import Segment, open_segment
from esformat.tools.new_segment import Progress, check_output, make_segment, opened, published, reader_of
from esformat.tools.original import OpenOriginal
from esformat.tools.plan import plan_assembly, plan_reencoded
from esformat.tools.residue import Erased, examine_erased, shared_with_kept, values_to_overwrite, without_values
from esformat.tools.selection import Selection, rows_outside
from esformat.tools.template_residue import templates_to_overwrite, without_templates

Key = str | bytes
SEARCH_BYTES = 1 << 20
LEAST_SEARCHED_BYTES = 4


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the new file: what was checked, whether it passed, and what was found."""

    what: str
    ok: bool
    found: str


@dataclass(frozen=True, slots=True)
class EraseReport:
    """What `erase` removed, and the checks of the new file, which was opened before it got its name.

    erased: the number of erased events by space; absent: requested spaces that the segment did not have.
    index_entries, index_values: for each index, the removed entries, and the values that no event has any more.
    dictionary_values: the number of values overwritten in dictionaries of coded columns, and of texts in templates.
    reencoded: whether all blocks were re-encoded because the compression dictionary might have contained text of
    erased events. stored_matches: how often the bytes of a space's key still occur in the new file as stored; other
    keys and events may contain the same bytes.
    """

    path: str
    erased: dict[Key, int]
    absent: tuple[Key, ...]
    index_entries: dict[str, int]
    index_values: dict[str, int]
    dictionary_values: int
    reencoded: bool
    copied_blocks: int
    encoded_blocks: int
    stored_matches: dict[Key, int]
    checks: tuple[Check, ...]

    @property
    def events(self) -> int:
        """Number of erased events."""
        return sum(self.erased.values())

    @property
    def ok(self) -> bool:
        """Whether all checks passed."""
        return all(check.ok for check in self.checks)


def erase(
    path: Target,
    out: Target,
    spaces: Sequence[Key],
    *,
    properties: Mapping[str, str] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    storage_options: Options = None,
) -> EraseReport:
    """Write a segment without the events of some spaces to `out`. The original is not changed: delete it afterwards.

    Blocks without such events are copied unchanged, others are re-encoded. This removes the events, their keys in the
    directory and the space filter, their index entries, and the values that only they had in indexes and dictionaries.
    If the dictionary that payloads are compressed with shares text with erased events that is not found in other
    events, all blocks are re-encoded with a new dictionary. The contents of other events are not changed, nor are the
    properties, except those that `properties` adds or replaces.
    progress, storage_options: as for `merge`. Raises SpaceNotFoundError if the segment has none of the spaces,
    UsageError, CorruptSegmentError, OSError; nothing appears at `out` then.
    """
    path, out = apply_options(storage_options, path, out)
    if isinstance(spaces, str | bytes) or not spaces:
        raise UsageError("erase needs a list of at least one space")
    check_output(out, [path])
    with opened([path]) as (original,):
        rows = {space: _rows_of(original, _key_bytes(space)) for space in dict.fromkeys(spaces)}
        counts = {space: last - first for space, (first, last) in rows.items()}
        ranges = sorted({(first, last) for first, last in rows.values() if first < last})
        if not ranges:
            raise SpaceNotFoundError(f"no space {spaces[0]!r}", path=original.name)
        selection = rows_outside(ranges, original.row_count)
        erased = examine_erased(original, ranges)
        removed = values_to_overwrite(original, selection, erased)
        stored = original.metadata.properties | check_properties(properties)
        metadata = replace(original.metadata, properties=stored, statistics=None)
        reencoded = not shared_with_kept(original, selection, erased)
        dictionaries, overwritten = _without(original, selection, erased, removed, keep_codes=not reencoded)
        if reencoded:
            plan, copied = plan_reencoded([original], metadata, [selection], [dictionaries]), [False]
        else:
            plan, copied = plan_assembly([original], metadata, [dictionaries])
        with published(out, overwrite=overwrite) as publication:
            made = make_segment(publication, [original], [selection], plan, copied, progress=progress)
            before = original.metadata.statistics
            assert before is not None
            stored_matches, checks = _check_output(publication, counts, before, erased)
    return EraseReport(
        path=publication.name,
        erased={space: count for space, count in counts.items() if count},
        absent=tuple(space for space, count in counts.items() if not count),
        index_entries=erased.entries,
        index_values=_removed_values(before, made.statistics, erased.entries),
        dictionary_values=overwritten,
        reencoded=reencoded,
        copied_blocks=made.copied_blocks,
        encoded_blocks=made.encoded_blocks,
        stored_matches=stored_matches,
        checks=checks,
    )


def _removed_values(before: Statistics, after: Statistics, names: Iterable[str]) -> dict[str, int]:
    return {name: before.indexes[name]["values"] - after.indexes[name]["values"] for name in names}


def _without(
    original: OpenOriginal, selection: Selection, erased: Erased, removed: dict[int, set[Any]], *, keep_codes: bool
) -> tuple[dict[int, list[ColumnDictionary]], int]:
    """The dictionaries without the values and texts that only erased events had, and how many these were."""
    dictionaries, values = without_values(original.dictionaries(), removed, keep_codes=keep_codes)
    if not keep_codes:
        return dictionaries, values
    made, texts = without_templates(dictionaries, templates_to_overwrite(original, selection, erased.templates))
    return made, values + texts


def _key_bytes(space: Key) -> bytes:
    if isinstance(space, str):
        return space.encode()
    if isinstance(space, bytes):
        return space
    raise UsageError(f"a key must be str or bytes, not {type(space).__name__}")


def _rows_of(original: OpenOriginal, key: bytes) -> tuple[int, int]:
    """The rows [first, last) of a space; (0, 0) if it has none."""
    found: list[int] = []
    for number in original.reader.root.leaves_of(key):
        leaf = original.reader.leaf(number)
        first, last = leaf.runs_of(key)
        if first < last:
            found += [leaf.run_rows[first], leaf.run_rows[last]]
    return (found[0], found[-1]) if found else (0, 0)


# ---------------------------------------------------------------- checks of the new file


def _check_output(
    publication: Publication | Upload, counts: dict[Key, int], before: Statistics, erased: Erased
) -> tuple[dict[Key, int], tuple[Check, ...]]:
    """Matches of the spaces' keys in the new file, and the checks. Also syncs the file, so that publishing is fast."""
    publication.file.flush()
    descriptor = publication.file.fileno()
    with ThreadPoolExecutor(1, thread_name_prefix="esformat-sync") as pool:
        synced = pool.submit(os.fsync, descriptor)
        matches = _stored_matches(descriptor, list(counts))
        with open_segment(FileSource(publication.name, descriptor)) as after:
            checks = tuple(_checks(after, counts, before, erased))
        synced.result()
    return matches, checks


def _checks(after: Segment, counts: dict[Key, int], before: Statistics, erased: Erased) -> Iterator[Check]:
    """Look for the spaces in the new file, opened again, in every place that could still reveal them."""
    found = [space for space in counts if after.find(space) is not None]
    yield Check("find", not found, f"finds {_named(found)}" if found else "finds none of them")
    admitted = [space for space in counts if after.may_contain(space)]
    wrongly = ", although the directory does not have it, as for 1 in 100 keys" if admitted else ""
    yield Check(
        "space filter", not set(admitted) & set(found), f"admits {_named(admitted)}{wrongly}" if admitted else "says no"
    )
    keys = {_key_bytes(space) for space in counts}
    runs = found_runs = 0
    for leaf in OpenOriginal(reader_of(after)).leaves():
        runs += len(leaf.spaces)
        found_runs += sum(map(keys.__contains__, leaf.spaces))
    yield Check("directory", not found_runs, f"{found_runs} of {runs} runs belong to them")
    expected = before.events - sum(counts.values())
    yield Check("events", after.num_events == expected, f"{after.num_events} of {before.events}, expected {expected}")
    for name in after.indexes:
        entries = sum(count for _, count in after.index_values(name).items())
        expected = before.indexes[name]["events"] - erased.entries[name]
        words = f"{entries} entries of {before.indexes[name]['events']}, expected {expected}"
        yield Check(f"index {name}", entries == expected, words)


def _named(spaces: Sequence[Key]) -> str:
    more = f" and {len(spaces) - 3} more" if len(spaces) > 3 else ""
    return ", ".join(repr(space) for space in spaces[:3]) + more


def _stored_matches(descriptor: int, spaces: Sequence[Key]) -> dict[Key, int]:
    """How often the keys' bytes occur in a file as stored. Skips keys of less than 4 bytes, which occur everywhere."""
    keys = {space: key for space in spaces if len(key := _key_bytes(space)) >= LEAST_SEARCHED_BYTES}
    counts: dict[Key, int] = dict.fromkeys(keys, 0)
    piece = bytearray(SEARCH_BYTES + max(map(len, keys.values()), default=0))
    for at in range(0, os.fstat(descriptor).st_size if keys else 0, SEARCH_BYTES):
        size = 0
        while more := os.preadv(descriptor, [memoryview(piece)[size:]], at + size):
            size += more  # a read may stop early
        for space, key in keys.items():
            place = piece.find(key, 0, size)
            while 0 <= place < SEARCH_BYTES:
                counts[space] += 1
                place = piece.find(key, place + 1, size)
    return counts
