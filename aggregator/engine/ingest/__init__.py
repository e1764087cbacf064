"""Appends: checked, made to fit, logged."""
