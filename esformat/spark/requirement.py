"""PySpark, or a message that says how to get it. Imported before anything of this package that needs it."""

from __future__ import annotations

from esformat.errors import UsageError

try:
    import pyspark  # noqa: F401 - asked for here so that the answer can be a clear one
except ModuleNotFoundError as error:
    if error.name != "pyspark":
        raise
    raise ModuleNotFoundError(
        'esformat.spark needs PySpark: pip install "esformat[spark,java]"', name="pyspark"
    ) from None


def require_classic(spark: object, what: str) -> None:
    """Refuse a session of Spark Connect, which has neither a Java here nor RDDs. Raises UsageError."""
    if getattr(spark, "_jvm", None) is None:
        raise UsageError(
            f"{what} needs a classic session, and this one is of Spark Connect",
            hint="run it with spark-submit; reading, writing and streams work with Spark Connect as well",
        )
