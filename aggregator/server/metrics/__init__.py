"""Metrics for Prometheus, and the server's log."""
