"""A load generator for servers: requests at a fixed rate or as fast as responses arrive, and their results."""

from typing import TYPE_CHECKING

from esformat.parts import lazily

if TYPE_CHECKING:
    from aggregator.client.load.choices import BODIES, COMPRESSIONS, INTERFACES
    from aggregator.client.load.figures import Figures, percentiles
    from aggregator.client.load.generator import Load, run
    from aggregator.client.load.sending import Outcome, Target, make_topic
    from aggregator.client.load.work import Request, appends, reads
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "aggregator.client.load.choices": "BODIES COMPRESSIONS INTERFACES",
            "aggregator.client.load.figures": "Figures percentiles",
            "aggregator.client.load.generator": "Load run",
            "aggregator.client.load.sending": "Outcome Target make_topic",
            "aggregator.client.load.work": "Request appends reads",
        },
    )

__all__ = [
    "BODIES",
    "COMPRESSIONS",
    "INTERFACES",
    "Figures",
    "Load",
    "Outcome",
    "Request",
    "Target",
    "appends",
    "make_topic",
    "percentiles",
    "reads",
    "run",
]
