"""A Spark session that knows the data source, for those who have none yet."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from esformat.spark.java import ensure_java
from esformat.spark.source import register

# a fifth of a full scan is sending rows from Python to Java: a socket of the file system has less to do for it
_LOCAL_SOCKETS = {"spark.python.unix.domain.socket.enabled": "true"} if os.name == "posix" else {}


def start_session(
    name: str = "esformat", *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """The running session, or a new one, with the data source registered.

    master: where it runs; None: as `spark-submit` says, else on all processors of this machine. conf: settings of
    Spark, for a new one. Times are UTC in it. Raises UsageError where there is no Java.
    """
    spark = SparkSession.getActiveSession()
    if spark is None:
        ensure_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.appName(name).config("spark.sql.session.timeZone", "UTC")
        if master or "PYSPARK_GATEWAY_PORT" not in os.environ:  # which spark-submit sets for the script that it runs
            builder = builder.master(master or "local[*]")
        for key, value in {**_LOCAL_SOCKETS, **(conf or {})}.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
    register(spark)
    return spark
