"""What can be given with `.option(…)`: names, meanings, and values checked. Spark hands all of them as text."""

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

PARTITION_BYTES = 64 << 20  # stored: about two million events, four seconds of one core with all columns
SEGMENT_BYTES = 256 << 20  # in memory as Arrow: 40-80 MB on disk
SEGMENT_EVENTS = 4_000_000

_OF_TABLES = ("serialization.format", "owner", "provider", "location", "external", "is_managed_location", "comment")
"""What Spark's catalog adds to the options of a table."""
_NAME = re.compile(r'\s*(?:"(?P<quoted>(?:[^"]|"")*)"|(?P<plain>[^,]*?))\s*(?P<comma>,|\Z)')
_LOST = "tables of a catalog lose theirs in Spark"


def parse_names(text: str) -> tuple[str, ...]:
    """Column names with commas between, in CSV quotes where need be. Raises ValueError that says what was expected."""
    names = []
    for quoted, plain in _each_name(text):
        if not plain and quoted is None:
            raise ValueError("a list of column names with commas between")
        names.append(plain if quoted is None else quoted.replace('""', '"'))
    if len(set(names)) != len(names):
        raise ValueError("column names, each once")
    return tuple(names)


def _each_name(text: str) -> Iterator[tuple[str | None, str]]:
    """What is within quotes, None where there are none, and what stands there without."""
    at, comma = 0, ","
    while comma:
        found = _NAME.match(text, at)
        assert found is not None  # whatever comes is one name at least, if without a letter
        at, comma = found.end(), found["comma"]
        yield found["quoted"], found["plain"]


def as_list(names: Sequence[str]) -> str:
    """Column names as an option takes them; in CSV quotes where it would take a name for another. Raises UsageError."""
    if isinstance(names, str):
        raise UsageError(f"columns are a list of names, not the text {names!r}", hint=f"give [{names!r}]")
    return ",".join(
        name if name and name == name.strip() and not set(name) & set(',"') else '"' + name.replace('"', '""') + '"'
        for name in names
    )


def parse_indexes(text: str) -> tuple[str, ...]:
    """The same, or none."""
    return parse_names(text) if text.strip() else ()


def _name(text: str) -> str:
    if not text:
        raise ValueError("a column name")
    return text


def parse_bytes(text: str) -> int:
    """A number of bytes above zero: 1048576, 32MiB. Raises ValueError that says what was expected."""
    with suppress(ValueError):
        if size := parse_size(text):
            return size
    raise ValueError("a size above zero, such as 256MiB")


def parse_count(text: str) -> int:
    """A whole number from 1. Raises ValueError."""
    if not re.fullmatch(r"\s*[1-9]\d{0,14}\s*", text):
        raise ValueError("a whole number from 1")
    return int(text)


def one_of(*values: str) -> Callable[[str], str]:
    """A parser that takes one of some words, in any case."""

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
    """Options that were given, each at most once and in any case, as Spark has it."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        """Raises UsageError for an option that is not known."""
        self._given = {name.lower(): text for name, text in given.items()}
        names = {name.lower() for name in known}
        for name in given:
            if name.lower() not in names:
                raise UsageError(f"unknown option {name!r}", hint=f"the options are {', '.join(known)}")

    def get(self, name: str, parse: Callable[[str], T]) -> T | None:
        """An option's value; None where it was not given. Raises UsageError where it is none."""
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

    paths: what to read: files, directories, patterns, prefixes of object stores (`load(path)`).
    columns: those to read, in this order; None: all.
    where: the condition that events must meet, see `condition`; "": none.
    partition_bytes (`partitionBytes`): about how many stored bytes a task reads; fewer where processors would be idle.
    partitions: how many tasks instead, as far as the files can be cut that finely.
    name_pattern (`pathGlobFilter`): the names of the files to read, as `part-*`; None: all.
    merge_schema (`mergeSchema`): whether the columns are those of all files, as is usual here, or of the first one.
    zone (`timeZone`): of times in the condition that name none.
    limit: so many events are enough, whichever they are; None: all. With a condition each task may give as many.
    max_files (`maxFilesPerTrigger`), fail_on_data_loss (`failOnDataLoss`): of a stream, the segments of a micro-batch,
    and whether it ends where segments went that it had not read.
    packed: whether rows are those of `packed`, as `esformat.spark.sql` asks for.
    cores: tasks that the session runs at a time.
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
        """Read them from what Spark hands over. zone, cores: the session's. Raises UsageError."""
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
    """A pattern of names as Hadoop has them: `*`, `?`, `[a-z]`, `{one,two}`. Raises ValueError."""
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
        raise ValueError("a pattern of names, as part-*.esdb") from None


def parse_paths(text: str) -> tuple[str, ...]:
    """Several paths, as Spark writes them: a JSON list. Raises ValueError."""
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

    path: the directory to write into, one that all machines share, or a prefix of an object store (`save(path)`).
    space, timestamp: columns that become those of the events; grouping: the same, None: there is none, unless a column
    is called so.
    indexes: columns that get an index.
    keys: "text" or "binary"; None: as the column of spaces is.
    codec, level: as of `esformat.create`.
    segment_bytes (`segmentBytes`), segment_events (`segmentEvents`): a task begins its next segment when it holds so
    many, in memory and of Arrow; it needs about three times that memory.
    job: what tells this write from others; made up where it is not given.
    facts: a JSON object that the record of the commit keeps. lease: of the job that the write is a part of.
    partition_by (`partitionBy`): columns whose values name the directories that rows go into, outermost first.
    checkpoint: of a stream (`checkpointLocation`): where its checkpoint is; "": elsewhere. `queryName`, which Spark
    hands over as well, means nothing here.
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
        """Read them from what Spark hands over. Raises UsageError."""
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
