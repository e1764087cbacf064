"""Build the syntax tree: lark calls these methods for each rule that it recognises.

Every error in a statement that is not a matter of grammar, and needs no catalog to detect, is raised here.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple, cast

from aggregator.lql.errors import LqlError, Mark
from aggregator.lql.parse import tree
from aggregator.lql.parse.operand import Timestamp, check_tags, check_time, check_where, innermost, target_of
from aggregator.lql.parse.tag_set import TagSet
from aggregator.lql.parse.template import check_template
from aggregator.lql.parse.tokens import did_you_mean
from aggregator.lql.text.quantity import parse_integer, parse_length_us
from esformat.parts import parse_size

_MOST_KEYS = 20  # of GROUP BY


class _Clause(NamedTuple):
    """One clause: the argument of the statement that it sets, and its location."""

    name: str
    value: Any
    mark: Mark


class Builder:
    """One method per rule; lark passes the results of the rule's parts."""

    # ---------------------------------------------------------------- start rules

    def statement(self, parts: list[Any]) -> tree.Statement:
        return cast(tree.Statement, parts[0])

    def condition(self, parts: list[Any]) -> tree.Expression:
        check_where(parts[0])
        return cast(tree.Expression, parts[0])

    def source(self, parts: list[Any]) -> tree.Source:
        return _source(parts[0])

    # ---------------------------------------------------------------- statements

    def select(self, parts: list[Any]) -> tree.Select:
        given = _arguments([part for part in parts[1:] if part is not None])
        given |= _measured(given, parts[0].mark)
        if given.get("group_by") and not given.get("count"):
            raise LqlError("GROUP BY counts", mark=parts[0].mark, hint="write SELECT COUNT … GROUP BY …, or SUM(x) …")
        for clause in parts[2:]:
            if clause.name == "most_first" and not given.get("group_by"):
                raise LqlError("ORDER BY a measure needs groups", mark=clause.mark, hint="add GROUP BY")
        if given.get("count"):
            for clause in parts[2:]:
                if clause.name in ("position", "newest_first") or (clause.name == "offset" and clause.value < 0):
                    raise LqlError(
                        "a COUNT has no order, so it cannot begin at a position",
                        mark=clause.mark,
                        hint="remove this clause",
                    )
        given["most_first"], given["order_by"] = given.get("most_first") or (None, tree.Measure())
        _check_order(given, parts[0].mark)
        return tree.Select(**given)

    def explain(self, parts: list[Any]) -> tree.Explain:
        return tree.Explain(parts[1])

    def show_partitions(self, parts: list[Any]) -> tree.ShowPartitions:
        given = _arguments([part for part in parts[2:] if part is not None])
        _forward_only(parts[2:])
        return tree.ShowPartitions(**given)

    def show_pipes(self, parts: list[Any]) -> tree.ShowPipes:
        _forward_only(parts[2:])
        return tree.ShowPipes(**_arguments(parts[2:]))

    def describe_partition(self, parts: list[Any]) -> tree.DescribePartition:
        return tree.DescribePartition(TagSet.parse(parts[2]))

    def describe_pipe(self, parts: list[Any]) -> tree.DescribePipe:
        return tree.DescribePipe(_pipe_name(parts[2]))

    def truncate(self, parts: list[Any]) -> tree.Truncate:
        clauses = [part for part in parts[2:] if part is not None]
        return tree.Truncate(dry_run=parts[1] is not None, **_arguments(clauses))

    def create_pipe(self, parts: list[Any]) -> tree.CreatePipe:
        return tree.CreatePipe(_pipe_name(parts[2]), **_arguments(parts[3:]))

    def delete_pipe(self, parts: list[Any]) -> tree.DeletePipe:
        return tree.DeletePipe(_pipe_name(parts[2]))

    # ---------------------------------------------------------------- clauses

    def format(self, parts: list[Any]) -> _Clause:
        check_template(str(parts[0]), parts[0].mark)
        return _Clause("format", str(parts[0]) or None, parts[0].mark)  # empty: the default

    def measures(self, parts: list[Any]) -> _Clause:
        measures = tuple(part for part in parts if isinstance(part, tree.Measure))
        for place, measure in enumerate(measures):
            if measure in measures[:place]:
                raise LqlError("duplicate measure", mark=measure.mark, hint="keep one of them")
        if len(measures) > _MOST_KEYS:
            raise LqlError(f"{len(measures)} measures, more than {_MOST_KEYS}", mark=measures[_MOST_KEYS].mark)
        return _Clause("measures", measures, cast(Mark, measures[0].mark))

    def distinct(self, parts: list[Any]) -> _Clause:
        return _Clause("distinct", self.group_by([parts[0], *parts]).value, parts[0].mark)

    def measure(self, parts: list[Any]) -> tree.Measure:
        return tree.Measure(mark=parts[0].mark)

    def count_of(self, parts: list[Any]) -> tree.Measure:
        word, _, distinct, operand, _ = parts
        return tree.Measure("COUNT" if distinct is None else "DISTINCT", operand, mark=word.mark)

    def measured(self, parts: list[Any]) -> tree.Measure:
        word, _, operand, *_, number, _ = parts
        name, functions = innermost(operand)
        if functions:
            raise LqlError(f"{functions[-1]} returns text, which {word} does not accept", mark=name.mark)
        return _measure(str(word).upper(), operand, number, word.mark)

    def from_source(self, parts: list[Any]) -> _Clause:
        return _Clause("source", _source(parts[1]), parts[0].mark)

    def range(self, parts: list[Any]) -> _Clause:
        word, *rest = parts
        if len(rest) == 1:
            return _Clause("range", tree.Range(rest[0]), word.mark)
        points: list[tree.Time | None] = [None, None]
        side = 0
        for part in rest:
            if isinstance(part, tree.Time):
                points[side] = part
            elif part is not None and part.type == "COLON":
                side = 1
        return _Clause("range", tree.Range(*points), word.mark)

    def where(self, parts: list[Any]) -> _Clause:
        check_where(parts[1])
        return _Clause("where", parts[1], parts[0].mark)

    def position(self, parts: list[Any]) -> _Clause:
        text = str(parts[1])
        kind = text.lower() if text.lower() in ("head", "tail") else "token"
        position = tree.Position(kind, "" if kind != "token" else text, parts[1].mark)
        return _Clause("position", position, parts[0].mark)

    def position_at(self, parts: list[Any]) -> _Clause:
        return _Clause("position", tree.Position("time", parts[2].text, parts[2].mark), parts[0].mark)

    def group_by(self, parts: list[Any]) -> _Clause:
        keys = tuple(part for part in parts[2:] if not hasattr(part, "type"))
        if len(keys) > _MOST_KEYS:
            raise LqlError(f"GROUP BY has {len(keys)} keys, more than {_MOST_KEYS}", mark=parts[0].mark)
        for key in keys:
            if isinstance(key, tree.Every):
                continue
            name, _ = innermost(key)
            if isinstance(target_of(name), Timestamp):
                raise LqlError("grouping by ts needs an interval", mark=name.mark, hint='write ts EVERY "1h"')
        return _Clause("group_by", keys, parts[0].mark)

    def every(self, parts: list[Any]) -> tree.Every:
        operand, _, length = parts
        _require_ts(operand, "EVERY applies")
        return tree.Every(_parsed(parse_length_us, length))

    def order_by(self, parts: list[Any]) -> _Clause:
        order, _, operand, direction = parts
        name, _ = innermost(operand)
        hint = f"write ts, or with GROUP BY a selected measure, such as COUNT or SUM({name.text})"
        _require_ts(operand, "ORDER BY applies", hint)
        return _Clause("newest_first", direction is not None and direction.type == "DESC", order.mark)

    def order_by_measure(self, parts: list[Any]) -> _Clause:
        order, _, measure, direction = parts
        return _Clause("most_first", (direction is not None and direction.type == "DESC", measure), order.mark)

    def offset(self, parts: list[Any]) -> _Clause:
        return _Clause("offset", _parsed(parse_integer, parts[1]), parts[0].mark)

    def limit(self, parts: list[Any]) -> _Clause:
        return _Clause("limit", max(-1, _parsed(parse_integer, parts[1])), parts[0].mark)

    def show_source(self, parts: list[Any]) -> _Clause:
        return _Clause("source", _source(parts[0]), _NOWHERE)

    def min_size(self, parts: list[Any]) -> _Clause:
        return _Clause("min_size", _parsed(parse_size, parts[1]), parts[0].mark)

    def max_size(self, parts: list[Any]) -> _Clause:
        return _Clause("max_size", _parsed(parse_size, parts[1]), parts[0].mark)

    def max_db_size(self, parts: list[Any]) -> _Clause:
        return _Clause("max_db_size", _parsed(parse_size, parts[1]), parts[0].mark)

    def before(self, parts: list[Any]) -> _Clause:
        return _Clause("before", parts[1], parts[0].mark)

    def backfill(self, parts: list[Any]) -> _Clause:
        return _Clause("backfill", True, parts[0].mark)

    def time(self, parts: list[Any]) -> tree.Time:
        check_time(str(parts[0]), parts[0].mark)
        return tree.Time(str(parts[0]), parts[0].mark)

    # ---------------------------------------------------------------- expressions

    def expression(self, parts: list[Any]) -> tree.Expression:
        return tree.any_of(_without_words(parts))

    def conjunction(self, parts: list[Any]) -> tree.Expression:
        return tree.all_of(_without_words(parts))

    def negated(self, parts: list[Any]) -> tree.Expression:
        return tree.Not(_without_words(parts)[0])

    def comparison(self, parts: list[Any]) -> tree.Condition:
        return tree.Condition(*_without_words(parts))

    def operand(self, parts: list[Any]) -> tree.Name:
        steps = [step for group in parts[1:] for step in group]
        return tree.Name(str(parts[0]), tuple(steps), parts[0].mark)

    def step(self, parts: list[Any]) -> list[str | int]:
        if parts[0].type == "STEP":
            return list(str(parts[0])[1:].split("."))
        inside = parts[1]
        return [_parsed(parse_integer, inside) if inside.type == "NUMBER" else str(inside)]

    def call(self, parts: list[Any]) -> tree.Call:
        name, _, operand, _ = parts
        function = str(name).upper()
        if function not in tree.FUNCTIONS:
            hint = did_you_mean(str(name), list(tree.FUNCTIONS)) or f"the functions are {' and '.join(tree.FUNCTIONS)}"
            raise LqlError(f"unknown function {name}", mark=name.mark, hint=hint)
        return tree.Call(function, operand, name.mark)

    def operator(self, parts: list[Any]) -> str:
        return str(parts[0]).upper()

    def value(self, parts: list[Any]) -> tree.Value:
        return tree.Value(str(parts[0]), parts[0].type == "NUMBER", parts[0].mark)


_NOWHERE = Mark("", 0, 0)


def _arguments(clauses: list[_Clause]) -> dict[str, Any]:
    """The arguments by name. Raises LqlError for a duplicate clause."""
    given: dict[str, Any] = {}
    for clause in clauses:
        if clause.name in given:
            raise LqlError("duplicate clause", mark=clause.mark, hint="keep one of them")
        given[clause.name] = clause.value
    return given


def _measured(given: dict[str, Any], mark: Mark) -> dict[str, Any]:
    """The arguments for the measures or DISTINCT after SELECT, which define a row of the result."""
    measures, keys = given.pop("measures", None), given.pop("distinct", None)
    if keys is not None:
        if "group_by" in given:
            raise LqlError("DISTINCT already groups", mark=mark, hint="write SELECT COUNT … GROUP BY … to count")
        return {"count": True, "distinct": True, "group_by": keys}
    if measures is None:
        return {"count": False}
    return {"count": True, "measures": () if measures == (tree.Measure(),) else measures}


def _measure(word: str, operand: tree.Operand, number: Any, mark: Mark) -> tree.Measure:
    """Build SUM, AVG, MIN, MAX, PERCENTILE with its number, or P95, which has the number in its name."""
    if word.startswith("P") and word[1:].isdigit():
        percent: Decimal | None = Decimal(word[1:])
        word = "PERCENTILE"
    elif word == "PERCENTILE":
        if number is None:
            raise LqlError("PERCENTILE needs a number", mark=mark, hint="write PERCENTILE(x, 99.9), or P95(x)")
        percent = Decimal(str(number))
        if not 0 <= percent <= 100 or percent != round(percent, 4):
            raise LqlError("a percentile must be from 0 to 100, with at most four decimals", mark=number.mark)
        return tree.Measure(word, operand, percent, mark)
    else:
        percent = None
    if number is not None:
        raise LqlError(f"{word} takes one operand", mark=number.mark, hint="remove the number")
    return tree.Measure(word, operand, percent, mark)


def _check_order(given: dict[str, Any], mark: Mark) -> None:
    order: tree.Measure = given["order_by"]
    if order.operand is not None and order not in given.get("measures", ()):
        raise LqlError(
            "ORDER BY names a measure that SELECT does not list", mark=order.mark or mark, hint="add it after SELECT"
        )


def _source(part: Any) -> tree.Source:
    if isinstance(part, tree.Condition | tree.Not | tree.And | tree.Or):
        check_tags(part)
        return part
    return TagSet.parse(part)


def _forward_only(clauses: list[Any]) -> None:
    for clause in clauses:
        if clause is not None and clause.name == "offset" and clause.value < 0:
            raise LqlError("OFFSET cannot be negative here", mark=clause.mark, hint="use OFFSET 0 or more")


def _pipe_name(token: Any) -> str:
    if not token:
        raise LqlError("a pipe needs a name", mark=token.mark)
    return str(token)


def _require_ts(operand: tree.Operand, what: str, hint: str = "write ts") -> None:
    name, functions = innermost(operand)
    if functions or not isinstance(target_of(name), Timestamp):
        raise LqlError(f"{what} only to ts", mark=name.mark, hint=hint)


def _parsed(parse: Callable[[str], int], token: Any) -> int:
    try:
        return parse(str(token))
    except ValueError as error:
        raise LqlError(str(error), mark=token.mark) from None


def _without_words(parts: list[Any]) -> list[Any]:
    """The parts without keywords and parentheses, which lark passes, too."""
    return [part for part in parts if not hasattr(part, "type")]
