"""Subcommands that run, follow and measure servers."""
