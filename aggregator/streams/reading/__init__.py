"""Rounds of records: which, from where, in what order."""
