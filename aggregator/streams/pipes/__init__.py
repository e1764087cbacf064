"""Pipes: streams that follow a statement."""
