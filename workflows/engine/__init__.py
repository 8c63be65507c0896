"""What the workflows run on: frames, NVTabular, Dask, parquet."""
