"""Figures for Prometheus, and the log of the server."""
