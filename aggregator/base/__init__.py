"""Helpers that every other folder may use: allowances, common types, merging, interrupts."""
