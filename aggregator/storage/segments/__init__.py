"""Sealed segments: their files, which of them to open, what is known of each."""
