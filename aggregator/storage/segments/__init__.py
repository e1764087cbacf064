"""Sealed segments: their files, the pool of open ones, and their metadata."""
