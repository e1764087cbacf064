"""A load generator for servers: requests at a fixed rate or as fast as answers come, and what became of them."""

from typing import TYPE_CHECKING

from esformat.parts import lazily

if TYPE_CHECKING:
    from aggregator.load.choices import BODIES, COMPRESSIONS, INTERFACES
    from aggregator.load.figures import Figures, percentiles
    from aggregator.load.generator import Load, run
    from aggregator.load.sending import Outcome, Target, make_topic
    from aggregator.load.work import Request, appends, reads
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "aggregator.load.choices": "BODIES COMPRESSIONS INTERFACES",
            "aggregator.load.figures": "Figures percentiles",
            "aggregator.load.generator": "Load run",
            "aggregator.load.sending": "Outcome Target make_topic",
            "aggregator.load.work": "Request appends reads",
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
