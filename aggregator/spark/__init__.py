"""Read and write catalogs in PySpark with `format("aggregator")`, in batches and as streams.

spark = esformat.spark.start_session()
aggregator.spark.register(spark)
events = spark.read.format("aggregator").option("topic", "activity").load("data/")
"""

from typing import TYPE_CHECKING

from esformat import spark as _requirement  # noqa: F401 - first: its error says what to install
from esformat.parts import lazily

if TYPE_CHECKING:
    from aggregator.spark.loading import LOAD_FORMATS, load
    from aggregator.spark.source import AggregatorDataSource, read, register, write
else:
    __getattr__, __dir__ = lazily(  # Spark's workers need few of them
        __name__,
        {
            "aggregator.spark.loading": "LOAD_FORMATS load",
            "aggregator.spark.source": "AggregatorDataSource read register write",
        },
    )

__all__ = ["LOAD_FORMATS", "AggregatorDataSource", "load", "read", "register", "write"]
