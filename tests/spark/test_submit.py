"""spark-submit on machines whose Python lacks this package: it travels with the job."""

from __future__ import annotations

import compileall
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pyspark
import pytest
from clicks import click_table, write_clicks
from effort import long

from tests.spark.conftest import MISSING

ROOT = Path(__file__).parents[2]
JOB = """
import sys
import aggregator.spark, esformat.spark
source, out = sys.argv[1:]
assert "/package/" in esformat.__file__, esformat.__file__
spark = esformat.spark.start_session()
assert spark.sparkContext.master.startswith("local-cluster")
events = esformat.spark.read(spark, source)
written = esformat.spark.write(events, out, indexes=["type"])
aggregator.spark.write(events, out + "-data", "clicks")
print("written", written.events, aggregator.spark.read(spark, out + "-data", "clicks").count())
"""


@long
@pytest.mark.xdist_group("java")
@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_an_archive_beside_the_job(tmp_path):
    """Driver and executors, each a separate process, import the package from an archive beside the job."""
    python = tmp_path / "python"
    libraries = sysconfig.get_paths()["purelib"]  # -S: without the paths that editable installations add
    python.write_text(f'#!/bin/sh\nexec env PYTHONPATH="$PYTHONPATH:{libraries}" {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    bare = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "JAVA_HOME")}
    probe = subprocess.run([python, "-c", "import esformat"], cwd=tmp_path, env=bare, capture_output=True, check=False)
    if probe.returncode == 0:
        pytest.skip("the package is installed into the environment itself")
    if shutil.which("java") is None:
        from esformat.spark.java import packaged_java

        bare["JAVA_HOME"] = str(packaged_java())
    elif "JAVA_HOME" in os.environ:
        bare["JAVA_HOME"] = os.environ["JAVA_HOME"]
    (tmp_path / "package").mkdir()
    for name in ("esformat", "aggregator"):
        shutil.copytree(ROOT / name, tmp_path / "package" / name, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(tmp_path / "package", quiet=1)  # or each worker compiles what it imports
    archive = shutil.make_archive(str(tmp_path / "package"), "gztar", tmp_path / "package")
    (tmp_path / "in").mkdir()
    write_clicks(tmp_path / "in" / "a.esdb", click_table(300))
    (tmp_path / "job.py").write_text(JOB)
    submit = [Path(pyspark.__file__).parent / "bin" / "spark-submit", "--master", "local-cluster[1,1,700]"]
    settings = ["--driver-memory", "600m", "--conf", "spark.executor.memory=600m", "--conf", "spark.ui.enabled=false"]
    settings += ["--archives", f"{archive}#package", "--conf", "spark.executorEnv.PYTHONPATH=package"]
    bare |= {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python), "PYTHONPATH": "package"}
    quick = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    settings += ["--driver-java-options", quick, "--conf", f"spark.executor.extraJavaOptions={quick}"]
    done = subprocess.run(
        [*submit, *settings, tmp_path / "job.py", tmp_path / "in", tmp_path / "out"],
        cwd=tmp_path, env=bare,
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert "written 300 300" in done.stdout, done.stderr[-3000:]
