"""Settings of a collector: frozen values that are checked on creation, from a TOML file or from options."""

from __future__ import annotations

import codecs
import os
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from fnmatch import fnmatch, fnmatchcase
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from aggregator.collect.choices import FORMATS, KINDS, TYPES
from aggregator.errors import InvalidRequestError
from aggregator.lql import Regex, RegexError, TagSet
from aggregator.storage.segments.records import OWN_COLUMNS

MAX_LINE_BYTES = 1 << 20
BATCH_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Cutting:
    """How bytes are split into records. max_bytes: longer lines are cut. first_line: an RE2 pattern that the first line
    of each record matches; None: each line is a record. container: the wrapping to remove, one of choices.KINDS.
    """

    max_bytes: int = MAX_LINE_BYTES
    first_line: str | None = None
    container: str = "none"


@dataclass(frozen=True, slots=True)
class Files:
    """A group of files, and how to read their lines.

    path: globs. exclude: globs of names to skip. tags: of every stream. file_tag: the tag with the file's path, "" for
    none. format: one of FORMATS. pattern: for the format regex, with named groups. time: the key or group with the
    time; "none": do not look for dates in lines of text. tags_from, fields, columns: keys or groups that become tags,
    fields, typed columns. multiline: a pattern of first lines. begin: where to start in files that exist at the first
    run. compressed: "skip" skips .gz files, "once" reads each to its end. container: the wrapping to remove from lines
    before they are parsed: "docker", "cri", "none", or "auto" for whichever is found. path_tags: a pattern for the
    file's path, whose named groups become tags. zone: of times that name none.
    """

    path: tuple[str, ...]
    name: str = "files"
    exclude: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    file_tag: str = "file"
    format: str = "text"
    pattern: str | None = None
    time: str | None = None
    tags_from: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    multiline: str | None = None
    encoding: str = "utf-8"
    max_line_bytes: int = MAX_LINE_BYTES
    begin: str = "start"
    compressed: str = "skip"
    container: str = "auto"
    path_tags: str | None = None
    zone: str = "UTC"

    def __post_init__(self) -> None:
        if not self.path:
            raise InvalidRequestError("no files are named", hint="give at least one path, which may have * and ?")
        _one_of("format", self.format, FORMATS)
        _one_of("begin", self.begin, ("start", "end"))
        _one_of("compressed", self.compressed, ("skip", "once"))
        _one_of("container", self.container, KINDS)
        if self.format == "text" and self.time not in (None, "none"):
            raise InvalidRequestError("the format text has no key for the time", hint='omit time, or set it to "none"')
        if (self.format == "regex") != (self.pattern is not None):
            raise InvalidRequestError("the format regex needs a pattern, and no other format takes one")
        for what, pattern in (("pattern", self.pattern), ("multiline", self.multiline), ("path_tags", self.path_tags)):
            if pattern is not None:
                check_pattern(what, pattern)
            if pattern is not None and what != "multiline":
                _check_groups(what, pattern)
        for name, kind in self.columns.items():
            if name in OWN_COLUMNS:
                raise InvalidRequestError(
                    f"a column cannot be called {name!r}: every record already has one of that name",
                    hint="list it in fields, which keep it as text",
                )
            _one_of(f"the type of the column {name}", kind, TYPES)
        if not 64 <= self.max_line_bytes <= 16 << 20:
            raise InvalidRequestError("max_line_bytes must be between 64 bytes and 16 MiB")
        _check_encoding(self.encoding)
        _check_zone(self.zone)
        TagSet.of({**self.tags, **({self.file_tag: ""} if self.file_tag else {})})

    def may_name(self, path: str) -> bool:
        """Whether the globs may match a path, existing or not. Errs towards True: here `*` also matches `/`."""
        if self.excludes(path):
            return False
        absolute = os.path.abspath(path)  # noqa: PTH100 - symbolic links stay
        for pattern in map(os.path.abspath, self.path):
            globs = pattern, pattern.replace("**/", ""), f"{pattern}/*"
            if any(fnmatchcase(absolute, one) for one in globs) or absolute.startswith(f"{pattern}/"):
                return True
        return False

    def excludes(self, path: str) -> bool:
        """Whether a path is skipped although the globs match it."""
        name = Path(path).name
        return any(fnmatch(name, one) or fnmatch(path, one) for one in self.exclude)

    @property
    def cutting(self) -> Cutting:
        """How the bytes of the files are split into records."""
        return Cutting(self.max_line_bytes, self.multiline, self.container)

    def tags_of_path(self, path: str) -> dict[str, str]:
        """The tags that path_tags finds in a path; empty if it does not match."""
        if self.path_tags is None:
            return {}
        found = pc.extract_regex(pa.array([path]), self.path_tags)[0].as_py() or {}
        return {name: value for name, value in found.items() if value}


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a collector. into: a catalog's directory, or the address of a server. state: its progress file.

    batch_bytes: bytes of lines stored together. interval_s: seconds between looks for new lines. flush_s: seconds after
    which a last line without a line end is stored.
    """

    into: str
    files: tuple[Files, ...]
    topic: str = "logs"
    partition: str = "0"
    state: str | None = None
    token: str | None = None
    batch_bytes: int = BATCH_BYTES
    interval_s: float = 0.25
    flush_s: float = 5.0

    def __post_init__(self) -> None:
        if not self.files:
            raise InvalidRequestError("no files are named", hint="give --path, or [[files]] in the configuration")
        if not 1 << 10 <= self.batch_bytes <= 32 << 20:
            raise InvalidRequestError("batch_bytes must be between 1 KiB and 32 MiB")
        names = [one.name for one in self.files]
        if len(set(names)) != len(names):
            raise InvalidRequestError("two [[files]] have the same name", hint="give each a different name")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read settings from a TOML file. Raises InvalidRequestError, OSError."""
        try:
            given = tomllib.loads(path.read_text("utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidRequestError(f"invalid TOML: {error}", path=str(path)) from None
        listed = given.pop("files", [])
        if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
            raise InvalidRequestError("write files as [[files]] tables", path=str(path))
        try:
            groups = tuple(
                _made(Files, {"name": f"files{number}" if number else "files", **one})
                for number, one in enumerate(listed)
            )
            made: Self = _made(cls, {**given, "files": groups})
        except InvalidRequestError as error:
            error.path = str(path)
            raise
        return made


def _made(kind: Any, given: Mapping[str, Any]) -> Any:
    """Create a value from the entries of a file. Raises InvalidRequestError for unknown names and wrong types."""
    known = {one.name: one for one in fields(kind)}
    checked = {}
    for name, value in given.items():
        if name not in known:
            raise InvalidRequestError(f"unknown setting {name!r}", hint=f"the settings are {', '.join(known)}")
        wanted = str(known[name].type)
        if wanted.startswith("tuple[str"):
            value = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value
            fits = isinstance(value, tuple) and all(isinstance(one, str) for one in value)
        elif wanted.startswith("Mapping"):
            fits = isinstance(value, dict) and all(isinstance(one, str) for one in value.values())
        elif wanted == "float":
            fits = isinstance(value, int | float) and not isinstance(value, bool)
        elif wanted == "int":
            fits = isinstance(value, int) and not isinstance(value, bool)
        else:
            fits = isinstance(value, str) or wanted.startswith("tuple")
        if not fits:
            raise InvalidRequestError(f"the setting {name!r} cannot be {value!r}", hint=f"give {_shown(wanted)}")
        checked[name] = value
    for name, one in known.items():
        if name not in checked and one.default is MISSING and one.default_factory is MISSING:
            raise InvalidRequestError(f"the setting {name!r} is missing")
    return kind(**checked)


def _shown(wanted: str) -> str:
    """Describe a setting of this type in words."""
    words = {
        "float": "a number",
        "int": "a whole number",
        "Mapping": "a table of strings",
        "tuple": "a list of strings",
    }
    return next((known for start, known in words.items() if wanted.startswith(start)), "text")


def _one_of(what: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise InvalidRequestError(f"{what} cannot be {given!r}", hint=f"give one of {', '.join(known)}")


def check_pattern(what: str, pattern: str) -> None:
    """Raise InvalidRequestError if the pattern is not a valid regular expression, or is too large."""
    try:
        Regex(pattern)
    except RegexError as error:
        raise InvalidRequestError(f"{what} {pattern!r}: {error}") from None


def _check_groups(what: str, pattern: str) -> None:
    """Raise InvalidRequestError if the pattern has no named group, or a group without a name."""
    try:
        named = pc.extract_regex(pa.array([""]), pattern).type.num_fields > 0
    except pa.ArrowInvalid:
        named = False
    if not named:
        raise InvalidRequestError(
            f"{what} has no named group, or one without a name",
            hint="write (?P<name>…), or (?:…) for groups without one",
        )


def _check_zone(name: str) -> None:
    try:
        pc.assume_timezone(pa.array([0], pa.timestamp("us")), name)
    except pa.ArrowInvalid:
        raise InvalidRequestError(f"unknown time zone {name!r}", hint="give a name such as Europe/Stockholm") from None


def _check_encoding(name: str) -> None:
    """Raise InvalidRequestError unless the encoding has the newline byte of ASCII, by which lines are split."""
    try:
        plain = codecs.lookup(name).name == "utf-8" or "a\n".encode(name) == b"a\n"
    except (LookupError, UnicodeError):
        plain = False
    if not plain:
        raise InvalidRequestError(
            f"the encoding {name!r} is unknown, or does not extend ASCII", hint="give utf-8, latin-1, cp1252 …"
        )
