"""Verbs that keep a catalog."""
