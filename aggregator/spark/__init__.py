"""Catalogs in PySpark: `format("aggregator")`, read and written, in batches and as streams.

spark = esformat.spark.start_session()
aggregator.spark.register(spark)
events = spark.read.format("aggregator").option("topic", "activity").load("data/")
"""

from aggregator.spark.source import AggregatorDataSource, read, register, write

__all__ = ["AggregatorDataSource", "read", "register", "write"]
