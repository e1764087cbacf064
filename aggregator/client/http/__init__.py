"""Requests to a server and their responses."""
