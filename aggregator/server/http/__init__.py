"""HTTP: connections, limits, parameters, streamed answers."""
