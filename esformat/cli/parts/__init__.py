"""Pieces for other commands over events, as `aggregator` is: options, tables, progress, how a command ends."""

from esformat.cli.console import count, is_terminal, moment, progress, say, size, warn
from esformat.cli.inputs import InputCommand, bad_rows_of, input_options, input_options_of, roles_of
from esformat.cli.output import (
    TABLES,
    chosen_format,
    finished_file,
    format_option,
    json_option,
    opened_output,
    shown_name,
    teller,
)
from esformat.cli.params import ColumnType, Hex, Limit, Moment, Names, Pair
from esformat.cli.program import CONTEXT_SETTINGS, Group, Verbs, completion_command, one_line, run_program
from esformat.cli.question import Answer, give_answer, one_of, question_options, read_conditions
from esformat.cli.spark_jobs import job_options, parse_size, run_job
from esformat.cli.where import Filtered, Where, columns_with

__all__ = [
    "CONTEXT_SETTINGS",
    "TABLES",
    "Answer",
    "ColumnType",
    "Filtered",
    "Group",
    "Hex",
    "InputCommand",
    "Limit",
    "Moment",
    "Names",
    "Pair",
    "Verbs",
    "Where",
    "bad_rows_of",
    "chosen_format",
    "columns_with",
    "completion_command",
    "count",
    "finished_file",
    "format_option",
    "give_answer",
    "input_options",
    "input_options_of",
    "is_terminal",
    "job_options",
    "json_option",
    "moment",
    "one_line",
    "one_of",
    "opened_output",
    "parse_size",
    "progress",
    "question_options",
    "read_conditions",
    "roles_of",
    "run_job",
    "run_program",
    "say",
    "shown_name",
    "size",
    "teller",
    "warn",
]
