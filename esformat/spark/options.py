"""The options of `.option(…)`: names, meanings and validation. Spark passes all of them as text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Self, TypeVar

from esformat.base.quantity import parse_size
from esformat.errors import UsageError

T = TypeVar("T")

PARTITION_BYTES = 64 << 20  # stored: about four million events; with all columns, three seconds on one core
SEGMENT_BYTES = 256 << 20  # in memory as Arrow: 40-80 MB on disk
SEGMENT_EVENTS = 4_000_000

_OF_TABLES = ("serialization.format", "owner", "provider", "location", "external", "is_managed_location", "comment")
"""Options that Spark's catalog adds to those of a table."""
_NAME = re.compile(r'\s*(?:"(?P<quoted>(?:[^"]|"")*)"|(?P<plain>[^,]*?))\s*(?P<comma>,|\Z)')
_LOST = "Spark drops the path of catalog tables"


def parse_names(text: str) -> tuple[str, ...]:
    """Parse comma-separated column names, quoted as in CSV if necessary. Raises ValueError with what was expected."""
    names = []
    for quoted, plain in _each_name(text):
        if not plain and quoted is None:
            raise ValueError("column names separated by commas")
        names.append(plain if quoted is None else quoted.replace('""', '"'))
    if len(set(names)) != len(names):
        raise ValueError("column names, each once")
    return tuple(names)


def _each_name(text: str) -> Iterator[tuple[str | None, str]]:
    """Yield each name as its quoted part, None without quotes, and its plain part."""
    at, comma = 0, ","
    while comma:
        found = _NAME.match(text, at)
        assert found is not None  # any text contains at least one name, possibly empty
        at, comma = found.end(), found["comma"]
        yield found["quoted"], found["plain"]


def as_list(names: Sequence[str]) -> str:
    """Join column names for an option, quoted as in CSV if ambiguous. Raises UsageError."""
    if isinstance(names, str):
        raise UsageError(f"columns must be a list of names, not the text {names!r}", hint=f"give [{names!r}]")
    return ",".join(
        name if name and name == name.strip() and not set(name) & set(',"') else '"' + name.replace('"', '""') + '"'
        for name in names
    )


def parse_indexes(text: str) -> tuple[str, ...]:
    """Parse column names as `parse_names` does; blank text means none."""
    return parse_names(text) if text.strip() else ()


def _name(text: str) -> str:
    if not text:
        raise ValueError("a column name")
    return text


def parse_bytes(text: str) -> int:
    """Parse a size above zero, such as 1048576 or 32MiB. Raises ValueError that says what was expected."""
    with suppress(ValueError):
        if size := parse_size(text):
            return size
    raise ValueError("a size above zero, such as 256MiB")


def parse_count(text: str) -> int:
    """Parse an integer of at least 1. Raises ValueError."""
    if not re.fullmatch(r"\s*[1-9]\d{0,14}\s*", text):
        raise ValueError("a whole number from 1")
    return int(text)


def one_of(*values: str) -> Callable[[str], str]:
    """Return a parser that accepts one of some words, ignoring case."""

    def parse(text: str) -> str:
        if text.lower() not in values:
            raise ValueError(f"one of {', '.join(values)}")
        return text.lower()

    return parse


def _level(text: str) -> int:
    if not re.fullmatch(r"-?\d{1,3}", text) or not -100 <= int(text) <= 22:
        raise ValueError("a zstd level, from -100 to 22")
    return int(text)


class Options:
    """The given options, by name ignoring case, as in Spark."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        """Raises UsageError for an unknown option."""
        self._given = {name.lower(): text for name, text in given.items()}
        names = {name.lower() for name in known}
        for name in given:
            if name.lower() not in names:
                raise UsageError(f"unknown option {name!r}", hint=f"the options are {', '.join(known)}")

    def get(self, name: str, parse: Callable[[str], T]) -> T | None:
        """Return an option's parsed value; None if it was not given. Raises UsageError for an invalid value."""
        text = self._given.get(name.lower())
        if text is None:
            return None
        try:
            return parse(text)
        except ValueError as error:
            raise UsageError(f"option {name!r} must be {error}, not {text!r}") from None


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of `spark.read.format("esdb")`.

    paths: files, directories, patterns, prefixes of object stores to read (`load(path)`).
    columns: columns to read, in this order; None: all.
    where: the condition that events must satisfy, see `condition`; "": none.
    partition_bytes (`partitionBytes`): approximate stored bytes per task; fewer if processors would be idle.
    partitions: the number of tasks instead, as far as the files can be divided that finely.
    name_pattern (`pathGlobFilter`): pattern for file names, such as `part-*`; None: all.
    merge_schema (`mergeSchema`): whether the columns are those of all files (the default) or of the first one.
    zone (`timeZone`): of times without one in the condition.
    limit: any so many events suffice; None: all. With a condition, each task may return that many.
    max_files (`maxFilesPerTrigger`): segments per micro-batch of a stream.
    fail_on_data_loss (`failOnDataLoss`): whether a stream fails if unread segments are gone.
    packed: whether to return packed rows (see the module `packed`), for `esformat.spark.sql`.
    cores: the number of tasks that the session runs in parallel.
    """

    paths: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    where: str = ""
    partition_bytes: int = PARTITION_BYTES
    partitions: int | None = None
    name_pattern: re.Pattern[str] | None = None
    merge_schema: bool = True
    zone: str = "UTC"
    limit: int | None = None
    max_files: int | None = None
    fail_on_data_loss: bool = True
    packed: bool = False
    cores: int = 1

    @classmethod
    def parse(cls, given: Mapping[str, str], zone: str = "UTC", cores: int = 1) -> Self:
        """Parse the options passed by Spark. zone, cores: the session's. Raises UsageError."""
        known = (
            "path", "paths", "columns", "where", "partitionBytes", "partitions", "pathGlobFilter", "mergeSchema",
            "timeZone", "limit", "maxFilesPerTrigger", "failOnDataLoss", "packed",
        )  # fmt: skip
        options = Options({name: text for name, text in given.items() if name.lower() not in _OF_TABLES}, known)
        one, several = options.get("path", str), options.get("paths", parse_paths) or ()
        paths = (one, *several) if one else several
        if not paths:
            raise UsageError(
                "nothing to read",
                hint=f'give a path: spark.read.format("esdb").load(path); {_LOST}: '
                'read them with esformat.spark.sql(spark, "SELECT …")',
            )
        return cls(
            paths,
            options.get("columns", parse_names),
            options.get("where", str) or "",
            options.get("partitionBytes", parse_bytes) or PARTITION_BYTES,
            options.get("partitions", parse_count),
            options.get("pathGlobFilter", parse_pattern),
            options.get("mergeSchema", one_of("true", "false")) != "false",
            options.get("timeZone", str) or zone,
            options.get("limit", parse_count),
            options.get("maxFilesPerTrigger", parse_count),
            options.get("failOnDataLoss", one_of("true", "false")) != "false",
            options.get("packed", one_of("true", "false")) == "true",
            cores,
        )


def parse_pattern(text: str) -> re.Pattern[str]:
    """Compile a Hadoop glob pattern for names: `*`, `?`, `[a-z]`, `{one,two}`. Raises ValueError."""
    known = {"*": ".*", "?": ".", "{": "(?:", "}": ")", ",": "|"}
    pieces = re.findall(r"\[[^\]]+\]|\{[^{}]*\}|.", text, re.DOTALL)
    expression = "".join(
        "".join(known.get(each, re.escape(each)) for each in piece)
        if piece[0] == "{" and len(piece) > 1
        else piece.replace("[!", "[^")
        if piece[0] == "[" and len(piece) > 1
        else known[piece]
        if piece in "*?"
        else re.escape(piece)
        for piece in pieces
    )
    try:
        return re.compile(expression, re.DOTALL)
    except re.error:
        raise ValueError("a pattern of names, such as part-*.esdb") from None


def parse_paths(text: str) -> tuple[str, ...]:
    """Parse several paths as Spark passes them: a JSON list. Raises ValueError."""
    try:
        paths = json.loads(text)
    except json.JSONDecodeError:
        paths = None
    if not isinstance(paths, list) or not all(isinstance(path, str) and path for path in paths):
        raise ValueError("a JSON list of paths")
    return tuple(paths)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of `df.write.format("esdb")`.

    path: the directory to write into, which all machines must share, or a prefix of an object store (`save(path)`).
    space, timestamp: the columns for space and timestamp. grouping: likewise; None: a column called "grouping", if any.
    indexes: columns to index.
    keys: "text" or "binary"; None: by the type of the space column.
    codec, level: as for `esformat.create`.
    segment_bytes (`segmentBytes`), segment_events (`segmentEvents`): a task starts its next segment when it has
    buffered this much, as Arrow in memory; it needs about three times that memory.
    job: a unique name of this write; generated if not given.
    facts: a JSON object to store in the commit's record. lease: the lease of the job that this write belongs to.
    partition_by (`partitionBy`): columns whose values name the directories for the rows, outermost first.
    checkpoint (`checkpointLocation`): the checkpoint of a stream; "": chosen by Spark. `queryName`, which Spark also
    passes, is ignored.
    """

    path: str
    space: str = "space"
    timestamp: str = "timestamp"
    grouping: str | None = None
    indexes: tuple[str, ...] = ()
    keys: str | None = None
    codec: str = "zstd"
    level: int | None = None
    segment_bytes: int = SEGMENT_BYTES
    segment_events: int = SEGMENT_EVENTS
    job: str = ""
    facts: str = "{}"
    lease: str = ""
    checkpoint: str = ""
    partition_by: tuple[str, ...] = ()

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """Parse the options passed by Spark. Raises UsageError."""
        known = ("path", "space", "timestamp", "grouping", "indexes", "keys", "codec", "level", "segmentBytes",
                 "segmentEvents", "job", "facts", "lease", "checkpointLocation", "queryName",
                 "partitionBy")  # fmt: skip
        options = Options(given, known)
        path = options.get("path", str)
        if not path:
            raise UsageError(
                "nowhere to write",
                hint=f'give a path: esformat.spark.write(df, path), or df.write.format("esdb").save(path); {_LOST}',
            )
        level, codec = options.get("level", _level), options.get("codec", one_of("zstd", "lz4", "none")) or "zstd"
        if level is not None and codec != "zstd":
            raise UsageError(f"codec {codec!r} has no levels")
        return cls(
            path=path,
            space=options.get("space", _name) or "space",
            timestamp=options.get("timestamp", _name) or "timestamp",
            grouping=options.get("grouping", _name),
            indexes=options.get("indexes", parse_indexes) or (),
            keys=options.get("keys", one_of("text", "binary")),
            codec=codec,
            level=level,
            segment_bytes=options.get("segmentBytes", parse_bytes) or SEGMENT_BYTES,
            segment_events=options.get("segmentEvents", parse_count) or SEGMENT_EVENTS,
            job=options.get("job", str) or "",
            facts=options.get("facts", str) or "{}",
            lease=options.get("lease", str) or "",
            checkpoint=options.get("checkpointLocation", str) or "",
            partition_by=options.get("partitionBy", parse_indexes) or (),
        )
