"""Creation of a Spark session with the data source registered."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark.sql import SparkSession

from esformat.spark.java import ensure_java
from esformat.spark.source import register

# a fifth of a full scan is sending rows from Python to Java: Unix domain sockets make that cheaper
_LOCAL_SOCKETS = {"spark.python.unix.domain.socket.enabled": "true"} if os.name == "posix" else {}


def start_session(
    name: str = "esformat", *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Return the active session, or a new one, with the data source registered.

    master: the master URL; None: that of `spark-submit`, else all processors of this machine.
    conf: Spark settings.
    Both apply only to a new session, whose time zone is UTC. Raises UsageError if there is no Java.
    """
    spark = SparkSession.getActiveSession()
    if spark is None:
        ensure_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.appName(name).config("spark.sql.session.timeZone", "UTC")
        if master or "PYSPARK_GATEWAY_PORT" not in os.environ:  # set by spark-submit for its script
            builder = builder.master(master or "local[*]")
        for key, value in {**_LOCAL_SOCKETS, **(conf or {})}.items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
    register(spark)
    return spark
