"""Verbs of servers."""
