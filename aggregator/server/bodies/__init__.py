"""Requests and answers as bytes: one format a module. No sockets."""
