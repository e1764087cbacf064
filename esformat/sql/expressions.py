"""The expressions that rewriting understands: deterministic ones whose value depends on one row alone."""

from __future__ import annotations

from typing import Any

from esformat.sql.tree import Node, expressions

_PLAIN = frozenset({"COLUMN_REF", "CONSTANT", "COMPARISON", "CONJUNCTION", "OPERATOR", "CAST", "BETWEEN", "CASE"})
_SCALAR = frozenset({
    "~~", "!~~", "~~*", "!~~*", "||", "+", "-", "*", "/", "//", "%", "->", "->>", "^@", "starts_with", "prefix",
    "suffix", "ends_with", "contains", "lower", "upper", "length", "strlen", "substring", "substr", "left", "right",
    "replace", "split_part", "concat", "regexp_matches", "regexp_extract", "abs", "trim", "ltrim", "rtrim", "round",
    "decode", "encode", "octet_length", "json_extract", "json_extract_string", "date_trunc", "date_part", "epoch_us",
    "epoch_ms", "epoch", "strftime", "to_days", "to_hours", "to_minutes", "to_seconds", "make_timestamptz",
})  # fmt: skip


def are_scalar(tree: Any) -> bool:
    """Whether all expressions in a tree are understood."""
    return all(is_scalar(each) for each in expressions(tree))


def is_scalar(expression: Node) -> bool:
    """Whether an expression is understood, ignoring its operands: not an aggregate, window, subquery or parameter."""
    if expression["class"] != "FUNCTION":
        return expression["class"] in _PLAIN
    bare = not (expression["schema"] or expression["catalog"] or expression["distinct"] or expression["filter"])
    return bare and not expression["order_bys"]["orders"] and expression["function_name"] in _SCALAR
