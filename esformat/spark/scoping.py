"""Whether this Spark keeps the filters that it pushes down to the one scan that they belong to.

Spark 4.3.0 does not: a data source written in Python has one place for what was planned last, and every query on the
same DataFrame reads by it. After `df.where(…).count()`, `df.count()` counts what the filter left; in a union of two
filters on one DataFrame, both sides read by the second. Later versions keep it with the scan. The difference can be
seen in Spark's own class, so that is what is looked at, rather than a version.
"""

from __future__ import annotations

import os
import zipfile
from functools import cache
from pathlib import Path

import pyspark

_CLASS = "org/apache/spark/sql/execution/datasources/v2/python/PythonDataSourceV2.class"
_SHARED = b"setReadInfo"


@cache
def filters_are_scoped() -> bool:
    """Whether it does; False where Spark's classes are not found, which costs time and no answer."""
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    for jar in sorted((home / "jars").glob("spark-sql_*.jar")):
        with zipfile.ZipFile(jar) as classes:
            if _CLASS in classes.namelist():
                return _SHARED not in classes.read(_CLASS)
    return False
