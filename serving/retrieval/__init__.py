"""Recommending: items from an index, filtered by rules, scored, put in order."""
