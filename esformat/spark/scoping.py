"""Whether this Spark version applies pushed-down filters only to the scan that they belong to.

Spark 4.3.0 does not: a Python data source stores only the last plan, and every query on the same DataFrame uses it.
After `df.where(…).count()`, `df.count()` counts only the filtered rows; in a union of two filters on one DataFrame,
both sides use the second filter. Later versions store the plan with the scan. The difference is visible in Spark's own
class file, which is checked instead of the version.
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
    """Whether filters are scoped; False if Spark's classes are not found, which costs time but is never wrong."""
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    for jar in sorted((home / "jars").glob("spark-sql_*.jar")):
        with zipfile.ZipFile(jar) as classes:
            if _CLASS in classes.namelist():
                return _SHARED not in classes.read(_CLASS)
    return False
