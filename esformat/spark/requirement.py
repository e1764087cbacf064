"""PySpark, or a message that says how to get it. Imported before anything of this package that needs it."""

from __future__ import annotations

try:
    import pyspark  # noqa: F401 - asked for here so that the answer can be a clear one
except ModuleNotFoundError as error:
    if error.name != "pyspark":
        raise
    raise ModuleNotFoundError(
        'esformat.spark needs PySpark: pip install "esformat[spark,java]"', name="pyspark"
    ) from None
