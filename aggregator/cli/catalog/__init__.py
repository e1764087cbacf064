"""Subcommands that create, maintain and repair a catalog."""
