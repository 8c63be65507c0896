"""Ids and events in, scores out."""
