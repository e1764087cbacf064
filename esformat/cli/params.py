"""Types of command line values: times, hexadecimal keys, sizes, pairs, lists. Their errors say what is expected."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Mapping
from typing import Any

import click

from esformat.base.quantity import parse_size

TYPES = ("string", "int64", "float64", "bool", "timestamp", "date", "binary")


class Several(click.Argument):
    """An argument of one or more values that may be followed by another argument.

    Given a single value, click assigns it to the other argument and reports this one as missing. This class reports the
    last argument as missing instead.
    """

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        try:
            return super().handle_parse_result(ctx, opts, args)
        except click.MissingParameter:
            behind = ctx.command.params[ctx.command.params.index(self) + 1 :]
            arguments = [each for each in behind if isinstance(each, click.Argument) and each.required]
            if not any(isinstance(opts.get(str(each.name)), str) for each in arguments):
                raise
            raise click.MissingParameter(ctx=ctx, param=arguments[-1]) from None


def several(name: str, metavar: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a click argument of one or more paths."""
    return click.argument(name, cls=Several, nargs=-1, required=True, metavar=metavar, type=click.Path(readable=False))


class Moment(click.ParamType[int]):
    """A time in µs since 1970: ISO 8601 (UTC by default), or Unix time with a unit or a unit that its size tells."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        import pyarrow as pa  # here: slow to import

        from esformat.convert import Clock
        from esformat.parts import is_number, to_nanos

        counted = re.fullmatch(r"([^a-z]*)(s|ms|us|ns)?", value)
        if counted and is_number(counted[1]):
            try:
                nanos, _ = to_nanos(counted[1], counted[2], from_query=True)
            except ValueError as error:
                self.fail(f"{error}, such as 1700000000s", param, ctx)
        else:
            times = Clock("iso").read(pa.array([value]))
            if not times.ok[0]:
                self.fail(
                    f"invalid time {value!r}: expected ISO 8601 with year, month and day, such as 2006-04-07T17:08, "
                    "or a number since 1970",
                    param,
                    ctx,
                )
            nanos = int(times.micros[0]) * 1000 + int(times.below[0])
        if nanos % 1000:
            self.fail(f"{value!r} is finer than a microsecond", param, ctx)
        return nanos // 1000


class Limit(click.ParamType[int]):
    """A limit of 0 or more, capped at 2⁶³ - 1."""

    name = "n"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if not re.fullmatch(r"\d+", value, re.ASCII):
            self.fail(f"{value!r} is not a number of lines", param, ctx)
        return min(int(value), 2**63 - 1)


class Folder(click.Path):
    """A directory, which need not exist, or a URI as the prefix of new files."""

    def __init__(self) -> None:
        super().__init__(file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if "://" in value else super().convert(value, param, ctx)


class Hex(click.ParamType[bytes]):
    """Bytes in hexadecimal, such as 00ff or "00 ff"."""

    name = "hex"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bytes:
        if isinstance(value, bytes):
            return value
        try:
            return bytes.fromhex(value)
        except ValueError:
            self.fail(f"{value!r} is not hexadecimal bytes, such as 00ff", param, ctx)


class Size(click.ParamType[int]):
    """A size above zero, in bytes or with a unit."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            size = parse_size(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return size or self.fail("expected a size above zero", param, ctx)


class Pair(click.ParamType[Any]):
    """NAME=VALUE, split at the first "="."""

    name = "name=value"

    def __init__(self, *, once: bool = True) -> None:
        """once: a repeatable option takes only one value for each name."""
        self.once = once

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, rest = value.partition("=")
        if not equals or not name:
            self.fail(f"{value!r} is not of the form {self.name.upper()}", param, ctx)
        return name, rest


class ColumnType(Pair):
    """COLUMN=TYPE, with one of TYPES."""

    name = "column=type"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        name, type_name = super().convert(value, param, ctx)
        if type_name not in TYPES:
            self.fail(f"invalid type {type_name!r}: expected one of {', '.join(TYPES)}", param, ctx)
        import pyarrow as pa  # here: slow to import

        special = {"timestamp": pa.timestamp("us", "UTC"), "date": pa.date32()}
        return name, special.get(type_name) or pa.type_for_alias(type_name)


class Names(click.ParamType[tuple[str, ...]]):
    """Names separated by commas; a name that contains a comma is quoted as in CSV."""

    name = "names"

    def __init__(self, *, empty: bool = True) -> None:
        """empty: the list may be empty."""
        self._empty = empty

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        try:
            (names,) = csv.reader(io.StringIO(value, newline="")) if value else ((),)
        except (ValueError, csv.Error):
            self.fail(f"{value!r} has more than one line: quote a name that contains a line break", param, ctx)
        if not names and not self._empty:
            self.fail("expected at least one name; --count prints the number of events", param, ctx)
        return tuple(names)
