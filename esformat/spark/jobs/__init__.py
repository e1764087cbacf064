"""Bulk jobs on many files, as functions of a Spark session: restartable, with a summary of the work done."""

from esformat.spark.jobs.compact import compact
from esformat.spark.jobs.convert import OUTPUT_FORMATS, convert, export
from esformat.spark.jobs.erase import erase
from esformat.spark.jobs.inputs import INPUT_FORMATS
from esformat.spark.jobs.reindex import reindex
from esformat.spark.jobs.summary import Summary
from esformat.spark.jobs.verify import verify

__all__ = [
    "INPUT_FORMATS",
    "OUTPUT_FORMATS",
    "Summary",
    "compact",
    "convert",
    "erase",
    "export",
    "reindex",
    "verify",
]
