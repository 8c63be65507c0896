"""Datasets in other forms than parquet, there and back."""
