"""Statements in SQL over events: DuckDB runs them, over datasets or, where that tells, over counts alone."""

from typing import TYPE_CHECKING

from esformat.lazy import lazily

if TYPE_CHECKING:
    from esformat.sql.rows import Rows
    from esformat.sql.session import Parameters, Session
    from esformat.sql.table import Find, Table, named
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "esformat.sql.rows": "Rows",
            "esformat.sql.session": "Parameters Session",
            "esformat.sql.table": "Find Table named",
        },
    )

__all__ = ["Find", "Parameters", "Rows", "Session", "Table", "named"]
