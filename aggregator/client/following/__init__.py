"""A catalog copied from a server while that goes on: log, segments and manifest, as they are."""

from aggregator.client.following.follower import Follower

__all__ = ["Follower"]
