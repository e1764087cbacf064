"""Verbs that bring events in and give them out."""
