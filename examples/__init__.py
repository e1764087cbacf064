"""Example programs to read and to run from a checkout. They are not installed."""
