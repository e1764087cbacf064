"""Listeners beside HTTP, and what routes share."""
