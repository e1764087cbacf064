"""Blocks of an open segment, and which of them a query needs."""
