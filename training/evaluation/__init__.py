"""Scores, metrics and throughput, the same for any number of ranks."""
