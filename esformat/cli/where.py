"""Conditions of `--where` (column, operator, value) and their use as a filter of batches."""

from __future__ import annotations

import operator
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any

import click

from esformat.cli.params import Moment

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

_NAME = r'\s*(?:"(?P<quoted>(?:[^"]|"")+)"|(?P<name>[^<>=!]+?))\s*'
_CONDITION = re.compile(
    rf"{_NAME}(?:(?P<sign><=|>=|!=|<>|==|=|<|>)|\s(?P<list>IN)\b)\s*(?P<value>.*?)\s*",
    re.IGNORECASE | re.DOTALL,
)
_VALUE = re.compile(
    r"""\s*(?:'(?P<single>(?:[^']|'')*)'|"(?P<double>(?:[^"]|"")*)"|(?P<plain>[^,'"]*[^,]*?))\s*(?P<end>,|$)"""
)
_QUOTED = re.compile(r"""'(?:[^']|'')*'|(?:"(?:[^"]|"")*")""")
_JOINED = re.compile(r"\s(AND|OR)\s.*([=<>]|\sIN\b)", re.IGNORECASE | re.DOTALL)
_TURNED = re.compile(rf"{_NAME}=(?P<sign>[<>])(\s|-?[0-9]|$)")
_NULL = re.compile(r"\s*(?P<name>.+?)\s+(?P<is>IS(\s+NOT)?)\s+NULL\s*", re.IGNORECASE | re.DOTALL)
_NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]+)?([eE][-+]?[0-9]{1,2})?")  # exact as a float64
_LONG_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")
MOST_TEXTS = 16
"""The largest number of values of an IN list that are searched for in templates."""
_MOST_DIGITS = 38
"""The most digits of an integer that is compared exactly: those of a 128-bit decimal."""
_COMPARED = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a column. sign: a key of `_COMPARED`, or "in" for a list of values."""

    text: str
    name: str
    sign: str
    values: tuple[str, ...]


class Where(click.ParamType[Condition]):
    """NAME OP VALUE, such as "amount >= 10", or NAME IN (A, B).

    Values may be in quotes, with a quote inside doubled; names may be in double quotes.
    """

    name = "condition"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Condition:
        if isinstance(value, Condition):
            return value
        found = _CONDITION.fullmatch(value)
        turned, null = _TURNED.match(value), _NULL.fullmatch(value)
        if turned is not None:
            sign = turned["sign"]
            hint = f"quote a value that begins with {sign}"
            self.fail(f"{value!r}: ={sign} is not an operator, {sign}= is; {hint}", param, ctx)
        if found is None and null is not None:
            self.fail(f"{value!r}: {_about_null(null['name'], null['is'])}", param, ctx)
        if found is None:
            self.fail(
                f"invalid condition {value!r}: expected NAME = VALUE, with = != < <= > >=, or NAME IN (A, B)",
                param,
                ctx,
            )
        given = found["value"]
        name = found["name"] if found["quoted"] is None else found["quoted"].replace('""', '"')
        if _JOINED.search(_QUOTED.sub("''", given)):
            self.fail(f"{value!r} is more than one condition: give --where for each, or quote the value", param, ctx)
        if found["sign"]:
            quoted = _VALUE.fullmatch(given) if given[:1] in ("'", '"') else None
            return Condition(value, name, found["sign"], (given if quoted is None else _unquoted(quoted),))
        listed = given[1:-1] if given[:1] + given[-1:] in ("()", "[]") else given
        return Condition(value, name, "in", tuple(_listed(listed)))


def _listed(text: str) -> Iterator[str]:
    """Yield the values of a comma-separated list."""
    at = 0
    while text.strip() and (found := _VALUE.match(text, at)) is not None:
        yield _unquoted(found)
        at = found.end()
        if not found["end"]:
            return


def _unquoted(found: re.Match[str]) -> str:
    if found["plain"] is not None:
        return found["plain"]
    return found["double"].replace('""', '"') if found["single"] is None else found["single"].replace("''", "'")


class Filtered:
    """The rows of a scan that satisfy all conditions, with the chosen columns. A null satisfies no condition.

    A column may be a path into JSON payloads, such as `$.user.id`. Its values are text; for comparison with a number,
    numbers and texts that contain a number count as numbers.
    """

    def __init__(self, answer: Any, conditions: Sequence[Condition], columns: Sequence[str] | None, limit: int | None):
        """answer: a scan without a limit, of the columns that `columns_with` returns.

        Raises click.UsageError for an unknown column, and for a value that does not fit its type.
        """
        self._limit = limit
        self._columns = list(answer.schema.names if columns is None else columns)
        names = [*self._columns, *(each.name for each in conditions)]
        paths = [name for name in names if is_path(name, answer.schema.names)]
        within = [each for each in conditions if each.name in paths]
        exact = {each.name for each in within if _is_exact(each)}
        columns = [name for name in names if name not in paths]
        self._answer = _WithPaths(answer, columns, paths, exact, _required_texts(within)) if paths else answer
        self._filter = _expression(conditions, self._answer.schema, paths) if conditions else None

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""
        import pyarrow as pa  # here: slow to import

        return pa.schema([self._answer.schema.field(name) for name in self._columns])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows."""
        from esformat.read.dataset import matching  # here: slow to import

        left = self._limit
        for batch in self._answer.batches():
            for found in [batch] if self._filter is None else matching(batch, self._filter):
                if left == 0:
                    return
                rows = found.select(self._columns).slice(0, left)
                left = None if left is None else left - rows.num_rows
                yield rows

    def count(self) -> int:
        """The number of rows."""
        return sum(batch.num_rows for batch in self.batches())


def columns_with(
    columns: tuple[str, ...] | None, conditions: Sequence[Condition], known: Collection[str]
) -> tuple[str, ...] | None:
    """The columns to read: those shown or compared, and the payload in place of paths; None for all."""
    if columns is None:
        return None
    names = [*columns, *(each.name for each in conditions)]
    return tuple(dict.fromkeys("data" if is_path(name, known) else name for name in names))


def is_path(name: str, known: Collection[str]) -> bool:
    """Whether a name is a path into JSON payloads. A column may have such a name too, and then takes precedence."""
    return name.startswith("$") and name not in known


class _WithPaths:
    """The columns of a scan, and for each path into its payloads a column of text and one of numbers."""

    def __init__(
        self,
        answer: Any,
        columns: Iterable[str],
        paths: Iterable[str],
        exact: Collection[str],
        required_texts: Sequence[Sequence[bytes]],
    ) -> None:
        """exact: paths that also get a column of integers.
        required_texts: lists of texts; only payloads that contain at least one text of each list are needed.

        Raises UsageError for an invalid path, and for an answer without payloads.
        """
        import pyarrow as pa  # here: slow to import

        from esformat.format.json_values import parse_path
        from esformat.read.payload_columns import check_payload

        self._answer = answer
        self._required_texts = {check_payload(answer.schema): required_texts} if required_texts else None
        self._columns = [name for name in dict.fromkeys(columns) if name in answer.schema.names]
        self._paths = {path: parse_path(path) for path in paths}
        self._exact = [path for path in self._paths if path in exact]
        found = [[pa.field(path, pa.large_string()), pa.field(_number(path), pa.float64())] for path in self._paths]
        integers = [pa.field(_integer(path), pa.decimal128(_MOST_DIGITS)) for path in self._exact]
        self.schema = pa.schema([*map(answer.schema.field, self._columns), *chain.from_iterable(found), *integers])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows."""
        import pyarrow as pa  # here: slow to import

        from esformat.format.json_values import JsonValues

        for batch in self._answer.with_paths(self._columns, self._paths, self._required_texts):
            found = {path: JsonValues.of(batch.column(path)) for path in self._paths}
            columns = chain.from_iterable((each.texts(), each.numbers()) for each in found.values())
            integers = (_integers(found[path].texts()) for path in self._exact)
            yield pa.record_batch([*batch.columns[: len(self._columns)], *columns, *integers], schema=self.schema)


def _required_texts(conditions: Sequence[Condition]) -> list[list[bytes]]:
    """Lists of texts: a payload that satisfies the conditions contains at least one of each. For = and IN only."""
    from esformat.format.json_values import texts_around  # here: slow to import

    equal = [each for each in conditions if each.sign in ("=", "==", "in")]
    around = [list(map(texts_around, each.values)) for each in equal if len(each.values) <= MOST_TEXTS]
    return [list(dict.fromkeys(chain.from_iterable(texts))) for texts in around if texts and all(texts)]


def _number(path: str) -> str:
    """The name of the column of numbers at a path."""
    return f"{path} as a number"


def _integer(path: str) -> str:
    """The name of the column of integers at a path."""
    return f"{path} as an integer"


def _integers(texts: pa.Array) -> pa.Array:
    import pyarrow as pa  # here: slow to import
    import pyarrow.compute as pc

    are = pc.match_substring_regex(texts, f"^-?[0-9]{{1,{_MOST_DIGITS}}}$")
    return pc.if_else(are, texts, None).cast(pa.string()).cast(pa.decimal128(_MOST_DIGITS))


def _is_exact(condition: Condition) -> bool:
    """Whether a path is compared (<, <=, >, >=) with a number that has more digits than a float64 can represent."""
    value = condition.values[0] if condition.sign in ("<", "<=", ">", ">=") else ""
    return bool(_LONG_NUMBER.fullmatch(value)) and not _NUMBER.fullmatch(value)


def _exactly(condition: Condition) -> pc.Expression:
    """The comparison as an expression: integers with all their digits, other numbers as float64."""
    import pyarrow as pa  # here: slow to import
    import pyarrow.compute as pc

    compared, value = _COMPARED[condition.sign], condition.values[0]
    number = compared(pc.field(_number(condition.name)), float(value))
    most = 10**_MOST_DIGITS
    rounding = ROUND_CEILING if condition.sign in ("<", ">=") else ROUND_FLOOR
    bound = Decimal(value).to_integral_value(rounding) if abs(float(value)) < 2.0 * most else most
    if not -most < bound < most:
        return number
    whole = pc.field(_integer(condition.name))
    return pc.if_else(pc.is_valid(whole), compared(whole, pa.scalar(bound, pa.decimal128(_MOST_DIGITS))), number)


def _expression(conditions: Sequence[Condition], schema: pa.Schema, paths: Collection[str]) -> pc.Expression:
    import pyarrow as pa  # here: slow to import
    import pyarrow.compute as pc

    def one(condition: Condition) -> pc.Expression:
        name = condition.name
        if name in paths and _is_exact(condition):
            return _exactly(condition)
        if name in paths and all(map(_NUMBER.fullmatch, condition.values)):
            name = _number(name)
        if name not in schema.names:
            known = ", ".join(schema.names)
            raise click.UsageError(f"--where {condition.text}: no column {condition.name!r}; the columns are: {known}")
        type_ = schema.field(name).type
        try:
            values = _values(condition.values, type_)
        except (pa.ArrowException, ValueError, click.UsageError):
            wrong = _what_is_wrong(condition, type_)
            raise click.UsageError(
                f"--where {condition.text}: the values of {condition.name!r} are {type_}: {wrong}"
            ) from None
        column = pc.field(name)
        if pa.types.is_float16(type_):  # Arrow cannot compare float16
            column, values = column.cast(pa.float32()), values.cast(pa.float32())
        if condition.sign != "in":
            return _COMPARED[condition.sign](column, values[0])
        if pa.types.is_floating(values.type) and pc.any(pc.equal(values, pa.scalar(0, values.type))).as_py():
            values = pa.concat_arrays([values, pa.array([0.0, -0.0], values.type)])  # equal, but not to `isin`
        return column.isin(values)

    return reduce(operator.and_, map(one, conditions))


def _what_is_wrong(condition: Condition, type_: pa.DataType) -> str:
    """Describe the first value that does not fit a column's type."""
    faults = ((value, _fault(value, type_)) for value in condition.values)
    value, fault = next((value, fault) for value, fault in faults if fault is not None)
    if value.lower() == "null":
        return _about_null(condition.name, "IS NOT" if condition.sign in ("!=", "<>") else "IS")
    return fault


def _fault(value: str, type_: pa.DataType) -> str | None:
    """Why a value does not fit a type; None if it does."""
    import pyarrow as pa  # here: slow to import

    try:
        _values([value], type_)
    except click.UsageError as error:
        return error.message
    except (pa.ArrowException, ValueError):
        if pa.types.is_boolean(type_):
            return f"{value!r} is neither true nor false"
        if pa.types.is_integer(type_):
            return f"{value!r} is {'out of range' if re.fullmatch('-?[0-9]+', value) else 'not a whole number'}"
        if pa.types.is_duration(type_):
            return f"{value!r} is not a whole number of {type_.unit}"
        return f"{value!r} is not {'a number' if pa.types.is_floating(type_) else f'of type {type_}'}"
    return None


def _about_null(name: str, sign: str) -> str:
    return f"a condition cannot test for null: use the command `sql` with WHERE {name} {sign.upper()} NULL"


def _values(texts: Sequence[str], type_: pa.DataType) -> pa.Array:
    import pyarrow as pa  # here: slow to import

    from esformat.convert.typed_text import leaf

    if pa.types.is_timestamp(type_):
        return pa.array([Moment().convert(text, None, None) for text in texts], pa.timestamp("us", "UTC")).cast(type_)
    values = leaf(pa.array(texts, pa.string()), type_)
    if pa.types.is_floating(type_):
        for text, value in zip(texts, values.to_pylist(), strict=True):
            if abs(value) == float("inf") and "inf" not in text.lower():
                raise click.UsageError(f"{text!r} is out of range for its type; write infinity as inf")
    return values
