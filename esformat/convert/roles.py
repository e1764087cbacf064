"""Roles of an input's columns, as given by the user and checked; reads no data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from esformat import UsageError
from esformat.convert.clock import Clock
from esformat.convert.errors import InputError

Keys = Literal["text", "binary"]

GROUPING = "grouping"
_LIKELY = {
    "space": (
        "space",
        "user",
        "user_id",
        "userid",
        "customer",
        "customer_id",
        "account",
        "who",
        "host",
        "device",
        "key",
        "id",
    ),
    "timestamp": (
        "timestamp",
        "time",
        "ts",
        "@timestamp",
        "at",
        "date",
        "datetime",
        "created_at",
        "when",
        "occurred_at",
    ),
}
"""Common names of key and time columns, in lower case, most likely first."""
RESERVED = ("space", "grouping", "timestamp", "data")  # columns with a special meaning in segments


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """The role of each source column. Raises UsageError if two settings contradict each other.

    Without `data`, `data_json` and `columns`, every column without another role is kept: a column called "data" as the
    payload, the others as typed columns. Without `grouping`, a column called "grouping" without another role is the
    second key.
    """

    space: str
    timestamp: str
    grouping: str | None = None
    indexes: tuple[str, ...] = ()
    data: str | None = None  # the column whose bytes are the payload
    data_json: bool = False  # the payload is a JSON object of the columns that have no other role
    columns: tuple[str, ...] | None = None  # further columns to keep as typed columns
    types: Mapping[str, pa.DataType] = field(default_factory=dict)  # of columns whose type the user gives
    known: Mapping[str, pa.DataType] = field(default_factory=dict)
    """Preferred types: used if they represent every value of a batch unchanged; otherwise the values decide."""
    keys: Keys = "text"
    null_data: bool = False  # keep a missing payload as null instead of an empty one
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        if self.data is not None and self.data_json:
            raise UsageError("--data and --data-json cannot be combined", hint="give one of them")
        for option, names in (("--index", self.indexes), ("--columns", self.columns or ())):
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise UsageError(f"{option} names {twice!r} twice")
        taken = next((name for name in self.indexes if name in RESERVED), None)
        if taken is not None:
            raise UsageError(
                f"--index {taken}: that name is reserved in segments", hint="rename the column in the input"
            )

    @property
    def second_key(self) -> str | None:
        """The column of groupings: the named one, else "grouping", which may be absent; None if it has another role."""
        others = (self.space, self.timestamp, self.data, *(self.columns or ()))
        return self.grouping or (None if GROUPING in others else GROUPING)

    @property
    def required(self) -> tuple[str, ...]:
        """The source columns that the user names, each once; all must exist."""
        optional = [name for name in (self.grouping, self.data) if name is not None]
        names = (self.space, self.timestamp, *optional, *self.indexes, *(self.columns or ()))
        return tuple(dict.fromkeys(names))

    @property
    def named(self) -> tuple[str, ...]:
        """The source columns with a specific role, each once."""
        key = self.second_key
        return self.required if key is None or key in self.required else (*self.required, key)

    def check(self, names: Sequence[str], path: str) -> None:
        """Raise InputError that lists the required columns missing from `names`, the columns of an input."""
        missing = [name for name in self.required if name not in names]
        if not missing:
            return
        known = ", ".join(repr(name) for name in names)
        columns = f"column{'s' if len(missing) > 1 else ''} {' and '.join(map(repr, missing))}"
        hint = _other_delimiter(names) or self.proposal(missing, names)
        raise InputError(f"has no {columns}, {f'only {known}' if known else 'nor any other'}", path=path, hint=hint)

    def proposal(self, missing: Sequence[str], names: Sequence[str]) -> str | None:
        """Suggest the options that name the missing keys, with likely columns; None if no key is missing."""
        roles = [role for role in _LIKELY if getattr(self, role) in missing]
        if not roles:
            return None
        free = [name for name in names if name not in self.required]
        likely = {f"--{role}": _likely(role, free) for role in roles}
        shown = " ".join(f"{option} {name}" for option, name in likely.items() if name is not None)
        return f"choose the column{'s' if len(roles) > 1 else ''} with {' and '.join(likely)}" + (
            f", perhaps {shown}" if shown else ""
        )

    @property
    def keeps_rest(self) -> bool:
        """Whether unnamed columns are kept, as typed columns or in the JSON payload."""
        return self.data_json or (self.data is None and self.columns is None)

    @property
    def payload(self) -> str | None:
        """The column whose bytes are the payload, if there is one."""
        if self.data is None and self.keeps_rest and not self.data_json and "data" not in self.named:
            return "data"
        return self.data

    @property
    def text(self) -> frozenset[str]:
        """Columns that stay text if the input is text: "007" is not 7 in a key, an index or a payload."""
        optional = {name for name in (self.second_key, self.payload) if name is not None}
        return frozenset({self.space, self.timestamp, *optional, *self.indexes}) - frozenset(self.types)

    @property
    def bytes(self) -> frozenset[str]:
        """Columns that become bytes: their values are kept as written."""
        kinds = {**self.known, **self.types}
        keys = (self.space, self.second_key) if self.keys == "binary" else ()
        typed = (name for name, kind in kinds.items() if pa.types.is_binary(kind) and name in self.typed([name]))
        return frozenset(name for name in (self.payload, *keys, *typed) if name is not None)

    @property
    def also_typed(self) -> frozenset[str]:
        """Columns of `bytes` that also have a role in which their values decide the type."""
        keys = (self.space, self.second_key) if self.keys == "text" else ()
        typed = (name for name in self.columns or () if name not in self.types)
        return self.bytes & {self.timestamp, *keys, *self.indexes, *typed}

    def wanted(self, names: Iterable[str]) -> list[str]:
        """Return the needed columns of an input, in the input's order."""
        return [name for name in names if self.keeps_rest or name in self.named]

    def json(self, names: Iterable[str]) -> list[str]:
        """Return the columns that go into the JSON payload."""
        return [name for name in names if self.data_json and name not in self.named]

    def typed(self, names: Iterable[str]) -> list[str]:
        """Return the columns that are kept as typed columns, except index columns."""
        if self.columns is not None:
            return [name for name in self.columns if name not in self.indexes]
        if not self.keeps_rest or self.data_json:
            return []
        return [name for name in names if name not in self.named and name != self.payload]


def _likely(role: str, names: Sequence[str]) -> str | None:
    """The column with the likeliest name for a role; for times, the last word of a name also counts: death_date."""
    words = _LIKELY[role]
    exact = next((name for word in words for name in names if name.lower() == word), None)
    if exact is not None or role != "timestamp":
        return exact
    return next((name for name in names if re.split(r"[\W_]+|(?<=[a-z])(?=[A-Z])", name)[-1].lower() in words), None)


def _other_delimiter(names: Sequence[str]) -> str | None:
    """A hint for a header that is a single name containing another delimiter, or an Excel "sep=" line; else None."""
    if names and names[0].lower().startswith("sep="):
        return "its first line is a separator line for Excel: remove it"
    shown = {";": "';'", "\t": "'\\t'", "|": "'|'"}
    found = next((each for each in shown if len(names) == 1 and each in names[0]), None)
    return found and f"its fields seem to be separated by {shown[found]}: give --delimiter {shown[found]}"


def stored_names(roles: Roles, names: Iterable[str]) -> dict[str, str]:
    """Return the segment names of typed columns: their own, with "_" appended if that is reserved or taken."""
    stored: dict[str, str] = {}
    taken = {*RESERVED, *roles.indexes}
    for name in names:
        free = name
        while free in taken:
            free += "_"
        taken.add(free)
        stored[name] = free
    return stored
