"""Copies a live catalog from a server: log, segments and manifest."""

from aggregator.client.following.follower import Follower

__all__ = ["Follower"]
