"""Conditions, groups and measures, applied to batches."""
