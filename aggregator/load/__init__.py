"""A load generator for servers: requests at a fixed rate or as fast as answers come, and what became of them."""

from aggregator.load.figures import Figures, percentiles
from aggregator.load.generator import Load, run
from aggregator.load.sending import Outcome, Target, make_topic
from aggregator.load.work import BODIES, COMPRESSIONS, INTERFACES, Request, appends, reads

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
