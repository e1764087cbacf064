"""Conversion between segments and other file formats.

`Load` reads CSV, JSON lines, Parquet and Arrow, plain or compressed, into a `Writer`; `write_batches` writes the result
of a scan to a file. `Roles` assigns roles to columns, `Clock` defines the format of times. `convert_file` converts a
file to another format and back without a difference.
"""

from typing import TYPE_CHECKING

from esformat.base.lazy import lazily

if TYPE_CHECKING:
    from esformat.convert.bad_rows import BadRows, Collect, Skip, Stop
    from esformat.convert.clock import Clock
    from esformat.convert.conversion import Conversion
    from esformat.convert.conversion import convert as convert_file
    from esformat.convert.errors import BadRowError, InputError
    from esformat.convert.formats import CONVERSION_FORMATS, FORMATS
    from esformat.convert.inputs import input_name, inputs_at
    from esformat.convert.load import InputOptions, Load, Summary
    from esformat.convert.plan import Plan
    from esformat.convert.roles import Roles
    from esformat.convert.rows import BadRow
    from esformat.convert.sinks import SINK_FORMATS, Sink, open_sink, write_batches
    from esformat.convert.source import Input, compression_of, is_pipe
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "esformat.convert.bad_rows": "BadRows Collect Skip Stop",
            "esformat.convert.clock": "Clock",
            "esformat.convert.conversion": "Conversion convert_file=convert",
            "esformat.convert.errors": "BadRowError InputError",
            "esformat.convert.formats": "CONVERSION_FORMATS FORMATS",
            "esformat.convert.inputs": "input_name inputs_at",
            "esformat.convert.load": "InputOptions Load Summary",
            "esformat.convert.plan": "Plan",
            "esformat.convert.roles": "Roles",
            "esformat.convert.rows": "BadRow",
            "esformat.convert.sinks": "SINK_FORMATS Sink open_sink write_batches",
            "esformat.convert.source": "Input compression_of is_pipe",
        },
    )

__all__ = [
    "CONVERSION_FORMATS",
    "FORMATS",
    "SINK_FORMATS",
    "BadRow",
    "BadRowError",
    "BadRows",
    "Clock",
    "Collect",
    "Conversion",
    "Input",
    "InputError",
    "InputOptions",
    "Load",
    "Plan",
    "Roles",
    "Sink",
    "Skip",
    "Stop",
    "Summary",
    "compression_of",
    "convert_file",
    "input_name",
    "inputs_at",
    "is_pipe",
    "open_sink",
    "write_batches",
]
