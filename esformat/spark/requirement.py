"""Checks for PySpark, with a message that says how to install it. Imported before any module that needs it."""

from __future__ import annotations

from esformat.errors import UsageError

try:
    import pyspark  # noqa: F401 - imported here for a clear error message
except ModuleNotFoundError as error:
    if error.name != "pyspark":
        raise
    raise ModuleNotFoundError(
        'esformat.spark needs PySpark: pip install "esformat[spark,java]"', name="pyspark"
    ) from None


def require_classic(spark: object, what: str) -> None:
    """Raise UsageError for a session of Spark Connect, which has neither a local JVM nor RDDs."""
    if getattr(spark, "_jvm", None) is None:
        raise UsageError(
            f"{what} needs a classic session, not Spark Connect",
            hint="run it with spark-submit; reading, writing and streams work with Spark Connect as well",
        )
