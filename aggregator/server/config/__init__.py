"""Settings of a server, and their sources."""
