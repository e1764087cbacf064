"""The demo behind `make demo`: real events, the questions people ask of them, and figures beside Parquet and DuckDB.

The modules here need the extra `demo` (matplotlib, duckdb, pandas, rich); only `clickstream` gets by with the core.
"""
