"""Appends: check, convert and log batches."""
