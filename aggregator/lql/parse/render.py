"""Render syntax trees as text: each statement has one canonical form, which parses to an equal tree."""

from __future__ import annotations

from aggregator.lql.parse import tree
from aggregator.lql.parse.tag_set import TagSet
from aggregator.lql.parse.tokens import KEYWORDS
from aggregator.lql.text.quantity import format_length
from aggregator.lql.text.quoting import is_plain, quote, quote_name


def to_text(statement: tree.Statement) -> str:
    """The statement with its clauses in the usual order, and keywords in capitals."""
    match statement:
        case tree.Explain(select):
            return f"EXPLAIN {to_text(select)}"
        case tree.Select():
            return _select(statement)
        case tree.ShowPartitions(source, offset, limit):
            shown = source_to_text(source) if source is not None else None
            return _join("SHOW PARTITIONS", shown, _number("OFFSET", offset), _number("LIMIT", limit))
        case tree.ShowPipes(offset, limit):
            return _join("SHOW PIPES", _number("OFFSET", offset), _number("LIMIT", limit))
        case tree.DescribePartition(tags):
            return f"DESCRIBE PARTITION {tags}"
        case tree.DescribePipe(name):
            return f"DESCRIBE PIPE {quote_name(name)}"
        case tree.Truncate():
            return _truncate(statement)
        case tree.CreatePipe(name, source, where, backfill):
            return _join(
                f"CREATE PIPE {quote_name(name)}", _from(source), _where(where), "BACKFILL" if backfill else None
            )
        case tree.DeletePipe(name):
            return f"DELETE PIPE {quote_name(name)}"


def expression_to_text(expression: tree.Expression) -> str:
    """The expression, with only the necessary parentheses."""
    match expression:
        case tree.Condition(operand, op, value):
            return f"{_operand(operand)} {op} {_value(value)}"
        case tree.Not(term):
            return f"NOT {_inside(term, tree.Condition)}"
        case tree.And(terms):
            return " AND ".join(_inside(term, tree.Condition, tree.Not) for term in terms)
        case tree.Or(terms):
            return " OR ".join(_inside(term, tree.Condition, tree.Not, tree.And) for term in terms)


def source_to_text(source: tree.Source) -> str:
    """Tags or an expression, in the form used after FROM."""
    return str(source) if isinstance(source, TagSet) else expression_to_text(source)


def _select(select: tree.Select) -> str:
    keys = ", ".join(key_to_text(key) for key in select.group_by)
    return _join(
        "SELECT",
        quote(select.format) if select.format is not None else None,
        _measured(select),
        _from(select.source),
        _range(select.range),
        _where(select.where),
        _position(select.position),
        f"GROUP BY {keys}" if keys and not select.distinct else None,
        "ORDER BY ts DESC" if select.newest_first else None,
        None
        if select.most_first is None
        else f"ORDER BY {measure_to_text(select.order_by)} {'DESC' if select.most_first else 'ASC'}",
        _number("OFFSET", select.offset),
        _number("LIMIT", select.limit),
    )


def _measured(select: tree.Select) -> str | None:
    if select.distinct:
        return f"DISTINCT {', '.join(map(key_to_text, select.group_by))}"
    return ", ".join(map(measure_to_text, select.measures or [tree.Measure()])) if select.count else None


def measure_to_text(measure: tree.Measure) -> str:
    """A measure in the form that is also the name of its column; only `count` if it counts records."""
    if measure.operand is None:
        return "count"
    operand, percent = _operand(measure.operand), measure.percent
    if measure.function == "DISTINCT":
        return f"COUNT(DISTINCT {operand})"
    if percent is None:
        return f"{measure.function}({operand})"
    if percent == int(percent) and 1 <= percent <= 99:
        return f"P{int(percent)}({operand})"
    return f"PERCENTILE({operand}, {percent.normalize():f})"


def _truncate(truncate: tree.Truncate) -> str:
    return _join(
        "TRUNCATE",
        "DRYRUN" if truncate.dry_run else None,
        source_to_text(truncate.source) if truncate.source is not None else None,
        _number("MINSIZE", truncate.min_size),
        _number("MAXSIZE", truncate.max_size),
        f"BEFORE {quote(truncate.before.text)}" if truncate.before else None,
        _number("MAXDBSIZE", truncate.max_db_size),
    )


def _join(*parts: str | None) -> str:
    return " ".join(part for part in parts if part is not None)


def _from(source: tree.Source | None) -> str | None:
    return None if source is None else f"FROM {source_to_text(source)}"


def _where(where: tree.Expression | None) -> str | None:
    return None if where is None else f"WHERE {expression_to_text(where)}"


def _number(word: str, number: int | None) -> str | None:
    return None if number is None else f"{word} {number}"


def _range(range_: tree.Range | None) -> str | None:
    if range_ is None:
        return None
    start, end = (quote(time.text) if time else "" for time in (range_.start, range_.end))
    return f"RANGE [{start}:{end}]"


def _position(position: tree.Position | None) -> str | None:
    if position is None:
        return None
    if position.kind in ("head", "tail"):
        return f"POSITION {position.kind.upper()}"
    return f"POSITION {'AT ' if position.kind == 'time' else ''}{quote(position.text)}"


def key_to_text(key: tree.Operand | tree.Every) -> str:
    """A key of GROUP BY."""
    return f'ts EVERY "{format_length(key.length_us)}"' if isinstance(key, tree.Every) else _operand(key)


def _operand(operand: tree.Operand) -> str:
    if isinstance(operand, tree.Call):
        return f"{operand.function}({_operand(operand.operand)})"
    plain = is_plain(operand.text) and operand.text.upper() not in KEYWORDS
    steps = "".join(f"[{step if isinstance(step, int) else quote(step)}]" for step in operand.steps)
    return (operand.text if plain else quote_name(operand.text)) + steps


def _value(value: tree.Value) -> str:
    return value.text if value.number else quote(value.text)


def _inside(term: tree.Expression, *bare: type) -> str:
    text = expression_to_text(term)
    return text if isinstance(term, bare) else f"({text})"
