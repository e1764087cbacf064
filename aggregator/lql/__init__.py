"""LQL: parse statements, compile conditions and format strings for Arrow batches, match tag expressions.

Pure values and functions: no files, no clock, no catalog. Only parsing needs lark, which is loaded with the first
statement.
"""

from typing import TYPE_CHECKING

from esformat.parts import lazily

if TYPE_CHECKING:
    from aggregator.lql.errors import LqlError, Mark
    from aggregator.lql.parse.columns import Columns
    from aggregator.lql.parse.operand import resolve_time
    from aggregator.lql.parse.parser import parse_source, parse_statement, parse_where
    from aggregator.lql.parse.render import expression_to_text, source_to_text, to_text
    from aggregator.lql.parse.tag_set import TagSet
    from aggregator.lql.parse.template import Template
    from aggregator.lql.parse.tree import Source
    from aggregator.lql.run.condition import Filter
    from aggregator.lql.run.counting import Counter
    from aggregator.lql.run.pushdown import TimeSpan, equalities, range_span, time_span
    from aggregator.lql.run.tag_table import TagTable, matches
    from aggregator.lql.text.regex import Regex, RegexError
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "aggregator.lql.parse.columns": "Columns",
            "aggregator.lql.run.condition": "Filter",
            "aggregator.lql.run.counting": "Counter",
            "aggregator.lql.errors": "LqlError Mark",
            "aggregator.lql.parse.operand": "resolve_time",
            "aggregator.lql.parse.parser": "parse_source parse_statement parse_where",
            "aggregator.lql.run.pushdown": "TimeSpan equalities range_span time_span",
            "aggregator.lql.text.regex": "Regex RegexError",
            "aggregator.lql.parse.render": "expression_to_text source_to_text to_text",
            "aggregator.lql.parse.tag_set": "TagSet",
            "aggregator.lql.run.tag_table": "TagTable matches",
            "aggregator.lql.parse.template": "Template",
            "aggregator.lql.parse.tree": "Source",
        },
    )

__all__ = [
    "Columns",
    "Counter",
    "Filter",
    "LqlError",
    "Mark",
    "Regex",
    "RegexError",
    "Source",
    "TagSet",
    "TagTable",
    "Template",
    "TimeSpan",
    "equalities",
    "expression_to_text",
    "matches",
    "parse_source",
    "parse_statement",
    "parse_where",
    "range_span",
    "resolve_time",
    "source_to_text",
    "time_span",
    "to_text",
]
