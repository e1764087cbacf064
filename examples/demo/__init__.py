"""The demo of `make demo`: real events, typical questions about them, and a comparison with Parquet and DuckDB.

The modules here need the extra `demo` (matplotlib, duckdb, pandas, rich), except `clickstream`, which needs only the
core.
"""
