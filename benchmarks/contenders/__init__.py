"""The contenders, one module each, and a registry of those that are installed."""
