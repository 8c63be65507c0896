"""Checkpoints on disk: arrays by name, in parts that any number of ranks may write and read."""
