"""Exported models, and what answers requests."""
