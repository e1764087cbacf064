"""SQL statements on events, run by DuckDB over datasets, or over counts alone if they suffice."""

from typing import TYPE_CHECKING

from esformat.base.lazy import lazily

if TYPE_CHECKING:
    from esformat.sql.answer import RowAnswer
    from esformat.sql.rows import Rows
    from esformat.sql.session import Database, Parameters, Session
    from esformat.sql.table import Find, Table, named
    from esformat.sql.watch import unguarded
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "esformat.sql.answer": "RowAnswer",
            "esformat.sql.rows": "Rows",
            "esformat.sql.session": "Database Parameters Session",
            "esformat.sql.table": "Find Table named",
            "esformat.sql.watch": "unguarded",
        },
    )

__all__ = ["Database", "Find", "Parameters", "RowAnswer", "Rows", "Session", "Table", "named", "unguarded"]
