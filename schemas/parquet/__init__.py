"""Parquet files as they are stored: their footers, and their rows in pieces."""
