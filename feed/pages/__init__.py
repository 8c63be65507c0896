"""Parquet's list columns, decoded page by page straight into the feed's arrays."""
