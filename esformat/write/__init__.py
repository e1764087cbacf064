"""Rows in any order into one segment, in bounded memory."""
