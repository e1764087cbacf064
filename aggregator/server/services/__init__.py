"""Listeners other than HTTP, and logic that routes share."""
