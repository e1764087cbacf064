"""Building blocks for other commands, such as `aggregator`: options, tables, progress, exit status."""

from typing import TYPE_CHECKING

from esformat.base.lazy import lazily

if TYPE_CHECKING:
    from esformat.cli.console import count, is_terminal, length, moment, progress, say, size, warn
    from esformat.cli.inputs import (
        InputCommand,
        bad_rows_of,
        input_options,
        input_options_of,
        reading_of,
        reading_options,
        roles_of,
    )
    from esformat.cli.output import (
        ROWS,
        TABLES,
        chosen_format,
        finished_file,
        format_option,
        input_format_option,
        json_option,
        opened_output,
        output_options,
        report_printer,
        say_json,
        shown_name,
        target_format_option,
    )
    from esformat.cli.params import ColumnType, Hex, Limit, Moment, Names, Pair, Size
    from esformat.cli.program import CONTEXT_SETTINGS, Group, Verbs, completion_command, one_line, run_program
    from esformat.cli.prompt import prompt_session
    from esformat.cli.question import (
        Answer,
        give_answer,
        one_of,
        question_options,
        read_conditions,
        with_progress,
        write_segment,
    )
    from esformat.cli.rows import give_rows
    from esformat.cli.spark_jobs import job_options, run_job, spark_format
    from esformat.cli.sql_shell import interact
    from esformat.cli.table import show_rows, show_table
    from esformat.cli.where import Filtered, Where, columns_with, is_path
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "esformat.cli.console": "count is_terminal length moment progress say size warn",
            "esformat.cli.inputs": (
                "InputCommand bad_rows_of input_options input_options_of reading_of reading_options roles_of"
            ),
            "esformat.cli.output": (
                "ROWS TABLES chosen_format finished_file format_option input_format_option json_option opened_output "
                "output_options say_json shown_name target_format_option report_printer"
            ),
            "esformat.cli.params": "ColumnType Hex Limit Moment Names Pair Size",
            "esformat.cli.program": "CONTEXT_SETTINGS Group Verbs completion_command one_line run_program",
            "esformat.cli.prompt": "prompt_session",
            "esformat.cli.question": (
                "Answer give_answer one_of question_options read_conditions with_progress write_segment"
            ),
            "esformat.cli.rows": "give_rows",
            "esformat.cli.sql_shell": "interact",
            "esformat.cli.spark_jobs": "job_options run_job spark_format",
            "esformat.cli.table": "show_rows show_table",
            "esformat.cli.where": "Filtered Where columns_with is_path",
        },
    )

__all__ = [
    "CONTEXT_SETTINGS",
    "ROWS",
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
    "Size",
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
    "give_rows",
    "input_format_option",
    "input_options",
    "input_options_of",
    "interact",
    "is_path",
    "is_terminal",
    "job_options",
    "json_option",
    "length",
    "moment",
    "one_line",
    "one_of",
    "opened_output",
    "output_options",
    "progress",
    "prompt_session",
    "question_options",
    "read_conditions",
    "reading_of",
    "reading_options",
    "report_printer",
    "roles_of",
    "run_job",
    "run_program",
    "say",
    "say_json",
    "show_rows",
    "show_table",
    "shown_name",
    "size",
    "spark_format",
    "target_format_option",
    "warn",
    "with_progress",
    "write_segment",
]
