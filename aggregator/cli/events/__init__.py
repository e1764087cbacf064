"""Subcommands that append and read events."""
