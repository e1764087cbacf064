"""Decode blocks to events and to columns."""
