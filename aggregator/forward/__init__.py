"""The forwarder: what a statement selects, sent on as it arrives, at least once."""

from aggregator.forward.destinations import Destination, TryLaterError, make_destination
from aggregator.forward.forwarder import Forwarder, columns_of
from aggregator.forward.rendering import Sender, fields_of, json_lines, lines

__all__ = [
    "Destination",
    "Forwarder",
    "Sender",
    "TryLaterError",
    "columns_of",
    "fields_of",
    "json_lines",
    "lines",
    "make_destination",
]
