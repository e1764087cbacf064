"""LQL: statements parsed, conditions and format strings compiled for Arrow batches, tag expressions over many streams.

Pure values and functions: no files, no clock, no catalog. Only parsing needs lark, which is loaded with the first
statement.
"""

from typing import TYPE_CHECKING

from esformat.parts import lazily

if TYPE_CHECKING:
    from aggregator.lql.columns import Columns
    from aggregator.lql.condition import Filter
    from aggregator.lql.counting import Counter
    from aggregator.lql.errors import LqlError, Mark
    from aggregator.lql.operand import resolve_time
    from aggregator.lql.parser import parse_source, parse_statement, parse_where
    from aggregator.lql.pushdown import TimeSpan, equalities, range_span, time_span
    from aggregator.lql.regex import Regex, RegexError
    from aggregator.lql.render import expression_to_text, source_to_text, to_text
    from aggregator.lql.tag_set import TagSet
    from aggregator.lql.tag_sql import TagQuery, tag_query
    from aggregator.lql.tag_table import TagTable, matches
    from aggregator.lql.template import Template
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "aggregator.lql.columns": "Columns",
            "aggregator.lql.condition": "Filter",
            "aggregator.lql.counting": "Counter",
            "aggregator.lql.errors": "LqlError Mark",
            "aggregator.lql.operand": "resolve_time",
            "aggregator.lql.parser": "parse_source parse_statement parse_where",
            "aggregator.lql.pushdown": "TimeSpan equalities range_span time_span",
            "aggregator.lql.regex": "Regex RegexError",
            "aggregator.lql.render": "expression_to_text source_to_text to_text",
            "aggregator.lql.tag_set": "TagSet",
            "aggregator.lql.tag_sql": "TagQuery tag_query",
            "aggregator.lql.tag_table": "TagTable matches",
            "aggregator.lql.template": "Template",
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
    "TagQuery",
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
    "tag_query",
    "time_span",
    "to_text",
]
