"""Blocks as events and as columns."""
