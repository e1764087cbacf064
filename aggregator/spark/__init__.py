"""Catalogs in PySpark: `format("aggregator")`, read and written, in batches and as streams.

spark = esformat.spark.start_session()
aggregator.spark.register(spark)
events = spark.read.format("aggregator").option("topic", "activity").load("data/")
"""

from esformat import spark as _requirement  # noqa: F401 - first: it says what to install

# isort: split
from aggregator.spark.load import LOAD_FORMATS, load
from aggregator.spark.source import AggregatorDataSource, read, register, write

__all__ = ["LOAD_FORMATS", "AggregatorDataSource", "load", "read", "register", "write"]
