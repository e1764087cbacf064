"""The survey of all input files of a job, which gives them one plan of columns and types, independent of groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import SparkSession

from esformat.convert import Plan, Roles
from esformat.convert.column_type import join
from esformat.convert.load import notes_of
from esformat.errors import EsdbError, UsageError
from esformat.format import json_text
from esformat.read.collection.schema import common_type
from esformat.spark.input_rows import TASK_BYTES, InputRules, Piece, Surveyed, survey
from esformat.spark.jobs.inputs import InputFile
from esformat.spark.jobs.summary import reason_of
from esformat.spark.jobs.waves import CHUNK_BYTES, chunked, in_waves


@dataclass(frozen=True, slots=True)
class Inspection:
    """The readable files with their common rules and plan, and why other files cannot be read."""

    rules: InputRules
    plan: Plan
    files: Mapping[str, Surveyed]  # by path
    failed: Sequence[tuple[str, str]]

    def pieces(self, files: Sequence[InputFile]) -> tuple[Piece, ...]:
        """The pieces of some files for tasks; large Parquet files are divided by row groups."""
        return tuple(piece for file in files for piece in _pieces(file, self.files[file.path].group_bytes))

    def notes(self) -> Iterator[str]:
        """Yield notes about the events that a user may not expect."""
        assumed = {unit for found in self.files.values() for unit in found.assumed}
        if assumed:
            units = " and ".join(sorted(assumed))
            yield f"numeric timestamps were read as {units} since 1970: --timestamp-format changes that"
        naive = self.plan.types.get(self.plan.roles.timestamp)
        if naive is not None and pa.types.is_timestamp(naive) and naive.tz is None:
            zone = self.plan.roles.clock.zone or "UTC"
            yield f"timestamps without a time zone were read as {zone}: --timezone changes that"
        yield from notes_of(self.plan)
        lost = sum((Counter(found.lost) for found in self.files.values()), Counter[str]())
        for name, count in lost.items():
            yield f"column {name!r}: {json_text.NO_NAN.format(count)}"
        bad = sum(found.bad for found in self.files.values())
        if bad:
            yield f"{bad:,} bad rows were left out"


def inspect(
    spark: SparkSession, rules: InputRules, files: Sequence[InputFile], existing: pa.Schema | None = None
) -> Inspection:
    """Survey files in tasks. existing: the columns of existing segments, with which new events must be compatible.

    Raises UsageError for incompatible columns of two files, or a column that no file has.
    """
    found: dict[str, Surveyed] = {}
    failed: list[tuple[str, str]] = []
    chunks = chunked(files, lambda file: file.size_bytes, most=CHUNK_BYTES)
    for chunk, outcomes, reason in in_waves(spark, chunks, _SurveyFiles(rules)):
        for file, outcome in zip(chunk, outcomes or [reason or "unknown"] * len(chunk), strict=True):
            if isinstance(outcome, Surveyed):
                found[file.path] = outcome
            else:
                failed.append((file.path, outcome))
    rules, plan = unite(rules, found, existing)
    return Inspection(rules, plan, found, failed)


def unite(
    rules: InputRules, found: Mapping[str, Surveyed], existing: pa.Schema | None = None
) -> tuple[InputRules, Plan]:
    """Return the common rules and plan of all files. Raises UsageError as `inspect` does."""
    typed: dict[str, pa.DataType] = {}
    guessed: dict[str, pa.DataType] = {}
    owners: dict[str, str] = {}
    for path, each in found.items():
        for name, kind in each.typed.items():
            _unite(typed, owners, path, name, kind, rules.roles)
        for name, kind in each.guessed.items():
            guessed[name] = join(guessed.get(name, pa.null()), kind)
    types = {**guessed, **typed}
    roles = rules.roles
    missing = next((name for name in roles.required if found and name not in types), None)
    if missing is not None:
        raise UsageError(f"no file has a column {missing!r}", hint=f"the columns are {', '.join(types)}")
    if roles.second_key in types:
        roles = replace(roles, grouping=roles.second_key)
    if roles.space in typed and pa.types.is_binary(typed[roles.space]):
        roles = replace(roles, keys="binary")
    plan = Plan(roles, types, has_nanos=any(each.has_nanos for each in found.values()))
    if existing is not None:
        plan = replace(plan, types={**types, **_widened(plan, existing, typed)})
    return replace(rules, roles=roles), plan


def _unite(
    types: dict[str, pa.DataType], owners: dict[str, str], path: str, name: str, kind: pa.DataType, roles: Roles
) -> None:
    known = types.setdefault(name, kind)
    owner = owners.setdefault(name, path)
    if known == kind:
        return
    if name in (roles.space, roles.second_key, roles.timestamp, roles.payload):
        types[name] = join(known, kind)
        return
    both = common_type(known, kind)
    if both is None:
        raise UsageError(
            f"column {name!r} is {known} in {owner} and {kind} in {path}",
            hint="convert them separately, or name the columns to keep with columns (--columns)",
        )
    types[name] = both


def _widened(plan: Plan, existing: pa.Schema, typed: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    """The types of source columns that also fit the existing columns, where such types exist."""
    stored = {**{name: name for name in plan.indexes}, **plan.stored}
    found = {}
    for source, name in stored.items():
        if name not in existing.names:
            continue
        kind, held = plan.types.get(source, pa.null()), existing.field(name).type
        both = common_type(kind, held) if source in typed else join(kind, held)
        if both is not None:
            found[source] = both
    return found


def _pieces(file: InputFile, group_bytes: Sequence[int]) -> Iterator[Piece]:
    if file.size_bytes <= TASK_BYTES or len(group_bytes) < 2:
        yield Piece(file.path, file.size_bytes)
        return
    scale = file.size_bytes / max(1, sum(group_bytes))
    first, size = 0, 0.0
    for place, weight in enumerate(group_bytes):
        if place > first and size + weight * scale > TASK_BYTES:
            yield Piece(file.path, int(size), (first, place))
            first, size = place, 0.0
        size += weight * scale
    yield Piece(file.path, int(size), (first, len(group_bytes)))


class _SurveyFiles:
    """Surveys files; a failure costs only its file. A class, so that tasks receive only its name."""

    def __init__(self, rules: InputRules) -> None:
        self._rules = rules

    def __call__(self, files: Sequence[InputFile]) -> list[Surveyed | str]:
        return [self._survey(file.path) for file in files]

    def _survey(self, path: str) -> Surveyed | str:
        try:
            return survey(self._rules, path)
        except (EsdbError, OSError, pa.ArrowException) as error:
            return _without_path(error, path) if isinstance(error, EsdbError) else reason_of(error)


def _without_path(error: EsdbError, path: str) -> str:
    """The error's message without the path, which is reported separately."""
    return str(error).removeprefix(f"{path}: ")
