"""Pipes: streams that are continuously filled by a statement."""
