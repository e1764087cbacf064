"""The forwarder: it sends the records that a statement selects to another system as they arrive, at least once."""

from typing import TYPE_CHECKING

from esformat.parts import lazily

if TYPE_CHECKING:
    from aggregator.forward.destinations import Destination, TryLaterError, make_destination
    from aggregator.forward.forwarder import Forwarder, columns_of
    from aggregator.forward.rendering import Sender, fields_as_json, json_lines, lines
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "aggregator.forward.destinations": "Destination TryLaterError make_destination",
            "aggregator.forward.forwarder": "Forwarder columns_of",
            "aggregator.forward.rendering": "Sender fields_as_json json_lines lines",
        },
    )

__all__ = [
    "Destination",
    "Forwarder",
    "Sender",
    "TryLaterError",
    "columns_of",
    "fields_as_json",
    "json_lines",
    "lines",
    "make_destination",
]
