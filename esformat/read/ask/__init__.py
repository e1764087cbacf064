"""Queries: checked arguments of scans, and filters as bounds on columns."""
