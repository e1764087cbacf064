"""Segments in PySpark: `format("esdb")` for reading and writing, and jobs on many files.

spark = esformat.spark.start_session()                      # or register(spark) with your own session
events = spark.read.format("esdb").load("activity/")
events.where("space = 'customer-42'").show()
"""

from typing import TYPE_CHECKING

from esformat.base.lazy import lazily
from esformat.spark import requirement as _requirement  # noqa: F401 - first: it says what to install

if TYPE_CHECKING:
    from esformat.spark.load import read
    from esformat.spark.session import start_session
    from esformat.spark.source import EsdbDataSource, register
    from esformat.spark.spark_sql import sql, view
    from esformat.spark.writing import Written, write
else:
    __getattr__, __dir__ = lazily(  # because Spark's workers need few of these
        __name__,
        {
            "esformat.spark.spark_sql": "sql view",
            "esformat.spark.load": "read",
            "esformat.spark.session": "start_session",
            "esformat.spark.source": "EsdbDataSource register",
            "esformat.spark.writing": "Written write",
        },
    )

__all__ = ["EsdbDataSource", "Written", "read", "register", "sql", "start_session", "view", "write"]
