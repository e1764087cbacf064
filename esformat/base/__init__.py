"""Helpers for all packages: starting commands, lazy imports, missing extras, locks after forks, sizes and HTML."""
