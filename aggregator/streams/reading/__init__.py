"""Rounds of records: which records, from which position, in which order."""
