"""Shared by several body formats: media types, errors, times, records."""
