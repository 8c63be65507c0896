"""A run from its configuration to its results."""
