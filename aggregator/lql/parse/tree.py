"""The syntax tree of statements, as immutable values. Marks point into the text and are ignored in comparisons."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from aggregator.lql.errors import Mark
from aggregator.lql.parse.tag_set import TagSet

Place = Mark | None

SYMBOLS = ("<=", ">=", "!=", "<", ">", "=")
FUNCTIONS = ("UPPER", "LOWER")
WORDS = ("CONTAINS", "PREFIX", "SUFFIX", "LIKE", "MATCHES")


@dataclass(frozen=True, slots=True)
class Name:
    """A tag, field, column, `ts`, `msg` or a path into `msg`. `steps`: keys and positions written in brackets."""

    text: str
    steps: tuple[str | int, ...] = ()
    mark: Place = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Call:
    """UPPER or LOWER of an operand."""

    function: str
    operand: Operand
    mark: Place = field(default=None, compare=False, repr=False)


Operand = Name | Call


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a comparison. `number`: written without quotes, as a number."""

    text: str
    number: bool = False
    mark: Place = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison. `op`: one of SYMBOLS or WORDS."""

    operand: Operand
    op: str
    value: Value


@dataclass(frozen=True, slots=True)
class Not:
    """True if `term` is false."""

    term: Expression


@dataclass(frozen=True, slots=True)
class And:
    """True if all `terms` (two or more, none of them an And) are true. Create with `all_of`."""

    terms: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """True if any of `terms` (two or more, none of them an Or) is true. Create with `any_of`."""

    terms: tuple[Expression, ...]


Expression = Condition | Not | And | Or


def all_of(terms: list[Expression]) -> Expression:
    """And of one or more terms, flattened."""
    flat = [inner for term in terms for inner in (term.terms if isinstance(term, And) else (term,))]
    return flat[0] if len(flat) == 1 else And(tuple(flat))


def any_of(terms: list[Expression]) -> Expression:
    """Or of one or more terms, flattened."""
    flat = [inner for term in terms for inner in (term.terms if isinstance(term, Or) else (term,))]
    return flat[0] if len(flat) == 1 else Or(tuple(flat))


def conditions(expression: Expression) -> Iterator[Condition]:
    """Every comparison of the expression, from left to right."""
    if isinstance(expression, Condition):
        yield expression
    elif isinstance(expression, Not):
        yield from conditions(expression.term)
    else:
        for term in expression.terms:
            yield from conditions(term)


Source = TagSet | Expression  # a tag set: streams that have each of these tags


@dataclass(frozen=True, slots=True)
class Time:
    """A point in time as written; `times.resolve` converts it to a number."""

    text: str
    mark: Place = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Range:
    """Times from `start` to `end`, both included; None: open."""

    start: Time | None = None
    end: Time | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """Where reading starts. `kind`: "head", "tail", "token" (`text`: an earlier result's) or "time" (`text`: when)."""

    kind: str
    text: str = ""
    mark: Place = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Every:
    """Group by time: spans of `length_us` microseconds, counted from 1970."""

    length_us: int


@dataclass(frozen=True, slots=True)
class Measure:
    """A value computed from the records of a group.

    `function`: COUNT (of values, or of records without an `operand`), DISTINCT (number of different values), SUM, AVG,
    MIN, MAX or PERCENTILE; `percent`: for PERCENTILE, in steps of a ten-thousandth.
    """

    function: str = "COUNT"
    operand: Operand | None = None
    percent: Decimal | None = None
    mark: Place = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Select:
    """Read or count the events of streams. `limit`: None is the caller's default, -1 no limit.

    `count`: return a row per group with `measures`; without measures, with the count, or with only the keys
    (`distinct`). `most_first`: order groups by `order_by`, largest first, or smallest first (False); None: by their
    keys.
    """

    format: str | None = None
    count: bool = False
    measures: tuple[Measure, ...] = ()
    distinct: bool = False
    source: Source | None = None
    range: Range | None = None
    where: Expression | None = None
    position: Position | None = None
    group_by: tuple[Operand | Every, ...] = ()
    newest_first: bool = False
    most_first: bool | None = None
    order_by: Measure = Measure()
    offset: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Explain:
    """Report what reading would access."""

    select: Select


@dataclass(frozen=True, slots=True)
class ShowPartitions:
    """List streams, largest first."""

    source: Source | None = None
    offset: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class ShowPipes:
    """List pipes."""

    offset: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class DescribePartition:
    """Describe the stream with exactly these tags."""

    tags: TagSet


@dataclass(frozen=True, slots=True)
class DescribePipe:
    """Describe a pipe."""

    name: str


@dataclass(frozen=True, slots=True)
class Truncate:
    """Remove events, oldest first. Sizes in bytes."""

    dry_run: bool = False
    source: Source | None = None
    min_size: int | None = None
    max_size: int | None = None
    before: Time | None = None
    max_db_size: int | None = None


@dataclass(frozen=True, slots=True)
class CreatePipe:
    """Copy matching records into the stream `{logrange.pipe=NAME}` from now on; `backfill`: also the existing ones."""

    name: str
    source: Source | None = None
    where: Expression | None = None
    backfill: bool = False


@dataclass(frozen=True, slots=True)
class DeletePipe:
    """Stop copying and forget the pipe; its copies stay."""

    name: str


Statement = (
    Select
    | Explain
    | ShowPartitions
    | ShowPipes
    | DescribePartition
    | DescribePipe
    | Truncate
    | CreatePipe
    | DeletePipe
)
