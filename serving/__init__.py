"""Exported models and what answers a request."""
