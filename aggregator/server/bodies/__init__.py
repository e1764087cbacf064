"""Parsing of requests and encoding of responses, one format per module. No sockets."""
