"""Calls to a server and their answers."""
