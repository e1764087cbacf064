"""A load generator for servers: requests at a fixed rate or as fast as answers come, and what became of them."""

from aggregator.load.figures import Figures, percentiles
from aggregator.load.generator import Load, run
from aggregator.load.sending import Outcome, Target
from aggregator.load.work import Request, appends, reads

__all__ = ["Figures", "Load", "Outcome", "Request", "Target", "appends", "percentiles", "reads", "run"]
