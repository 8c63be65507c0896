"""Rows as they are stored: found, decoded, and read in the order of an epoch."""
